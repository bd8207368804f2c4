"""SUB and UNSUB: a subscription begins, is resumed, is repositioned, ends (rules R12 to R14)."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import (
    Fenced,
    Limit,
    LogChanged,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    PutAck,
    Stale,
    SubAck,
    UnsubAck,
)
from reliable_pubsub.common.core.limits import SUBSCRIPTIONS_PER_TOPIC_MAX, TOPICS_MAX
from reliable_pubsub.proxy.core.stored import StoredState, StoredSubscription, StoredTopic
from tests.fakes import (
    LOG,
    MemoryLog,
    MemoryProxy,
    a_body,
    a_broker,
    a_get,
    a_hello,
    a_put,
    a_sub,
    an_ack,
    an_append,
    an_unsub,
    as_stored,
    put_body,
    shown,
    sub_ack,
)


def with_messages(count: int) -> MemoryProxy:
    """A proxy whose topic holds a number of messages, each a batch of its own."""
    proxy = a_broker()
    for sequence in range(1, count + 1):
        proxy.put(sequence)
    return proxy


class TestANewSubscription:
    def test_begins_at_the_end_of_its_topic(self) -> None:
        proxy = with_messages(3)

        reply = sub_ack(proxy.ask(a_sub()))

        assert (reply.cursor, reply.generation, reply.log, reply.already) == (3, 1, LOG, False)

    def test_makes_the_topic_if_there_is_none(self) -> None:
        """H21: a topic begins with its first SUB or PUT; nothing put after a SUB is missed."""
        proxy = a_broker()

        reply = sub_ack(proxy.ask(a_sub()))
        proxy.put(1)

        assert (reply.cursor, reply.log) == (0, LOG)
        assert shown(proxy.ask(a_get(0))) == [(0, 1)]

    def test_sees_every_put_that_began_after_its_acknowledgement(self) -> None:
        """P5, H9: what SUB_ACK says is durable, so a restart does not forget it."""
        proxy = with_messages(3)
        proxy.ask(a_sub())
        proxy = proxy.restarted()
        proxy.put(4)

        again = sub_ack(proxy.ask(a_sub(2, log=LOG, cursor=3)))

        assert (again.cursor, again.generation, again.already) == (3, 1, True)
        assert shown(proxy.ask(a_get(3, boot="boot-2"))) == [(3, 1)]

    def test_begins_after_a_put_that_is_still_in_flight(self) -> None:
        proxy = with_messages(1)
        put = proxy.decide(a_put(2), put_body(2))

        decision = proxy.decide(a_sub())

        assert sub_ack(decision.reply).cursor == 2
        assert decision.visible_at > put.visible_at

    def test_can_begin_at_an_offset_of_its_choice(self) -> None:
        proxy = with_messages(3)

        reply = sub_ack(proxy.ask(a_sub(cursor=1)))

        assert reply.cursor == 1
        assert shown(proxy.ask(a_get(1))) == [(1, 1)]

    def test_needs_a_session(self) -> None:
        assert isinstance(MemoryProxy().ask(a_sub()), Fenced)

    def test_above_the_limit_of_a_topic_is_refused(self) -> None:
        others = [
            StoredSubscription(f"s{number}", 1, 0, True)
            for number in range(SUBSCRIPTIONS_PER_TOPIC_MAX)
        ]
        topic = StoredTopic(1, "t", "x.1", 0, 0, 0, (), (), others)
        proxy = a_broker(StoredState("x", [topic]))

        assert isinstance(proxy.ask(a_sub()), Limit)

    def test_to_a_topic_above_the_limit_is_refused(self) -> None:
        topics = [StoredTopic(n, f"t{n}", f"x.{n}", 0, 0, 0) for n in range(1, TOPICS_MAX + 1)]
        proxy = a_broker(StoredState("x", topics))

        assert isinstance(proxy.ask(a_sub(topic="one more")), Limit)


class TestLateCopies:
    def test_the_retry_of_a_sub_is_answered_as_the_first(self) -> None:
        proxy = a_broker()
        first = sub_ack(proxy.ask(a_sub()))

        again = proxy.decide(a_sub())

        assert sub_ack(again.reply).generation == first.generation
        assert again.records == ()

    def test_a_late_sub_does_not_bring_an_ended_subscription_back(self) -> None:
        """H10: requests of an abandoned socket may arrive after newer ones."""
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.ask(an_unsub(2))

        late = proxy.ask(a_sub(1))

        assert isinstance(late, Stale)
        assert isinstance(proxy.ask(a_get(0)), NotSub)

    def test_a_late_unsub_does_not_end_a_newer_subscription(self) -> None:
        """H10: nor does it take the cursor of the newer one away."""
        proxy = with_messages(2)
        proxy.ask(a_sub(1))
        proxy.ask(an_unsub(2))
        proxy.ask(a_sub(3, cursor=0))

        late = proxy.ask(an_unsub(2))

        assert isinstance(late, Stale)
        assert shown(proxy.ask(a_get(0, generation=2))) == [(0, 1)]

    def test_a_late_seek_does_not_move_the_cursor_back(self) -> None:
        proxy = with_messages(3)
        proxy.ask(a_sub(1, cursor=0))
        proxy.ask(a_sub(2, cursor=3))

        assert isinstance(proxy.ask(a_sub(1, cursor=0)), Stale)
        assert proxy.state.topics["t"].subscriptions["s"].cursor == 3

    def test_a_copy_from_an_older_epoch_is_fenced(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(5))
        proxy.ask(a_hello("subscriber", "s", epoch=2))

        assert isinstance(proxy.ask(an_unsub(6)), Fenced)

    def test_a_sub_under_the_number_of_another_topic_begins_nothing(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))

        other = proxy.ask(a_sub(1, topic="other"))

        assert isinstance(other, Stale)
        assert "other" not in proxy.state.topics

    def test_an_unsub_under_the_number_of_its_sub_ends_nothing(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))

        assert isinstance(proxy.ask(an_unsub(1)), Stale)
        assert proxy.state.topics["t"].subscriptions["s"].active

    def test_a_sub_under_the_number_of_its_unsub_begins_nothing(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.ask(an_unsub(2))

        assert isinstance(proxy.ask(a_sub(2)), NotSub)
        assert not proxy.state.topics["t"].subscriptions["s"].active

    def test_a_sub_that_arrives_only_after_its_unsub_has_no_effect(self) -> None:
        """H10: the first SUB hung on its way, the UNSUB after it found nothing to end."""
        proxy = a_broker()
        ended = proxy.ask(an_unsub(2))

        late = proxy.ask(a_sub(1))

        assert isinstance(ended, UnsubAck)
        assert isinstance(late, Stale)

    def test_the_number_of_the_last_control_request_is_durable(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.ask(an_unsub(2))

        assert isinstance(proxy.restarted().ask(a_sub(1)), Stale)


class TestTheEnd:
    def test_of_a_subscription_is_remembered_with_its_generation(self) -> None:
        """R12: each subscription has an id of its own, so nothing old can speak for a new one."""
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.ask(an_unsub(2))
        proxy = proxy.restarted()

        again = sub_ack(proxy.ask(a_sub(3)))

        assert again.generation == 2
        assert isinstance(proxy.ask(a_get(0, generation=1, boot="boot-2")), Stale)

    def test_survives_a_restart_so_no_ghost_holds_messages_back(self) -> None:
        """H9: an UNSUB that was acknowledged is not forgotten."""
        proxy = a_broker()
        proxy.ask(a_sub(1))

        reply = proxy.ask(an_unsub(2))
        proxy = proxy.restarted()

        assert isinstance(reply, UnsubAck)
        assert not reply.already
        assert not proxy.state.topics["t"].subscriptions["s"].active

    def test_of_what_is_not_there_is_a_success(self) -> None:
        reply = a_broker().ask(an_unsub(1))

        assert isinstance(reply, UnsubAck)
        assert reply.already


class TestAResumedSubscription:
    def test_continues_where_the_proxy_knows_it(self) -> None:
        proxy = with_messages(3)
        proxy.ask(a_sub(1, cursor=0))
        proxy.ask(an_ack(2))

        reply = sub_ack(proxy.ask(a_sub(2)))

        assert (reply.cursor, reply.generation, reply.already) == (2, 1, True)

    def test_continues_at_the_position_of_the_subscriber_if_that_is_further(self) -> None:
        """R13: the cursor of a GET may be lost in a crash; the subscriber's own makes up for it."""
        proxy = with_messages(3)
        proxy.ask(a_sub(1, cursor=0))

        reply = sub_ack(proxy.ask(a_sub(2, log=LOG, cursor=2)))

        assert (reply.cursor, reply.generation) == (2, 1)

    def test_gets_the_position_of_the_proxy_if_its_own_is_older(self) -> None:
        proxy = with_messages(3)
        proxy.ask(a_sub(1, cursor=0))
        proxy.ask(an_ack(3))

        reply = sub_ack(proxy.ask(a_sub(2, log=LOG, cursor=1)))

        assert reply.cursor == 3

    def test_is_rebuilt_in_place_when_the_proxy_has_forgotten_it(self) -> None:
        """H12: it does not begin at the tail, so nothing in between is missed."""
        proxy = with_messages(3)
        forgetful = proxy.restarted()
        proxy.ask(a_sub(1, cursor=0))

        reply = sub_ack(forgetful.ask(a_sub(1, log=LOG, cursor=1)))

        assert (reply.cursor, reply.already) == (1, False)
        assert shown(forgetful.ask(a_get(1, boot="boot-2"))) == [(1, 1)]

    def test_that_seeks_gets_a_new_generation(self) -> None:
        proxy = with_messages(3)
        proxy.ask(a_sub(1, cursor=3))

        reply = sub_ack(proxy.ask(a_sub(2, cursor=1)))

        assert (reply.cursor, reply.generation, reply.already) == (1, 2, True)
        assert isinstance(proxy.ask(a_get(3, generation=1)), Stale)


