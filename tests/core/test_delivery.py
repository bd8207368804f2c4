"""Waiting until subscribers have acknowledged: who counts, what is enough, and what is reported."""

from __future__ import annotations

from typing import Any

import pytest

from reliable_pubsub.common.core.answers import Delivered, Limit, LogChanged
from reliable_pubsub.common.core.errors import LogChangedError, NotDeliveredError, UsageError
from reliable_pubsub.common.core.requests import DeliveryRequest
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.proxy.status import delivery as delivery_status
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.core.receipt import AcknowledgedBy
from reliable_pubsub.publisher.delivery.core.delivery import DeliveryWatch
from tests.fakes import (
    FakeClock,
    Link,
    MemoryProxy,
    a_broker,
    a_get,
    a_hello,
    a_sub,
    a_world,
    an_ack,
    an_unsub,
)


def a_delivery(offset: int, *, topic: str = "t", log: str | None = None) -> DeliveryRequest:
    return DeliveryRequest(client="p", epoch=0, request=1, topic=topic, offset=offset, log=log)


def with_subscribers(*names: str) -> MemoryProxy:
    """A proxy with one message and these subscribers before it."""
    proxy = a_broker()
    for name in names:
        if name != "s":
            proxy.ask(a_hello("subscriber", name))
        proxy.ask(a_sub(client=name))
    proxy.put(1)
    return proxy


def seen(proxy: MemoryProxy, offset: int = 0) -> tuple[list[str], list[str]]:
    """Who has acknowledged, and who has not."""
    reply = proxy.ask(a_delivery(offset))
    assert isinstance(reply, Delivered), reply
    return list(reply.acknowledged), list(reply.waiting)


class TestTheProxy:
    def test_names_who_has_the_message_and_who_has_not(self) -> None:
        proxy = with_subscribers("s", "s2")
        proxy.ask(an_ack(1))

        assert seen(proxy) == (["s"], ["s2"])

    def test_counts_durable_cursors_only(self) -> None:
        proxy = with_subscribers("s")
        proxy.decide(a_get(1))  # it moves the cursor, and is not committed

        decision = proxy.decide(a_delivery(0))

        assert isinstance(decision.reply, Delivered)
        assert decision.reply.waiting == ("s",)
        proxy.commit()
        assert seen(proxy) == (["s"], [])

    def test_leaves_out_who_has_unsubscribed_or_expired(self) -> None:
        proxy = with_subscribers("s", "s2")
        proxy.ask(an_unsub(2))
        proxy.state.topics["t"].subscriptions["s2"].expired = True

        assert seen(proxy) == ([], [])

    def test_remembers_nothing_and_asks_for_no_session(self) -> None:
        proxy = with_subscribers("s")

        decision = proxy.decide(a_delivery(0))

        assert decision.records == ()

    @pytest.mark.parametrize(("offset", "log"), [(1, None), (0, "another.1")])
    def test_says_that_the_message_is_not_there(self, offset: int, log: str | None) -> None:
        reply = with_subscribers("s").ask(a_delivery(offset, log=log))

        assert isinstance(reply, LogChanged)

    def test_has_a_limit(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delivery_status, "DELIVERY_SUBSCRIBERS_MAX", 1)

        assert isinstance(with_subscribers("s", "s2").ask(a_delivery(0)), Limit)


def a_look(acknowledged: str, waiting: str) -> Delivered:
    return Delivered(
        client="p", epoch=0, request=1, acknowledged=tuple(acknowledged), waiting=tuple(waiting)
    )


