"""One topic: offsets, timestamps, segments, and what retention may remove (rules R10 and R18)."""

from __future__ import annotations

from itertools import pairwise
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.common.core.limits import KIB, MIB
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.proxy.core import topic_log
from reliable_pubsub.proxy.core.appending import next_batch
from reliable_pubsub.proxy.core.applying import apply, committed
from reliable_pubsub.proxy.core.broker import due
from reliable_pubsub.proxy.core.records import Appended, TopicCreated, Trimmed
from reliable_pubsub.proxy.core.state import BrokerSettings, Record, State
from reliable_pubsub.proxy.core.stored import StoredSegment, StoredState
from reliable_pubsub.proxy.core.subscription_records import Subscribed, Unsubscribed
from reliable_pubsub.proxy.core.subscriptions import Subscription
from reliable_pubsub.proxy.core.topic_log import (
    SEGMENT_BATCHES,
    TRIM_SEGMENTS_MAX,
    Retention,
    TopicLog,
)
from reliable_pubsub.proxy.features import TABLES
from tests.fakes import (
    EMPTY,
    NOW_NS,
    SECOND_NS,
    a_body,
    a_broker,
    a_put,
    a_setup,
    a_sub,
    an_ack,
    an_append,
    an_unsub,
    as_stored,
    greeted,
    put_body,
)

BIG = b"x" * 600 * KIB  # two of them fill a segment
KEEP_NOTHING = Retention(history_bytes=0)


def a_log(retention: Retention = KEEP_NOTHING) -> TopicLog:
    return TopicLog(1, "t", "x.1", retention)


def next_timestamp_ns(log: TopicLog, now_ns: int) -> int:
    state = State(EMPTY, a_setup())
    return next_batch(state, log, a_put(1), b"", count=1, crc=0, now_ns=now_ns).timestamp_ns


def fill(log: TopicLog, batches: int, *, apart_ns: int = 1, durable: bool = True) -> None:
    """Append big batches, one message each."""
    for _ in range(batches):
        batch = an_append(log.end, body=BIG, timestamp_ns=max(log.timestamp_ns, NOW_NS) + apart_ns)
        log.append(batch, log.end + 1)
    if durable:
        log.durable_end = log.end


def reader_at(log: TopicLog, name: str, cursor: int, *, durable: int | None = None) -> None:
    held = cursor if durable is None else durable
    log.subscriptions[name] = Subscription(1, cursor, held, True, 0, cursor, Terms())
    log.index_subscription(name)


class TestOffsets:
    def test_are_dense_and_begin_with_zero(self) -> None:
        log = a_log()

        log.append(an_append(0, count=3), 1)
        log.append(an_append(3, count=2), 2)

        assert (log.start, log.end) == (0, 5)

    def test_leave_no_gap(self) -> None:
        log = a_log()

        with pytest.raises(AssertionError):
            log.append(an_append(1), 1)

    def test_stay_what_they_are_when_the_log_is_trimmed(self) -> None:
        """H16: positions are not indexes; trimming shifts nothing."""
        log = a_log()
        fill(log, 4)

        log.trim(2, 5)
        log.append(an_append(4, timestamp_ns=NOW_NS + 99), 5)

        assert (log.start, log.end) == (2, 5)


class TestTimestamps:
    @given(st.lists(st.integers(0, 2 * NOW_NS), min_size=1, max_size=30))
    def test_grow_strictly_whatever_the_clock_does(self, clock: list[int]) -> None:
        """H24, R18: time is an index, so it has an order even when the clock is set back."""
        log = a_log()
        stamps = []

        for now_ns in clock:
            stamps.append(next_timestamp_ns(log, now_ns))
            log.append(an_append(log.end, timestamp_ns=stamps[-1]), 1)

        assert all(a < b for a, b in pairwise(stamps))

    def test_are_the_clock_where_the_clock_continues(self) -> None:
        log = a_log()
        fill(log, 1)

        assert next_timestamp_ns(log, NOW_NS + SECOND_NS) == NOW_NS + SECOND_NS

    def test_continue_after_the_newest_when_all_batches_were_removed_and_the_proxy_restarts(
        self,
    ) -> None:
        proxy = a_broker(settings=BrokerSettings(retention=KEEP_NOTHING))
        proxy.put(1)
        newest_ns = proxy.state.topics["t"].timestamp_ns
        proxy.tick()
        proxy = proxy.restarted()
        proxy.now_ns = 5

        proxy.put(2)

        assert proxy.state.topics["t"].timestamp_ns == newest_ns + proxy.state.timestamp_step_ns


