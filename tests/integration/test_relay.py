"""Relays as real processes: data down once, interest up, requests through, nothing lost."""

from __future__ import annotations

import json
import random
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from xml.etree import ElementTree

import msgspec
import pytest
import zmq

from reliable_pubsub import Message
from reliable_pubsub.common.core.answers import Malformed
from reliable_pubsub.common.core.patterns.matching import EVERYTHING, Pattern
from reliable_pubsub.common.core.wire import PROTOCOL
from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.lab.rig.link import LinkTo
from reliable_pubsub.lab.rig.service import RelayProcess
from reliable_pubsub.relay.core.interest_table import CAP
from reliable_pubsub.relay.core.wire import decode_node_reply
from reliable_pubsub.relay.topology import ask_node
from tests.integration.harness import (
    ANY_PORT,
    BELIEVING,
    PATIENCE_S,
    Service,
    eventually,
    zmq_context,
)
from tests.integration.relay_tree import (
    SILENCE_MS,
    Leaf,
    Source,
    exact,
    prefix,
)

Context = zmq.Context[zmq.Socket[bytes]]


def test_a_relay_says_where_it_is_and_ends_cleanly(service: Service) -> None:
    relay = RelayProcess(service, "relay-1", "--upstream", "tcp://127.0.0.1:1")

    line = relay.process.ready()

    assert re.fullmatch(
        r"ready: relay relay-1 requests=tcp://127.0.0.1:\d+ push=tcp://127.0.0.1:\d+ "
        r"upstream=tcp://127.0.0.1:1 strategy=subsume",
        line,
    )
    assert relay.process.terminate() == 0
    assert relay.process.stderr == ""


def test_an_endpoint_that_is_taken_is_reported_in_a_sentence(service: Service) -> None:
    relay = RelayProcess(service, "one", "--upstream", "tcp://127.0.0.1:1")
    second = service.run("relay", "--endpoint", relay.endpoint, "--push-endpoint", ANY_PORT)

    assert second.wait() == 2
    assert "cannot bind the request endpoint" in second.stderr


def test_takes_what_is_not_said_from_its_settings_file(service: Service) -> None:
    settings = {"relay_strategy": "dedup", "relay_endpoint": ANY_PORT, "relay_lease": 7}
    directory = service.directory / "here"
    (directory / "relay-9").mkdir(parents=True)
    (directory / "relay-9" / "settings.json").write_text(json.dumps(settings))
    command = ["env", f"RELIABLE_PUBSUB_DIR={directory}", sys.executable, "-m", "reliable_pubsub"]

    relay = service.run_command(
        "relay", [*command, "relay", "-i", "relay-9", "--push-endpoint", ANY_PORT]
    )
    shown = service.run_command("config", [*command, "config", "show", "relay-9", "--json"])

    assert relay.ready().endswith("strategy=dedup")
    shown.done()
    lease = json.loads(shown.stdout)["relay_lease"]
    assert (lease["value"], lease["origin"]) == (7.0, f"{directory}/relay-9/settings.json, line 1")


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--strategy", "some", "expected one of none, dedup, subsume, all"),
        ("--max-subscriptions", "0", "expected a whole number from 1 to 128"),
        ("--lease", "0.5", "expected a number from 1 to 3,600 (s)"),
        ("--push-via", "somewhere", "expected an endpoint such as"),
    ],
)
def test_an_option_that_may_not_be_is_reported_with_what_it_may_be(
    option: str, value: str, expected: str, service: Service
) -> None:
    relay = service.run("relay", option, value)

    assert relay.wait() == 2
    assert expected in " ".join(relay.stderr.split())


