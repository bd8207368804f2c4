"""QoS 0 against a real proxy: once to each listener, never stored; what is lost is counted."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
from msgspec import UNSET

from reliable_pubsub import Earliest, Publisher, QoSWarning, Subscriber
from reliable_pubsub.common.core.batch import NO_OFFSET, crc32
from reliable_pubsub.common.core.limits import MIB, RING_BYTES_MAX
from reliable_pubsub.common.core.status import IngressStatus
from reliable_pubsub.common.world import World
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.reading import read_run
from reliable_pubsub.lab.rig.link import LinkTo
from reliable_pubsub.lab.rig.service import RelayProcess
from reliable_pubsub.publisher.qos0.offer_link import ZmqOfferLink
from reliable_pubsub.relay.core.unstored import LINKED, Offer, encode_offer
from reliable_pubsub.relay.topology import ask_node

from .harness import BELIEVING, BELIEVING_OPTIONS, PATIENCE_S, Service, eventually, zmq_context

pytestmark = pytest.mark.filterwarnings("ignore::reliable_pubsub.QoSWarning")


def open_publisher(service: Service, **more: Any) -> Publisher:
    """A publisher that waits for its link to the ingress as long as a test waits for anything.

    The first message of a topic waits for it at most `timeout_s`, and is dropped then.
    """
    return service.open_publisher("p", retry=BELIEVING, **more)


def received(subscriber: Subscriber, count: int, topic: str = "t") -> list[bytes]:
    payloads: list[bytes] = []

    def look() -> bool:
        found = subscriber.get(topic, max_messages=100, timeout_s=0.05)
        payloads.extend(message.payload for message in found)
        return len(payloads) >= count

    eventually(look, f"{count} messages")
    return payloads


def ingress(service: Service) -> IngressStatus:
    status = service.status().ingress
    assert status is not UNSET
    return status


def taken(service: Service, batches: int) -> None:
    """Wait until the proxy has read that many batches: a put at level 0 does not wait for it."""
    eventually(lambda: ingress(service).taken == batches, f"batch {batches} at the proxy")


class TestAPutAtLevel0:
    @pytest.mark.parametrize("qos", [0, 1, 2])
    @pytest.mark.parametrize("push", [False, True])
    def test_comes_once_at_level_0_whatever_the_subscription_asked_for(
        self, running: Service, qos: int, push: bool
    ) -> None:
        with running.open_subscriber("s") as subscriber, open_publisher(running) as publisher:
            subscriber.subscribe("t", qos=qos, push=push)  # type: ignore[arg-type]
            receipt = publisher.put_many("t", [b"1", b"2"], qos=0)
            (first, second) = (
                subscriber.get("t", timeout_s=PATIENCE_S)[0],
                subscriber.get("t", timeout_s=PATIENCE_S)[0],
            )
            assert subscriber.get("t") == []
        assert [first.payload, second.payload] == [b"1", b"2"]
        assert (first.offset, first.qos, first.redelivered) == (NO_OFFSET, 0, False)
        assert first.message_id == receipt.message_id != second.message_id
        assert (receipt.offset, receipt.qos, receipt.fate) == (None, 0, "sent")

    def test_is_never_stored_and_in_no_history(self, running: Service) -> None:
        with running.open_subscriber("s") as subscriber, open_publisher(running) as publisher:
            subscriber.subscribe("t")
            before = running.status().committer
            publisher.put("t", b"gone", qos=0)
            assert received(subscriber, 1) == [b"gone"]
            topic = running.topic("t")
            assert subscriber.history("t", Earliest) == []
        assert (topic.end, topic.stored_bytes, topic.publishers) == (0, 0, ())
        assert topic.ring is not UNSET
        assert (topic.ring.end, topic.ring.held) == (1, 1)
        assert before is not UNSET

    def test_leaves_the_numbers_of_level_2_alone(self, running: Service) -> None:
        with running.open_subscriber("s") as subscriber, open_publisher(running) as publisher:
            subscriber.subscribe("t")
            publisher.put("t", b"a", qos=2)
            publisher.put("t", b"b", qos=0)
            publisher.put("t", b"c", qos=2)
            assert sorted(received(subscriber, 3)) == [b"a", b"b", b"c"]
            (numbers,) = running.topic("t").publishers
        assert (numbers.qos, numbers.last_sequence) == (2, 2)

    def test_warns_a_subscription_of_a_higher_level_once(self, running: Service) -> None:
        with running.open_subscriber("s") as subscriber, open_publisher(running) as publisher:
            subscriber.subscribe("t")
            publisher.put_many("t", [b"1", b"2"], qos=0)
            with pytest.warns(QoSWarning, match="'p' puts at QoS 0"):
                subscriber.get("t", timeout_s=PATIENCE_S)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                assert len(subscriber.get("t", timeout_s=PATIENCE_S)) == 1

    def test_of_a_replaced_process_is_not_passed_on(self, running: Service) -> None:
        with running.open_subscriber("s") as subscriber, open_publisher(running) as older:
            subscriber.subscribe("t")
            older.put("t", b"1", qos=0)
            taken(running, 1)  # before the newer process is known: their links race
            with open_publisher(running) as newer:
                newer.put("t", b"2", qos=0)
                taken(running, 2)
                older.put("t", b"3", qos=0)
                eventually(lambda: ingress(running).refused == 1, "refusal")
                assert received(subscriber, 2) == [b"1", b"2"]

    def test_is_not_handed_to_the_next_process_of_a_subscriber(self, running: Service) -> None:
        """At most once: it is unknown what the process that died did with it."""
        with open_publisher(running) as publisher:
            dies = running.open_subscriber("s")
            dies.subscribe("t")
            publisher.put("t", b"1", qos=0)
            assert received(dies, 1) == [b"1"]
            publisher.put("t", b"2", qos=0)
            taken(running, 2)  # before the next process subscribes
            dies.abandon()
            with running.open_subscriber("s") as again:
                again.subscribe("t")
                publisher.put("t", b"3", qos=0)
                assert received(again, 1) == [b"3"]

    def test_comes_again_from_a_proxy_that_was_killed(self, running: Service) -> None:
        with running.open_subscriber("s") as subscriber, open_publisher(running) as publisher:
            subscriber.subscribe("t")
            publisher.put("t", b"1", qos=0)
            assert received(subscriber, 1) == [b"1"]
            running.restart_proxy()

            def look() -> bool:  # what is put before the kill is known is lost
                publisher.put("t", b"2", qos=0)
                return bool(subscriber.get("t", timeout_s=0.05))

            eventually(look, "message")


class TestTheRing:
    def test_that_overran_is_reported_to_a_subscriber_that_comes_too_late(
        self, running: Service
    ) -> None:
        count = 2 * RING_BYTES_MAX // MIB
        body = bytes(MIB - 1000)
        with running.open_subscriber("s") as subscriber, open_publisher(running) as publisher:
            subscriber.subscribe("t")
            for _ in range(count):
                publisher.put("t", body, qos=0)
            taken(running, count)
            held = running.topic("t").ring
            assert held is not UNSET
            assert 0 < held.held < count
            received(subscriber, held.held)
            counts = subscriber.unstored_counts("t")
            (status,) = running.topic("t").subscriptions
        assert (counts.taken, counts.lost) == (held.held, count - held.held)
        assert status.lost == counts.lost


class TestASubscriptionAtLevel0:
    def test_hands_a_stored_message_over_at_most_once_whatever_dies(self, running: Service) -> None:
        state = running.state_dir
        with open_publisher(running) as publisher:
            dies = running.open_subscriber("s", state_dir=state)
            dies.subscribe("t", qos=0)
            publisher.put_many("t", [b"1", b"2", b"3"])
            (message,) = dies.get("t", timeout_s=PATIENCE_S)
            assert (message.payload, message.qos, message.offset) == (b"1", 0, 0)
            dies.abandon()
            with running.open_subscriber("s", state_dir=state) as again:
                again.subscribe("t", qos=0)
                publisher.put("t", b"4")
                assert [m.payload for m in again.get("t", timeout_s=PATIENCE_S)] == [b"4"]
                assert again.get("t") == []

    def test_begins_where_the_call_says(self, running: Service) -> None:
        with open_publisher(running) as publisher, running.open_subscriber("s") as subscriber:
            publisher.put_many("t", [b"1", b"2"])
            subscriber.subscribe("t", qos=0, start=Earliest)
            assert received(subscriber, 2) == [b"1", b"2"]

    def test_counts_what_retention_has_removed_and_continues(self, service: Service) -> None:
        """It holds nothing back, so there may be something to count; it stops no publisher."""
        settings = service.file("proxy.yaml", "history_bytes: 0")
        service.start_proxy("-f", settings)
        with open_publisher(service) as publisher, service.open_subscriber("s") as subscriber:
            subscriber.subscribe("t", qos=0)
            for _ in range(4):
                publisher.put("t", bytes(MIB - 1000))
            start = service.removed("t")
            publisher.put("t", b"last")
            while received(subscriber, 1)[-1] != b"last":
                pass
            assert subscriber.unstored_counts("t").lost >= start


class TestALinkToTheProxy:
    @pytest.fixture
    def link(self, running: Service) -> Iterator[LinkTo]:
        link = LinkTo(running.ingress_endpoint)
        yield link
        link.close()

    def test_carries_nothing_that_is_not_wanted(self, running: Service, link: LinkTo) -> None:
        """Row 4.2 at the source: dropped in the publisher, before the network; in bytes."""
        with (
            running.open_subscriber("s") as subscriber,
            open_publisher(
                running, _world=World(connect_data=lambda _: ZmqOfferLink(link.endpoint))
            ) as publisher,
        ):
            subscriber.subscribe("wanted")
            assert publisher.put("wanted", b"x", qos=0).fate == "sent"
            assert received(subscriber, 1, "wanted") == [b"x"]
            assert publisher.put("unwanted", b"x", qos=0).fate == "unwanted"
            before = link.up_bytes

            for _ in range(50):
                assert publisher.put("unwanted", bytes(10_000), qos=0).fate == "unwanted"
            publisher.put("wanted", b"y", qos=0)

            assert received(subscriber, 1, "wanted") == [b"y"]
            assert 0 < link.up_bytes - before < 10_000
            assert publisher.offer_counts.unwanted == 51

    def test_that_is_down_drops_and_says_so(self, running: Service, link: LinkTo) -> None:
        with (
            running.open_subscriber("s") as subscriber,
            open_publisher(
                running, _world=World(connect_data=lambda _: ZmqOfferLink(link.endpoint))
            ) as publisher,
        ):
            subscriber.subscribe("t")
            assert publisher.put("t", b"1", qos=0).fate == "sent"
            link.close()
            eventually(lambda: publisher.put("t", b"2", qos=0).fate == "dropped", "drop")
            assert publisher.offer_counts.dropped == 1

    def test_takes_garbage_from_strangers_and_continues(self, running: Service) -> None:
        with (
            zmq_context() as context,
            running.open_subscriber("s") as subscriber,
            open_publisher(running) as publisher,
        ):
            subscriber.subscribe("t")
            own = Offer(publisher="unknown", epoch=1, first_sequence=1, count=1, crc=crc32(b""))
            garbage = [
                [b"t\0"],
                [b"t\0", b"RPS1", b"\xc1", b""],
                [b"t\0", b"RPS1", b"\x80", b"", b""],
                encode_offer("t", own, b""),  # of a client that the proxy does not know
            ]
            for frames in garbage:
                stranger = context.socket(zmq.XPUB)
                stranger.setsockopt(zmq.LINGER, 0)
                stranger.connect(running.ingress_endpoint)
                assert {stranger.recv(), stranger.recv()} == {b"\1t\0", b"\1" + LINKED}
                stranger.send_multipart(frames)
            eventually(lambda: ingress(running).refused == len(garbage), "refusals")

            publisher.put("t", b"x", qos=0)

            assert received(subscriber, 1) == [b"x"]


class TestThroughARelay:
    @pytest.mark.parametrize("push", [False, True])
    def test_it_comes_once_and_only_where_it_is_wanted(self, running: Service, push: bool) -> None:
        relay = RelayProcess(running, "r", "--upstream", running.subscriber_endpoint)
        with (
            running.open_subscriber("s", endpoint=relay.endpoint) as subscriber,
            open_publisher(running) as publisher,
        ):
            subscriber.subscribe("t", push=push)
            for number in range(20):
                publisher.put("t", b"%d" % number, qos=0)
                publisher.put("other", b"unwanted", qos=0)
            assert received(subscriber, 20) == [b"%d" % number for number in range(20)]
        assert ask_node(relay.endpoint).malformed == 0


def test_histories_at_level_0_are_written_and_judged(service: Service, tmp_path: Path) -> None:
    folder = tmp_path / "journals"
    folder.mkdir()
    service.start_proxy("--journal", folder / "proxy.jsonl")
    with (
        service.open_subscriber("s", journal=folder / "s.jsonl") as subscriber,
        open_publisher(service, journal=folder / "p.jsonl") as publisher,
    ):
        subscriber.subscribe("t", qos=1, push=True)
        for number in range(30):
            publisher.put("t", b"%d" % number, qos=(0, 1, 2)[number % 3])
        received(subscriber, 30)
    service.proxy.terminate()

    verdict = check(read_run(folder))

    assert [text for rule in verdict.rules for text in rule.violations] == []
    (rule,) = [one for one in verdict.rules if one.rule == "V6"]
    assert rule.checked == 30


def test_step_files_put_and_subscribe_at_level_0(running: Service) -> None:
    get = """
        steps:
          - action: subscribe
            topic: t
            qos: 0
            push: true
          - action: get
            topic: t
            number_of_times: 3
        """
    put = """
        steps:
          - topic: t
            message: m
            number_of_times: 3
            qos: 0
        """
    subscriber = running.subscriber("s", get)
    running.subscribed("t", "s")
    publisher = running.publisher("p", put, options=BELIEVING_OPTIONS)
    publisher.done()
    subscriber.done()
    lines = running.output("s").read_text()
    assert [f'"m_{number}"' in lines for number in (1, 2, 3)] == [True] * 3
    assert '"offset":null' in lines

    unheard = running.publisher(
        "q", put.replace("topic: t", "topic: unwanted"), options=BELIEVING_OPTIONS
    )
    unheard.done()
    assert "3 messages had no listener" in " ".join(unheard.stderr.split())


def test_between_two_addresses_it_arrives_where_no_ingress_was_chosen(service: Service) -> None:
    """The data endpoints follow the request endpoints; left on 127.0.0.1, each put was dropped."""
    address = "tcp://127.0.0.2:*"
    proxy = service.run(
        "proxy", "--data-dir", service.data_dir, "--publisher-endpoint", address,
        "--subscriber-endpoint", address,
    )  # fmt: skip
    found = re.search(
        r" publishers=(\S+) subscribers=(\S+) .* push=(\S+) ingress=(\S+)", proxy.ready()
    )
    assert found is not None
    assert all(one.startswith("tcp://127.0.0.2:") for one in found.groups())
    with (
        service.open_subscriber("s", endpoint=found[2]) as subscriber,
        open_publisher(service, endpoint=found[1]) as publisher,
    ):
        subscriber.subscribe("t", push=True)
        publisher.put("t", b"x", qos=0)

        assert received(subscriber, 1) == [b"x"]