class TestSegments:
    def test_hold_about_a_mebibyte(self) -> None:
        log = a_log()

        fill(log, 5)

        assert [(s.base, s.end) for s in log.segments] == [(0, 2), (2, 4), (4, 5)]
        assert log.stored_bytes == 5 * len(BIG)

    def test_hold_so_many_batches_at_most(self) -> None:
        log = a_log()

        for offset in range(SEGMENT_BATCHES + 1):
            log.append(an_append(offset), 1)

        assert [s.batches for s in log.segments] == [SEGMENT_BATCHES, 1]


class TestRetention:
    def test_removes_what_every_subscriber_has_acknowledged(self) -> None:
        log = a_log()
        fill(log, 6)
        reader_at(log, "fast", 6)
        reader_at(log, "slow", 4)

        assert log.start_due(NOW_NS) == 4

    def test_removes_nothing_that_one_subscriber_has_not_acknowledged(self) -> None:
        log = a_log()
        fill(log, 6)
        reader_at(log, "fast", 6)
        reader_at(log, "new", 0)

        assert log.start_due(NOW_NS) is None

    def test_keeps_about_so_many_messages_that_all_have_acknowledged(self) -> None:
        """Whole segments go, here of two messages: one more would leave one."""
        keep = Retention(history_messages=2, history_s=1e9)
        log = a_log(keep)
        fill(log, 6)
        reader_at(log, "s", 5)

        assert log.start_due(NOW_NS) == 2

    def test_goes_by_cursors_that_are_durable(self) -> None:
        """H18: a crash may take a cursor back, and then the messages must be there."""
        log = a_log()
        fill(log, 6)
        reader_at(log, "s", 6, durable=2)

        assert log.start_due(NOW_NS) == 2

    def test_removes_nothing_that_is_not_durable_itself(self) -> None:
        log = a_log()
        fill(log, 4)
        fill(log, 4, durable=False)

        assert log.start_due(NOW_NS) == 4

    def test_waits_for_the_cursor_that_an_ack_made_durable(self) -> None:
        """H18: the same, seen from outside: a cursor counts when the disk has it."""
        proxy = a_broker(settings=BrokerSettings(retention=KEEP_NOTHING))
        proxy.ask(a_sub())
        proxy.put(1)
        proxy.decide(an_ack(1))

        early = due(proxy.state, TABLES, now_s=1.0)
        proxy.commit()
        late = due(proxy.state, TABLES, now_s=2.0)

        assert list(early) == []
        assert [record.start for record in late if isinstance(record, Trimmed)] == [1]

    def test_waits_for_a_subscription_that_is_still_in_flight(self) -> None:
        """H18: from its SUB on, nothing after the cursor of a new subscriber may go."""
        proxy = a_broker(settings=BrokerSettings(retention=KEEP_NOTHING))
        proxy.put(1)
        proxy.decide(a_sub(cursor=0))

        assert due(proxy.state, TABLES, now_s=1.0) == []

    def test_is_no_longer_held_up_by_a_subscription_that_has_ended(self) -> None:
        """H9: no ghost keeps messages forever."""
        proxy = a_broker(settings=BrokerSettings(retention=KEEP_NOTHING))
        proxy.ask(a_sub(1))
        proxy.put(1)
        proxy.ask(an_unsub(2))

        proxy.tick()

        assert proxy.state.topics["t"].start == 1

    def test_keeps_acknowledged_history_up_to_its_bytes(self) -> None:
        log = a_log(Retention(history_bytes=3 * len(BIG)))
        fill(log, 6)

        assert log.start_due(NOW_NS) == 4

    def test_keeps_acknowledged_history_up_to_its_age(self) -> None:
        log = a_log(Retention(history_bytes=100 * MIB, history_s=60.0))
        fill(log, 6, apart_ns=10 * SECOND_NS)

        young, old = log.start_due(NOW_NS + 70 * SECOND_NS), log.start_due(NOW_NS + 81 * SECOND_NS)

        assert (young, old) == (None, 2)

    def test_works_in_a_topic_that_is_not_written_to_any_more(self) -> None:
        retention = Retention(history_s=60.0)
        proxy = a_broker(settings=BrokerSettings(retention=retention))
        proxy.put(1)
        proxy.tick(now_s=1.0)

        proxy.tick(now_s=62.0)

        assert proxy.state.topics["t"].start == 1

    def test_removes_without_subscribers_what_is_above_its_limits(self) -> None:
        """H21: a topic without subscribers keeps its history only."""
        log = a_log(Retention(history_bytes=2 * len(BIG)))
        fill(log, 6)

        assert log.start_due(NOW_NS) == 4

    def test_removes_only_so_much_at_once(self) -> None:
        log = a_log()
        fill(log, 2 * (TRIM_SEGMENTS_MAX + 3))

        first = log.start_due(NOW_NS)
        assert first is not None
        log.trim(first, 99)
        second = log.start_due(NOW_NS)

        assert (first, second) == (2 * TRIM_SEGMENTS_MAX, log.end)

    def test_removes_the_rest_step_by_step_without_traffic(self) -> None:
        body = a_body(BIG)
        proxy = a_broker(settings=BrokerSettings(retention=KEEP_NOTHING))
        for sequence in range(1, 13):
            proxy.ask(a_put(sequence, body=body), body)
        log = proxy.state.topics["t"]

        starts: list[int] = []
        with patch.object(topic_log, "TRIM_SEGMENTS_MAX", 2):
            while not starts or log.start > starts[-1]:
                starts.append(log.start)
                proxy.tick(now_s=float(len(starts)))

        assert starts == [0, 4, 8, 12]

    def test_can_be_chosen_for_one_topic(self) -> None:
        settings = BrokerSettings(topics={"short": KEEP_NOTHING})
        proxy = a_broker(settings=settings)
        proxy.put(1, topic="short")
        proxy.put(1, topic="long")

        proxy.tick()

        starts = {name: log.start for name, log in proxy.state.topics.items()}
        assert starts == {"short": 1, "long": 0}


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["put", "put", "put", "read", "trim"]), st.integers(0, 20)),
        min_size=20,
        max_size=40,
    )
)
def test_the_bytes_below_the_watermark_are_those_of_its_whole_segments(
    steps: list[tuple[str, int]],
) -> None:
    """They are counted as the watermark moves, forwards and back, and not from the start."""
    log = TopicLog(1, "t", "x.1", Retention())
    with patch.object(topic_log, "SEGMENT_BATCHES", 2):
        log.append(an_append(0), 1)
        for kind, value in steps:
            if kind == "put":
                log.append(an_append(log.end, body=b"x" * (value + 1)), 1)
            elif kind == "trim" and len(log.segments) > 1:
                log.trim(log.segments[value % (len(log.segments) - 1)].end, 1)
            floor = min(log.start + value, log.end)

            expected = sum(one.body_bytes for one in log.segments if one.end <= floor)

            assert log._bytes_below(floor) == expected


