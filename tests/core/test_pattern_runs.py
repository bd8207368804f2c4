"""A loop over a pattern: one write for the messages of many topics, and at any crash what was
in hand.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import StorageFailedError
from reliable_pubsub.common.core.patterns.pattern import glob
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import Disk, FakeClock, FakeTransport, Link, a_broker, a_world

HEAT = glob("sensor/*/heat")
TOPICS = [f"sensor/{number}/heat" for number in range(4)]
EACH = 3  # messages of each topic


class CountingDisk(Disk):
    """Counts its writes, and may be full."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.is_full = False

    def copy(self) -> CountingDisk:
        """What the next process finds, if this one is killed now."""
        copied = CountingDisk()
        copied.values, copied.marks = dict(self.values), list(self.marks)
        return copied

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        if self.is_full:
            raise StorageFailedError("full")
        self.writes += 1
        super().write(changes, durable=durable)


class House:
    """A proxy, and a subscriber by pattern whose topics hold messages."""

    def __init__(self, *, match: bool = True) -> None:
        self.link = Link(a_broker())
        self.disk = CountingDisk()
        self.subscriber = self.opened(self.disk)
        if match:
            self.subscriber.subscribe(match=HEAT)
        else:
            self.subscriber.subscribe(TOPICS[0])
        self.put()
        self.disk.writes = 0

    def put(self) -> None:
        with Publisher("p", _world=a_world(self.link)) as publisher:
            for topic in TOPICS:
                publisher.put_many(topic, [b"%d" % number for number in range(EACH)])

    def opened(self, disk: CountingDisk) -> Subscriber:
        clock = FakeClock()
        return Subscriber("s", _world=a_world(FakeTransport(self.link, clock), clock, disk))


def took(subscriber: Subscriber, count: int) -> list[Message]:
    """What a loop has given; the program dies before it comes back for more."""
    steps = subscriber.messages(HEAT, timeout_s=0.0)
    return [next(steps) for _ in range(count)]


def rest(subscriber: Subscriber) -> list[tuple[str, int, int]]:
    found = list(subscriber.messages(HEAT, timeout_s=0.0))
    return [(one.topic, one.offset, one.delivery_count) for one in found]


def test_the_messages_of_all_topics_of_a_fetch_are_one_write() -> None:
    house = House()
    found = took(house.subscriber, EACH * len(TOPICS))

    assert len({one.topic for one in found}) == len(TOPICS)
    assert house.disk.writes == 1


def test_what_is_processed_of_all_topics_is_one_write_before_the_proxy_learns_of_it() -> None:
    house = House()
    assert len(rest(house.subscriber)) == EACH * len(TOPICS)

    assert house.disk.writes == 2
    house.disk.lose_power()
    assert rest(house.opened(house.disk)) == []


@pytest.mark.parametrize("taken", range(1, EACH * len(TOPICS) + 1))
def test_a_crash_redelivers_exactly_what_was_in_hand(taken: int) -> None:
    house = House()
    found = [(one.topic, one.offset) for one in took(house.subscriber, taken)]

    after = rest(house.opened(house.disk.copy()))

    again = [(topic, offset) for topic, offset, count in after if count == 2]
    assert again == found[-1:]
    assert len(found) + len(after) == EACH * len(TOPICS) + 1
    assert {(topic, offset) for topic, offset, _ in after}.isdisjoint(found[:-1])


def test_runs_of_two_processes_keep_apart_what_each_has_taken() -> None:
    house = House()
    found = [(one.topic, one.offset) for one in took(house.subscriber, 5)]
    second = house.disk.copy()
    found[-1:] = [(one.topic, one.offset) for one in took(house.opened(second), 4)]

    after = rest(house.opened(second.copy()))

    assert {(topic, offset) for topic, offset, _ in after}.isdisjoint(found[:-1])
    assert len({*found, *((topic, offset) for topic, offset, _ in after)}) == EACH * len(TOPICS)


@pytest.mark.parametrize("match", [True, False])
def test_what_was_taken_stays_taken_if_the_write_of_the_next_run_fails_twice(match: bool) -> None:
    house = House(match=match)
    topics = HEAT if match else TOPICS[0]
    steps = house.subscriber.messages(topics, timeout_s=0.0)
    found = [next(steps), next(steps)]
    house.disk.is_full = True
    for _ in range(2):
        with pytest.raises(StorageFailedError):
            next(house.subscriber.messages(topics, timeout_s=0.0))

    again = house.opened(house.disk.copy()).messages(topics, timeout_s=0.0)

    assert next(again).message_id == found[-1].message_id


def test_a_topic_with_a_message_in_hand_joins_the_loop() -> None:
    house = House()
    took(house.subscriber, 1)
    assert house.subscriber.get(TOPICS[1])[0].offset == 0

    after = rest(house.subscriber)

    assert len(after) == EACH * len(TOPICS) - 2


def test_a_message_of_a_run_is_rejected_with_the_others_of_its_topic_in_place() -> None:
    house = House()
    steps = house.subscriber.messages(HEAT, timeout_s=0.0)
    for _ in range(EACH + 1):
        message = next(steps)
    house.subscriber.reject(message, "it cannot be read")

    after = rest(house.subscriber)

    assert len(after) == EACH * len(TOPICS) - EACH - 1
    assert (message.topic, message.offset) not in {(topic, offset) for topic, offset, _ in after}
