"""A bound of what waits for one subscription: below, at and above it, for each policy (R17)."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.answers import Full, Limit, Lost, MessageBatches, PutAck, Stale
from reliable_pubsub.common.core.settings import OnBound
from reliable_pubsub.proxy.core.state import BrokerSettings
from reliable_pubsub.proxy.core.topic_log import Retention
from tests.fakes import LOG, MemoryProxy, a_broker, a_get, a_hello, a_sub, an_ack, an_unsub, shown

BOUND = 3


def a_proxy(on_bound: OnBound, *, waiting: int) -> MemoryProxy:
    """A proxy with a subscriber for which a number of messages wait, and one that has read them."""
    retention = Retention(waiting_messages_max=BOUND, on_bound=on_bound)
    proxy = a_broker(settings=BrokerSettings(retention=retention))
    proxy.ask(a_hello("subscriber", "reader"))
    proxy.ask(a_sub(client="reader"))
    proxy.ask(a_sub())
    for sequence in range(1, waiting + 1):
        proxy.put(sequence)
        proxy.ask(an_ack(sequence, client="reader"))
    return proxy


def expired(proxy: MemoryProxy) -> list[str]:
    subscriptions = proxy.state.topics["t"].subscriptions
    return [name for name, one in subscriptions.items() if one.expired]


@pytest.mark.parametrize("on_bound", ["reject", "lose_oldest", "expire"])
class TestBelowAndAtTheBound:
    @pytest.mark.parametrize("waiting", [BOUND - 2, BOUND - 1])
    def test_nothing_happens(self, on_bound: OnBound, waiting: int) -> None:
        proxy = a_proxy(on_bound, waiting=waiting)

        assert isinstance(proxy.put(waiting + 1), PutAck)
        assert shown(proxy.ask(a_get(0)))[0] == (0, 1)
        assert expired(proxy) == []


class TestOneAboveTheBound:
    def test_the_publisher_is_refused_and_learns_for_whom(self) -> None:
        proxy = a_proxy("reject", waiting=BOUND)

        answer = proxy.put(BOUND + 1)

        assert isinstance(answer, Full)
        assert "3 of 3 messages wait for 's'" in answer.text

    def test_the_same_put_is_taken_once_one_message_is_acknowledged(self) -> None:
        proxy = a_proxy("reject", waiting=BOUND)
        refused = proxy.put(BOUND + 1)

        proxy.ask(an_ack(1))

        assert isinstance(refused, Full)
        assert isinstance(proxy.put(BOUND + 1), PutAck)

    def test_or_once_that_subscriber_has_gone(self) -> None:
        proxy = a_proxy("reject", waiting=BOUND)

        proxy.ask(an_unsub(2))

        assert isinstance(proxy.put(BOUND + 1), PutAck)

    def test_that_subscriber_loses_the_oldest_and_gets_a_report(self) -> None:
        proxy = a_proxy("lose_oldest", waiting=BOUND)
        proxy.put(BOUND + 1)

        lost = proxy.ask(a_get(0))

        assert isinstance(lost, Lost)
        assert (lost.first, lost.end, lost.waiting_max) == (0, 1, BOUND)
        assert shown(proxy.ask(a_get(1))) == [(1, 1)]

    def test_another_subscriber_and_the_history_lose_nothing(self) -> None:
        proxy = a_proxy("lose_oldest", waiting=BOUND)
        proxy.put(BOUND + 1)

        answer = proxy.ask(a_get(BOUND, client="reader"))

        assert isinstance(answer, MessageBatches)
        assert proxy.state.topics["t"].start == 0

    def test_what_is_lost_may_go(self) -> None:
        """What a subscription cannot get any more is not kept for it."""
        log = a_proxy("lose_oldest", waiting=BOUND + 2).state.topics["t"]

        assert log.low_watermark() == 2

    def test_only_that_subscription_expires_and_the_put_is_taken(self) -> None:
        proxy = a_proxy("expire", waiting=BOUND)

        assert isinstance(proxy.put(BOUND + 1), PutAck)
        assert expired(proxy) == ["s"]

    def test_one_that_has_expired_may_return_and_continue(self) -> None:
        proxy = a_proxy("expire", waiting=BOUND)
        proxy.put(BOUND + 1)
        assert isinstance(proxy.ask(a_get(0)), Stale)

        proxy.ask(a_sub(2, log=LOG, cursor=0))

        assert shown(proxy.ask(a_get(0))) == [(0, 1)]
        assert expired(proxy) == []


class TestABatch:
    def test_counts_with_all_its_messages(self) -> None:
        proxy = a_proxy("reject", waiting=1)

        assert isinstance(proxy.put(2, count=BOUND), Full)
        assert isinstance(proxy.put(2, count=BOUND - 1), PutAck)

    def test_that_never_fits_is_refused_for_good(self) -> None:
        answer = a_proxy("reject", waiting=0).put(1, count=BOUND + 1)

        assert isinstance(answer, Limit)
        assert answer.limit == BOUND

    def test_is_lost_in_part(self) -> None:
        proxy = a_proxy("lose_oldest", waiting=0)
        proxy.put(1, count=BOUND + 2)

        lost = proxy.ask(a_get(0))

        assert isinstance(lost, Lost)
        assert (lost.first, lost.end) == (0, 2)
        assert shown(proxy.ask(a_get(2))) == [(0, BOUND + 2)]