def a_state() -> State:
    """A state with one topic and a subscriber, all of it durable."""
    state = State(EMPTY, a_setup())
    apply(state, [greeted("publisher", "p"), greeted("subscriber", "s")])
    apply(state, [TopicCreated(1, "t", "x.1"), Subscribed(1, "s", 1, 0, 1, b"nonce-01", 1)])
    committed(state, state.lsn)
    return state


def places(segments: list[StoredSegment]) -> list[tuple[int, int, int, int]]:
    return [(s.base, s.end, s.body_bytes, s.batches) for s in segments]


class TestAFailedCommit:
    """The segments without what the disk did not take."""

    def test_takes_the_batches_away_that_were_not_durable(self) -> None:
        state = a_state()
        apply(state, [an_append(0, body=BIG)])
        committed(state, state.lsn)
        before = places(list(state.durable_segments()[1]))

        apply(state, [an_append(offset, body=BIG) for offset in range(1, 6)])

        assert places(list(state.durable_segments()[1])) == before == [(0, 1, len(BIG), 1)]

    def test_leaves_a_topic_empty_that_had_nothing_durable(self) -> None:
        state = a_state()

        apply(state, [an_append(offset) for offset in range(3)])

        assert state.durable_segments()[1] == []

    def test_brings_back_what_a_trim_in_flight_had_removed(self) -> None:
        """The store still holds those batches, so they count to the bound of the topic."""
        state = a_state()
        apply(state, [an_append(offset, body=BIG) for offset in range(4)])
        committed(state, state.lsn)
        before = places(list(state.durable_segments()[1]))

        apply(state, [Trimmed(1, 2, 4, NOW_NS + 3)])

        assert places(list(state.durable_segments()[1])) == before

    @given(
        durable=st.lists(st.sampled_from([1, 300 * KIB, 700 * KIB]), max_size=8),
        lost=st.lists(st.sampled_from([1, 300 * KIB, 700 * KIB]), max_size=8),
    )
    def test_gives_what_a_new_start_would_count(self, durable: list[int], lost: list[int]) -> None:
        state, counted = a_state(), a_state()
        for offset, size in enumerate(durable):
            batch = an_append(offset, body=b"x" * size)
            apply(state, [batch])
            apply(counted, [batch])
        committed(state, state.lsn)
        for offset, size in enumerate(lost, start=len(durable)):
            apply(state, [an_append(offset, body=b"x" * size)])

        kept = list(state.durable_segments().get(1, ()))

        assert places(kept) == places(counted.topics["t"].segment_values())


