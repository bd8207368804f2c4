"""Where a subscription or a reading begins (rule R18): every word for it, and every refusal."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import (
    AnyReply,
    LogChanged,
    Lost,
    Malformed,
    MessageBatches,
    NoMessagesYet,
    OutOfRange,
    SubAck,
    Truncated,
)
from reliable_pubsub.common.core.message_base import Start, StartAt
from reliable_pubsub.proxy.core.records import Trimmed
from tests.fakes import (
    LOG,
    NOW_NS,
    SECOND_NS,
    MemoryProxy,
    a_broker,
    a_get,
    a_history,
    a_put,
    a_sub,
    an_unsub,
    put_body,
    shown,
    sub_ack,
)

MESSAGES = 10


def taken_ns(offset: int) -> int:
    """When the proxy of these tests took a message: one each second."""
    return NOW_NS + offset * SECOND_NS


def with_history(*, start: int = 0) -> MemoryProxy:
    """A topic with offsets `start` to 9, a batch and a second each."""
    proxy = a_broker()
    for offset in range(MESSAGES):
        proxy.now_s, proxy.now_ns = float(offset), taken_ns(offset)
        proxy.put(offset + 1)
    proxy.now_s, proxy.now_ns = float(MESSAGES), taken_ns(MESSAGES)
    if start:
        trim(proxy, start)
    return proxy


def trim(proxy: MemoryProxy, start: int) -> None:
    """Retention removes what lies below `start`."""
    log = proxy.state.topics["t"]
    proxy.take([Trimmed(log.topic_id, start, log.end, log.timestamp_ns)])
    proxy.commit()


def subscribed(proxy: MemoryProxy, start: Start, control: int = 1) -> AnyReply:
    """The answer to a SUB, a second after the last message."""
    return proxy.ask(a_sub(control, start=start))


class TestASubscriptionBegins:
    @pytest.mark.parametrize(
        ("at", "value", "offset"),
        [
            ("now", 0, 10),
            ("earliest", 0, 0),
            ("last", 0, 0),  # it never subscribed: nothing was delivered to it yet
            ("offset", 0, 0),
            ("offset", 4, 4),
            ("offset", 10, 10),
            ("newest", 0, 10),
            ("newest", 3, 7),
            ("newest", 99, 0),
            ("time", 0, 0),
            ("time", taken_ns(4), 4),
            ("time", taken_ns(4) + 1, 5),
            ("time", taken_ns(9) + 1, 10),
            ("age", 2 * SECOND_NS, 8),
            ("age", 2 * SECOND_NS - 1, 9),
            ("age", 2**63 - 1, 0),
        ],
    )
    def test_where_its_start_says(self, at: StartAt, value: int, offset: int) -> None:
        reply = sub_ack(subscribed(with_history(), Start(at, value)))

        assert (reply.cursor, reply.generation, reply.already) == (offset, 1, False)

    @pytest.mark.parametrize(
        ("at", "value", "offset"),
        [("earliest", 0, 4), ("last", 0, 4), ("newest", 9, 4), ("time", taken_ns(4), 4)],
    )
    def test_after_what_retention_has_removed(self, at: StartAt, value: int, offset: int) -> None:
        assert sub_ack(subscribed(with_history(start=4), Start(at, value))).cursor == offset

    def test_once_so_that_another_start_does_not_move_it(self) -> None:
        proxy = with_history()
        first = sub_ack(subscribed(proxy, Start("offset", 3), 1))

        for start in (Start("now"), Start("earliest"), Start("newest", 1), Start("age", 0)):
            proxy.now_ns += 1
            again = sub_ack(subscribed(proxy, start, first.request + 1))
            assert (again.cursor, again.generation, again.already) == (3, 1, True)
            first = again

    def test_again_where_a_seek_moves_it_whatever_was_known(self) -> None:
        proxy = with_history()
        subscribed(proxy, Start("now"), 1)

        reply = sub_ack(proxy.ask(a_sub(2, start=Start("offset", 3), seeks=True)))

        assert (reply.cursor, reply.generation, reply.already) == (3, 2, True)

    def test_once_however_often_the_request_is_repeated(self) -> None:
        proxy = with_history()
        first = sub_ack(subscribed(proxy, Start("age", SECOND_NS)))

        proxy.now_ns *= 2
        again = sub_ack(subscribed(proxy, Start("age", SECOND_NS)))

        assert (again.cursor, again.generation) == (first.cursor, first.generation)

    def test_at_a_time_among_messages_that_are_not_durable_yet(self) -> None:
        """The answer waits for them: a kill in between cannot give their offsets to others."""
        proxy = with_history()
        put = proxy.decide(a_put(11), put_body(11))
        moment = proxy.state.topics["t"].timestamp_ns

        decision = proxy.decide(a_sub(start=Start("time", moment)))

        assert sub_ack(decision.reply).cursor == 10
        assert decision.visible_at > put.visible_at

    def test_in_a_topic_that_does_not_exist_at_its_beginning(self) -> None:
        reply = sub_ack(a_broker().ask(a_sub(start=Start("earliest"))))

        assert (reply.cursor, reply.log) == (0, LOG)

    def test_with_the_history_and_continues_with_what_is_put_then_without_a_seam(self) -> None:
        proxy = with_history()
        subscribed(proxy, Start("newest", 2))
        proxy.put(11)

        assert shown(proxy.ask(a_get(8, messages_max=9))) == [(8, 1), (9, 1), (10, 1)]


class TestTheLastReceived:
    def test_of_a_subscription_that_has_ended_is_where_it_stood(self) -> None:
        proxy = with_history()
        subscribed(proxy, Start("offset", 2), 1)
        proxy.ask(a_get(5))
        proxy.ask(an_unsub(2))

        reply = sub_ack(subscribed(proxy, Start("last"), 3))

        assert (reply.cursor, reply.generation, reply.already) == (5, 2, False)

    def test_of_a_subscription_that_exists_is_where_it_stands(self) -> None:
        proxy = with_history()
        subscribed(proxy, Start("offset", 2), 1)
        proxy.ask(a_get(5))

        reply = sub_ack(subscribed(proxy, Start("last"), 2))

        assert (reply.cursor, reply.generation, reply.already) == (5, 1, True)

    def test_that_retention_has_removed_is_reported_by_the_first_get(self) -> None:
        """Never silent: what should have been delivered and is gone is LOST, not skipped."""
        proxy = with_history()
        subscribed(proxy, Start("offset", 2), 1)
        proxy.ask(an_unsub(2))
        trim(proxy, 6)

        reply = sub_ack(subscribed(proxy, Start("last"), 3))
        lost = proxy.ask(a_get(reply.cursor, generation=2))

        assert isinstance(lost, Lost)
        assert (lost.first, lost.end) == (2, 6)


class TestAPlaceThatCannotBe:
    @pytest.mark.parametrize(
        ("at", "value"),
        [("offset", 3), ("time", taken_ns(3)), ("age", 7 * SECOND_NS), ("time", 0)],
    )
    def test_because_it_is_gone_is_truncated_and_names_the_first_that_is_left(
        self, at: StartAt, value: int
    ) -> None:
        proxy = with_history(start=4)

        reply = subscribed(proxy, Start(at, value))

        assert isinstance(reply, Truncated)
        assert (reply.start, reply.start_ns) == (4, taken_ns(4))
        assert "the first that is left is offset 4" in reply.text
        assert not proxy.state.topics["t"].subscriptions

    @pytest.mark.parametrize(
        ("at", "value"), [("offset", 11), ("offset", 2**63 - 1), ("time", taken_ns(11))]
    )
    def test_because_it_lies_in_the_future_is_out_of_range_and_names_what_can_be(
        self, at: StartAt, value: int
    ) -> None:
        proxy = with_history()

        reply = subscribed(proxy, Start(at, value))

        assert isinstance(reply, OutOfRange)
        assert (reply.start, reply.end) == (0, 10)
        assert not proxy.state.topics["t"].subscriptions

    def test_because_it_speaks_of_another_log_is_reported(self) -> None:
        """A position that was read from a proxy that has been replaced since."""
        reply = with_history().ask(a_sub(log="another.1", start=Start("offset", 3)))

        assert isinstance(reply, LogChanged)

    def test_of_the_right_log_is_taken(self) -> None:
        assert sub_ack(with_history().ask(a_sub(log=LOG, start=Start("offset", 3)))).cursor == 3


class TestAReading:
    @pytest.mark.parametrize(
        ("start", "first"),
        [
            (Start("earliest"), 4),
            (Start("newest", 1), 9),
            (Start("time", taken_ns(6)), 6),
            (Start("offset", 7), 7),
        ],
    )
    def test_begins_where_its_start_says_and_names_offset_and_log(
        self, start: Start, first: int
    ) -> None:
        reply = with_history(start=4).ask(a_history(start))

        assert isinstance(reply, MessageBatches)
        assert (reply.first, reply.log, reply.batches[0].base) == (first, LOG, first)

    @pytest.mark.parametrize(
        "start", [Start("now"), Start("offset", 10), Start("offset", 99), Start("time", 2**62)]
    )
    def test_of_what_is_not_there_yet_finds_nothing(self, start: Start) -> None:
        reply = with_history().ask(a_history(start))

        assert isinstance(reply, NoMessagesYet)
        assert (reply.end, reply.log) == (10, LOG)

    def test_sees_nothing_that_is_not_durable(self) -> None:
        proxy = with_history()
        proxy.decide(a_put(11), put_body(11))

        reply = proxy.decide(a_history(Start("newest", 1))).reply

        assert isinstance(reply, MessageBatches)
        assert reply.first == 9

    def test_has_no_last_received(self) -> None:
        assert isinstance(with_history().ask(a_history(Start("last"))), Malformed)

    def test_that_is_refused_makes_no_subscription(self) -> None:
        proxy = with_history(start=4)

        assert isinstance(proxy.ask(a_history(0)), Truncated)
        assert isinstance(subscribed(proxy, Start("earliest")), SubAck)


def test_the_moment_of_the_newest_message_is_truncated_when_nothing_is_left() -> None:
    """A message was taken at that moment, and retention has removed it."""
    proxy = with_history(start=MESSAGES)

    assert isinstance(subscribed(proxy, Start("time", taken_ns(9))), Truncated)
    assert sub_ack(subscribed(proxy, Start("time", taken_ns(9) + 1))).cursor == MESSAGES
