"""Clocks that are wrong: what a retention, a lag and an age count (rule R36)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import SubAck
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.proxy.core.local_time import GAP_NS_MAX, STEADY_S
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.transactions.staging import Staging
from tests.fakes import (
    SECOND_NS,
    MemoryProxy,
    a_broker,
    a_stage,
    a_sub,
    as_stored,
    put_body,
)

DAY_S = 86_400
SETTINGS = BrokerSettings(retention=Retention(history_s=60.0))


def a_proxy() -> MemoryProxy:
    proxy = a_broker(settings=SETTINGS)
    proxy.tick(now_s=0.0)
    return proxy


def set_clock(proxy: MemoryProxy, by_s: float) -> None:
    proxy.now_ns += int(by_s * SECOND_NS)


def pass_time(proxy: MemoryProxy, by_s: float) -> None:
    set_clock(proxy, by_s)
    proxy.tick(now_s=proxy.now_s + by_s)


def start(proxy: MemoryProxy) -> int:
    return proxy.state.topics["t"].start


class TestRetentionByAge:
    @pytest.mark.parametrize("ahead_s", [DAY_S, 36_525 * DAY_S])
    def test_continues_after_a_message_from_a_clock_that_was_ahead(self, ahead_s: int) -> None:
        proxy = a_proxy()
        set_clock(proxy, ahead_s)
        proxy.put(1)
        set_clock(proxy, -ahead_s)
        proxy.put(2)

        pass_time(proxy, 59.0)
        early = start(proxy)
        pass_time(proxy, 2.0)

        assert (early, start(proxy)) == (0, 2)

    def test_continues_after_a_clock_was_set_back(self) -> None:
        proxy = a_proxy()
        proxy.put(1)
        set_clock(proxy, -3600)
        proxy.put(2)

        pass_time(proxy, 61.0)

        assert start(proxy) == 2

    def test_removes_nothing_early_because_a_clock_is_ahead(self) -> None:
        proxy = a_proxy()
        proxy.put(1)

        set_clock(proxy, 30 * 3600)
        pass_time(proxy, 5.0)

        assert start(proxy) == 0

    def test_continues_at_a_restart_with_timestamps_that_are_ahead(self) -> None:
        proxy = a_proxy()
        set_clock(proxy, DAY_S)
        proxy.put(1)
        proxy = proxy.restarted()  # with the right clock
        proxy.tick(now_s=1000.0)

        pass_time(proxy, 59.0)
        early = start(proxy)
        pass_time(proxy, 2.0)

        assert (early, start(proxy)) == (0, 1)

    def test_counts_a_short_stop_of_the_proxy(self) -> None:
        proxy = a_proxy()
        proxy.put(1)
        proxy = proxy.restarted()
        set_clock(proxy, 61)

        proxy.tick(now_s=1000.0)

        assert start(proxy) == 1

    def test_counts_a_long_gap_only_when_the_clock_was_steady_for_an_hour(self) -> None:
        hour_s = GAP_NS_MAX // SECOND_NS
        settings = BrokerSettings(retention=Retention(history_s=5.0 * hour_s))
        proxy = a_broker(settings=settings)
        proxy.put(1)
        proxy = proxy.restarted()
        set_clock(proxy, 30 * hour_s)
        proxy.tick(now_s=1000.0)
        pass_time(proxy, STEADY_S - 1.0)
        early = start(proxy)

        pass_time(proxy, 2.0)
        pass_time(proxy, 1.0)

        assert (early, start(proxy)) == (0, 1)

    def test_loses_nothing_at_a_start_with_a_clock_that_is_soon_corrected(self) -> None:
        settings = BrokerSettings(retention=Retention(history_s=float(DAY_S)))
        proxy = a_broker(settings=settings)
        proxy.put(1)
        proxy = proxy.restarted()
        set_clock(proxy, 30 * 3600)
        proxy.tick(now_s=1000.0)

        set_clock(proxy, -30 * 3600)
        for _ in range(20):
            pass_time(proxy, 3600.0)

        assert start(proxy) == 0

    def test_keeps_its_ages_after_a_full_disk(self) -> None:
        proxy = a_proxy()
        proxy.put(1)
        set_clock(proxy, DAY_S)
        proxy.put(2)
        pass_time(proxy, 30.0)

        segments = proxy.state.durable_segments()
        stored = as_stored(proxy.durable)
        topics = [replace(one, segments=segments[one.topic_id]) for one in stored.topics]
        proxy.engine.failed(replace(stored, topics=topics), "full", now_s=proxy.now_s)
        pass_time(proxy, 20.0)
        early = start(proxy)
        pass_time(proxy, 15.0)

        assert (early, start(proxy)) == (0, 2)


class TestTimestamps:
    def test_grow_at_half_the_speed_of_time_until_the_clock_has_caught_up(self) -> None:
        proxy = a_proxy()
        set_clock(proxy, 100)
        proxy.put(1)
        ahead_ns = proxy.now_ns
        set_clock(proxy, -100)

        stamps = []
        for sequence in range(2, 26):
            pass_time(proxy, 10.0)
            proxy.put(sequence)
            stamps.append(proxy.state.topics["t"].timestamp_ns)

        assert stamps[0] == pytest.approx(ahead_ns + 5 * SECOND_NS, abs=SECOND_NS // 1000)
        assert stamps[-1] == proxy.now_ns


class TestALag:
    def test_is_the_time_that_has_passed_although_the_timestamps_are_ahead(self) -> None:
        proxy = a_proxy()
        proxy.ask(a_sub())
        set_clock(proxy, DAY_S)
        proxy.put(1)
        set_clock(proxy, -DAY_S)

        pass_time(proxy, 40.0)

        report = proxy.ask(Status(client="watch", epoch=0, request=1))
        assert isinstance(report, StatusReport)
        assert report.topics[0].subscriptions[0].lag_s == pytest.approx(40.0)


class TestAnAge:
    def test_begins_with_what_was_put_since_although_the_timestamps_are_ahead(self) -> None:
        proxy = a_broker()
        proxy.tick(now_s=0.0)
        set_clock(proxy, DAY_S)
        proxy.put(1)
        set_clock(proxy, -DAY_S)
        pass_time(proxy, 1000.0)
        proxy.put(2)
        pass_time(proxy, 100.0)

        everything = proxy.ask(a_sub(1, start=Start("age", 2000 * SECOND_NS)))
        recent = proxy.ask(a_sub(2, start=Start("age", 500 * SECOND_NS), seeks=True))
        nothing = proxy.ask(a_sub(3, start=Start("age", 50 * SECOND_NS), seeks=True))

        begins = [one.cursor for one in (everything, recent, nothing) if isinstance(one, SubAck)]
        assert begins == [0, 1, 2]


class TestWhatIsStaged:
    def test_stays_when_the_clock_is_set_ahead(self) -> None:
        proxy = a_proxy()
        proxy.ask(a_stage(1), put_body(1))

        set_clock(proxy, DAY_S)
        pass_time(proxy, 1.0)

        assert proxy.state.part(Staging).batches == 1


class TestASetClock:
    @pytest.mark.parametrize("by_s", [DAY_S, -3600.0])
    def test_is_counted_once(self, by_s: float) -> None:
        proxy = a_proxy()

        set_clock(proxy, by_s)
        pass_time(proxy, 1.0)
        pass_time(proxy, 1.0)

        local = proxy.engine.local
        assert local.steps == 1
        assert local.step_s == pytest.approx(by_s)

    def test_is_not_a_pause_of_the_process(self) -> None:
        proxy = a_proxy()

        pass_time(proxy, 3600.0)

        assert proxy.engine.local.steps == 0

    def test_shows_by_how_much_the_timestamps_are_ahead(self) -> None:
        proxy = a_proxy()
        set_clock(proxy, DAY_S)
        proxy.put(1)
        set_clock(proxy, -DAY_S)
        pass_time(proxy, 1.0)

        assert proxy.engine.local.ahead_s == pytest.approx(DAY_S - 1.0)