class TestAnotherLog:
    def test_is_recognised_by_its_id(self) -> None:
        """H13: an empty data directory is not taken for the one that was there before."""
        proxy = with_messages(3)

        reply = proxy.ask(a_sub(log="another.1", cursor=1))

        assert isinstance(reply, LogChanged)
        assert (reply.log, reply.start, reply.end) == (LOG, 0, 3)
        assert proxy.state.topics["t"].subscriptions == {}

    def test_is_recognised_by_a_position_after_its_end(self) -> None:
        """H13: a proxy that was set back to an older copy is found out."""
        proxy = with_messages(3)

        reply = proxy.ask(a_sub(log=LOG, cursor=4))

        assert isinstance(reply, LogChanged)
        assert "beyond its end 3" in reply.text

    def test_is_reported_where_the_topic_does_not_exist(self) -> None:
        assert isinstance(a_broker().ask(a_sub(log=LOG, cursor=1)), LogChanged)
        assert isinstance(a_broker().ask(a_sub(log="another.1", cursor=0)), LogChanged)

    def test_is_recognised_by_the_witness_when_the_log_has_grown_again(self) -> None:
        """H13, R14: the end looks right again, but the message before the cursor is another."""
        proxy = a_broker()
        proxy.put(1)
        witness_ns = proxy.now_ns
        set_back = a_broker()
        set_back.now_ns = witness_ns + 5
        set_back.put(1)

        changed = set_back.ask(a_sub(1, log=LOG, cursor=1, witness_ns=witness_ns))
        same = proxy.ask(a_sub(1, log=LOG, cursor=1, witness_ns=witness_ns))

        assert isinstance(changed, LogChanged)
        assert isinstance(same, SubAck)

    def test_is_reported_to_a_get_and_an_ack_too(self) -> None:
        proxy = with_messages(1)
        proxy.ask(a_sub())

        assert isinstance(proxy.ask(a_get(2)), LogChanged)
        assert isinstance(proxy.ask(an_ack(2)), LogChanged)

    def test_names_the_choices_that_a_person_has(self) -> None:
        reply = with_messages(3).ask(a_sub(log=LOG, cursor=9))

        assert isinstance(reply, LogChanged)
        assert "rewind" in reply.text
        assert "adopt" in reply.text

    def test_a_position_that_retention_has_passed_needs_no_witness(self) -> None:
        log = MemoryLog()
        log.add([an_append(5)])
        topic = StoredTopic(1, "t", LOG, 5, 6, 1)
        proxy = MemoryProxy(StoredState("0123456789abcdef", [topic]), log=log)
        proxy.ask(a_hello("subscriber", "s"))

        reply = sub_ack(proxy.ask(a_sub(log=LOG, cursor=5, witness_ns=77)))

        assert reply.cursor == 5


