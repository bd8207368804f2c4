"""A polled subscriber lets its GET wait at the proxy: few requests, and no pause between them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reliable_pubsub.common.core.answers import Malformed
from reliable_pubsub.common.core.requests import Get
from reliable_pubsub.common.core.wire import decode_request, encode
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import PATIENT, FakeClock, FakeTransport, Link, MemoryProxy, a_world


class WaitingTransport(FakeTransport):
    """A way to a proxy that holds a GET until its time is over, and keeps every GET."""

    def __init__(self, link: Link, clock: FakeClock, *, knows_it: bool = True) -> None:
        super().__init__(self._answered, clock)
        self.link = link
        self.clock = clock
        self.knows_it = knows_it
        self.gets: list[Get] = []
        self.timeouts_s: list[float] = []

    def _answered(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        request, _ = decode_request(frames)
        if isinstance(request, Get):
            self.gets.append(request)
            if request.wait_ms and not self.knows_it:
                client, epoch, number = request.client, request.epoch, request.request
                refusal = Malformed(client=client, epoch=epoch, request=number, text="wait_ms")
                return encode(refusal)
            if request.wait_ms:
                self.clock.time_s += request.wait_ms / 1000
        return self.link(frames)

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        self.timeouts_s.append(timeout_s)
        return super().receive(timeout_s)


class House:
    """A subscriber to an empty topic."""

    def __init__(self, *, knows_it: bool = True, lease_s: float | None = None) -> None:
        self.link, self.clock = Link(MemoryProxy()), FakeClock()
        self.transport = WaitingTransport(self.link, self.clock, knows_it=knows_it)
        self.subscriber = Subscriber("s", retry=PATIENT, _world=a_world(self.transport, self.clock))
        self.subscriber.subscribe("t", lease_s=lease_s)


def test_an_idle_get_asks_once_in_the_time_of_an_answer_and_never_sleeps() -> None:
    house = House()

    assert house.subscriber.get("t", timeout_s=60.0) == []

    assert len(house.transport.gets) <= 60.0 / PATIENT.timeout_s + 1
    assert house.clock.sleeps == []
    assert house.clock.time_s == pytest.approx(60.0, abs=0.1)


def test_each_attempt_is_given_longer_than_the_proxy_may_wait() -> None:
    house = House()
    house.transport.timeouts_s.clear()

    house.subscriber.get("t", timeout_s=20.0)

    waits_s = [(get.wait_ms or 0) / 1000 for get in house.transport.gets]
    assert max(waits_s) == PATIENT.timeout_s
    for wait_s, timeout_s in zip(waits_s, house.transport.timeouts_s, strict=True):
        assert timeout_s == pytest.approx(wait_s + PATIENT.timeout_s, abs=0.01)


def test_a_get_without_time_to_wait_asks_once_and_waits_nowhere() -> None:
    house = House()

    assert house.subscriber.get("t") == []

    (get,) = house.transport.gets
    assert not get.wait_ms


def test_a_leased_subscription_waits_for_a_third_of_its_lease() -> None:
    house = House(lease_s=3.0)

    house.subscriber.get("t", timeout_s=10.0)

    assert max(get.wait_ms or 0 for get in house.transport.gets) == 1000


def test_a_get_that_waits_says_which_messages_at_qos_0_it_has_had() -> None:
    house = House()

    house.subscriber.get("t", timeout_s=10.0)

    assert all(get.ring == 0 for get in house.transport.gets if get.wait_ms)


def test_what_is_processed_is_acknowledged_by_the_get_that_waits() -> None:
    house = House()
    with Publisher("p", _world=a_world(house.link)) as publisher:
        publisher.put("t", b"a")
    house.subscriber.get("t", timeout_s=10.0)

    house.subscriber.get("t", timeout_s=10.0)

    assert house.link.proxy.state.topics["t"].subscriptions["s"].cursor == 1


def test_a_proxy_that_does_not_know_waiting_is_polled() -> None:
    house = House(knows_it=False)

    assert house.subscriber.get("t", timeout_s=2.0) == []

    assert sum(bool(get.wait_ms) for get in house.transport.gets) == 1
    assert house.clock.sleeps
    assert house.clock.time_s == pytest.approx(2.0, abs=0.1)
