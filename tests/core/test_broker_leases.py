"""Sessions and leases: what silence changes, what it does not, and who gets a report (rule R17)."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.actions import SetCursor
from reliable_pubsub.common.core.answers import ByeAck, Fenced, Lost, Malformed, NotSub, Stale
from reliable_pubsub.common.core.message_base import Start, Terms
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.status import Status, StatusReport, SubscriptionStatus
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from tests.fakes import (
    LOG,
    MemoryProxy,
    a_broker,
    a_bye,
    a_get,
    a_hello,
    a_put,
    a_stage,
    a_sub,
    an_abort,
    an_action,
    an_unsub,
    put_body,
    shown,
    sub_ack,
)

LEASE = Terms(lease_ms=10_000)
CLEAN = Terms(session="clean", lease_ms=10_000)
NO_HISTORY = BrokerSettings(retention=Retention(history_bytes=0, history_s=0.0))


def subscribed(terms: Terms, *, settings: BrokerSettings = BrokerSettings()) -> MemoryProxy:  # noqa: B008
    """A subscriber that was heard at second 0, with one message that it has not read."""
    proxy = a_broker(settings=settings)
    proxy.tick(now_s=0.0)
    proxy.ask(a_sub(terms=terms))
    proxy.put(1)
    return proxy


def status(proxy: MemoryProxy) -> SubscriptionStatus:
    report = proxy.ask(Status(client="w", epoch=0, request=1))
    assert isinstance(report, StatusReport)
    return report.topics[0].subscriptions[0]


class TestASilentSubscriber:
    @pytest.mark.parametrize(
        ("silent_s", "state"),
        [(0, "active"), (10, "active"), (11, "suspended"), (20, "suspended"), (21, "expired")],
    )
    def test_is_seen_in_status_before_anything_changes(self, silent_s: float, state: str) -> None:
        proxy = subscribed(LEASE)

        proxy.tick(now_s=silent_s)

        assert (status(proxy).state, status(proxy).terms) == (state, LEASE)

    def test_without_a_lease_is_borne_forever(self) -> None:
        proxy = subscribed(Terms())

        proxy.tick(now_s=1e9)

        assert status(proxy).state == "active"

    def test_is_active_again_as_soon_as_it_is_heard(self) -> None:
        proxy = subscribed(LEASE)
        proxy.tick(now_s=15)

        proxy.tick(now_s=19)
        proxy.ask(a_get(0))
        proxy.tick(now_s=25)

        assert status(proxy).state == "active"

    def test_that_an_operator_revives_was_heard_by_what_it_has_asked_without_a_lease(self) -> None:
        """Its lease must not end again at the next tick."""
        proxy = subscribed(LEASE)
        proxy.tick(now_s=21)
        assert status(proxy).state == "expired"

        proxy.tick(now_s=30)
        proxy.ask(a_get(0, topic="other"))
        back = SetCursor(topic="t", subscriber="s", start=Start("earliest"))
        proxy.ask(an_action(back, number=1))
        proxy.tick(now_s=31)

        assert status(proxy).state == "active"

    def test_is_not_heard_through_a_process_that_was_replaced(self) -> None:
        proxy = subscribed(LEASE)

        proxy.tick(now_s=19)
        proxy.ask(a_get(0, epoch=0))
        proxy.tick(now_s=21)

        assert status(proxy).state == "expired"

    @pytest.mark.parametrize(
        "request_", [a_put(1, client="s"), a_stage(1, client="s"), an_abort(1, client="s")]
    )
    def test_is_not_heard_through_a_publisher_of_the_same_id(self, request_: AnyRequest) -> None:
        proxy = subscribed(LEASE)
        proxy.ask(a_hello("publisher", "s"))

        proxy.tick(now_s=19)
        proxy.ask(request_, put_body(1))
        proxy.tick(now_s=21)

        assert status(proxy).state == "expired"

    def test_has_a_whole_lease_after_a_restart_of_the_proxy(self) -> None:
        """No client could be heard while it was away."""
        proxy = subscribed(LEASE).restarted()

        proxy.tick(now_s=1000)
        proxy.tick(now_s=1019)

        assert status(proxy).state == "suspended"


class TestAnExpiredPersistentSession:
    def test_that_is_unsubscribed_is_no_longer_shown(self) -> None:
        """As after a restart: it has ended, for whatever reason."""
        proxy = self.expired()

        proxy.ask(an_unsub(2))
        report = proxy.ask(Status(client="w", epoch=0, request=1))

        assert isinstance(report, StatusReport)
        assert report.topics[0].subscriptions == ()

    def expired(self, settings: BrokerSettings = NO_HISTORY) -> MemoryProxy:
        proxy = subscribed(LEASE, settings=settings)
        proxy.tick(now_s=21)
        return proxy

    def test_holds_nothing_back_any_more(self) -> None:
        proxy = self.expired()

        proxy.tick(now_s=22)

        assert proxy.state.topics["t"].start == 1

    def test_held_everything_back_until_then(self) -> None:
        proxy = subscribed(LEASE, settings=NO_HISTORY)

        proxy.tick(now_s=20)

        assert proxy.state.topics["t"].start == 0

    def test_learns_what_is_gone_when_it_returns(self) -> None:
        proxy = self.expired()
        proxy.tick(now_s=22)

        assert isinstance(proxy.ask(a_get(0)), Stale)
        back = sub_ack(proxy.ask(a_sub(2, log=LOG, cursor=0, terms=LEASE)))
        lost = proxy.ask(a_get(0))

        assert (back.cursor, back.generation) == (0, 1)
        assert isinstance(lost, Lost)
        assert (lost.first, lost.end) == (0, 1)

    def test_continues_without_a_loss_where_nothing_was_removed(self) -> None:
        proxy = self.expired(BrokerSettings())

        proxy.ask(a_sub(2, log=LOG, cursor=0, terms=LEASE))

        assert shown(proxy.ask(a_get(0))) == [(0, 1)]
        assert status(proxy).state == "active"

    def test_stays_expired_across_a_restart(self) -> None:
        proxy = self.expired().restarted()

        proxy.tick(now_s=0.0)

        assert status(proxy).state == "expired"

    def test_is_revived_by_the_retry_of_its_own_sub(self) -> None:
        proxy = self.expired(BrokerSettings())

        sub_ack(proxy.ask(a_sub(1, terms=LEASE)))

        assert status(proxy).state == "active"


class TestACleanSession:
    def test_ends_with_bye_and_what_was_not_delivered_is_not_kept(self) -> None:
        proxy = subscribed(CLEAN, settings=NO_HISTORY)

        reply = proxy.ask(a_bye())
        proxy.tick(now_s=1)

        assert isinstance(reply, ByeAck)
        assert reply.ended == 1
        assert isinstance(proxy.ask(a_get(0)), NotSub)
        assert proxy.state.topics["t"].start == 1

    def test_ends_with_its_lease_and_says_why(self) -> None:
        proxy = subscribed(CLEAN)

        proxy.tick(now_s=21)
        reply = proxy.ask(a_get(0))

        assert isinstance(reply, NotSub)
        assert "expired, because it was silent for too long" in reply.text
        assert status(proxy).state == "expired"

    def test_begins_again_after_it_has_ended(self) -> None:
        proxy = subscribed(CLEAN)
        proxy.tick(now_s=21)

        again = sub_ack(proxy.ask(a_sub(2, terms=CLEAN)))

        assert (again.cursor, again.generation, again.already) == (1, 2, False)
        assert status(proxy).state == "active"

    def test_needs_a_lease(self) -> None:
        reply = a_broker().ask(a_sub(terms=Terms(session="clean")))

        assert isinstance(reply, Malformed)
        assert "needs a lease" in reply.text


class TestABye:
    def test_leaves_persistent_sessions_as_they_are(self) -> None:
        proxy = subscribed(LEASE)

        reply = proxy.ask(a_bye())

        assert isinstance(reply, ByeAck)
        assert reply.ended == 0
        assert shown(proxy.ask(a_get(0))) == [(0, 1)]

    def test_that_is_repeated_changes_nothing_more(self) -> None:
        proxy = subscribed(CLEAN)
        proxy.ask(a_bye())

        again = proxy.ask(a_bye())

        assert isinstance(again, ByeAck)
        assert again.ended == 0

    def test_of_a_replaced_process_is_fenced(self) -> None:
        proxy = subscribed(CLEAN)

        assert isinstance(proxy.ask(a_bye(epoch=0)), Fenced)
        assert shown(proxy.ask(a_get(0))) == [(0, 1)]

    def test_waits_for_the_disk(self) -> None:
        proxy = subscribed(CLEAN)

        decision = proxy.decide(a_bye())

        assert decision.visible_at > proxy.state.durable_lsn


class TestARepeatedSub:
    def test_that_comes_late_does_not_move_an_expired_session(self) -> None:
        """It must not begin a second time, at a `now` that has moved on."""
        proxy = subscribed(LEASE)
        late = a_sub(2, start=Start("now"), terms=LEASE)
        begun = sub_ack(proxy.ask(late))
        proxy.put(2)
        proxy.tick(now_s=21)

        again = sub_ack(proxy.ask(late))

        assert (again.generation, again.cursor) == (begun.generation, begun.cursor)

    @pytest.mark.parametrize("ends", ["with BYE", "with its lease"])
    def test_that_comes_late_does_not_begin_another_clean_session(self, ends: str) -> None:
        proxy = subscribed(CLEAN)
        if ends == "with BYE":
            proxy.ask(a_bye())
        else:
            proxy.tick(now_s=21)

        assert isinstance(proxy.ask(a_sub(terms=CLEAN)), NotSub)

    def test_that_continues_with_a_clean_session_learns_that_it_has_ended(self) -> None:
        """Otherwise its subscriber would continue, and not know what it has missed."""
        proxy = subscribed(CLEAN)
        proxy.tick(now_s=21)

        assert isinstance(proxy.ask(a_sub(2, log=LOG, cursor=0, terms=CLEAN)), NotSub)


def test_a_hello_of_another_process_keeps_no_lease() -> None:
    """Such a HELLO may carry the current epoch, which was never granted to its process."""
    proxy = subscribed(LEASE)
    proxy.tick(now_s=19)

    assert isinstance(proxy.ask(a_hello("subscriber", "s", nonce=b"another-")), Fenced)
    proxy.tick(now_s=21)

    assert status(proxy).state == "expired"
