"""What a turn of the proxy costs: it follows what happens, not what lives (rule R26)."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any
from unittest.mock import patch

import pytest

from reliable_pubsub.common.core.message_base import Start, Terms
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.proxy.core import topic_log
from reliable_pubsub.proxy.core.applying import apply, committed
from reliable_pubsub.proxy.core.batches import LogBatch
from reliable_pubsub.proxy.core.broker import due
from reliable_pubsub.proxy.core.lower_bounds import LowerBounds
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.features import TABLES
from tests.fakes import (
    NOW_NS,
    MemoryLog,
    MemoryProxy,
    a_broker,
    a_bye,
    a_get,
    a_hello,
    a_put,
    a_sub,
    an_ack,
    an_append,
    decide,
    put_body,
)

MANY = 200
LEASE = Terms(lease_ms=10_000)


def with_subscribers(terms: Terms, *, settings: BrokerSettings = BrokerSettings()) -> MemoryProxy:  # noqa: B008
    """Many subscribers, each heard a little later than the one before."""
    proxy = a_broker(settings=settings)
    proxy.tick(now_s=0.0)
    for number in range(MANY):
        proxy.now_s = number / MANY
        proxy.decide(a_hello("subscriber", f"s{number}"))
        proxy.decide(a_sub(client=f"s{number}", terms=terms))
    proxy.commit()
    proxy.tick(now_s=1.0)
    return proxy


def counted(proxy: MemoryProxy) -> list[str]:
    """A list to which each client is added whose silence is looked up from now on."""
    asked: list[str] = []
    silent_s = proxy.state.leases.silent_s

    def counting(client: str) -> float:
        asked.append(client)
        return silent_s(client)

    proxy.state.leases.silent_s = counting  # type: ignore[method-assign]
    return asked


class TestATick:
    def test_looks_at_no_lease_that_does_not_end(self) -> None:
        proxy = with_subscribers(LEASE)
        looks = counted(proxy)

        for tick in range(40):
            proxy.tick(now_s=2.0 + tick / 4)

        assert len(looks) <= 40  # at the next one to end, each time

    def test_looks_once_at_each_lease_that_was_prolonged_since(self) -> None:
        proxy = with_subscribers(LEASE)
        for heard_s in (5.0, 10.0, 15.0):
            proxy.now_s = heard_s
            for number in range(MANY):
                proxy.decide(a_get(0, client=f"s{number}"))
        looks = counted(proxy)

        for tick in range(40):
            proxy.tick(now_s=16.0 + tick / 4)

        assert MANY <= len(looks) <= MANY + 40

    def test_ends_every_lease_at_its_time(self) -> None:
        proxy = with_subscribers(LEASE)

        proxy.tick(now_s=20.5)
        half = sum(one.expired for one in proxy.state.topics["t"].subscriptions.values())
        proxy.tick(now_s=21.5)

        assert half == MANY // 2
        assert len(proxy.state.topics["t"].listening) == 0

    def test_looks_at_no_topic_in_which_nothing_has_happened(self) -> None:
        proxy = a_broker()
        for number in range(MANY):
            proxy.put(1, topic=f"t{number}")
        proxy.tick(now_s=1.0)
        before = proxy.state.ages.looks

        for tick in range(40):
            proxy.tick(now_s=2.0 + tick)

        assert proxy.state.ages.looks - before <= 40

    def test_removes_what_has_aged_in_a_topic_where_nothing_else_happens(self) -> None:
        proxy = a_broker(settings=BrokerSettings(retention=Retention(history_s=60.0)))
        proxy.put(1)
        proxy.tick(now_s=1.0)

        proxy.tick(now_s=62.0)

        assert proxy.state.topics["t"].start == 1

    def test_removes_what_had_aged_while_a_subscriber_held_it_back(self) -> None:
        settings = BrokerSettings(retention=Retention(history_s=60.0))
        proxy = a_broker(settings=settings)
        proxy.ask(a_sub())
        proxy.put(1)
        proxy.tick(now_s=61.0)
        held = proxy.state.topics["t"].start

        proxy.ask(a_get(1))
        proxy.tick(now_s=62.0)

        assert (held, proxy.state.topics["t"].start) == (0, 1)


class TestAPut:
    def test_looks_at_no_subscription_that_keeps_up(self) -> None:
        retention = Retention(waiting_messages_max=10)
        proxy = with_subscribers(Terms(), settings=BrokerSettings(retention=retention))
        holding = proxy.state.topics["t"].holding
        before = holding.looks

        for sequence in range(1, 9):
            proxy.ask(a_put(sequence), put_body(sequence))

        assert holding.looks - before <= 8


class TestABye:
    def test_looks_at_no_topic_that_its_sender_is_not_subscribed_to(self) -> None:
        proxy = a_broker()
        for number in range(MANY):
            proxy.put(1, topic=f"t{number}")
        proxy.ask(a_sub(topic="t7", terms=Terms(session="clean", lease_ms=1000)))

        class Untouchable(dict):  # type: ignore[type-arg]
            def values(self) -> None:  # type: ignore[override]
                raise AssertionError("every topic was looked at")

        proxy.state.topics = Untouchable(proxy.state.topics)
        ended = proxy.decide(a_bye()).records

        assert len(ended) == 1


MANY_MORE = 2000


def bytecodes(work: Callable[[], object]) -> int:
    """What the interpreter does for a piece of work: the same on every machine."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


