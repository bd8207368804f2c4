"""The proxy at the top of the push tree: what is durable, to all that want it, beside requests."""

from __future__ import annotations

import threading
import time

import pytest
import zmq
from msgspec import UNSET

from reliable_pubsub import TryLaterError
from reliable_pubsub.common.core.answers import Malformed
from reliable_pubsub.common.core.limits import PUSH_BODY_BYTES_MAX
from reliable_pubsub.common.core.status import PushStatus
from reliable_pubsub.common.core.tree_messages import Node
from reliable_pubsub.common.core.wire import PROTOCOL, encode
from reliable_pubsub.common.transport import ReqTransport
from reliable_pubsub.lab.rig.link import LinkTo
from reliable_pubsub.lab.rig.service import RelayProcess
from reliable_pubsub.proxy.push_sockets import Push
from reliable_pubsub.proxy.server_settings import EndpointSettings
from reliable_pubsub.relay.core.wire import decode_node_reply
from reliable_pubsub.relay.topology import ask_node

from .gated_store import GatedStore
from .harness import ANY_PORT, BELIEVING, PATIENCE_S, Service, eventually
from .relay_tree import Leaf, exact, prefix

Context = zmq.Context[zmq.Socket[bytes]]


def push_status(service: Service) -> PushStatus:
    status = service.status().push
    assert status is not UNSET
    return status


def a_plain_subscriber(context: Context, endpoint: str, wanted: bytes) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.SUB)
    socket.setsockopt(zmq.SUBSCRIBE, wanted)
    socket.connect(endpoint)
    return socket


class TestADurableBatch:
    def test_comes_down_to_every_node_that_wants_its_topic(
        self, service: Service, context: Context
    ) -> None:
        service.start_proxy()
        leaf = Leaf(context, service.subscriber_endpoint)
        leaf.want(exact("a"))

        with service.open_publisher("p") as publisher:
            publisher.put("b", b"unwanted")
            receipt = publisher.put_many("a", [b"1", b"2"])

        push = leaf.take()
        assert (push.topic, push.pushed.batch.base, push.pushed.batch.count) == ("a", 0, 2)
        assert push.pushed.log == service.topic("a").log
        assert push.pushed.boot == service.status().boot
        assert push.pushed.batch.publisher == "p"
        assert receipt.offset == 0
        assert push_status(service).sent == 1

    def test_above_64_kib_is_pushed_as_its_place_only(
        self, service: Service, context: Context
    ) -> None:
        service.start_proxy()
        leaf = Leaf(context, service.subscriber_endpoint)
        leaf.want(prefix(""))

        with service.open_publisher("p") as publisher:
            publisher.put("a", b"x" * PUSH_BODY_BYTES_MAX)

        push = leaf.take()
        assert push.body is None
        assert push.pushed.batch.body_bytes > PUSH_BODY_BYTES_MAX

    def test_is_pushed_with_durability_snapshot_as_well(
        self, service: Service, context: Context
    ) -> None:
        service.start_proxy("--durability", "snapshot")
        leaf = Leaf(context, service.subscriber_endpoint)
        leaf.want(exact("a"))

        with service.open_publisher("p") as publisher:
            publisher.put("a", b"x")

        assert leaf.take().pushed.batch.base == 0

    def test_comes_through_a_relay_and_again_from_a_new_proxy(
        self, service: Service, context: Context
    ) -> None:
        service.start_proxy()
        relay = RelayProcess(service, "r", "--upstream", service.subscriber_endpoint)
        leaf = Leaf(context, relay.endpoint)
        leaf.want(exact("a"))
        eventually(relay.is_settled, "settled relay")
        with service.open_publisher("p") as publisher:
            publisher.put("a", b"x")
            first = leaf.take()

            service.restart_proxy()
            eventually(lambda: ask_node(service.subscriber_endpoint).below, "link to the relay")
            eventually(relay.is_settled, "settled relay")
            eventually(lambda: push_status(service).links, "link")

            def look() -> bool:
                publisher.put("a", b"y")
                return leaf.above.data.poll(200) != 0

            eventually(look, "push from the new proxy")
        assert leaf.take().pushed.boot != first.pushed.boot