class TestData:
    def test_comes_where_push_via_says(self, service: Service, context: Context) -> None:
        """Through a tunnel, the endpoint that the node above names is of no use."""
        service.start_proxy()
        tunnel = LinkTo(service.push_endpoint)
        relay = RelayProcess(
            service, "r", "--upstream", service.subscriber_endpoint, "--push-via", tunnel.endpoint
        )
        leaf = Leaf(context, relay.endpoint)
        leaf.want(exact("a"))
        eventually(relay.is_settled, "interest at the proxy")
        before = tunnel.down_bytes

        with service.open_publisher("p") as publisher:
            publisher.put("a", bytes(10_000))

        assert leaf.take().topic == "a"
        assert tunnel.down_bytes - before > 10_000
        tunnel.close()

    def test_comes_down_three_levels_once_and_only_what_is_wanted(
        self, service: Service, context: Context
    ) -> None:
        source = Source(context)
        top = RelayProcess(service, "top", "--publisher", source.endpoint)
        middle = RelayProcess(service, "middle", "--upstream", top.endpoint)
        bottom = RelayProcess(service, "bottom", "--upstream", middle.endpoint)
        leaves = [Leaf(context, bottom.endpoint, f"leaf-{n}") for n in range(3)]
        leaves[0].want(exact("a/1", "end") | prefix("a/"))  # several of its patterns match
        leaves[1].want(exact("a/1", "end"))
        leaves[2].want(frozenset({Pattern("glob", "a/*/x")}) | exact("a/2/x", "end"))
        source.wants(b"a/", b"end")

        for topic in ("a/1", "b/1", "a/2/x", "a/2", "en", "ender", "end"):
            source.push(topic)

        assert leaves[0].topics("end") == ["a/1", "a/2/x", "a/2", "end"]
        assert leaves[1].topics("end") == ["a/1", "end"]
        assert leaves[2].topics("end") == ["a/2/x", "end"]
        assert ask_node(bottom.endpoint).received == 4  # "ender" went no further than the top
        assert ask_node(top.endpoint).sent_singly == 0

    def test_of_a_glob_alone_comes_as_a_copy_of_its_own(
        self, service: Service, context: Context
    ) -> None:
        source = Source(context)
        top = RelayProcess(service, "top", "--publisher", source.endpoint)
        one, other = Leaf(context, top.endpoint, "one"), Leaf(context, top.endpoint, "other")
        one.want(frozenset({Pattern("glob", "a*z")}))
        other.want(frozenset({EVERYTHING}))
        plain = context.socket(zmq.SUB)
        plain.setsockopt(zmq.SUBSCRIBE, b"")
        plain.connect(top.push_endpoint)
        eventually(lambda: ask_node(top.endpoint).plain, "plain subscriber")
        source.wants(b"")

        for topic in ("abz", "abc", "az"):
            source.push(topic)

        assert one.topics("az") == ["abz", "az"]
        assert other.topics("az") == ["abz", "abc", "az"]
        assert [plain.recv_multipart()[0] for _ in range(3)] == [b"abz\0", b"abc\0", b"az\0"]
        # The copies for the one link came to no other.
        assert other.is_silent()
        assert not plain.poll(SILENCE_MS)

    def test_misses_nothing_while_a_link_changes_what_it_wants(
        self, service: Service, context: Context
    ) -> None:
        source = Source(context)
        top = RelayProcess(service, "top", "--publisher", source.endpoint)
        leaf, holder = Leaf(context, top.endpoint), Leaf(context, top.endpoint, "holder")
        holder.want(prefix("a"))  # so that nothing changes above
        wishes = [frozenset({Pattern("glob", "a*z")}), prefix("ab"), exact("abz"), prefix("a")]
        leaf.want(wishes[0])
        source.wants(b"a")
        pushed = 0
        for number in range(40):
            leaf.above.want(wishes[number % 4], frozenset())
            for _ in range(10):
                source.push("abz")
                leaf.above.turn(time.monotonic())
            pushed += 10
        offsets = set()
        while pushed - 1 not in offsets:
            offsets.add(leaf.take().pushed.batch.base)

        assert offsets == set(range(pushed))

    @pytest.mark.parametrize("strange", [(b"no subscription",), (b"\1a", b"\1b")])
    def test_comes_also_if_a_strangers_message_mixed_up_who_is_where(
        self, service: Service, context: Context, strange: Sequence[bytes]
    ) -> None:
        """libzmq counts a message that is no subscription as one: the next ones are taken for
        those of another connection."""
        source = Source(context)
        top = RelayProcess(service, "top", "--publisher", source.endpoint)
        leaves = [Leaf(context, top.endpoint, name) for name in ("one", "two")]
        stranger = context.socket(zmq.XSUB)
        stranger.connect(top.push_endpoint)
        for leaf, topic in zip(leaves, ("a", "b"), strict=True):
            leaf.want(exact("before"))
            leaf.tell(exact(topic))
        source.wants(b"a", b"b")
        top.process.pause()
        for one, said in (
            (stranger, strange),
            *((leaf.above.data, (b"\1\0" + leaf.above.wish.link,)) for leaf in leaves),
        ):
            one.send_multipart(said)
            leaves[0].above.interest.poll(SILENCE_MS)  # each arrives before the next
        top.process.signal(signal.SIGCONT)

        for leaf, topic in zip(leaves, ("a", "b"), strict=True):
            leaf.settle()
            source.push(topic)
            assert leaf.take().topic == topic

    def test_serves_plain_zeromq_subscribers_and_devices(
        self, service: Service, context: Context
    ) -> None:
        """Rows 4.6, 4.7 and 4.19: nodes without the extras are ordinary nodes."""
        source = Source(context)
        top = RelayProcess(service, "top", "--publisher", source.endpoint)
        with plain_device(top.push_endpoint) as device_endpoint:
            self.serve_plain_sockets(source, top, context, device_endpoint)

    def serve_plain_sockets(
        self, source: Source, top: RelayProcess, context: Context, device_endpoint: str
    ) -> None:
        subscribers = []
        for wanted in (b"a", b"", b"b"):
            subscriber = context.socket(zmq.SUB)
            subscriber.setsockopt(zmq.SUBSCRIBE, wanted)
            subscriber.connect(top.push_endpoint)
            subscribers.append(subscriber)
        device = context.socket(zmq.SUB)
        device.setsockopt(zmq.SUBSCRIBE, b"a")
        device.connect(device_endpoint)
        for one in (*subscribers, device):
            one.setsockopt(zmq.RCVTIMEO, int(PATIENCE_S * 1000))
        leaf = Leaf(context, top.endpoint)
        leaf.want(exact("a"))
        source.wants(b"")
        eventually(lambda: ask_node(top.endpoint).plain == 3, "three plain prefixes")

        source.push("a")
        source.socket.send_multipart([b"a of a plain publisher", b"whatever"])

        for one in (subscribers[0], subscribers[1], device):
            assert one.recv_multipart()[0] == b"a\0"
            assert one.recv_multipart() == [b"a of a plain publisher", b"whatever"]
        assert not subscribers[2].poll(SILENCE_MS)
        assert leaf.take().topic == "a"
        for one in (*subscribers, device):
            one.close(linger=0)
        source.wants(b"a")

    def test_gives_back_what_a_plain_subscriber_no_longer_wants(
        self, service: Service, context: Context
    ) -> None:
        """Rows 4.6, 4.9 and 4.14: by an unsubscription, by its end, and by both."""
        source = Source(context)
        relay = RelayProcess(service, "r", "--publisher", source.endpoint)
        stays, goes, does_both = (context.socket(zmq.SUB) for _ in range(3))
        for one, wanted in ((stays, b"a"), (goes, b"b"), (does_both, b"c")):
            one.setsockopt(zmq.SUBSCRIBE, wanted)
            one.connect(relay.push_endpoint)
        stays.setsockopt(zmq.SUBSCRIBE, b"d")
        source.wants(b"a", b"b", b"c", b"d")

        stays.setsockopt(zmq.UNSUBSCRIBE, b"a")
        goes.close(linger=0)
        does_both.setsockopt(zmq.UNSUBSCRIBE, b"c")

        source.wants(b"d")
        does_both.close(linger=0)
        eventually(lambda: ask_node(relay.endpoint).plain == 1, "one plain prefix")

    def test_does_not_touch_a_link_whose_far_side_wants_nothing(
        self, service: Service, context: Context
    ) -> None:
        """Rows 4.2 and 4.3, in bytes on the link."""
        source = Source(context)
        link = LinkTo(source.endpoint)
        top = RelayProcess(service, "top", "--publisher", link.endpoint)
        leaf = Leaf(context, top.endpoint)
        leaf.want(exact("wanted"))
        source.wants(b"wanted")
        source.push("wanted")
        leaf.take()
        before = link.down_bytes

        for _ in range(100):
            source.push("unwanted", b"x" * 1000)
        source.push("wanted")
        leaf.take()

        assert 0 < link.down_bytes - before < 500
        link.close()


