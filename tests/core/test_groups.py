"""Groups at the proxy: TAKE, SETTLE, and the SUB and UNSUB of a member."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import UNSET

from reliable_pubsub.common.core.actions import Truncate
from reliable_pubsub.common.core.answers import (
    AnyReply,
    Fenced,
    Malformed,
    NotSub,
    Stale,
    SubAck,
    UnsubAck,
)
from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.dead_letter import DELIVERIES, REASON
from reliable_pubsub.common.core.group_messages import (
    Outcome,
    Settle,
    Settled,
    Stretch,
    Take,
    Taken,
)
from reliable_pubsub.common.core.limits import GROUP_WINDOW_MAX, MIB
from reliable_pubsub.common.core.message_base import GroupTerms, Start, Terms
from reliable_pubsub.common.core.requests import Sub, Unsub
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.common.core.wire import decode_batch, decode_request, encode, encode_batch
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from tests.fakes import MemoryProxy, a_broker, a_hello, a_put, an_action, groups_of

WORKERS = ("w1", "w2", "w3")
LEASE_S = 30.0


class Members:
    """Members of one group, and the numbers of their requests."""

    def __init__(self, proxy: MemoryProxy) -> None:
        self.proxy = proxy
        self.number = 0
        self.epochs = dict.fromkeys(WORKERS, 1)
        self.generation = 1

    def head(self, name: str) -> dict[str, Any]:
        self.number += 1
        return {"client": name, "epoch": self.epochs[name], "request": self.number}

    def join(self, name: str, *, start: Start | None = None, **terms: Any) -> AnyReply:
        head = self.head(name)
        return self.proxy.ask(
            Sub(
                **head,
                topic="t",
                control=head["request"],
                group="workers",
                start=start,
                group_terms=GroupTerms(**terms),
            )
        )

    def a_take(self, name: str, count: int = 1, *outcomes: Outcome, **more: Any) -> Take:
        more = {"generation": self.generation, "received": 2**40} | more
        head = self.head(name)
        return Take(
            **head, topic="t", group="workers", outcomes=outcomes, messages_max=count, **more
        )

    def take(self, name: str, count: int = 1, *outcomes: Outcome, **more: Any) -> Taken:
        reply = self.proxy.ask(self.a_take(name, count, *outcomes, **more))
        assert isinstance(reply, Taken), reply
        return reply

    def given(self, name: str, count: int = 1, **more: Any) -> list[tuple[int, int]]:
        """Offsets and delivery numbers of what a TAKE is granted."""
        return given(self.take(name, count, **more))

    def settle(self, name: str, *outcomes: Outcome, **more: Any) -> AnyReply:
        more = {"generation": self.generation} | more
        return self.proxy.ask(
            Settle(**self.head(name), topic="t", group="workers", outcomes=outcomes, **more)
        )

    def refused(self, name: str, *outcomes: Outcome) -> list[tuple[int, int]]:
        reply = self.settle(name, *outcomes)
        assert isinstance(reply, Settled), reply
        return [(one.first, one.count) for one in reply.refused]

    def greet(self, name: str) -> None:
        """Another process takes over the id."""
        self.epochs[name] += 1
        self.proxy.ask(a_hello("subscriber", name, epoch=self.epochs[name]))


def given(reply: Taken) -> list[tuple[int, int]]:
    return [(one.first + index, one.delivery) for one in reply.grants for index in range(one.count)]


def ack(first: int, delivery: int = 1, count: int = 1) -> Outcome:
    return Outcome(first, count, delivery, "ack")


def nack(first: int, delivery: int = 1, delay_ms: int = 0) -> Outcome:
    return Outcome(first, 1, delivery, "nack", delay_ms)


def extend(first: int, delivery: int = 1) -> Outcome:
    return Outcome(first, 1, delivery, "extend")


def a_group(messages: int = 0, **terms: Any) -> Members:
    """A group with three members; the messages are there, one batch each."""
    proxy = a_broker(subscribers=WORKERS)
    members = Members(proxy)
    proxy.tick(now_s=1.0)
    for name in WORKERS:
        members.join(name, **terms)
    for number in range(messages):
        proxy.put(number + 1)
    return members


def cursor(members: Members) -> int:
    return members.proxy.state.topics["t"].subscriptions["group:workers"].cursor


class TestAMessageIsWithOneMember:
    def test_what_one_has_taken_another_is_not_given(self) -> None:
        group = a_group(3)

        assert group.given("w1", 2) == [(0, 1), (1, 1)]
        assert group.given("w2", 2) == [(2, 1)]
        assert group.given("w3") == []

    def test_a_part_of_a_batch_is_with_each(self) -> None:
        group = a_group()
        group.proxy.put(1, count=4)

        assert group.given("w1", 3) == [(0, 1), (1, 1), (2, 1)]
        reply = group.take("w2", 3)

        assert given(reply) == [(3, 1)]
        assert [(one.base, one.count) for one in reply.batches] == [(0, 4)]

    def test_until_its_lease_ends(self) -> None:
        group = a_group(1)
        group.take("w1")
        group.proxy.tick(now_s=1.0 + LEASE_S - 0.1)
        assert group.given("w2") == []

        group.proxy.tick(now_s=1.0 + LEASE_S)

        assert group.given("w2") == [(0, 2)]

    def test_also_across_a_kill_of_the_proxy(self) -> None:
        """A grant is durable before it is visible, and its lease begins again."""
        group = a_group(1)
        group.take("w1")

        group.proxy = group.proxy.restarted()
        assert group.given("w2") == []
        group.proxy.tick(now_s=5.0)
        group.proxy.tick(now_s=5.0 + LEASE_S - 0.1)
        assert group.given("w2") == []
        group.proxy.tick(now_s=5.0 + LEASE_S)

        assert group.given("w2") == [(0, 2)]

    def test_a_grant_that_is_not_durable_is_not_answered(self) -> None:
        group = a_group(1)

        decision = group.proxy.decide(group.a_take("w1"))

        assert isinstance(decision.reply, Taken)
        assert decision.reply.grants
        assert decision.visible_at > group.proxy.state.durable_lsn

    def test_an_extended_lease_begins_again(self) -> None:
        group = a_group(1)
        group.take("w1")
        group.proxy.tick(now_s=20.0)
        assert group.refused("w1", Outcome(0, 1, 1, "extend")) == []
        group.proxy.tick(now_s=20.0 + LEASE_S - 0.1)
        assert group.given("w2") == []

        group.proxy.tick(now_s=20.0 + LEASE_S)

        assert group.given("w2") == [(0, 2)]

    def test_another_process_of_its_id_gives_back_what_it_held(self) -> None:
        group = a_group(2)
        group.take("w1", 2)

        group.greet("w1")
        group.join("w1")

        assert group.given("w2") == [(0, 2)]

    def test_a_member_that_leaves_gives_it_back(self) -> None:
        group = a_group(1)
        group.take("w1")
        head = group.head("w1")

        left = group.proxy.ask(Unsub(**head, topic="t", control=head["request"], group="workers"))

        assert isinstance(left, UnsubAck)
        assert not left.already
        assert group.given("w2") == [(0, 2)]
        assert isinstance(group.proxy.ask(group.a_take("w1")), NotSub)


class TestWhatIsAcknowledgedHasEnded:
    def test_in_any_order(self) -> None:
        group = a_group(3)
        group.take("w1", 3)

        assert group.refused("w1", ack(2)) == []
        assert cursor(group) == 0
        assert group.refused("w1", ack(0)) == []
        assert cursor(group) == 1
        assert group.refused("w1", ack(1)) == []
        assert cursor(group) == 3

    def test_durably_before_the_answer(self) -> None:
        group = a_group(1)
        group.take("w1")
        request = Settle(
            **group.head("w1"), topic="t", group="workers", generation=1, outcomes=(ack(0),)
        )

        decision = group.proxy.decide(request)

        assert decision.visible_at > group.proxy.state.durable_lsn
        assert groups_of(group.proxy.restarted().state)["workers"].runs

    def test_across_a_kill_of_the_proxy(self) -> None:
        group = a_group(3)
        group.take("w1", 3)
        group.settle("w1", ack(1))

        group.proxy = group.proxy.restarted()
        group.proxy.tick(now_s=1.0)
        group.proxy.tick(now_s=1.0 + LEASE_S)

        assert group.given("w2", 3) == [(0, 2), (2, 2)]

    def test_a_take_may_carry_it(self) -> None:
        group = a_group(2)
        group.take("w1")

        reply = group.take("w1", 1, ack(0))

        assert given(reply) == [(1, 1)]
        assert cursor(group) == 1

    def test_too_late_it_is_refused_if_another_holds_the_message(self) -> None:
        group = a_group(2)
        group.take("w1")
        group.proxy.tick(now_s=1.0 + LEASE_S)
        group.take("w2")

        assert group.refused("w1", ack(0)) == [(0, 1)]
        assert cursor(group) == 0

    def test_too_late_it_counts_if_no_other_was_given_the_message(self) -> None:
        group = a_group(1)
        group.take("w1")
        group.proxy.tick(now_s=1.0 + LEASE_S)

        assert group.refused("w1", ack(0)) == []
        assert cursor(group) == 1

    def test_of_an_earlier_delivery_it_is_refused(self) -> None:
        group = a_group(1)
        group.take("w1")
        group.settle("w1", nack(0))
        group.take("w1")

        assert group.refused("w1", ack(0, delivery=1)) == [(0, 1)]

    def test_what_was_never_taken_cannot_be_acknowledged(self) -> None:
        group = a_group(3)
        group.take("w1")

        assert group.refused("w1", ack(0, count=3)) == [(1, 2)]

    def test_a_repeat_is_answered_the_same(self) -> None:
        group = a_group(2)
        group.take("w1")
        request = Settle(
            **group.head("w1"), topic="t", group="workers", generation=1, outcomes=(ack(0, 1, 2),)
        )
        first = group.proxy.ask(request)

        again = group.proxy.ask(request)

        assert isinstance(first, Settled)
        assert first == again
        assert first.refused == (Stretch(1, 1),)


class TestWhatIsGivenBackComesAgain:
    def test_at_once_to_anyone(self) -> None:
        group = a_group(1)
        group.take("w1")

        group.settle("w1", nack(0))

        assert group.given("w2") == [(0, 2)]

    def test_after_the_delay_that_was_asked_for(self) -> None:
        group = a_group(1)
        group.take("w1")
        group.settle("w1", nack(0, delay_ms=500))
        assert group.given("w2") == []

        group.proxy.tick(now_s=1.6)

        assert group.given("w2") == [(0, 2)]

    def test_the_delay_begins_again_with_the_proxy(self) -> None:
        group = a_group(1)
        group.take("w1")
        group.settle("w1", nack(0, delay_ms=500))

        group.proxy = group.proxy.restarted()
        group.proxy.tick(now_s=7.0)
        assert group.given("w2") == []
        group.proxy.tick(now_s=7.6)

        assert group.given("w2") == [(0, 2)]

    def test_uncounted_if_the_program_never_saw_it(self) -> None:
        group = a_group(1)
        group.take("w1")

        group.settle("w1", Outcome(0, 1, 1, "return"))

        assert group.given("w2") == [(0, 1)]

    def test_before_what_is_new(self) -> None:
        group = a_group(3)
        group.take("w1", 2)
        group.settle("w1", nack(1))

        assert group.given("w2", 2) == [(1, 2), (2, 1)]


class TestAnAnswerMayBeLost:
    def test_a_repeat_is_given_the_same(self) -> None:
        group = a_group(3)
        request = group.a_take("w1", 2)
        first = group.proxy.ask(request)

        again = group.proxy.ask(request)

        assert isinstance(first, Taken)
        assert first == again
        assert given(first) == [(0, 1), (1, 1)]

    def test_also_by_the_next_proxy(self) -> None:
        group = a_group(3)
        group.take("w1")
        request = group.a_take("w1", 2, ack(0))
        group.proxy.ask(request)

        group.proxy = group.proxy.restarted()
        again = group.proxy.ask(request)

        assert isinstance(again, Taken)
        assert given(again) == [(1, 1), (2, 1)]
        assert again.refused == ()

    def test_what_was_granted_unheard_is_granted_again_uncounted(self) -> None:
        group = a_group(2)
        heard = group.a_take("w1")
        group.proxy.ask(heard)
        group.take("w1", received=heard.request)  # its answer is lost

        assert group.given("w1", received=heard.request) == [(1, 1)]

    def test_one_that_holds_nothing_any_more_is_given_it_as_redelivered(self) -> None:
        group = a_group(1)
        group.take("w1")

        assert group.given("w1", fresh=True) == [(0, 2)]

    def test_one_that_holds_nothing_any_more_has_not_been_delivered_what_never_came(self) -> None:
        group = a_group(1)
        group.take("w1", received=0)  # its answer is lost

        assert group.given("w1", fresh=True, received=0) == [(0, 1)]

    def test_one_that_holds_nothing_any_more_may_return_what_it_had_ahead(self) -> None:
        group = a_group(2)
        group.take("w1", 2)

        reply = group.take("w1", 2, Outcome(1, 1, 1, "return"), fresh=True)

        assert given(reply) == [(0, 2), (1, 1)]

    def test_what_is_returned_too_late_is_no_loss_to_any_program(self) -> None:
        group = a_group(1)
        group.take("w1")
        group.proxy.tick(now_s=1.0 + LEASE_S)
        group.take("w2")

        assert group.refused("w1", Outcome(0, 1, 1, "return")) == []

    def test_a_late_copy_has_no_effect(self) -> None:
        group = a_group(2)
        late = group.a_take("w1")
        group.proxy.ask(late)
        group.take("w1", 1, ack(0))

        assert isinstance(group.proxy.ask(late), Stale)

    def test_a_fenced_process_learns_that_it_is(self) -> None:
        group = a_group(1)
        late = group.a_take("w1")
        group.greet("w1")

        assert isinstance(group.proxy.ask(late), Fenced)


class TestATakeThatWaits:
    def test_is_answered_when_there_is_something(self) -> None:
        group = a_group()
        reply_to = group.proxy.send(group.a_take("w1", wait_ms=1000))
        assert group.proxy.answer_to(reply_to) is None

        group.proxy.put(1)
        assert group.proxy.answer_to(reply_to) is None  # the grant is not durable yet
        group.proxy.commit()

        reply = group.proxy.answer_to(reply_to)
        assert isinstance(reply, Taken)
        assert given(reply) == [(0, 1)]

    def test_keeps_waiting_if_another_was_faster(self) -> None:
        group = a_group()
        first = group.proxy.send(group.a_take("w1", wait_ms=1000))
        second = group.proxy.send(group.a_take("w2", wait_ms=1000))

        group.proxy.put(1)
        group.proxy.commit()

        assert isinstance(group.proxy.answer_to(first), Taken)
        assert group.proxy.answer_to(second) is None
        group.proxy.tick(now_s=2.1)
        reply = group.proxy.answer_to(second)
        assert isinstance(reply, Taken)
        assert reply.grants == ()

    @pytest.mark.parametrize("how", ["nack", "return", "leave"])
    def test_is_answered_at_the_next_tick_when_another_gives_back(self, how: str) -> None:
        group = a_group(1)
        group.take("w1")
        waits = group.proxy.send(group.a_take("w2", wait_ms=30_000))
        group.proxy.tick(now_s=1.5)
        head = group.head("w1")
        if how == "leave":
            group.proxy.now_s = 1.6
            group.proxy.ask(Unsub(**head, topic="t", control=head["request"], group="workers"))
        else:
            group.proxy.now_s = 1.6
            group.settle("w1", Outcome(0, 1, 1, how))  # type: ignore[arg-type]

        group.proxy.tick(now_s=1.7)
        group.proxy.commit()

        reply = group.proxy.answer_to(waits)
        assert isinstance(reply, Taken)
        assert given(reply) == [(0, 1 if how == "return" else 2)]

    def test_is_answered_when_the_lease_of_another_ends(self) -> None:
        group = a_group(1)
        group.take("w1")
        group.proxy.tick(now_s=25.0)
        reply_to = group.proxy.send(group.a_take("w2", wait_ms=30_000))
        assert group.proxy.answer_to(reply_to) is None

        group.proxy.tick(now_s=1.0 + LEASE_S)

        reply = group.proxy.answer_to(reply_to)
        assert isinstance(reply, Taken)
        assert given(reply) == [(0, 2)]

    def test_that_was_overtaken_by_its_sender_is_granted_nothing(self) -> None:
        """Its sender would never hear of it, and the message would wait for a lease to end."""
        group = a_group(2)
        group.take("w2", 2)
        old = group.proxy.send(group.a_take("w1", wait_ms=1000))
        group.proxy.now_s = 1.0 + LEASE_S  # no tick has seen yet that both leases have ended

        new = group.proxy.send(group.a_take("w1", wait_ms=1000, received=0))
        group.proxy.commit()

        replies = [group.proxy.answer_to(one) for one in (old, new)]
        assert [given(one) for one in replies if isinstance(one, Taken)] == [[], [(0, 2)]]
        assert group.given("w3") == [(1, 2)]


class TestDeadLetters:
    def letters(self, group: Members) -> list[dict[str, str]]:
        log = group.proxy.state.topics.get("t.dead")
        found = group.proxy.log.read(log.topic_id, 0, messages_max=99, bytes_max=MIB) if log else ()
        headers = [decode_batch(one.body, one.count).headers for one in found]
        return [dict(one[0] or {}) for one in headers if one]

    def test_what_is_rejected_becomes_one_and_has_ended(self) -> None:
        group = a_group(2)
        group.take("w1")

        reply = group.settle("w1", Outcome(0, 1, 1, "reject", reason="poison"))

        assert isinstance(reply, Settled)
        assert reply.letters == (0,)
        assert cursor(group) == 1
        assert [one[REASON] for one in self.letters(group)] == ["poison"]

    def test_so_does_what_was_delivered_too_often(self) -> None:
        group = a_group(2, max_deliveries=2)
        for delivery in (1, 2):
            assert group.given("w1") == [(0, delivery)]
            group.settle("w1", nack(0, delivery))

        assert group.given("w1") == [(1, 1)]
        assert [one[DELIVERIES] for one in self.letters(group)] == ["2"]

    def test_also_by_leases_that_ended(self) -> None:
        group = a_group(1, max_deliveries=1)
        group.take("w1")
        group.settle("w1", extend(0))
        group.proxy.tick(now_s=1.0 + LEASE_S)

        assert group.given("w2") == []
        assert cursor(group) == 1
        assert len(self.letters(group)) == 1

    def test_not_by_a_lease_that_ended_before_its_member_confirmed_the_message(self) -> None:
        group = a_group(1, max_deliveries=1)
        assert group.take("w1").unconfirmed is True
        group.proxy.tick(now_s=1.0 + LEASE_S)

        assert group.given("w2") == [(0, 1)]
        assert self.letters(group) == []

    def test_not_by_a_proxy_or_a_member_that_ended_before_the_message_was_confirmed(self) -> None:
        group = a_group(1, max_deliveries=1)
        group.take("w1")
        group.proxy = group.proxy.restarted()
        group.proxy.tick(now_s=1.0)

        group.greet("w1")
        group.join("w1", max_deliveries=1)

        assert group.given("w2") == [(0, 1)]

    def test_only_where_deliveries_are_bounded_a_message_has_to_be_confirmed(self) -> None:
        group = a_group(1)

        assert group.take("w1").unconfirmed is UNSET

    def test_where_there_is_no_room_for_it_the_message_comes_again(self) -> None:
        group = a_group(1, max_deliveries=1)
        group.take("w1")
        group.settle("w1", nack(0))
        group.proxy.allow(topics_max=1)

        assert group.given("w2") == [(0, 2)]

    def test_a_topic_of_dead_letters_has_none(self) -> None:
        group = a_group()
        head = group.head("w1")
        terms = GroupTerms(max_deliveries=1)
        request = Sub(
            **head, topic="t.dead", control=head["request"], group="workers", group_terms=terms
        )

        assert isinstance(group.proxy.ask(request), Malformed)


class TestOrderedByKey:
    def put(self, group: Members, first: int, *keys: bytes | None) -> None:
        body = encode_batch(Batch([b"x"] * len(keys), list(keys)))
        request = a_put(first, count=len(keys), body=body)
        assert request.crc == crc32(body)
        group.proxy.ask(request, body)

    def test_of_each_key_one_message_is_held(self) -> None:
        group = a_group(ordered_by="key")
        self.put(group, 1, b"a", b"a", b"b", None, None)

        assert group.given("w1", 5) == [(0, 1), (2, 1), (3, 1), (4, 1)]
        assert group.given("w2", 5) == []

    def test_the_next_one_comes_when_it_has_ended(self) -> None:
        group = a_group(ordered_by="key")
        self.put(group, 1, b"a", b"a", b"b")
        group.take("w1", 5)

        group.settle("w1", ack(0))

        assert group.given("w2", 5) == [(1, 1)]

    def test_it_is_not_overtaken_when_it_is_given_back(self) -> None:
        group = a_group(ordered_by="key")
        self.put(group, 1, b"a", b"a")
        group.take("w1", 5)

        group.settle("w1", nack(0, delay_ms=500))
        assert group.given("w2", 5) == []
        group.proxy.tick(now_s=2.0)

        assert group.given("w2", 5) == [(0, 2)]

    def test_across_a_kill_of_the_proxy(self) -> None:
        group = a_group(ordered_by="key")
        self.put(group, 1, b"a", b"b", b"a")
        group.take("w1", 2)

        group.proxy = group.proxy.restarted()

        assert group.given("w2", 5) == []

    def test_beyond_several_batches(self) -> None:
        group = a_group(ordered_by="key")
        self.put(group, 1, b"a")
        self.put(group, 2, b"a", b"c")
        self.put(group, 4, b"c", b"d")

        assert group.given("w1", 5) == [(0, 1), (2, 1), (4, 1)]


class TestBounds:
    def test_no_more_is_taken_than_the_window_holds(self) -> None:
        group = a_group()
        for number in range(11):
            group.proxy.put(1000 * number + 1, count=1000)

        taken = group.given("w1", 20_000)
        assert len(taken) == GROUP_WINDOW_MAX
        assert group.given("w2", 5) == []
        group.settle("w1", ack(0, count=7))

        assert group.given("w2", 50) == [(10_000 + n, 1) for n in range(7)]

    def test_what_is_not_acknowledged_is_kept(self) -> None:
        retention = Retention(history_bytes=0, history_s=0.0, history_messages=0)
        proxy = a_broker(subscribers=WORKERS, settings=BrokerSettings(retention=retention))
        group = Members(proxy)
        group.join("w1")
        for number in range(3):
            proxy.put(number + 1)
        group.take("w1", 3)
        group.settle("w1", ack(1), ack(2))

        proxy.tick(now_s=9.0)

        assert proxy.state.topics["t"].start == 0

    def test_what_was_removed_all_the_same_is_reported(self) -> None:
        retention = Retention(topic_bytes_max=3 * MIB, on_bound="lose_oldest")
        proxy = a_broker(subscribers=WORKERS, settings=BrokerSettings(retention=retention))
        group = Members(proxy)
        group.join("w1")
        body = encode_batch(Batch([b"x" * 700_000]))
        for number in range(6):
            proxy.ask(a_put(number + 1, body=body), body)
        start = proxy.state.topics["t"].start
        assert start > 0

        reply = group.take("w1")

        assert reply.lost == (Stretch(0, start),)
        assert given(reply) == [(start, 1)]

    def test_a_loss_is_reported_until_one_member_is_known_to_have_heard_of_it(self) -> None:
        group = a_group(messages=3)
        group.proxy.ask(an_action(Truncate(topic="t", start=Start("offset", 2)), number=1))
        lost = (Stretch(0, 2),)
        assert group.take("w1").lost == lost  # and it dies, or its program breaks off the call
        assert group.take("w1", fresh=True).lost == lost
        group.greet("w1")
        group.join("w1")
        group.proxy = group.proxy.restarted()

        assert group.take("w2").lost == lost
        assert group.take("w2").lost == ()
        assert group.take("w1").lost == ()

    def test_a_large_grant_ends_with_a_batch_and_a_small_one_where_it_was_asked_to(self) -> None:
        """Otherwise the rest of a batch would be read and sent again with the next one."""
        group = a_group()
        for number in range(4):
            group.proxy.put(1 + 10 * number, count=10)

        assert group.given("w1", 3) == [(at, 1) for at in range(3)]
        assert group.given("w1", 20) == [(at, 1) for at in range(3, 20)]
        assert group.given("w1", 14) == [(at, 1) for at in range(20, 30)]
        assert group.given("w1", 6) == [(at, 1) for at in range(30, 36)]


class TestTheGroup:
    def test_begins_at_the_end_or_where_its_first_member_says(self) -> None:
        proxy = a_broker(subscribers=WORKERS)
        proxy.put(1)
        group = Members(proxy)

        first = group.join("w1", start=Start("earliest"))
        second = group.join("w2")

        assert isinstance(first, SubAck)
        assert isinstance(second, SubAck)
        assert (first.cursor, first.already) == (0, False)
        assert (second.cursor, second.already) == (0, True)

    def test_is_not_made_again_by_a_member_that_comes_back(self) -> None:
        group = a_group()
        log = group.proxy.state.topics["t"].log
        head = group.head("w1")
        request = Sub(**head, topic="t", control=head["request"], group="others", cursor=0, log=log)

        assert isinstance(group.proxy.ask(request), NotSub)

    def test_ends_for_all_when_it_is_ended(self) -> None:
        group = a_group(1)
        head = group.head("w1")
        end = Unsub(**head, topic="t", control=head["request"], group="workers", ends_group=True)

        assert isinstance(group.proxy.ask(end), UnsubAck)
        assert isinstance(group.proxy.ask(group.a_take("w2")), NotSub)
        assert groups_of(group.proxy.restarted().state) == {}

    def test_has_another_generation_when_it_begins_again(self) -> None:
        group = a_group(1)
        old = group.a_take("w2")
        head = group.head("w1")
        group.proxy.ask(
            Unsub(**head, topic="t", control=head["request"], group="workers", ends_group=True)
        )

        again = group.join("w2")

        assert isinstance(again, SubAck)
        assert again.generation == 2
        assert isinstance(group.proxy.ask(old), NotSub)

    def test_is_ordered_otherwise_only_when_nothing_is_in_hand(self) -> None:
        group = a_group(1)
        group.take("w1")
        assert isinstance(group.join("w2", ordered_by="key"), Stale)
        group.settle("w1", ack(0))

        assert isinstance(group.join("w2", ordered_by="key"), SubAck)

    def test_has_no_terms_of_a_plain_subscription(self) -> None:
        group = a_group()
        head = group.head("w1")
        request = Sub(
            **head, topic="t", control=head["request"], group="workers", terms=Terms(qos=1)
        )

        assert isinstance(group.proxy.ask(request), Malformed)

    def test_is_shown_in_status(self) -> None:
        group = a_group(5, lease_ms=30_000)
        group.take("w1", 2)
        group.take("w2")
        group.settle("w1", nack(0))

        report = group.proxy.ask(Status(client="s", epoch=0, request=1))

        assert isinstance(report, StatusReport)
        (topic,) = [one for one in report.topics if one.topic == "t"]
        assert topic.subscriptions == ()
        assert isinstance(topic.groups, tuple)
        (one,) = topic.groups
        shown = (one.group, one.members, one.held, one.held_by, one.waiting, one.redelivering)
        assert shown == ("workers", 3, 2, 2, 3, 1)

    def test_of_another_name_has_every_message_too(self) -> None:
        group = a_group(1)
        group.take("w1")
        head = group.head("w2")
        group.proxy.ask(
            Sub(**head, topic="t", control=head["request"], group="others", start=Start("earliest"))
        )
        request = Take(**group.head("w2"), topic="t", group="others", generation=1)

        reply = group.proxy.ask(request)

        assert isinstance(reply, Taken)
        assert given(reply) == [(0, 1)]


@pytest.mark.parametrize(
    "outcomes",
    [
        (ack(1), ack(0)),
        (ack(0, count=2), ack(1)),
        (Outcome(0, 1, 1, "reject"),),
        (Outcome(0, 1, 1, "ack", reason="why"),),
        (Outcome(0, 1, 1, "ack", 5),),
        tuple(Outcome(n, 1, 1, "reject", reason="why") for n in range(11)),
    ],
    ids=["unordered", "twice", "no reason", "a reason", "a delay", "too many letters"],
)
def test_outcomes_that_say_nothing_are_malformed(outcomes: tuple[Outcome, ...]) -> None:
    request = Settle(
        client="w1", epoch=1, request=1, topic="t", group="g", generation=1, outcomes=outcomes
    )

    with pytest.raises(Exception, match="outcomes"):
        decode_request(encode(request))