class OneBatch(MemoryLog):
    """A log whose cost is not the proxy's: the batch that is looked for is at hand."""

    def read(
        self, topic_id: int, offset: int, *, messages_max: int, bytes_max: int
    ) -> list[LogBatch]:
        return [an_append(offset, topic_id=topic_id)]

    def timestamp_ns(self, topic_id: int, offset: int) -> int | None:
        return NOW_NS + offset

    def first_since(self, topic_id: int, base: int, end: int, timestamp_ns: int) -> int | None:
        return base


def with_topics(count: int) -> MemoryProxy:
    """A number of topics, each with a message and a subscriber that has not read it."""
    proxy = a_broker(log=OneBatch())
    for number in range(count):
        topic = f"t{number}" if number else "t"
        proxy.decide(a_sub(1 + number, topic=topic))
        proxy.decide(a_put(1, topic=topic), put_body(1))
    proxy.commit()
    return proxy


def with_subscriptions(count: int, terms: Terms) -> MemoryProxy:
    """One topic with a message, and a number of subscribers that have not read it."""
    proxy = a_broker(log=OneBatch())
    proxy.decide(a_sub(terms=terms))
    for number in range(1, count):
        proxy.decide(a_hello("subscriber", f"s{number}"))
        proxy.decide(a_sub(client=f"s{number}", terms=terms))
    proxy.put(1)
    return proxy


def with_batches(count: int) -> MemoryProxy:
    """One topic with a number of batches, in as many segments, and a subscriber at its first."""
    with patch.object(topic_log, "SEGMENT_BATCHES", 1):
        proxy = a_broker(log=OneBatch())
        proxy.decide(a_sub())
        for sequence in range(1, count + 1):
            proxy.decide(a_put(sequence), put_body(sequence))
        proxy.commit()
    return proxy


def with_read_batches(count: int) -> MemoryProxy:
    """The same, and its subscriber has acknowledged half of them."""
    proxy = with_batches(count)
    proxy.ask(an_ack(count // 2))
    return proxy


class TestTheCostOfARequest:
    """It is the same, whatever else the proxy holds."""

    @pytest.mark.parametrize(
        "world",
        [
            with_topics,
            lambda count: with_subscriptions(count, Terms()),
            lambda count: with_subscriptions(count, LEASE),
            with_batches,
            with_read_batches,
        ],
        ids=["topics", "subscriptions", "leases", "batches", "read batches"],
    )
    def test_is_flat(self, world: Callable[[int], MemoryProxy]) -> None:
        few, many = costs(world(1)), costs(world(MANY_MORE))

        for what, cost in many.items():
            assert cost <= 1.3 * few[what], (what, few[what], cost)


def costs(proxy: MemoryProxy) -> Mapping[str, int]:
    """Bytecodes of each request, applied and durable, and of a tick in which nothing is due."""
    state = proxy.state

    def ask(request: AnyRequest, body: bytes = b"") -> Callable[[], object]:
        def work() -> None:
            apply(state, decide(state, request, body, now_ns=NOW_NS).records)
            committed(state, state.lsn)

        return work

    for now_s in (1.0, 2.0):  # all that is due at first is done
        due(state, TABLES, now_s=now_s)
    newest_ns = state.topics["t"].timestamp_ns
    sequence = state.topics["t"].publishers["p"].last_sequence + 1
    return {
        "put": bytecodes(ask(a_put(sequence), put_body(sequence))),
        "get": bytecodes(ask(a_get(0))),
        "ack": bytecodes(ask(an_ack(1))),
        "tick": bytecodes(lambda: due(state, TABLES, now_s=3.0)),
        "sub": bytecodes(ask(a_sub(1_000_000))),
        "sub by time": bytecodes(ask(a_sub(1_000_001, start=Start("time", newest_ns)))),
        "hello": bytecodes(ask(a_hello("publisher", "p", epoch=2))),
    }


class TestLowerBounds:
    def test_gives_what_sorting_would_give_whatever_happens(self) -> None:
        chance = random.Random(1)
        numbers: dict[int, float] = {}
        bounds: LowerBounds[int] = LowerBounds()
        for _ in range(3000):
            key = chance.randrange(40)
            match chance.randrange(5):
                case 0:
                    numbers[key] = chance.random()
                    bounds.add(key, numbers[key])
                case 1 | 2:
                    numbers[key] = numbers.get(key, 0.0) + chance.random()
                    bounds.add(key, 0.0)
                case 3:
                    numbers.pop(key, None)
                case _:
                    end = chance.random() * 3
                    expected = sorted((n, k) for k, n in numbers.items() if n < end)
                    assert bounds.take_below(end, numbers.get) == [k for _, k in expected]
                    for _, taken in expected:
                        del numbers[taken]

    def test_keeps_no_more_entries_than_twice_its_keys(self) -> None:
        bounds: LowerBounds[int] = LowerBounds()

        for bound in range(10_000, 0, -1):
            bounds.add(1, bound)

        assert len(bounds._heap) < 100
