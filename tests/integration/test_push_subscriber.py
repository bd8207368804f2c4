"""Subscribers that are pushed to: no polling, and exactly once whatever dies or is cut."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from itertools import islice

import pytest

from reliable_pubsub import Publisher, Subscriber, glob
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.limits import PUSH_BODY_BYTES_MAX
from reliable_pubsub.common.world import World
from reliable_pubsub.lab.rig.link import LinkTo
from reliable_pubsub.lab.rig.service import RelayProcess
from reliable_pubsub.relay.core.push import AnyPush
from reliable_pubsub.subscriber.core.push_timing import PushTiming
from reliable_pubsub.subscriber.push.push_feature import PushFeature
from reliable_pubsub.subscriber.push.push_link import ZmqPushLink

from .harness import PATIENCE_S, Service, eventually

# Asks for nothing meanwhile.
PATIENT = PushTiming(silence_s_min=20.0, silence_s_max=60.0, tell_s=60.0)
ALL = glob("t/*")


def is_pushed(subscriber: Subscriber, topic: str) -> bool:
    """One get, after which the link has done what was due; whether data is sent by it now."""
    subscriber.get(topic, timeout_s=0.02)
    return not subscriber._engine.feature(PushFeature).pushing.is_polled(topic)


def wait_until_pushed(subscriber: Subscriber, topic: str) -> None:
    eventually(lambda: is_pushed(subscriber, topic), "link")
    subscriber.get(topic)


def is_pattern_pushed(subscriber: Subscriber) -> bool:
    """The same for a pattern; what it gets is left in hand."""
    subscriber.get(ALL, timeout_s=0.02)
    return not subscriber._engine.feature(PushFeature).pushing.is_polled(ALL)


class WildLink:
    """A link that loses, doubles and reorders what comes. Implements `PushLink`."""

    def __init__(self, endpoint: str, chance: random.Random) -> None:
        self._link = ZmqPushLink(endpoint, "wild")
        self._chance = chance
        self._kept: list[AnyPush] = []
        self.is_refused = False
        self.want = self._link.want
        self.turn = self._link.turn
        self.doubt = self._link.doubt
        self.wait = self._link.wait
        self.close = self._link.close

    def receive(self) -> list[AnyPush]:
        found = [*self._kept, *self._link.receive()]
        self._chance.shuffle(found)
        self._kept = [push for push in found if self._chance.random() < 0.2]
        passed = [push for push in found if self._chance.random() < 0.8]
        return [push for push in passed for _ in range(self._chance.choice((1, 1, 2)))]


class TestAPushedMessage:
    def test_is_here_without_a_request(self, service: Service) -> None:
        service.start_proxy()
        with (
            service.open_subscriber("s", push_timing=PATIENT) as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe("t", push=True)
            wait_until_pushed(subscriber, "t")
            publisher.ready_for("t")
            pulls = subscriber.push_counts("t").pulls

            for number in range(20):
                publisher.put("t", b"%d" % number)
                (message,) = subscriber.get("t", timeout_s=PATIENCE_S)
                assert (message.payload, message.offset) == (b"%d" % number, number)
                assert message.delivery_count == 1

            counts = subscriber.push_counts("t")
            assert (counts.taken, counts.misses, counts.pulls) == (20, 0, pulls)

    def test_comes_where_push_via_says(self, service: Service) -> None:
        service.start_proxy()
        tunnel = LinkTo(service.push_endpoint)
        with (
            service.open_subscriber(
                "s", push_timing=PATIENT, push_via=tunnel.endpoint
            ) as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe("t", push=True)
            wait_until_pushed(subscriber, "t")
            before = tunnel.down_bytes

            publisher.put("t", bytes(10_000))

            assert len(subscriber.get("t", timeout_s=PATIENCE_S)) == 1
            assert subscriber.is_pushed("t")
            assert subscriber.push_counts("t").taken == 1
            assert tunnel.down_bytes - before > 10_000
        tunnel.close()

    def test_that_is_long_is_fetched_at_once(self, service: Service) -> None:
        service.start_proxy()
        with (
            service.open_subscriber("s", push_timing=PATIENT) as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe("t", push=True)
            wait_until_pushed(subscriber, "t")
            publisher.put("t", b"x" * PUSH_BODY_BYTES_MAX)

            (message,) = subscriber.get("t", timeout_s=PATIENCE_S)

            assert len(message.payload) == PUSH_BODY_BYTES_MAX
            assert subscriber.push_counts("t").places == 1

    def test_is_acknowledged_to_the_proxy_in_time(self, service: Service) -> None:
        service.start_proxy()
        timing = PushTiming(tell_s=0.05)
        with (
            service.open_subscriber("s", push_timing=timing) as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe("t", push=True)
            publisher.put_many("t", [b"x"] * 5)
            assert len(subscriber.get("t", max_messages=5, timeout_s=PATIENCE_S)) == 5

            def look() -> bool:
                subscriber.get("t", timeout_s=0.02)
                (one,) = service.topic("t").subscriptions
                return one.cursor == 5

            eventually(look, "cursor at the proxy")


def test_idle_waiting_does_not_poll(service: Service) -> None:
    """Counted at the proxy: two seconds of waiting are a handful of requests."""
    service.start_proxy()
    with service.open_subscriber("s") as subscriber:
        subscriber.subscribe("t", push=True)
        wait_until_pushed(subscriber, "t")
        before = service.status().requests_count

        assert subscriber.get("t", timeout_s=2.0) == []

        pushed = service.status().requests_count - before - 1
        subscriber.use_push("t", False)
        before = service.status().requests_count
        assert subscriber.get("t", timeout_s=2.0) == []
        polled = service.status().requests_count - before - 1
    # Asked again after each answer, it would be more than 30. On a busy machine a question may be
    # asked again before it is answered.
    assert pushed <= 20
    assert polled <= 20


class TestExactlyOnce:
    def receive(
        self,
        subscriber: Subscriber,
        wanted: int,
        between: Callable[[int], None],
    ) -> list[bytes]:
        got: list[bytes] = []
        while len(got) < wanted:
            between(len(got))
            found = subscriber.get("t", max_messages=7, timeout_s=PATIENCE_S)
            assert found, f"nothing more came after {len(got)} of {wanted}"
            got += [message.payload for message in found]
        return got

    def test_holds_with_pushes_lost_doubled_and_reordered(
        self, service: Service, chance: random.Random
    ) -> None:
        service.start_proxy()

        world = World(connect_data=lambda endpoint: WildLink(endpoint, chance))
        with (
            service.open_subscriber("s", _world=world) as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe("t", push=True)
            wait_until_pushed(subscriber, "t")
            numbers: Iterator[int] = iter(range(200))

            def between(_: int) -> None:
                for number in islice(numbers, chance.randint(1, 6)):
                    publisher.put("t", b"%d" % number)

            got = self.receive(subscriber, 200, between)

        assert got == [b"%d" % number for number in range(200)]

    def test_holds_while_push_is_switched_on_and_off(
        self, service: Service, chance: random.Random
    ) -> None:
        """Row 2.19."""
        service.start_proxy()
        with (
            service.open_subscriber("s") as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe("t", push=True)
            count = 0

            def between(_: int) -> None:
                nonlocal count
                for _ in range(4):
                    publisher.put("t", b"%d" % count)
                    count += 1
                subscriber.use_push("t", chance.random() < 0.5)

            got = self.receive(subscriber, 100, between)

        assert got == [b"%d" % number for number in range(len(got))]

    def test_holds_across_kills_of_the_proxy_and_of_the_relay(
        self, service: Service, chance: random.Random
    ) -> None:
        service.start_proxy()
        relay = RelayProcess(service, "r", "--upstream", service.subscriber_endpoint)
        with (
            service.open_subscriber("s", endpoint=relay.endpoint) as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe("t", push=True)
            got: list[bytes] = []
            for number in range(60):
                publisher.put("t", b"%d" % number)
                if number % 15 == 5:
                    service.restart_proxy()
                if number % 15 == 10:
                    relay.process.kill()
                    relay.start()
                if chance.random() < 0.7:
                    got += [m.payload for m in subscriber.get("t", max_messages=3)]
            while len(got) < 60:
                got += [
                    m.payload for m in subscriber.get("t", max_messages=9, timeout_s=PATIENCE_S)
                ]
            assert is_pushed_again(subscriber)

        assert got == [b"%d" % number for number in range(60)]

    def test_holds_across_kills_of_the_subscriber(
        self, service: Service, chance: random.Random
    ) -> None:
        """A step file with `push: true`; the resumed process is pushed to as well."""
        service.start_proxy()
        steps = """
            steps:
              - {action: subscribe, topic: t, push: true}
              - {action: get, topic: t, number_of_times: 60, batch: 3}
        """
        subscriber = service.subscriber("s", steps)
        service.subscribed("t", "s")
        with service.open_publisher("p") as publisher:
            for number in range(60):
                publisher.put("t", b"%d" % number)
                if number % 20 == 10:
                    enough = chance.randint(1, number)
                    eventually(lambda: service.line_count("s") >= enough, "output")  # noqa: B023
                    subscriber.kill()
                    subscriber = service.subscriber("s", steps)
                    subscriber.ready()
                    service_push_links(service)
        subscriber.done()

        lines = [json.loads(line) for line in service.output("s").read_text().splitlines()]
        assert [line["payload"] for line in lines] == [str(number) for number in range(60)]

    def test_holds_with_durability_snapshot_and_a_clean_end(self, service: Service) -> None:
        service.start_proxy("--durability", "snapshot")
        with (
            service.open_subscriber("s") as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe("t", push=True)
            for number in range(20):
                publisher.put("t", b"%d" % number)
            got = self.receive(subscriber, 20, lambda _: None)

        assert got == [b"%d" % number for number in range(20)]


class TestAPattern:
    """Three topics that appear one after another, each from its first message."""

    def put(self, publisher: Publisher, number: int) -> None:
        publisher.put(f"t/{number % (1 + number // 10)}", b"%d" % number)

    def check(self, got: list[Message], count: int) -> None:
        """Each message came once, and those of a topic in order, from its first one."""
        assert sorted(int(one.payload) for one in got) == list(range(count))
        topics = {one.topic for one in got}
        assert len(topics) == 3
        for topic in topics:
            offsets = [one.offset for one in got if one.topic == topic]
            assert offsets == list(range(len(offsets)))

    def test_has_what_is_pushed_without_a_request(self, service: Service) -> None:
        service.start_proxy()
        with (
            service.open_subscriber("s", push_timing=PATIENT) as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe(match=ALL, push=True)
            eventually(lambda: is_pattern_pushed(subscriber), "link")
            got: list[Message] = []
            for number in range(30):
                self.put(publisher, number)
                got += subscriber.get(ALL, timeout_s=PATIENCE_S)
            counts = subscriber.push_counts(ALL)

        self.check(got, 30)
        # The first one of each topic was fetched, before or after it was pushed.
        assert counts.beginnings + counts.repeats == 3
        assert counts.taken == 27
        assert counts.misses == 0

    def test_has_each_message_once_across_kills_of_the_proxy_and_of_the_relay(
        self, service: Service, chance: random.Random
    ) -> None:
        service.start_proxy()
        relay = RelayProcess(service, "r", "--upstream", service.subscriber_endpoint)
        with (
            service.open_subscriber("s", endpoint=relay.endpoint) as subscriber,
            service.open_publisher("p") as publisher,
        ):
            subscriber.subscribe(match=ALL, push=True)
            eventually(lambda: is_pattern_pushed(subscriber), "link")
            got: list[Message] = []
            for number in range(30):
                self.put(publisher, number)
                if number % 15 == 5:
                    service.restart_proxy()
                if number % 15 == 10:
                    relay.process.kill()
                    relay.start()
                if chance.random() < 0.7:
                    got += subscriber.get(ALL, max_messages=3)
            while len(got) < 30:
                got += subscriber.get(ALL, max_messages=9, timeout_s=PATIENCE_S)
            eventually(lambda: is_pattern_pushed(subscriber), "link to the newest proxy")
            taken = subscriber.push_counts(ALL).taken
            while subscriber.push_counts(ALL).taken == taken and len(got) < 200:
                publisher.put("t/0", b"%d" % len(got))
                got += subscriber.get(ALL, timeout_s=PATIENCE_S)
            assert subscriber.push_counts(ALL).taken > taken

        self.check(got, len(got))

    def test_is_pushed_by_a_step_file_and_across_kills_of_the_subscriber(
        self, service: Service
    ) -> None:
        service.start_proxy()
        steps = """
            steps:
              - {action: subscribe, match: "t/*", push: true}
              - {action: get, match: "t/*", number_of_times: 30, batch: 3}
              - {action: unsubscribe, match: "t/*"}
        """
        subscriber = service.subscriber("s", steps)
        service_push_links(service)
        with service.open_publisher("p") as publisher:
            for number in range(30):
                self.put(publisher, number)
                if number == 15:
                    eventually(lambda: service.line_count("s") >= 5, "output")
                    subscriber.kill()
                    subscriber = service.subscriber("s", steps)
                    subscriber.ready()
                    service_push_links(service)
        subscriber.done()

        lines = [json.loads(line) for line in service.output("s").read_text().splitlines()]
        assert sorted(int(line["payload"]) for line in lines) == list(range(30))


def is_pushed_again(subscriber: Subscriber) -> bool:
    return eventually(lambda: is_pushed(subscriber, "t"), "link to the newest proxy")


def service_push_links(service: Service) -> None:
    """Wait until a process below the proxy is pushed to."""

    def look() -> int:
        push = service.status().push
        return 0 if not hasattr(push, "links") else push.links

    eventually(look, "link")


def test_a_step_that_is_pushed_says_so(service: Service) -> None:
    steps = """
        steps:
          - {action: subscribe, topic: t, push: true}
    """
    file = service.file("s.yaml", steps)

    process = service.run("subscriber", "-f", file, "-i", "s", "--dry-run")

    process.done()
    assert re.search(r"subscribe .* push", process.stdout)


@pytest.mark.parametrize("wrong", ["push: 1", "push: maybe"])
def test_a_step_that_is_pushed_in_other_words_is_refused(service: Service, wrong: str) -> None:
    file = service.file("s.yaml", f"steps: [{{action: subscribe, topic: t, {wrong}}}]\n")

    process = service.run("subscriber", "-f", file, "-i", "s")

    assert process.wait() == 2
    assert "expected true or false" in process.stderr