class TestARestartOfTheProxy:
    def test_makes_every_subscription_stale_until_it_is_confirmed(self) -> None:
        proxy = with_messages(3)
        proxy.ask(a_sub(1, cursor=0))
        proxy = proxy.restarted()

        before = proxy.ask(a_get(1))
        reply = sub_ack(proxy.ask(a_sub(2, log=LOG, cursor=1)))
        later = proxy.ask(a_get(1, boot=reply.boot))

        assert isinstance(before, Stale)
        assert isinstance(later, MessageBatches)

    def test_concerns_an_ack_too(self) -> None:
        proxy = with_messages(1)
        proxy.ask(a_sub(1, cursor=0))

        assert isinstance(proxy.restarted().ask(an_ack(1)), Stale)
        assert isinstance(proxy.ask(an_ack(1)), PutAck)


def test_two_subscribers_have_two_cursors() -> None:
    proxy = with_messages(2)
    proxy.ask(a_hello("subscriber", "s2"))
    proxy.ask(a_sub(1, cursor=0))
    proxy.ask(a_sub(1, cursor=0, client="s2"))

    proxy.ask(an_ack(2))

    assert isinstance(proxy.ask(a_get(2)), NoMessagesYet)
    assert shown(proxy.ask(a_get(0, client="s2"))) == [(0, 1)]


@pytest.mark.parametrize("clock_is_late", [False, True])
def test_a_fresh_subscription_knows_its_log_again(clock_is_late: bool) -> None:
    """P6: set back to a copy and grown again, the log had other messages at the same offsets."""
    proxy = a_broker()
    for sequence in range(1, 4):
        proxy.put(sequence)
    copy = as_stored(proxy.durable)
    if clock_is_late:
        proxy.now_ns = 5
    proxy.put(4)
    confirmed = sub_ack(proxy.ask(a_sub(1)))

    grown = MemoryProxy(copy, boot="boot-2")
    grown.now_ns = proxy.now_ns if clock_is_late else proxy.now_ns + 10**9
    grown.ask(a_hello("publisher", "p", epoch=2))
    grown.ask(a_hello("subscriber", "s", epoch=2))
    body = a_body(b"another")
    grown.ask(a_put(4, epoch=2, body=body), body)
    answer = grown.ask(
        a_sub(
            1, epoch=2, log=confirmed.log, cursor=confirmed.cursor, witness_ns=confirmed.witness_ns
        )
    )

    assert confirmed.witness_ns is not None
    assert isinstance(answer, LogChanged)
