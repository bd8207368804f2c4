"""The law: decide, apply, durable, then visible. When each kind of answer may leave."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.actions import SetCursor
from reliable_pubsub.common.core.answers import (
    Conflict,
    Duplicate,
    Fenced,
    Gap,
    HelloAck,
    Lost,
    MessageBatches,
    NotSub,
    PutAck,
    Stale,
    Truncated,
    UnsubAck,
)
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.group_messages import Outcome, Settle, Settled, Take, Taken
from reliable_pubsub.common.core.interest_messages import Subscriptions
from reliable_pubsub.common.core.limits import KIB, MIB
from reliable_pubsub.common.core.message_base import GroupTerms, Start
from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.patterns.pattern import glob
from reliable_pubsub.common.core.qos0_messages import Listeners, Ring
from reliable_pubsub.common.core.requests import AnyRequest, Dead, DeliveryRequest
from reliable_pubsub.common.core.status import Clients, Status, StatusReport
from reliable_pubsub.proxy.core.forgetting import session_forgotten
from reliable_pubsub.proxy.core.state import BrokerSettings, Memory
from reliable_pubsub.proxy.core.topic_log import Retention
from reliable_pubsub.proxy.features import TABLES
from tests.fakes import (
    MemoryProxy,
    a_body,
    a_broker,
    a_bye,
    a_commit,
    a_get,
    a_hello,
    a_history,
    a_put,
    a_stage,
    a_sub,
    an_abort,
    an_ack,
    an_action,
    an_unsub,
    decide,
    put_body,
)

OTHER = a_body(b"other content")


def waits(proxy: MemoryProxy, request: AnyRequest, body: bytes = b"") -> bool:
    """Whether the answer would have to wait for the disk now."""
    decision = decide(proxy.state, request, body, now_ns=proxy.now_ns)
    return decision.visible_at > proxy.state.durable_lsn


def shown(proxy: MemoryProxy) -> list[str]:
    """The subscribers that STATUS shows."""
    report = proxy.ask(Status(client="c", epoch=0, request=1))
    assert isinstance(report, StatusReport)
    return [one.subscriber for topic in report.topics for one in topic.subscriptions]


class TestAnAnswerWaitsForItsOwnRecords:
    @pytest.mark.parametrize(
        ("request_", "body"),
        [
            (a_put(1), put_body(1)),
            (a_sub(1), b""),
            (a_hello("publisher", "new"), b""),
            (a_hello("publisher", "p", epoch=2), b""),
        ],
        ids=["ACK of a put", "SUB_ACK", "HELLO_ACK", "HELLO_ACK of a newer process"],
    )
    def test_until_they_are_durable(self, request_: AnyRequest, body: bytes) -> None:
        """H2, H9: what an answer promises is on disk before it leaves."""
        proxy = a_broker()

        decision = proxy.decide(request_, body)

        assert decision.visible_at == proxy.state.lsn > proxy.state.durable_lsn

    def test_also_when_it_ends_a_subscription(self) -> None:
        """H9: an UNSUB that is acknowledged stays done."""
        proxy = a_broker()
        proxy.ask(a_sub(1))

        assert waits(proxy, an_unsub(2))

    def test_also_when_it_acknowledges_durably(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.put(1)

        assert waits(proxy, an_ack(1))

    def test_a_put_that_is_acknowledged_is_there_after_a_crash_and_no_other_is(self) -> None:
        """H2: the publisher is never ahead of the proxy."""
        proxy = a_broker()
        acknowledged = proxy.put(1)
        proxy.decide(a_put(2), put_body(2))

        proxy = proxy.restarted()

        assert isinstance(acknowledged, PutAck)
        assert proxy.state.topics["t"].end == 1
        assert isinstance(proxy.put(1), Duplicate)
        assert isinstance(proxy.put(2), PutAck)


class TestAnAnswerWaitsForTheRecordsOfOthers:
    def test_duplicate_and_conflict_wait_for_the_batch_that_they_speak_of(self) -> None:
        proxy = a_broker()
        proxy.decide(a_put(1), put_body(1))

        duplicate = proxy.decide(a_put(1), put_body(1))
        conflict = proxy.decide(a_put(1, body=OTHER), OTHER)

        assert isinstance(duplicate.reply, Duplicate)
        assert isinstance(conflict.reply, Conflict)
        assert duplicate.visible_at == conflict.visible_at == proxy.state.lsn

    def test_the_retry_of_hello_waits_for_the_grant(self) -> None:
        proxy = MemoryProxy()
        proxy.decide(a_hello("publisher", "p"))

        assert waits(proxy, a_hello("publisher", "p"))

    def test_the_retry_of_sub_waits_for_the_subscription(self) -> None:
        proxy = a_broker()
        proxy.decide(a_sub(1))

        assert waits(proxy, a_sub(1))

    def test_fenced_waits_for_the_epoch_that_fences(self) -> None:
        proxy = a_broker()
        proxy.decide(a_hello("publisher", "p", epoch=2))

        decision = proxy.decide(a_put(1), put_body(1))

        assert isinstance(decision.reply, Fenced)
        assert decision.visible_at == proxy.state.lsn

    def test_fenced_waits_for_the_forgetting_that_it_speaks_of(self) -> None:
        """A client asks above the epoch of an answer; after a crash it would get a lower one."""
        memory = Memory(idle_sessions_max=0)
        proxy = a_broker(settings=BrokerSettings(memory=memory), publishers=(), subscribers=("s",))
        proxy.take(session_forgotten(proxy.state, "subscriber", "s"))

        decision = proxy.decide(a_hello("subscriber", "s"))

        assert isinstance(decision.reply, Fenced)
        assert decision.reply.forgotten is True
        assert decision.visible_at == proxy.state.lsn > proxy.state.durable_lsn

    def test_status_shows_a_subscription_when_it_is_durable(self) -> None:
        """A program that saw it earlier put messages, and a crash made it begin after them."""
        proxy = a_broker()
        proxy.put(1)
        proxy.decide(a_sub(1))
        assert shown(proxy) == []

        proxy.commit()

        assert shown(proxy) == ["s"]

    def test_a_get_waits_for_its_subscription(self) -> None:
        proxy = a_broker()
        proxy.put(1)
        proxy.decide(a_sub(1, cursor=0))

        decision = proxy.decide(a_get(0))

        assert isinstance(decision.reply, MessageBatches)
        assert decision.visible_at > proxy.state.durable_lsn

    def test_not_sub_and_a_second_unsub_wait_for_the_first_unsub(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.decide(an_unsub(2))

        get, unsub = proxy.decide(a_get(0)), proxy.decide(an_unsub(2))

        assert isinstance(get.reply, NotSub)
        assert isinstance(unsub.reply, UnsubAck)
        assert get.visible_at == unsub.visible_at > proxy.state.durable_lsn

    def test_stale_waits_for_the_control_request_that_came_before(self) -> None:
        """H10: that a late copy has no effect rests on the newer one being durable."""
        proxy = a_broker()
        proxy.decide(a_sub(2))

        late = proxy.decide(a_sub(1))

        assert isinstance(late.reply, Stale)
        assert late.visible_at > proxy.state.durable_lsn

    def test_lost_and_truncated_wait_for_the_trim_that_they_report(self) -> None:
        """H17: what is reported as gone is gone, also after a crash."""
        retention = Retention(topic_bytes_max=3 * MIB, on_bound="lose_oldest")
        proxy = a_broker(settings=BrokerSettings(retention=retention))
        proxy.ask(a_sub(1))
        body = a_body(b"x" * 700 * KIB)
        for sequence in range(1, 5):
            proxy.ask(a_put(sequence, body=body), body)
        proxy.decide(a_put(5, body=body), body)

        lost, truncated = proxy.decide(a_get(0)), proxy.decide(a_history(0))

        assert isinstance(lost.reply, Lost)
        assert isinstance(truncated.reply, Truncated)
        assert lost.visible_at == truncated.visible_at > proxy.state.durable_lsn

    def test_stale_waits_for_the_subscription_that_replaced_the_old_one(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.decide(a_sub(2, cursor=0))

        decision = proxy.decide(a_get(0, generation=1))

        assert isinstance(decision.reply, Stale)
        assert decision.visible_at > proxy.state.durable_lsn

    def test_gap_waits_for_the_number_that_it_names_as_stored(self) -> None:
        """GAP(expected) says that expected - 1 is stored; a crash could still take that away."""
        proxy = a_broker()
        proxy.decide(a_put(1), put_body(1))

        decision = proxy.decide(a_put(3), put_body(3))

        assert isinstance(decision.reply, Gap)
        assert decision.visible_at > proxy.state.durable_lsn

    def test_the_numbering_in_a_repeated_hello_waits_for_the_put_that_it_counts(self) -> None:
        proxy = a_broker()
        proxy.decide(a_put(1), put_body(1))

        decision = proxy.decide(a_hello("publisher", "p", topics=("t",)))

        assert isinstance(decision.reply, HelloAck)
        assert decision.reply.positions[0].last_sequence == 1
        assert decision.visible_at > proxy.state.durable_lsn

    def test_an_ack_names_no_cursor_that_is_not_durable(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.put(1, count=3)
        proxy.ask(an_ack(1))
        proxy.decide(a_get(3))

        decision = proxy.decide(an_ack(1))

        assert isinstance(decision.reply, PutAck)
        named = decision.reply.offset
        assert named == 1 or decision.visible_at > proxy.state.durable_lsn

    def test_the_repeat_of_take_waits_for_the_grant(self) -> None:
        """R6: a grant that a crash takes away would be another member's, too."""
        proxy = a_broker()
        proxy.ask(replace(a_sub(1), group="g", group_terms=GroupTerms()))
        proxy.put(1)
        take = Take(client="s", epoch=1, request=2, topic="t", group="g", generation=1)
        first = proxy.decide(take)

        again = proxy.decide(take)

        assert isinstance(again.reply, Taken)
        assert again.reply.grants
        assert again.visible_at >= first.visible_at > proxy.state.durable_lsn

    def test_the_repeat_of_settle_waits_for_the_outcome(self) -> None:
        proxy = a_broker()
        proxy.ask(replace(a_sub(1), group="g", group_terms=GroupTerms()))
        proxy.put(1)
        head: dict[str, Any] = {
            "client": "s",
            "epoch": 1,
            "topic": "t",
            "group": "g",
            "generation": 1,
        }
        proxy.ask(Take(request=2, **head))
        settle = Settle(request=3, outcomes=(Outcome(0, 1, 1, "ack"),), **head)
        first = proxy.decide(settle)

        again = proxy.decide(settle)

        assert isinstance(again.reply, Settled)
        assert not again.reply.refused
        assert again.visible_at >= first.visible_at > proxy.state.durable_lsn