class TestALink:
    def test_whose_far_side_wants_nothing_carries_no_data(
        self, service: Service, context: Context
    ) -> None:
        """Row 4.2, in bytes on the link."""
        service.start_proxy()
        link = LinkTo(service.push_endpoint)
        leaf = a_plain_subscriber(context, link.endpoint, b"wanted\0")
        eventually(lambda: push_status(service).plain == 1, "plain subscriber")
        with service.open_publisher("p") as publisher:
            publisher.put("wanted", b"x")
            assert leaf.recv_multipart()[0] == b"wanted\0"
            before = link.down_bytes

            for _ in range(50):
                publisher.put("unwanted", b"x" * 1000)
            publisher.put("wanted", b"x")

        assert leaf.recv_multipart()[0] == b"wanted\0"
        assert 0 < link.down_bytes - before < 500
        link.close()

    def test_that_does_not_read_holds_up_no_put(self, service: Service, context: Context) -> None:
        service.start_proxy()
        link = LinkTo(service.push_endpoint)
        subscriber = a_plain_subscriber(context, link.endpoint, b"")
        eventually(lambda: push_status(service).plain == 1, "plain subscriber")
        link.hang()

        with service.open_publisher("p") as publisher:
            for _ in range(400):  # 24 MB: more than sockets and queues on the way hold
                publisher.put("a", b"x" * 60_000)

        assert service.topic("a").end == 400
        subscriber.close()
        link.close()


class TestWhatIsNotDurable:
    @pytest.mark.usefixtures("server")
    def test_is_not_pushed(self, store: GatedStore, service: Service, context: Context) -> None:
        """Hole H30: neither before the commit, nor when the commit fails."""
        leaf = Leaf(context, service.subscriber_endpoint)
        leaf.want(exact("a"))
        with service.open_publisher("p", retry=BELIEVING) as publisher:
            publisher.connect()
            store.hang()
            refused: list[BaseException] = []

            def put() -> None:
                try:
                    publisher.put("a", b"meets a full disk")
                except TryLaterError as error:
                    refused.append(error)

            thread = threading.Thread(target=put)
            thread.start()
            store.reach()
            silent = leaf.is_silent()  # decided, applied, under way to the disk

            store.is_full = True
            store.gate.set()
            thread.join()
            assert silent
            assert [error.code for error in refused if isinstance(error, TryLaterError)]
            assert leaf.is_silent()

        store.is_full = False
        with service.open_publisher("other") as publisher:
            publisher.put("a", b"there is space again")
        push = leaf.take()
        assert (push.pushed.batch.base, push.pushed.batch.publisher) == (0, "other")
        assert leaf.is_silent()


class TestTheEndpoint:
    def test_is_another_free_port_if_it_was_not_chosen_and_is_taken(self, context: Context) -> None:
        holder = context.socket(zmq.XPUB)
        port = holder.bind_to_random_port("tcp://127.0.0.1")
        taken = f"tcp://127.0.0.1:{port}"

        push = Push(context, EndpointSettings(endpoint=taken, is_default=True), boot="b")

        assert push.endpoint != taken
        assert push.endpoint.startswith("tcp://127.0.0.1:")
        push.close()

    def test_that_was_chosen_and_is_taken_is_refused_in_a_sentence(self, service: Service) -> None:
        service.start_proxy()
        other = service.run(
            "proxy", "--data-dir", service.directory / "other",
            "--publisher-endpoint", ANY_PORT, "--subscriber-endpoint", ANY_PORT,
            "--push-endpoint", service.push_endpoint,
        )  # fmt: skip

        assert other.wait() == 2
        assert "cannot bind the push endpoint" in other.stderr


class TestInterest:
    def test_is_answered_at_the_subscriber_endpoint_alone(self, service: Service) -> None:
        service.start_proxy()
        transport = ReqTransport(service.publisher_endpoint)
        transport.send(encode(Node(client="n", epoch=0, request=1)))

        answer = transport.receive(PATIENCE_S)

        assert answer is not None
        assert isinstance(decode_node_reply(answer), Malformed)
        transport.close()
        assert ask_node(service.subscriber_endpoint).push_endpoint == service.push_endpoint

    def test_that_cannot_be_read_is_malformed(self, service: Service) -> None:
        service.start_proxy()
        transport = ReqTransport(service.subscriber_endpoint)
        transport.send([PROTOCOL, b"\x81\xa4verb\xa8INTEREST"])

        answer = transport.receive(PATIENCE_S)

        assert answer is not None
        reply = decode_node_reply(answer)
        assert isinstance(reply, Malformed)
        assert "missing required field" in reply.text
        transport.close()

    def test_ends_with_the_proxy_and_is_sent_again_to_the_next(
        self, service: Service, context: Context
    ) -> None:
        service.start_proxy()
        leaf = Leaf(context, service.subscriber_endpoint)
        leaf.want(exact("a"))
        assert [one.client for one in ask_node(service.subscriber_endpoint).below] == ["leaf"]

        service.restart_proxy()

        def look() -> bool:
            leaf.above.turn(time.monotonic())
            return bool(ask_node(service.subscriber_endpoint).below)

        eventually(look, "link told again")
