"""HELLO: one process for each id, and the newest one counts (rule R11). STATUS, MALFORMED (R2)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import Fenced, HelloAck, Malformed, PutAck
from reliable_pubsub.common.core.message_base import GroupTerms
from reliable_pubsub.common.core.requests import AnyRequest, Put
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.proxy.core.replies import malformed
from tests.fakes import (
    LOG,
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
)

OTHER_NONCE = b"nonce-02"


def a_status(*, after_topic: str = "", topics_max: int = 100, rows_max: int = 250) -> Status:
    return Status(
        client="watch",
        epoch=0,
        request=1,
        after_topic=after_topic,
        topics_max=topics_max,
        rows_max=rows_max,
    )


def report(proxy: MemoryProxy, request: Status) -> StatusReport:
    reply = proxy.ask(request)
    assert isinstance(reply, StatusReport)
    return reply


class TestAnEpoch:
    def test_is_granted_to_a_client_that_asks_for_a_higher_one(self) -> None:
        """H11: the newest process with an id wins, and is the only one that is served."""
        proxy = a_broker()

        newer = proxy.ask(a_hello("publisher", "p", epoch=2, nonce=OTHER_NONCE))

        assert isinstance(newer, HelloAck)
        assert isinstance(proxy.put(1), Fenced)
        assert isinstance(proxy.ask(a_put(1, epoch=2), put_body(1)), PutAck)

    def test_may_leave_numbers_out(self) -> None:
        assert isinstance(MemoryProxy().ask(a_hello("publisher", "p", epoch=9)), HelloAck)

    def test_is_durable(self) -> None:
        proxy = a_broker()
        proxy.ask(a_hello("publisher", "p", epoch=5))

        answer = proxy.restarted().ask(a_hello("publisher", "p", epoch=5, nonce=OTHER_NONCE))

        assert isinstance(answer, Fenced)
        assert answer.current_epoch == 5

    def test_of_a_publisher_is_not_that_of_a_subscriber_with_the_same_id(self) -> None:
        proxy = a_broker(publishers=("x",), subscribers=())

        assert isinstance(proxy.ask(a_hello("subscriber", "x", nonce=OTHER_NONCE)), HelloAck)

    def test_zero_is_no_epoch(self) -> None:
        assert isinstance(MemoryProxy().ask(a_hello("publisher", "p", epoch=0)), Fenced)


class TestARetriedHello:
    def test_is_answered_as_the_first_one(self) -> None:
        """R11: the nonce tells a retry from another process."""
        proxy = a_broker()

        again = proxy.decide(a_hello("publisher", "p"))

        assert isinstance(again.reply, HelloAck)
        assert again.records == ()

    def test_of_another_process_with_the_same_epoch_is_fenced(self) -> None:
        proxy = a_broker()

        other = proxy.ask(a_hello("publisher", "p", nonce=OTHER_NONCE))

        assert isinstance(other, Fenced)
        assert other.current_epoch == 1

    def test_that_is_late_has_no_effect(self) -> None:
        """H10, R11: a HELLO from an abandoned socket does not throw the newer process out."""
        proxy = a_broker()
        proxy.ask(a_hello("publisher", "p", epoch=2, nonce=OTHER_NONCE))

        late = proxy.ask(a_hello("publisher", "p", epoch=1))

        assert isinstance(late, Fenced)
        assert isinstance(proxy.ask(a_put(1, epoch=2), put_body(1)), PutAck)

    def test_does_not_begin_the_control_numbers_again(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(4))

        proxy.ask(a_hello("subscriber", "s"))

        assert proxy.state.sessions[("subscriber", "s")].control == 4


class TestTheNumberingOfAPublisher:
    def test_comes_with_the_hello(self) -> None:
        proxy = a_broker()
        proxy.put(1, count=3)

        answer = proxy.ask(a_hello("publisher", "p", epoch=2, topics=("t", "nowhere")))

        assert isinstance(answer, HelloAck)
        known, unknown = answer.positions
        assert (known.log, known.last_sequence, known.offset) == (LOG, 3, 2)
        assert (unknown.log, unknown.last_sequence, unknown.offset) == ("", 0, None)

    def test_is_its_own(self) -> None:
        proxy = a_broker(publishers=("p", "q"))
        proxy.put(1)

        answer = proxy.ask(a_hello("publisher", "q", topics=("t",)))

        assert isinstance(answer, HelloAck)
        assert answer.positions[0].last_sequence == 0


class TestStatus:
    def test_shows_what_a_subscription_has_not_acknowledged(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(cursor=0))
        proxy.put(1, count=3)
        proxy.ask(an_ack(1))
        proxy.tick(now_s=7.0)

        (topic,) = report(proxy, a_status()).topics

        (subscription,) = topic.subscriptions
        assert (subscription.cursor, subscription.lag_messages) == (1, 2)
        assert subscription.lag_s == pytest.approx(7.0)
        assert (topic.start, topic.end, topic.publishers[0].last_sequence) == (0, 3, 3)

    def test_gives_topics_in_pages_and_each_once(self) -> None:
        proxy = a_broker()
        names = [f"t{number}" for number in range(7)]
        for name in names:
            proxy.put(1, topic=name)

        seen, after = [], ""
        while True:
            page = report(proxy, a_status(after_topic=after, topics_max=3))
            seen += [topic.topic for topic in page.topics]
            if not isinstance(page.next_topic, str):
                break
            after = page.next_topic

        assert seen == names

    def test_shows_no_more_rows_than_were_asked_for_and_counts_the_others(self) -> None:
        proxy = a_broker()
        proxy.ask(a_sub(cursor=0))
        proxy.put(1, count=3)

        (topic,) = report(proxy, a_status(rows_max=0)).topics

        assert (topic.log, topic.start, topic.end) == (LOG, 0, 3)
        assert (topic.subscriptions, topic.subscriptions_left_out) == ((), 1)
        assert (topic.publishers, topic.publishers_left_out) == ((), 1)

    def test_counts_the_groups_that_it_does_not_show(self) -> None:
        proxy = a_broker()
        for control, name in enumerate("ab", 1):
            proxy.ask(replace(a_sub(control), group=name, group_terms=GroupTerms()))

        (topic,) = report(proxy, a_status(rows_max=1)).topics

        assert [one.group for one in topic.groups or ()] == ["a"]
        assert topic.groups_left_out == 1

    def test_shows_the_durable_end_only(self) -> None:
        """H30: what STATUS counts is durable too."""
        proxy = a_broker()
        proxy.put(1)
        proxy.decide(a_put(2), put_body(2))

        reply = decide(proxy.state, a_status(), b"", now_ns=0).reply

        assert isinstance(reply, StatusReport)
        assert reply.topics[0].end == 1


@pytest.mark.parametrize(
    "request_",
    [
        a_hello("publisher", "p"),
        a_put(1),
        a_get(0),
        an_ack(0),
        a_sub(),
        an_unsub(1),
        a_history(0),
        a_status(),
    ],
    ids=lambda request: type(request).__name__,
)
def test_every_request_has_exactly_one_answer_also_in_an_empty_proxy(request_: AnyRequest) -> None:
    """H19, R2: a REP socket is never left without an answer, and the answer repeats its head."""
    body = put_body(1) if isinstance(request_, Put) else b""

    reply = MemoryProxy().ask(request_, body)

    head = (request_.client, request_.epoch, request_.request)
    assert (reply.client, reply.epoch, reply.request) == head


def test_what_cannot_be_read_is_answered_too() -> None:
    """H19: MALFORMED is an answer; without a head it echoes nothing."""
    state = MemoryProxy().state

    unread = malformed(state, "no header")
    misplaced = malformed(state, "PUT does not belong here", a_put(1, request=9))

    assert isinstance(unread, Malformed)
    assert (unread.client, unread.epoch, unread.request) == ("", 0, 0)
    assert (misplaced.client, misplaced.request) == ("p", 9)


def test_hello_names_no_log_that_a_crash_could_still_take_back() -> None:
    """A publisher stopped, because the topic came back under another log id."""
    proxy = a_broker()
    proxy.decide(a_put(1, topic="new"), put_body(1))

    decision = proxy.decide(a_hello("publisher", "p", topics=("new",)))

    assert isinstance(decision.reply, HelloAck)
    assert decision.reply.positions[0].log
    assert decision.visible_at > proxy.state.durable_lsn
