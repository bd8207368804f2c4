"""Levels of service: what QoS 1 leaves out, and what it shares with QoS 2 (rule R19)."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import (
    AnyReply,
    Duplicate,
    Fenced,
    Full,
    Gap,
    MessageBatches,
    PutAck,
)
from reliable_pubsub.common.core.message_base import QoS, Start, StoredQoS, Terms
from reliable_pubsub.proxy.core.state import BrokerSettings, Memory
from reliable_pubsub.proxy.core.topic_log import Retention
from tests.fakes import (
    MemoryProxy,
    a_broker,
    a_get,
    a_history,
    a_put,
    a_sub,
    an_ack,
    an_unsub,
    put_body,
    shown,
    sub_ack,
)


def put(proxy: MemoryProxy, sequence: int, qos: StoredQoS, client: str = "p") -> AnyReply:
    return proxy.ask(a_put(sequence, qos=qos, client=client), put_body(sequence))


def offset_of(reply: AnyReply) -> int:
    assert isinstance(reply, PutAck)
    return reply.offset


class TestAPutAtLevel1:
    def test_is_stored_as_often_as_it_comes(self) -> None:
        proxy = a_broker()

        assert [offset_of(put(proxy, 7, 1)) for _ in range(3)] == [0, 1, 2]
        found = proxy.ask(a_history(0, messages_max=9))
        assert isinstance(found, MessageBatches)
        assert [(b.first_sequence, b.qos) for b in found.batches] == [(7, 1)] * 3

    def test_waits_for_the_disk(self) -> None:
        proxy = a_broker()

        decision = proxy.decide(a_put(1, qos=1), put_body(1))

        assert decision.visible_at > proxy.state.durable_lsn

    def test_knows_no_gap_and_leaves_the_numbers_of_level_2_alone(self) -> None:
        proxy = a_broker()
        offset_of(put(proxy, 1, 2))
        offset_of(put(proxy, 99, 1))

        assert isinstance(put(proxy, 1, 2), Duplicate)
        assert offset_of(put(proxy, 2, 2)) == 2
        assert isinstance(put(proxy, 99, 2), Gap)

    def test_keeps_both_numberings_apart_across_a_restart(self) -> None:
        proxy = a_broker()
        put(proxy, 1, 2)
        put(proxy, 99, 1)
        proxy = proxy.restarted()

        assert isinstance(put(proxy, 1, 2), Duplicate)
        assert offset_of(put(proxy, 2, 2)) == 2
        assert offset_of(put(proxy, 99, 1)) == 3

    def test_of_a_replaced_process_is_fenced(self) -> None:
        proxy = a_broker()

        reply = proxy.ask(a_put(1, qos=1, epoch=0), put_body(1))

        assert isinstance(reply, Fenced)

    def test_meets_the_bounds_of_the_topic(self) -> None:
        bound = BrokerSettings(retention=Retention(topic_bytes_max=10))
        proxy = a_broker(settings=bound)
        proxy.ask(a_sub())
        put(proxy, 1, 1)

        assert isinstance(put(proxy, 2, 1), Full)

    def test_is_taken_from_any_number_of_publishers_of_which_the_newest_are_remembered(
        self,
    ) -> None:
        """Its numbers are not compared, so that who has put has no effect any more (R26)."""
        clients = [f"p{n}" for n in range(6)]
        settings = BrokerSettings(publishers_per_topic_max=2, memory=Memory(unnumbered_max=2))
        proxy = a_broker(publishers=clients, settings=settings)

        answers = [proxy.ask(a_put(1, client=one, qos=1), put_body(1)) for one in clients]
        proxy.tick()

        assert [type(one) for one in answers] == [PutAck] * 6
        assert list(proxy.state.topics["t"].unnumbered) == ["p4", "p5"]
        assert list(proxy.restarted().state.topics["t"].unnumbered) == ["p4", "p5"]


class TestASubscription:
    @pytest.mark.parametrize("qos", [1, 2])
    def test_says_its_level_also_after_a_restart(self, qos: QoS) -> None:
        proxy = a_broker()
        first = sub_ack(proxy.ask(a_sub(1, terms=Terms(qos=qos))))
        proxy = proxy.restarted()

        again = sub_ack(proxy.ask(a_sub(2, terms=Terms(qos=qos), log=first.log, cursor=0)))

        assert (first.terms.qos, again.terms.qos) == (qos, qos)
        assert proxy.state.topics["t"].subscriptions["s"].terms.qos == qos

    def test_can_change_its_level_without_beginning_again(self) -> None:
        proxy = a_broker()
        first = sub_ack(proxy.ask(a_sub(1)))

        again = sub_ack(proxy.ask(a_sub(2, terms=Terms(qos=1))))

        assert (again.terms.qos, again.generation) == (1, first.generation)


class TestWhatWasShown:
    """A process that remembers nothing marks what an earlier one of its id may have had."""

    def test_is_reported_to_the_next_process(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub())
        for sequence in (1, 2, 3):
            proxy.put(sequence)
        proxy.ask(a_get(0, messages_max=2))

        again = sub_ack(proxy.ask(a_sub(2)))

        assert (again.cursor, again.shown) == (0, 2)

    def test_is_durable_with_the_cursor(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub())
        for sequence in (1, 2, 3):
            proxy.put(sequence)
        proxy.ask(a_get(1, messages_max=2))

        again = sub_ack(proxy.restarted().ask(a_sub(2)))

        assert (again.cursor, again.shown) == (1, 3)

    def test_is_nothing_more_once_it_was_acknowledged(self) -> None:
        """A client that says all is done has nothing in hand; what was sent ahead is unmarked."""
        proxy = a_broker()
        proxy.ask(a_sub())
        for sequence in (1, 2, 3):
            proxy.put(sequence)
        proxy.ask(a_get(0, messages_max=3))
        proxy.ask(an_ack(1))

        assert sub_ack(proxy.restarted().ask(a_sub(2))).shown == 1

    def test_is_nothing_more_either_after_the_process_has_resumed_and_acknowledged(self) -> None:
        """Else it would be marked as shown, though an acknowledgement says that it is not here."""
        proxy = a_broker()
        first = sub_ack(proxy.ask(a_sub()))
        for sequence in (1, 2, 3):
            proxy.put(sequence)
        proxy.ask(a_get(0, messages_max=3))
        resumed = sub_ack(proxy.ask(a_sub(2)))
        assert resumed.generation == first.generation
        proxy.ask(an_ack(1))

        assert sub_ack(proxy.ask(a_sub(3))).shown == 1

    def test_is_not_taken_back_by_a_late_copy_of_an_older_acknowledgement(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub())
        for sequence in (1, 2, 3):
            proxy.put(sequence)
        proxy.ask(an_ack(1))
        proxy.ask(a_get(2, messages_max=1))
        proxy.ask(an_ack(1))

        assert sub_ack(proxy.ask(a_sub(2))).shown == 3

    def test_outlives_the_subscription(self) -> None:
        """Then what is read again is marked, also for a client without a state."""
        proxy = a_broker()
        proxy.ask(a_sub())
        for sequence in (1, 2, 3):
            proxy.put(sequence)
        assert shown(proxy.ask(a_get(0, messages_max=3)))
        proxy.ask(an_unsub(2))

        again = sub_ack(proxy.ask(a_sub(3, start=Start("earliest"))))

        assert (again.cursor, again.shown) == (0, 3)