class TestEnough:
    @pytest.mark.parametrize(
        ("wanted", "acknowledged", "waiting", "enough"),
        [
            ("all", "ab", "", True),
            ("all", "a", "b", False),
            ("all", "", "", False),  # no subscriber to acknowledge
            (1, "a", "b", True),
            (2, "a", "b", False),
            (2, "ab", "c", True),
        ],
    )
    def test_is_what_was_asked_for(
        self, wanted: AcknowledgedBy, acknowledged: str, waiting: str, enough: bool
    ) -> None:
        assert DeliveryWatch(wanted).saw(a_look(acknowledged, waiting)) == enough

    def test_does_not_count_who_subscribed_later(self) -> None:
        watch = DeliveryWatch(2)
        watch.saw(a_look("", "a"))

        assert not watch.saw(a_look("ab", ""))
        assert watch.delivery.acknowledged == ("a",)

    def test_does_not_wait_for_who_has_left_and_names_it(self) -> None:
        watch = DeliveryWatch("all")
        watch.saw(a_look("", "ab"))

        assert watch.saw(a_look("a", ""))
        assert watch.delivery.left == ("b",)

    def test_remembers_who_has_acknowledged_and_left(self) -> None:
        watch = DeliveryWatch("all")
        watch.saw(a_look("a", "b"))

        assert watch.saw(a_look("b", ""))
        assert watch.delivery.acknowledged == ("a", "b")


class TestAPutThatWaits:
    def test_ends_when_the_last_one_has_acknowledged(self) -> None:
        proxy = with_subscribers("s")
        link, clock = Link(proxy), _Acknowledging(proxy)
        publisher = Publisher("q", _world=a_world(link, clock))

        receipt = publisher.put("t", b"a", wait="delivered")

        assert receipt.delivery is not None
        assert receipt.delivery.acknowledged == ("s",)

    def test_that_takes_too_long_says_who_has_not(self) -> None:
        proxy = with_subscribers("s", "s2")
        clock = FakeClock()
        publisher = Publisher("q", _world=a_world(Link(proxy), clock))

        with pytest.raises(NotDeliveredError, match="must not be put again") as error:
            publisher.put("t", b"a", wait="delivered", timeout_s=5)

        assert (error.value.acknowledged, error.value.waiting) == ((), ("s", "s2"))
        assert (error.value.exit_code, error.value.message_id) == (3, "q_1")
        assert publisher.in_doubt is None
        assert clock.time_s == pytest.approx(5, abs=0.1)

    def test_whose_proxy_goes_away_says_so_and_that_the_message_is_stored(self) -> None:
        link = Link(with_subscribers("s"), "...>")
        publisher = Publisher("q", retry=RetryPolicy(retries_max=0), _world=a_world(link))

        with pytest.raises(NotDeliveredError, match="is stored"):
            publisher.put("t", b"a", wait="delivered")

    def test_whose_message_a_set_back_proxy_has_lost_is_reported(self) -> None:
        link, clock = Link(with_subscribers("s")), FakeClock()
        publisher = Publisher("q", _world=a_world(link, clock))
        receipt = publisher.put("t", b"a")
        link.proxy = MemoryProxy()

        with pytest.raises(LogChangedError):
            publisher.wait_delivered(receipt)

    @pytest.mark.parametrize("given", [{"acknowledged_by": 2}, {"acknowledged_by": "all"}])
    def test_is_asked_for_where_its_arguments_are_given(self, given: Any) -> None:
        link = Link(with_subscribers("s"))
        publisher = Publisher("q", _world=a_world(link))

        (name,) = given

        with pytest.raises(UsageError, match=f"^{name} needs wait='delivered'.* Nothing was sent"):
            publisher.put("t", b"b", **given)

        assert publisher.put("t", b"b").first_sequence == 1

    @pytest.mark.parametrize("wrong", [0, -1, 2001, True])
    def test_has_a_range_of_subscribers(self, wrong: int) -> None:
        publisher = Publisher("q", _world=a_world(Link(MemoryProxy())))

        with pytest.raises(UsageError, match="from 1 to 2,000"):
            publisher.put("t", b"a", wait="delivered", acknowledged_by=wrong)

    @pytest.mark.parametrize("wrong", [0, -1, float("nan")])
    def test_has_a_range_of_time(self, wrong: float) -> None:
        publisher = Publisher("q", _world=a_world(Link(MemoryProxy())))

        with pytest.raises(UsageError, match="a number above 0"):
            publisher.put("t", b"a", wait="delivered", timeout_s=wrong)


class _Acknowledging(FakeClock):
    """While a publisher waits, the subscriber acknowledges."""

    def __init__(self, proxy: MemoryProxy) -> None:
        super().__init__()
        self._proxy = proxy

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._proxy.ask(an_ack(self._proxy.state.topics["t"].durable_end))