@contextmanager
def plain_device(above: str) -> Iterator[str]:
    """libzmq's own forwarder, XSUB above and XPUB below, as in row 4.6; returns its endpoint."""
    with zmq_context() as context:
        inside, outside = context.socket(zmq.XSUB), context.socket(zmq.XPUB)
        inside.connect(above)
        port = outside.bind_to_random_port("tcp://127.0.0.1")

        def forward() -> None:
            with suppress(zmq.ContextTerminated):
                zmq.proxy(inside, outside)
            for one in (inside, outside):
                one.close(linger=0)

        threading.Thread(target=forward, daemon=True).start()
        try:
            yield f"tcp://127.0.0.1:{port}"
        finally:
            context.term()  # the thread closes its sockets


class TestInterest:
    def test_is_aggregated_before_it_goes_up(self, service: Service, context: Context) -> None:
        source = Source(context)
        top = RelayProcess(service, "top", "--publisher", source.endpoint)
        wide, narrow = Leaf(context, top.endpoint, "wide"), Leaf(context, top.endpoint, "narrow")
        narrow.want(prefix("ab"))
        source.wants(b"ab")
        wide.want(prefix("a"))
        source.wants(b"a")

        wide.want(frozenset())

        source.wants(b"ab")

    def test_above_the_cap_is_everything_and_is_reported(
        self, service: Service, context: Context
    ) -> None:
        source = Source(context)
        top = RelayProcess(service, "top", "--publisher", source.endpoint)
        leaf = Leaf(context, top.endpoint)
        many = [str(number) for number in range(CAP + 1)]

        leaf.want(exact(*many))
        source.wants(b"")
        (below,) = ask_node(top.endpoint).below
        assert below.is_full
        assert leaf.above.status().is_full
        leaf.want(exact(*many[: CAP // 2]))

        source.wants(*(one.encode() for one in many[: CAP // 2]))
        (below,) = ask_node(top.endpoint).below
        assert not below.is_full

    def test_ends_with_its_lease_and_not_with_its_connection(
        self, service: Service, context: Context
    ) -> None:
        source = Source(context)
        top = RelayProcess(service, "top", "--publisher", source.endpoint, "--lease", "5")
        link = LinkTo(top.endpoint)
        staying, leaving = (
            Leaf(context, link.endpoint, "stays"),
            Leaf(context, top.endpoint, "goes"),
        )
        staying.want(exact("stays"))
        leaving.want(exact("goes"))
        source.wants(b"stays", b"goes")

        link.drop()
        leaving.above.interest.close()
        source.listen()
        assert b"stays" in source.wanted
        for _ in range(3):  # digests on a new connection keep it
            staying.settle()

        def only_one() -> bool:
            staying.settle()
            return source.listen() == {b"stays"}

        eventually(only_one, "end of the lease of the link that went")
        link.close()

    def test_outlasts_its_connections(self, service: Service, context: Context) -> None:
        """Row 4.9: what a plain subscriber wants ends with its connection, what a link wants with
        its lease."""
        source = Source(context)
        top = RelayProcess(service, "top", "--publisher", source.endpoint)
        requests, data = LinkTo(top.endpoint), LinkTo(top.push_endpoint)
        Leaf(context, requests.endpoint, "cut-off", push_via=data.endpoint).want(exact("a"))
        plain = context.socket(zmq.SUB)
        plain.setsockopt(zmq.SUBSCRIBE, b"plain")
        plain.connect(data.endpoint)
        source.wants(b"a", b"plain")

        requests.close()
        data.close()
        source.wants(b"a")

        Leaf(context, top.endpoint, "later").want(exact("b"))
        source.wants(b"a", b"b")
        plain.close(linger=0)

    def test_survives_the_restart_of_the_node_above(
        self, service: Service, context: Context
    ) -> None:
        source = Source(context)
        top = RelayProcess(service, "top", "--publisher", source.endpoint)
        leaf = Leaf(context, top.endpoint)
        leaf.want(exact(*(str(number) for number in range(20))))
        top.process.kill()
        source.wants()

        top.start()

        def told_again() -> bool:
            leaf.above.wish.ask_soon(0.0)
            leaf.settle()
            return len(source.listen()) == 20

        eventually(told_again, "interest told again")
        source.push("7")
        assert leaf.take().topic == "7"

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"link": b"short"},
            {"patterns": [["exact"]]},
            {"patterns": [["exact", "x"]] * 129},
            {"patterns": [["exact", "x" * 256]]},
            {"patterns": [["regex", "(a+"]]},
            {"patterns": [["regex", "((((a{99}){99}){99}){99})"]]},
            {"version": -1},
            {"digest": b""},
            {"below": ["no_name"]},
        ],
        ids=str,
    )
    def test_that_is_malformed_is_refused_and_does_no_harm(
        self, fields: dict[str, object], service: Service, context: Context
    ) -> None:
        top = RelayProcess(service, "top", "--upstream", "tcp://127.0.0.1:1")
        good = {
            "verb": "INTEREST", "client": "stranger", "epoch": 0, "request": 7,
            "link": b"l" * 16, "version": 1, "digest": b"d" * 32, "patterns": [],
        }  # fmt: skip
        header = {"verb": "INTEREST"} if not fields else good | fields
        with context.socket(zmq.REQ) as stranger:
            stranger.connect(top.endpoint)
            stranger.send_multipart([PROTOCOL, msgspec.msgpack.encode(header)])
            reply = decode_node_reply(stranger.recv_multipart())

        assert isinstance(reply, Malformed)
        assert reply.text
        leaf = Leaf(context, top.endpoint)
        leaf.want(exact("a"))

    def test_that_goes_in_a_ring_is_refused(self, service: Service, context: Context) -> None:
        first = RelayProcess(service, "first", "--upstream", "tcp://127.0.0.1:1")
        second = RelayProcess(service, "second", "--upstream", first.endpoint)
        first.process.terminate()
        first.options = ("--upstream", second.endpoint)
        first.start()

        refusals = eventually(
            lambda: [
                above.refused
                for relay in (first, second)
                for above in ask_node(relay.endpoint).above
                if above.refused
            ],
            "refusal of the ring",
        )

        assert any("circulate forever" in text for text in refusals)


class TestAnUpstreamThatHangs:
    def test_delays_itself_and_no_other(self, service: Service, context: Context) -> None:
        """R22 and row 4.22: thousands of changes pass it by; awake again, it knows the newest."""
        good, bad = Source(context), Source(context)
        awake = RelayProcess(service, "awake", "--publisher", good.endpoint)
        hung = RelayProcess(service, "hung", "--publisher", bad.endpoint)
        both = RelayProcess(
            service, "both", "--upstream", awake.endpoint, "--upstream", hung.endpoint
        )
        leaf = Leaf(context, both.endpoint)
        leaf.want(exact("before"))
        good.wants(b"before")
        bad.wants(b"before")
        hung.process.pause()

        for number in range(200):
            leaf.want(exact(f"channel-{number}"))
        good.wants(b"channel-199")
        good.push("channel-199")
        assert leaf.take().topic == "channel-199"
        said = ask_node(both.endpoint).above[1].said
        hung.process.signal(signal.SIGCONT)

        bad.wants(b"channel-199")
        assert said < 40  # one message is under way, however often the wish changed


class TestPlainSubscriptionsAgainstOurs:
    """R22: libzmq issue 4064. A reconnection repeats all subscriptions at once, and above the
    high-water mark they are dropped without a word."""

    MANY = 100
    MARK = 10

    def test_a_plain_socket_loses_subscriptions_when_it_reconnects(self, context: Context) -> None:
        source = Source(context)
        link = LinkTo(source.endpoint)
        plain = context.socket(zmq.XSUB)
        plain.setsockopt(zmq.SNDHWM, self.MARK)
        plain.setsockopt(zmq.RECONNECT_IVL, 10)
        plain.connect(link.endpoint)
        for number in range(self.MANY):  # slowly, each before the next, so that all arrive
            plain.poll(0)  # takes note of what was read above
            plain.send(b"\1%d\0" % number)
            eventually(lambda: len(source.listen()) > number, "subscription")  # noqa: B023

        link.drop()
        eventually(lambda: not source.listen(), "end of the old connection")
        # A socket repeats its subscriptions when its program looks at it.
        eventually(lambda: plain.poll(0) or source.listen(), "new connection")
        while source.socket.poll(SILENCE_MS):
            source.listen()

        assert 0 < len(source.wanted) < self.MANY
        link.close()

    def test_ours_has_all_of_them_again(self, service: Service, context: Context) -> None:
        source = Source(context)
        top = RelayProcess(
            service, "top", "--publisher", source.endpoint, "--max-subscriptions", "128"
        )
        links = LinkTo(top.endpoint), LinkTo(top.push_endpoint)
        leaf = Leaf(context, links[0].endpoint)
        leaf.above.data.setsockopt(zmq.SNDHWM, self.MARK)
        leaf.above.wish.push_endpoint = leaf.above._data_endpoint = top.push_endpoint
        leaf.above.data.connect(links[1].endpoint)
        topics = [str(number) for number in range(self.MANY)]
        leaf.want(exact(*topics))

        for link in links:
            link.drop()
        leaf.above.wish.ask_soon(0.0)
        leaf.settle()

        def all_came() -> bool:
            for topic in topics:
                source.push(topic)
            came = set()
            while leaf.above.data.poll(SILENCE_MS):
                came.add(leaf.take().topic)
            return came == set(topics)

        eventually(all_came, "data of every topic after the reconnection")
        for link in links:
            link.close()


class TestReliablePullThroughTheTree:
    def test_gives_each_message_once_in_order_through_two_relays(self, service: Service) -> None:
        service.start_proxy()
        top = RelayProcess(service, "top", "--upstream", service.subscriber_endpoint)
        bottom = RelayProcess(service, "bottom", "--upstream", top.endpoint)
        payloads = [b"m%d" % number for number in range(500)]
        with (
            service.open_subscriber("s", endpoint=bottom.endpoint) as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe("t")
            for begin in range(0, 500, 10):
                publisher.put_many("t", payloads[begin : begin + 10])
            got: list[Message] = []
            while len(got) < 500:
                got += subscriber.get("t", max_messages=7, timeout_s=PATIENCE_S)
            subscriber.acknowledge("t")

            assert [message.payload for message in got] == payloads
            assert service.topic("t").subscriptions[0].cursor == 500
            assert [m.payload for m in subscriber.history("t", 100, max_messages=5)] == payloads[
                100:105
            ]

    def test_fetches_once_for_many_subscribers(self, service: Service) -> None:
        service.start_proxy()
        top = RelayProcess(service, "top", "--upstream", service.subscriber_endpoint)
        link = LinkTo(service.subscriber_endpoint)
        relay = RelayProcess(service, "below", "--upstream", link.endpoint)
        assert top.process.exit_code is None
        names = [f"s{number}" for number in range(10)]
        subscribers = [  # which ask once: what is asked again is fetched again
            service.open_subscriber(name, endpoint=relay.endpoint, retry=BELIEVING)
            for name in names
        ]
        for subscriber in subscribers:
            subscriber.subscribe("t")
            subscriber.get("t")  # confirmed
        with service.open_publisher("p") as publisher:
            publisher.put("t", b"x" * 500_000)
        before = link.down_bytes

        for subscriber in subscribers:
            (message,) = subscriber.get("t", timeout_s=PATIENCE_S)
            assert len(message.payload) == 500_000
        fetched = link.down_bytes - before
        for subscriber in subscribers:
            subscriber.close()

        assert 500_000 < fetched < 2 * 500_000
        cursors = {one.subscriber: one.cursor for one in service.topic("t").subscriptions}
        assert cursors == dict.fromkeys(names, 1)
        link.close()

    def test_loses_and_doubles_nothing_when_relays_are_killed(
        self, service: Service, chance: random.Random
    ) -> None:
        service.start_proxy()
        top = RelayProcess(service, "top", "--upstream", service.subscriber_endpoint)
        bottom = RelayProcess(service, "bottom", "--upstream", top.endpoint)
        with (
            service.open_subscriber("s", endpoint=bottom.endpoint) as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe("t")
            got: list[bytes] = []
            for number in range(60):
                publisher.put("t", b"%d" % number)
                if number % 10 == 5:
                    victim = chance.choice([top, bottom])
                    victim.process.kill()
                    victim.start()
                if chance.random() < 0.7:
                    got += [m.payload for m in subscriber.get("t", max_messages=3)]
            while len(got) < 60:
                got += [
                    m.payload for m in subscriber.get("t", max_messages=9, timeout_s=PATIENCE_S)
                ]

        assert got == [b"%d" % number for number in range(60)]

    def test_tells_the_proxy_before_it_ends_which_cursors_have_moved(
        self, service: Service
    ) -> None:
        service.start_proxy()
        relay = RelayProcess(service, "relay-1", "--upstream", service.subscriber_endpoint)
        one, two = (service.open_subscriber(name, endpoint=relay.endpoint) for name in ("a", "b"))
        for subscriber in (one, two):
            subscriber.subscribe("t")
            subscriber.get("t")  # confirmed
        with service.open_publisher("p") as publisher:
            for _ in range(12):
                publisher.put("t", b"x")
        one.get("t", max_messages=12, timeout_s=PATIENCE_S)  # now the relay has them

        for _ in range(11):  # a get of one fetches ten: the second fetch says that ten are done
            two.get("t", timeout_s=PATIENCE_S)
        assert relay.process.terminate() == 0

        cursors = {one.subscriber: one.cursor for one in service.topic("t").subscriptions}
        assert cursors == {"a": 0, "b": 10}
        one.abandon()
        two.abandon()

    def test_lets_the_proxy_judge_a_verb_that_no_relay_knows(self, service: Service) -> None:
        service.start_proxy()
        top = RelayProcess(service, "top", "--upstream", service.subscriber_endpoint)
        with zmq_context() as context, context.socket(zmq.REQ) as stranger:
            stranger.connect(top.endpoint)
            stranger.send_multipart([PROTOCOL, b"\x81\xa4verb\xa4NOPE"])
            reply = decode_node_reply(stranger.recv_multipart())

            assert isinstance(reply, Malformed)
            assert reply.boot == service.status().boot


def test_topology_shows_a_relay_and_what_is_above_it(service: Service, context: Context) -> None:
    source = Source(context)
    top = RelayProcess(service, "top", "--publisher", source.endpoint)
    bottom = RelayProcess(service, "bottom", "--upstream", top.endpoint)
    leaf = Leaf(context, bottom.endpoint, "screen")
    leaf.want(exact("a"))
    source.wants(b"a")

    shown = service.run("", "topology", "--endpoint", bottom.endpoint)
    shown.done()

    assert "below screen: 1 patterns" in shown.stdout
    assert "below bottom: 1 patterns" in shown.stdout
    assert "top: asks for 1 patterns" in shown.stdout
    if IS_LINUX:
        assert shown.stdout.count("connections: ") == 2


def test_topology_draws_the_live_tree_from_publisher_to_subscriber(service: Service) -> None:
    """Names, interest and rates, in a file that needs nothing else."""
    service.start_proxy()
    relay = RelayProcess(service, "north", "--upstream", service.subscriber_endpoint)
    with (
        service.open_subscriber("screen", endpoint=relay.endpoint) as subscriber,
        service.open_publisher("p") as publisher,
    ):
        subscriber.subscribe("news", push=True)
        publisher.put("news", b"x")
        assert subscriber.get("news", timeout_s=PATIENCE_S)
        eventually(lambda: bool(ask_node(relay.endpoint).below), "link of the subscriber")

        drawn = service.run(
            "", "topology", "--endpoint", relay.endpoint, "--interval", "0.5",
            "--svg", "tree.svg", "--html", "tree.html",
        )  # fmt: skip
        drawn.done()

    text = (service.directory / "tree.svg").read_text()
    words = [one.text for one in ElementTree.fromstring(text).iter() if one.text]
    for expected in ("p", "north", "screen", "news: 1 put", "news: 1 messages", "0 batches/s"):
        assert expected in words
    assert "north" in (service.directory / "tree.html").read_text()


def test_two_proxies_above_one_relay_are_refused_by_name(
    service: Service, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A subscriber would get the messages of one and silently none of the other."""
    with closing(Service(tmp_path_factory.mktemp("other"))) as other:
        service.start_proxy()
        other.start_proxy()
        upstreams = service.subscriber_endpoint, other.subscriber_endpoint
        relay = service.run(
            "relay", "--endpoint", service.own_endpoint(), "--push-endpoint",
            service.own_endpoint(), "--upstream", upstreams[0], "--upstream", upstreams[1],
        )  # fmt: skip

        assert relay.wait() == 4
        assert "[TWO_PROXIES]" in relay.stderr
