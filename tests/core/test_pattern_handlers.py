"""Handlers of patterns: `on(glob(...), handler)` and `run`, with the policy of topics."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reliable_pubsub import Message, NotSubscribedError, Publisher, Subscriber, UsageError
from reliable_pubsub.common.core.patterns.pattern import glob
from tests.fakes import Disk, FakeClock, FakeTransport, Link, a_broker, a_world

HEAT = glob("sensor/*/heat")


class House:
    """A proxy, and a subscriber to all sensors."""

    def __init__(self, where: str = "") -> None:
        self.link, self.clock, self.disk = Link(a_broker()), FakeClock(), Disk()
        self.publisher = Publisher("p", _world=a_world(self.link))
        transport = FakeTransport(self.link, self.clock)
        self.subscriber = Subscriber("s", _world=a_world(transport, self.clock, self.disk))
        self.subscriber.subscribe(match=HEAT, where=where)
        self.handled: list[tuple[str, str, int]] = []  # topic, payload, delivery count

    def put(self, *payloads: str, number: int, **headers: str) -> None:
        for payload in payloads:
            self.publisher.put(f"sensor/{number}/heat", payload, codec="text", headers=headers)

    def handle(self, message: Message) -> None:
        self.handled.append((message.topic, message.value, message.delivery_count))

    def failing_at(self, bad: str) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            self.handle(message)
            if message.value == bad:
                raise ValueError(f"bad {bad}")

        return handle

    def cursors(self) -> dict[str, int]:
        """What the proxy knows as acknowledged, after a clean end."""
        self.subscriber.close()
        topics = self.link.proxy.state.topics.values()
        return {
            log.topic: log.subscriptions["s"].cursor for log in topics if "s" in log.subscriptions
        }


def test_each_message_of_each_topic_is_handled_once_and_acknowledged() -> None:
    house = House()
    house.put("a", "b", number=1)
    house.put("c", number=2)
    house.subscriber.on(HEAT, house.handle)

    house.subscriber.run(timeout_s=1)
    house.put("d", number=3)  # a topic that is new
    house.subscriber.run(timeout_s=1)

    assert [one[1:] for one in house.handled] == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]
    assert house.cursors() == {"sensor/1/heat": 2, "sensor/2/heat": 1, "sensor/3/heat": 1}


def test_a_message_that_fails_is_retried_and_then_a_dead_letter_of_its_topic() -> None:
    house = House()
    house.put("a", "bad", "c", number=1)
    house.put("d", number=2)
    house.subscriber.on(HEAT, house.failing_at("bad"), retries=1, on_failure="reject")

    house.subscriber.run(timeout_s=1)

    assert [value for _, value, _ in house.handled] == ["a", "bad", "bad", "c", "d"]
    assert house.link.proxy.state.topics["sensor/1/heat.dead"].end == 1
    assert house.cursors() == {"sensor/1/heat": 3, "sensor/2/heat": 1}


def test_when_its_retries_are_used_up_run_ends_and_the_message_comes_again() -> None:
    house = House()
    house.put("a", "bad", number=1)
    house.subscriber.on(HEAT, house.failing_at("bad"), retries=0)

    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            house.subscriber.run(timeout_s=1)

    assert [one[1:] for one in house.handled] == [("a", 1), ("bad", 1), ("bad", 2)]


def test_what_does_not_fulfil_the_condition_is_passed_over_and_acknowledged() -> None:
    house = House(where='region = "eu"')
    house.put("a", number=1, region="eu")
    house.put("b", "c", number=1, region="us")
    house.subscriber.on(HEAT, house.handle)

    house.subscriber.run(timeout_s=1)

    assert [value for _, value, _ in house.handled] == ["a"]
    assert house.cursors() == {"sensor/1/heat": 3}


def test_a_pattern_takes_turns_with_topics() -> None:
    house = House()
    house.subscriber.subscribe("t")
    house.put("a", number=1)
    house.publisher.put("t", "b", codec="text")
    house.subscriber.on(HEAT, house.handle)
    house.subscriber.on("t", house.handle)
    house.subscriber.use_push = lambda *_: None  # type: ignore[method-assign]

    house.subscriber.run(timeout_s=1)

    assert sorted(value for _, value, _ in house.handled) == ["a", "b"]


@pytest.mark.parametrize("how", ["loop", "run"])
@pytest.mark.parametrize("last", [1, 2, 4], ids=["the first", "one of a run", "the last"])
def test_a_pattern_that_its_own_handler_unsubscribes_ends_with_an_error(
    last: int, how: str
) -> None:
    """At the next step: nothing more is handed over, and what is in hand is not acknowledged."""
    house = House()
    house.put("a", "b", "c", number=1)
    house.put("d", number=2)

    def handle(message: Message) -> None:
        house.handle(message)
        if len(house.handled) == last:
            house.subscriber.unsubscribe(HEAT)

    def loop() -> None:
        for message in house.subscriber.messages(HEAT, timeout_s=1):
            handle(message)

    def run() -> None:
        house.subscriber.on(HEAT, handle)
        house.subscriber.run(timeout_s=1)

    with pytest.raises(NotSubscribedError, match="has no pattern"):
        (run if how == "run" else loop)()

    assert [value for _, value, _ in house.handled] == ["a", "b", "c", "d"][:last]
    first, second = ("sensor/1/heat", "sensor/2/heat")
    assert house.cursors() == {first: min(last - 1, 3), second: 0}


def test_a_pattern_has_no_group_and_no_dead_letters_of_dead_letters() -> None:
    house = House()
    house.subscriber.on(HEAT, house.handle)

    with pytest.raises(UsageError, match="no group"):
        house.subscriber.on(glob("*"), house.handle, group="g")
    with pytest.raises(UsageError):
        house.subscriber.on(glob("*.dead"), house.handle, on_failure="reject")
