"""GET, ACK, HISTORY: looking moves nothing, and only what is durable is seen (rules R7, R10)."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import (
    Fenced,
    LogChanged,
    Lost,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    PutAck,
    Stale,
    Truncated,
)
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import FencedError, LostError
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.proxy.core.records import Appended
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.subscription_records import CursorMoved
from reliable_pubsub.proxy.core.topic_log import Retention
from tests.fakes import (
    LOG,
    SECOND_NS,
    MemoryProxy,
    a_broker,
    a_get,
    a_hello,
    a_history,
    a_put,
    a_sub,
    an_ack,
    an_unsub,
    decide,
    put_body,
    shown,
)


def with_batches(*counts: int, settings: BrokerSettings = BrokerSettings()) -> MemoryProxy:  # noqa: B008
    """A proxy with a subscriber at offset 0 and batches of this many messages."""
    proxy = a_broker(settings=settings)
    proxy.ask(a_sub(cursor=0))
    sequence = 1
    for count in counts:
        proxy.put(sequence, count=count)
        sequence += count
    return proxy


class TestAGet:
    def test_shows_what_follows_the_cursor(self) -> None:
        proxy = with_batches(1, 1)

        decision = proxy.decide(a_get(1))

        assert shown(decision.reply) == [(1, 1)]
        assert decision.body == put_body(2)

    def test_tells_whose_the_batch_is_and_what_its_body_must_be(self) -> None:
        proxy = with_batches(2)

        reply = proxy.ask(a_get(0))

        assert isinstance(reply, MessageBatches)
        (header,) = reply.batches
        assert (header.publisher, header.first_sequence) == ("p", 1)
        assert (header.crc, header.body_bytes) == (crc32(put_body(1, 2)), len(put_body(1, 2)))
        assert reply.end == 2

    def test_that_is_repeated_is_answered_the_same(self) -> None:
        """H1: an answer that was not read has moved nothing, so its message comes again."""
        proxy = with_batches(1, 1)

        answers = [proxy.decide(a_get(0)) for _ in range(3)]

        assert answers[0].reply == answers[1].reply == answers[2].reply
        assert [len(answer.records) for answer in answers] == [1, 0, 0]  # that it was shown
        assert proxy.state.topics["t"].subscriptions["s"].cursor == 0

    def test_moves_nothing_when_its_answer_is_lost_with_the_subscriber(self) -> None:
        """H5: the subscriber dies with the answer in flight and asks again from its own place."""
        proxy = with_batches(1)
        proxy.ask(a_get(0))
        proxy.ask(a_hello("subscriber", "s", epoch=2))
        proxy.ask(a_sub(1, epoch=2))

        again = proxy.ask(a_get(0, epoch=2))

        assert shown(again) == [(0, 1)]

    def test_acknowledges_what_lies_below_its_cursor_lazily(self) -> None:
        """R7: no answer waits for this; the subscriber itself is the evidence."""
        proxy = with_batches(1, 1)

        decision = proxy.decide(a_get(1))

        assert decision.records == (CursorMoved(1, "s", 1, 1, False, shown=2),)
        assert decision.visible_at <= proxy.state.durable_lsn

    def test_with_an_older_cursor_does_not_take_the_acknowledgement_back(self) -> None:
        proxy = with_batches(1, 1)
        proxy.ask(a_get(2))

        late = proxy.ask(a_get(0))

        assert shown(late) == [(0, 1)]
        assert proxy.state.topics["t"].subscriptions["s"].cursor == 2

    def test_that_finds_nothing_says_so_and_moves_nothing(self) -> None:
        """H20: an empty answer is an answer, with a name of its own."""
        proxy = with_batches(1)
        proxy.ask(a_get(1))

        decision = proxy.decide(a_get(1))

        assert isinstance(decision.reply, NoMessagesYet)
        assert (decision.reply.end, decision.records) == (1, ())

    def test_needs_a_subscription(self) -> None:
        proxy = a_broker()

        never = proxy.ask(a_get(0))
        proxy.ask(a_sub(1))
        proxy.ask(an_unsub(2))
        ended = proxy.ask(a_get(0))

        assert isinstance(never, NotSub)
        assert isinstance(ended, NotSub)
        assert "subscription 1 has ended" in ended.text

    def test_of_an_older_subscription_is_stale(self) -> None:
        proxy = with_batches(1)
        proxy.ask(a_sub(2, cursor=0))

        assert isinstance(proxy.ask(a_get(0, generation=1)), Stale)

    def test_of_an_older_process_is_fenced(self) -> None:
        """H11: a hung process that wakes up cannot move the cursor of its successor."""
        proxy = with_batches(1)
        proxy.ask(a_hello("subscriber", "s", epoch=2))

        answer = proxy.ask(a_get(1))

        assert isinstance(answer, Fenced)
        assert proxy.state.topics["t"].subscriptions["s"].cursor == 0


def test_each_answer_that_is_no_message_says_what_to_do() -> None:
    """Row 1.23: as the proxy says it, or the error that a program gets for it."""
    proxy = with_batches(1)

    not_subscribed = proxy.ask(a_get(0, topic="another"))
    stale = proxy.ask(a_get(0, generation=7))
    changed = proxy.ask(a_get(9))

    assert isinstance(not_subscribed, NotSub)
    assert "subscribe first" in not_subscribed.text
    assert isinstance(stale, Stale)
    assert "subscribe again" in stale.text
    assert isinstance(changed, LogChanged)
    assert "Choose with --on-log-changed" in changed.text
    assert "the next get continues at offset 3" in str(LostError(topic="t", first=0, end=3))
    assert "give it an id of its own" in str(FencedError(client="s", epoch=1, current_epoch=2))


class TestWhatAGetShows:
    def test_is_whole_batches_until_it_has_enough_messages(self) -> None:
        proxy = with_batches(2, 2, 2)

        assert shown(proxy.ask(a_get(0, messages_max=1))) == [(0, 2)]
        assert shown(proxy.ask(a_get(0, messages_max=3))) == [(0, 2), (2, 2)]
        assert shown(proxy.ask(a_get(0, messages_max=100))) == [(0, 2), (2, 2), (4, 2)]

    def test_may_begin_inside_a_batch(self) -> None:
        proxy = with_batches(3, 1)

        reply = proxy.ask(a_get(2, messages_max=2))

        assert shown(reply) == [(0, 3), (3, 1)]

    def test_is_at_least_one_batch_however_few_bytes_are_allowed(self) -> None:
        proxy = with_batches(1, 1)

        assert shown(proxy.ask(a_get(0, messages_max=2, bytes_max=0))) == [(0, 1)]

    def test_is_one_body_after_the_other(self) -> None:
        proxy = with_batches(1, 2)

        decision = proxy.decide(a_get(0, messages_max=3))

        assert decision.body == put_body(1) + put_body(2, 2)

    def test_is_durable(self) -> None:
        """H2, H30: a message that a crash could still take away is not shown."""
        proxy = with_batches(1)
        proxy.decide(a_put(2), put_body(2))

        before = decide(proxy.state, a_get(1), b"", now_ns=0).reply
        proxy.commit()
        later = proxy.ask(a_get(1))

        assert isinstance(before, NoMessagesYet)
        assert before.end == 1
        assert shown(later) == [(1, 1)]

    def test_is_not_what_another_publisher_takes_the_place_of_after_a_crash(self) -> None:
        """H30: the offset of a message that was never durable is used again; it was never seen."""
        proxy = a_broker(publishers=("p", "q"))
        proxy.ask(a_sub())
        proxy.decide(a_put(1, client="p"), put_body(1))
        seen = decide(proxy.state, a_get(0), b"", now_ns=0).reply

        proxy = proxy.restarted()
        proxy.put(1, client="q")
        proxy.ask(a_sub(2))

        assert isinstance(seen, NoMessagesYet)
        reply = proxy.ask(a_get(0, boot="boot-2"))
        assert isinstance(reply, MessageBatches)
        assert reply.batches[0].publisher == "q"

    def test_has_an_offset_for_each_message_and_a_growing_time_for_each_batch(self) -> None:
        """Row 2.3: the one before a message is the one at the offset below, from any publisher."""
        proxy = a_broker(publishers=("p", "q"))  # the clock of the tests moves only when it is set
        for client, sequence, count in (("p", 1, 2), ("q", 1, 1), ("p", 3, 3), ("q", 2, 1)):
            proxy.put(sequence, count=count, client=client)
            proxy.now_ns -= SECOND_NS  # it even goes back
        proxy.ask(a_sub(start=Start("earliest")))

        reply = proxy.ask(a_get(0, messages_max=100))

        assert isinstance(reply, MessageBatches)
        offsets = [b.base + i for b in reply.batches for i in range(b.count)]
        times = [batch.timestamp_ns for batch in reply.batches]
        assert offsets == list(range(7))
        assert times == sorted(set(times))
        assert [batch.publisher for batch in reply.batches] == ["p", "q", "p", "q"]


class TestWhatIsGone:
    def test_is_reported_with_its_offsets(self) -> None:
        """H17, H25: a gap is never silent."""
        proxy = with_batches(1, 1, 1)
        del proxy.log.batches[1][:2]

        reply = proxy.ask(a_get(0))

        assert isinstance(reply, Lost)
        assert (reply.first, reply.end) == (0, 2)
        assert shown(proxy.ask(a_get(2))) == [(2, 1)]

    def test_is_reported_in_the_middle_and_at_the_end(self) -> None:
        proxy = with_batches(1, 1, 1)
        del proxy.log.batches[1][1:]

        reply = proxy.ask(a_get(1))

        assert isinstance(reply, Lost)
        assert (reply.first, reply.end) == (1, 3)

    def test_is_not_what_a_batch_read_together_with_others_hides(self) -> None:
        """A loss after the first batch of an answer shows at the next get, not as a jump."""
        proxy = with_batches(1, 1, 1)
        del proxy.log.batches[1][1]

        first = proxy.ask(a_get(0, messages_max=1))
        second = proxy.ask(a_get(1, messages_max=1))

        assert shown(first) == [(0, 1)]
        assert isinstance(second, Lost)
        assert (second.first, second.end) == (1, 2)

    def test_keeps_the_offsets_of_what_is_left(self) -> None:
        """H16: offsets are absolute; trimming and a restart shift nothing."""
        proxy = with_batches(1, 1, settings=BrokerSettings(retention=Retention(history_bytes=0)))
        proxy.ask(an_ack(2))
        proxy.tick()
        proxy = proxy.restarted()

        third = proxy.put(3)
        proxy.ask(a_sub(2))

        assert isinstance(third, PutAck)
        assert third.offset == 2
        assert proxy.state.topics["t"].start == 2
        assert shown(proxy.ask(a_get(2, boot="boot-2"))) == [(2, 1)]


class TestAnAck:
    def test_is_answered_when_the_cursor_is_durable(self) -> None:
        proxy = with_batches(2)

        decision = proxy.decide(an_ack(1))

        assert isinstance(decision.reply, PutAck)
        assert decision.reply.offset == 1
        assert decision.visible_at > proxy.state.durable_lsn

    def test_waits_for_the_disk_also_after_a_get_that_moved_the_cursor(self) -> None:
        proxy = with_batches(2)
        proxy.decide(a_get(1))

        decision = proxy.decide(an_ack(1))

        assert decision.records == (CursorMoved(1, "s", 1, 1, True, shown=1),)
        assert decision.visible_at > proxy.state.durable_lsn

    def test_of_what_is_acknowledged_is_a_success_without_a_record(self) -> None:
        proxy = with_batches(2)
        proxy.ask(an_ack(2))

        decision = proxy.decide(an_ack(1))

        assert isinstance(decision.reply, PutAck)
        assert (decision.reply.offset, decision.records) == (2, ())


class TestHistory:
    def test_reads_without_session_and_subscription_and_leaves_no_trace(self) -> None:
        proxy = with_batches(1, 2)

        decision = proxy.decide(a_history(1))

        assert shown(decision.reply) == [(1, 2)]
        assert decision.records == ()

    def test_ends_at_the_durable_end(self) -> None:
        """H30: HISTORY is a reader like every other one."""
        proxy = with_batches(1)
        proxy.decide(a_put(2), put_body(2))

        reply = decide(proxy.state, a_history(1), b"", now_ns=0).reply

        assert isinstance(reply, NoMessagesYet)

    def test_of_a_topic_that_is_not_there_is_empty_and_makes_none(self) -> None:
        """H21: reading makes no topic."""
        proxy = a_broker()

        reply = proxy.ask(a_history(0, topic="nowhere"))

        assert isinstance(reply, NoMessagesYet)
        assert proxy.state.topics == {}

    def test_below_what_is_kept_names_the_first_offset_that_is_left(self) -> None:
        proxy = with_batches(1, 1, settings=BrokerSettings(retention=Retention(history_bytes=0)))
        proxy.ask(an_ack(2))
        proxy.tick()

        reply = proxy.ask(a_history(0))

        assert isinstance(reply, Truncated)
        assert reply.start == 2


class TestAPlaceOfAReader:
    """R14: a client that keeps its place elsewhere learns when it is not one of this log."""

    def test_that_is_of_this_log_is_read_from(self) -> None:
        proxy = with_batches(2, 1)
        (first,) = proxy.log.read(1, 0, messages_max=1, bytes_max=0)

        reply = proxy.ask(a_history(2, log=LOG, witness_ns=first.timestamp_ns))

        assert shown(reply) == [(2, 1)]

    @pytest.mark.parametrize(
        ("offset", "log", "witness_ns", "why"),
        [
            (0, "another.1", None, "the log is now"),
            (4, LOG, None, "beyond its end"),
            (2, LOG, 7, "another message"),
        ],
    )
    def test_that_is_not_of_this_log_is_log_changed(
        self, offset: int, log: str, witness_ns: int | None, why: str
    ) -> None:
        reply = with_batches(2, 1).ask(a_history(offset, log=log, witness_ns=witness_ns))

        assert isinstance(reply, LogChanged)
        assert why in reply.text
        assert (reply.log, reply.start, reply.end) == (LOG, 0, 3)

    def test_in_a_topic_that_is_gone_is_log_changed(self) -> None:
        reply = a_broker().ask(a_history(0, log="another.1"))

        assert isinstance(reply, LogChanged)


def test_a_get_shows_nothing_that_the_loop_does_not_yet_know_to_be_durable() -> None:
    """The store was ahead of the loop; the next cursor was then beyond the end."""
    proxy = a_broker()
    proxy.ask(a_sub(cursor=0))
    proxy.put(1)
    pending = proxy.decide(a_put(2), put_body(2))
    proxy.log.add([record for record in pending.records if isinstance(record, Appended)])

    first = proxy.decide(a_get(0, messages_max=10))
    then = proxy.decide(a_get(1, messages_max=10))

    assert shown(first.reply) == [(0, 1)]
    assert isinstance(then.reply, NoMessagesYet)