class TestRestore:
    def test_gives_the_state_that_was_stored(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.put(1, count=3)
        proxy.put(4)
        proxy.ask(an_ack(2))
        stored = as_stored(proxy.durable)

        restored = State(stored, a_setup())

        assert as_stored(restored) == stored == as_stored(proxy.state)

    def test_counts_topics_on_so_that_no_log_id_is_used_twice(self) -> None:
        """H13: a log id names one log, forever."""
        proxy = a_broker()
        proxy.put(1, topic="a")
        proxy = proxy.restarted()

        decision = proxy.decide(a_put(1, topic="b"), put_body(1))

        assert decision.records[0] == TopicCreated(2, "b", f"{EMPTY.store_id}.2")


def test_replaying_the_records_gives_the_same_state() -> None:
    """One way to change the state, live and in a replay."""
    proxy = a_broker()
    proxy.ask(a_sub(1))
    proxy.put(1, count=2)
    records: list[Record] = [
        greeted("publisher", "p"),
        greeted("subscriber", "s"),
        TopicCreated(1, "t", f"{EMPTY.store_id}.1"),
        Subscribed(1, "s", 1, 0, 1, b"nonce-01", 1),
        Appended(1, 0, 2, "p", 1, 1, NOW_NS, a_put(1, count=2).crc, put_body(1, 2)),
        Unsubscribed(1, "s", 1, 0, 1, b"nonce-01", 2),
    ]
    proxy.ask(an_unsub(2))
    replayed = State(StoredState(EMPTY.store_id), a_setup())

    apply(replayed, records)

    assert as_stored(replayed) == as_stored(proxy.state)
