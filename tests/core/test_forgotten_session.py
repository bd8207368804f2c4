"""Clients whose proxy forgot their session, or never answered their HELLO."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reliable_pubsub.common.core.answers import AnyReply, HelloAck, LogChanged, SubAck
from reliable_pubsub.common.core.errors import ProxyUnreachableError, TryLaterError
from reliable_pubsub.common.core.requests import Get
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.wire import decode_request
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_broker, a_world


class RestartingLink(Link):
    """The proxy is killed and started again before each GET."""

    def __call__(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        if isinstance(decode_request(frames)[0], Get):
            self.proxy = self.proxy.restarted()
        return super().__call__(frames)


class ForgettingLink(Link):
    """The proxy loses everything after each answer of a sort, a number of times."""

    def __init__(self, kind: type[AnyReply], times: int) -> None:
        super().__init__(MemoryProxy())
        self._kind = kind
        self._times = times

    def __call__(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        answer = super().__call__(frames)
        if isinstance(self.answers[-1], self._kind) and self._times:
            self._times -= 1
            self.proxy = MemoryProxy()
        return answer


def a_publisher(link: Link, disk: Disk) -> Publisher:
    clock = FakeClock()
    return Publisher("p", _world=a_world(link, clock, disk))


def a_subscriber(link: Link, disk: Disk) -> Subscriber:
    clock = FakeClock()
    return Subscriber("s", _world=a_world(FakeTransport(link, clock), clock, disk))


def test_a_proxy_that_restarts_again_and_again_leaves_a_get_in_doubt() -> None:
    """It was a refusal, exit code 4, although asking again would have helped."""
    link = RestartingLink(MemoryProxy())
    subscriber = a_subscriber(link, Disk())
    subscriber.subscribe("t")

    with pytest.raises(TryLaterError) as error:
        subscriber.get("t")
    assert error.value.exit_code == 3


def test_a_subscriber_is_not_fenced_by_a_hello_of_its_own_that_was_not_answered() -> None:
    """The proxy had forgotten it; the HELLO was granted, its answer was lost."""
    link, clock = Link(a_broker(subscribers=())), FakeClock()
    subscriber = Subscriber(
        "s", _world=a_world(FakeTransport(link, clock), clock), retry=RetryPolicy(retries_max=0)
    )
    for topic in ("t", "u"):
        link.proxy.put(1, topic=topic)
    older = link.proxy.restarted()
    for topic in ("t", "u"):
        subscriber.subscribe(topic)
    link.proxy = older
    link.script(".<")  # GET is answered: FENCED, no epoch is known. The answer to HELLO is lost
    with pytest.raises(ProxyUnreachableError):
        subscriber.get("t")

    assert subscriber.get("u") == []


@pytest.mark.parametrize("kind", [Publisher, Subscriber])
def test_a_late_copy_of_a_hello_does_not_fence_its_sender(
    kind: type[Publisher | Subscriber],
) -> None:
    """Its answer was lost, then the proxy forgot all epochs."""
    link, clock = Link(a_broker(publishers=("c",), subscribers=("c",))), FakeClock()
    transport = FakeTransport(link, clock)
    client = kind("c", retry=RetryPolicy(retries_max=0), _world=a_world(transport, clock))
    link.script(".<")  # epoch 1 is FENCED; epoch 2 is granted, and the answer is lost
    with pytest.raises(ProxyUnreachableError):
        client.connect()
    hello = transport.sent[-1]
    link.proxy = MemoryProxy()

    client.connect()
    link.proxy.frames(hello)

    if isinstance(client, Publisher):
        assert client.put("t", b"a").offset == 0
    else:
        assert client.subscribe("t") == 0


def test_a_proxy_that_forgets_a_session_again_and_again_fences_no_client() -> None:
    """The second time its answer was taken for a newer process of the same id."""
    publisher = a_publisher(ForgettingLink(HelloAck, 3), Disk())

    assert publisher.put("t", b"a").offset == 0

    with pytest.raises(TryLaterError) as caught:
        a_publisher(ForgettingLink(HelloAck, 1_000), Disk()).put("t", b"a")
    assert caught.value.code == "FENCED"


def test_a_proxy_that_forgets_us_after_each_confirmation_fences_no_subscriber() -> None:
    subscriber = a_subscriber(ForgettingLink(SubAck, 1_000), Disk())
    subscriber.subscribe("t")

    with pytest.raises(TryLaterError) as caught:
        subscriber.get("t")
    assert caught.value.code == "FENCED"


def test_a_session_that_is_forgotten_after_a_changed_log_is_begun_again() -> None:
    """A subscriber that rewinds ended as if another process had its id."""
    before, disk = Link(a_broker()), Disk()
    before.proxy.put(1)
    a_subscriber(before, disk).subscribe("t")
    link, clock = ForgettingLink(LogChanged, 1), FakeClock()
    rewinding = Subscriber(
        "s",
        _world=a_world(FakeTransport(link, clock), clock, disk),
        on_log_changed="rewind",
    )

    assert rewinding.subscribe("t") == 0
    assert [type(answer) for answer in link.answers].count(LogChanged) == 1
