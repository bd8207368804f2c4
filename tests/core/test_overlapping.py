"""Several subscriptions of one subscriber to one topic share its cursor (rule R32)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import pytest

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import LostError, UsageError
from reliable_pubsub.common.core.patterns.pattern import glob
from reliable_pubsub.common.core.start import Earliest
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world

ALL = glob("v.*")
OTHER = glob("*x")
REGIONS = ("eu", "us", "asia", "eu", "us")
EU, US = 'region = "eu"', 'region = "us"'


class House:
    """A proxy, a publisher, and processes of one subscriber, with a disk or without."""

    def __init__(self, *, remembers: bool = True) -> None:
        self.link = Link(MemoryProxy())
        self.disk: Disk | None = Disk() if remembers else None
        self.publisher = Publisher("p", _world=a_world(self.link))

    def process(self) -> Subscriber:
        """The next process."""
        clock = FakeClock()
        return Subscriber("s", _world=a_world(FakeTransport(self.link, clock), clock, self.disk))

    def put(self, *regions: str, topic: str = "v.x", qos: Any = 2) -> None:
        for region in regions:
            self.publisher.put(topic, region.encode(), headers={"region": region}, qos=qos)

    def subscription(self, topic: str = "v.x") -> Any:
        """What the proxy has of the subscription."""
        return self.link.proxy.state.topics[topic].subscriptions["s"]


def texts(messages: Sequence[Message]) -> list[str]:
    return [message.payload.decode() for message in messages]


def by_get(process: Subscriber, topics: Any) -> list[str]:
    found: list[str] = []
    while some := process.get(topics, max_messages=2):
        found += texts(some)
    return found


def by_loop(process: Subscriber, topics: Any) -> list[str]:
    return texts(list(process.messages(topics, timeout_s=0)))


def exact(process: Subscriber, **more: Any) -> None:
    process.subscribe("v.x", **more)


def eu(process: Subscriber, **more: Any) -> None:
    process.subscribe(match=ALL, where=EU, **more)


def us(process: Subscriber, **more: Any) -> None:
    process.subscribe(match=OTHER, where=US, **more)


@pytest.fixture(params=[True, False], ids=["with state", "without state"])
def house(request: pytest.FixtureRequest) -> House:
    return House(remembers=request.param)


@pytest.mark.parametrize("read", [by_get, by_loop])
@pytest.mark.parametrize("session", ["persistent", "clean"])
@pytest.mark.parametrize("order", list(permutations([exact, eu])))
@pytest.mark.parametrize("first", [ALL, "v.x"])
def test_a_message_that_another_subscription_wants_is_not_skipped(
    house: House, read: Callable[..., list[str]], session: Any, order: Any, first: Any
) -> None:
    process = house.process()
    for subscribe in order:
        subscribe(process, session=session)
    house.put(*REGIONS)

    found = read(process, first)
    found += read(process, "v.x" if first == ALL else ALL)

    assert found == list(REGIONS)


@pytest.mark.parametrize("read", [by_get, by_loop])
@pytest.mark.parametrize("order", list(permutations([eu, us])))
@pytest.mark.parametrize("is_new", [True, False])
def test_two_patterns_deliver_what_either_of_them_wants(
    house: House, read: Callable[..., list[str]], order: Any, is_new: bool
) -> None:
    if not is_new:
        house.put("before")
    process = house.process()
    for subscribe in order:
        subscribe(process)
    house.put(*REGIONS)

    found = read(process, OTHER) + read(process, ALL)

    assert found == ["eu", "us", "eu", "us"]


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("order", list(permutations([exact, eu])))
@pytest.mark.parametrize("is_new", [True, False])
def test_the_end_of_a_pattern_takes_nothing_from_a_subscription_that_was_made_separately(
    house: House, restarts: bool, order: Any, is_new: bool
) -> None:
    if not is_new:
        house.put("before")
    process = house.process()
    for subscribe in order:
        subscribe(process)
    house.put("us", "us", topic="v.y")
    house.put(*REGIONS)
    if restarts:
        process.close()
        house.link.proxy = house.link.proxy.restarted()
        process = house.process()

    process.unsubscribe(ALL)

    house.put("later")
    process.subscribe("v.x")
    assert by_get(process, "v.x") == [*REGIONS, "later"]
    assert not house.subscription("v.y").active


@pytest.mark.parametrize("restarts", [True, False])
@pytest.mark.parametrize("order", list(permutations([exact, eu])))
def test_the_end_of_a_subscription_to_a_topic_takes_nothing_from_a_pattern(
    house: House, restarts: bool, order: Any
) -> None:
    process = house.process()
    for subscribe in order:
        subscribe(process)
    house.put(*REGIONS)
    if restarts:
        process.close()
        house.link.proxy = house.link.proxy.restarted()
        process = house.process()
        exact(process)
        eu(process)

    process.unsubscribe("v.x")

    house.put("eu")
    assert by_get(process, ALL) == ["eu", "eu", "eu"]
    with pytest.raises(UsageError, match="unsubscribe the pattern"):
        process.unsubscribe("v.x")
    process.unsubscribe(ALL)
    assert not house.subscription().active


def test_the_end_of_a_pattern_leaves_a_topic_to_another_pattern(house: House) -> None:
    process = house.process()
    us(process)
    eu(process)
    house.put(*REGIONS)

    process.unsubscribe(ALL)

    assert by_get(process, OTHER) == ["us", "us"]
    process.unsubscribe(OTHER)
    assert not house.subscription().active


@pytest.mark.parametrize("order", list(permutations([0, 1])))
def test_the_terms_of_a_shared_subscription_keep_what_either_of_them_is_to_receive(
    house: House, order: Any
) -> None:
    house.put("before")
    process = house.process()
    subscribes = [lambda: exact(process, qos=0, session="clean"), lambda: eu(process)]
    for index in order:
        subscribes[index]()
    house.put("eu", "us")
    process.abandon()
    house.link.proxy = house.link.proxy.restarted()

    process = house.process()
    eu(process)
    exact(process, qos=0, session="clean")

    assert by_get(process, "v.x") == ["eu", "us"]
    assert house.subscription().terms.qos == 2


def test_a_second_clean_pattern_does_not_move_the_first(house: House) -> None:
    process = house.process()
    house.put("before")
    eu(process, session="clean")
    house.put("eu", "us")

    us(process, session="clean")
    exact(process)

    assert by_get(process, ALL) == ["eu", "us"]


def test_a_seek_of_a_pattern_moves_all_of_its_topics(house: House) -> None:
    process = house.process()
    process.subscribe(match=ALL)
    house.put("eu", "us")
    house.put("asia", topic="v.y")
    assert sorted(by_get(process, ALL)) == ["asia", "eu", "us"]

    assert process.seek(ALL, Earliest) == 2

    again = [*process.get(ALL, max_messages=9), *process.get(ALL, max_messages=9)]
    assert sorted(texts(again)) == ["asia", "eu", "us"]
    assert all(message.redelivered for message in again)


@pytest.mark.parametrize("read", [by_get, by_loop])
def test_a_loss_that_one_pattern_reports_comes_after_what_another_has_in_hand(read: Any) -> None:
    house = House()
    process = house.process()
    process.subscribe(match=ALL)
    process.subscribe(match=OTHER)
    house.put("1")
    assert texts(process.get(ALL)) == ["1"]
    house.put("2", "3", "4")
    del house.link.proxy.log.batches[1][:3]

    with pytest.raises(LostError) as lost:
        read(process, OTHER)

    assert (lost.value.first, lost.value.end) == (1, 3)
    assert read(process, OTHER) == ["4"]
    assert house.subscription().cursor >= 3