class TestAnAnswerLeavesAtOnce:
    def test_when_it_rests_on_nothing_pending(self) -> None:
        """A busy disk does not slow down those who only read."""
        proxy = a_broker()
        proxy.ask(a_sub(1))
        proxy.put(1)
        proxy.decide(a_put(2), put_body(2))

        assert not waits(proxy, a_get(0))
        assert not waits(proxy, a_get(1))
        assert not waits(proxy, a_history(0))
        assert not waits(proxy, a_put(1), put_body(1))
        assert not waits(proxy, an_ack(0))

    def test_when_the_records_were_committed(self) -> None:
        proxy = a_broker()
        decision = proxy.decide(a_put(1), put_body(1))

        proxy.commit()

        assert decision.visible_at <= proxy.state.durable_lsn


EVERY_VERB: Sequence[tuple[AnyRequest, bytes]] = [
    (a_hello("subscriber", "s", epoch=4), b""),
    (a_put(3), put_body(3)),
    (a_put(1, topic="new"), put_body(1)),
    (a_stage(2), put_body(1)),
    (a_commit(1), b""),
    (an_abort(1), b""),
    (DeliveryRequest(client="p", epoch=1, request=1, topic="t", offset=1), b""),
    (a_sub(3, cursor=1), b""),
    (a_sub(3, topic="new"), b""),
    (an_unsub(4), b""),
    (a_bye(), b""),
    (a_get(1), b""),
    (an_ack(2), b""),
    (
        Dead(
            client="s",
            epoch=1,
            request=1,
            topic="t",
            generation=1,
            boot="boot-1",
            cursor=1,
            crc=crc32(OTHER),
        ),
        OTHER,
    ),
    (
        Take(
            client="s",
            epoch=1,
            request=7,
            topic="t",
            group="g",
            generation=1,
            outcomes=(Outcome(0, 1, 1, "nack", 5),),
            messages_max=9,
        ),
        b"",
    ),
    (
        Settle(
            client="s",
            epoch=1,
            request=7,
            topic="t",
            group="g",
            generation=1,
            outcomes=(Outcome(0, 1, 1, "reject", reason="poison"),),
        ),
        b"",
    ),
    (Match(client="s", epoch=1, request=7, match=glob("t*"), control=4), b""),
    (Fetch(client="s", epoch=1, request=7, match=glob("*"), boot="boot-1"), b""),
    (a_history(0), b""),
    (
        Ring(client="s", epoch=1, request=1, topic="t", generation=1, boot="boot-1", place=0),
        b"",
    ),
    (Listeners(client="p", epoch=1, request=1, topic="t"), b""),
    (Subscriptions(client="p", epoch=1, request=1, match=glob("*")), b""),
    (Status(client="w", epoch=0, request=1), b""),
    (Clients(client="w", epoch=0, request=1), b""),
    (an_action(SetCursor(topic="t", subscriber="s", start=Start("earliest"))), b""),
]


@pytest.mark.parametrize(
    ("request_", "body"), EVERY_VERB, ids=[type(request).__name__ for request, _ in EVERY_VERB]
)
def test_a_verb_changes_nothing(request_: AnyRequest, body: bytes) -> None:
    proxy = a_broker()
    proxy.ask(a_sub(1))
    terms = GroupTerms(ordered_by="key")
    proxy.ask(replace(a_sub(2), group="g", group_terms=terms))
    proxy.put(1, count=2)
    proxy.ask(Match(client="s", epoch=1, request=5, match=glob("*"), control=3))
    proxy.ask(Take(client="s", epoch=1, request=6, topic="t", group="g", generation=1))
    proxy.decide(a_stage(1), put_body(1))
    before = pickle.dumps(vars(proxy.state))

    first = decide(proxy.state, request_, body, now_ns=proxy.now_ns)
    second = decide(proxy.state, request_, body, now_ns=proxy.now_ns)

    assert pickle.dumps(vars(proxy.state)) == before
    assert first == second


def test_every_verb_is_in_that_test() -> None:
    assert {type(request) for request, _ in EVERY_VERB} == TABLES.verbs.keys()
