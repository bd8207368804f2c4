"""Faults that the simulator found, each as the shortest story that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import pytest

from reliable_pubsub.common.errors import (
    LogChangedError,
    LostError,
    OutOfRangeError,
    ProxyUnreachableError,
    TryLaterError,
)
from reliable_pubsub.common.messages import (
    AnyReply,
    Get,
    HelloAck,
    LogChanged,
    NoMessagesYet,
    SubAck,
)
from reliable_pubsub.common.plan_mark import PlanMark
from reliable_pubsub.common.retry import RetryPolicy
from reliable_pubsub.common.start import Earliest, LastReceived, at_offset
from reliable_pubsub.common.wire import decode_request
from reliable_pubsub.proxy.records import Appended
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from tests.fakes import (
    Disk,
    FakeClock,
    FakeTransport,
    Link,
    MemoryProxy,
    a_body,
    a_broker,
    a_get,
    a_hello,
    a_put,
    a_sub,
    as_stored,
    put_body,
    shown,
)


class RestartingLink(Link):
    """The proxy is killed and started again before each GET."""

    def __call__(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        if isinstance(decode_request(frames)[0], Get):
            self.proxy = self.proxy.restarted()
        return super().__call__(frames)


class ForgettingLink(Link):
    """The proxy loses everything behind each answer of a sort, so many times."""

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
    return Publisher("p", transport=FakeTransport(link, clock), clock=clock, state=disk)


def a_subscriber(link: Link, disk: Disk) -> Subscriber:
    clock = FakeClock()
    return Subscriber("s", transport=FakeTransport(link, clock), clock=clock, state=disk)


def test_a_get_shows_nothing_that_the_loop_was_not_yet_told_to_be_durable() -> None:
    """Seed 70: the store was ahead of the loop; the next cursor was then beyond the end."""
    proxy = a_broker()
    proxy.ask(a_sub(cursor=0))
    proxy.put(1)
    pending = proxy.decide(a_put(2), put_body(2))
    proxy.log.add([record for record in pending.records if isinstance(record, Appended)])

    first = proxy.decide(a_get(0, messages_max=10))
    then = proxy.decide(a_get(1, messages_max=10))

    assert shown(first.reply) == [(0, 1)]
    assert isinstance(then.reply, NoMessagesYet)


def test_hello_names_no_log_that_a_crash_could_still_take_back() -> None:
    """Seed 354: a publisher stopped, because the topic came back under another log id."""
    proxy = a_broker()
    proxy.decide(a_put(1, topic="new"), put_body(1))

    decision = proxy.decide(a_hello("publisher", "p", topics=("new",)))

    assert isinstance(decision.reply, HelloAck)
    assert decision.reply.positions[0].log
    assert decision.visible_at > proxy.broker.durable_lsn


def test_a_cursor_is_durable_before_a_sub_tells_it() -> None:
    """Seed 2140: a lazily written cursor was told, then power failed."""
    link, disk = Link(a_broker()), Disk()
    first = a_subscriber(link, disk)
    first.subscribe("t")
    for sequence in range(1, 3):
        link.proxy.put(sequence)
    assert first.get("t")
    assert first.get("t")  # acknowledges the first message here, lazily; then the process is killed

    a_subscriber(link, disk).subscribe("t")
    disk.lose_power()

    assert a_subscriber(link, disk).subscribe("t") == 1


def test_a_proxy_that_restarts_again_and_again_leaves_a_get_in_doubt() -> None:
    """Seed 110: it was a refusal, exit code 4, although asking again would have helped."""
    link = RestartingLink(MemoryProxy())
    subscriber = a_subscriber(link, Disk())
    subscriber.subscribe("t")

    with pytest.raises(TryLaterError) as error:
        subscriber.get("t")
    assert error.value.exit_code == 3


def test_a_subscriber_is_not_fenced_by_a_hello_of_its_own_that_nobody_answered() -> None:
    """Seed 1686: the proxy had forgotten it; the HELLO was granted, its answer was lost."""
    link, clock = Link(a_broker(subscribers=())), FakeClock()
    subscriber = Subscriber(
        "s", transport=FakeTransport(link, clock), clock=clock, retry=RetryPolicy(retries_max=0)
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


def test_what_was_in_hand_and_is_left_behind_a_loss_is_marked_when_it_comes_again() -> None:
    """Seed 2984: the loss had taken the mark with it."""
    link, disk = Link(a_broker()), Disk()
    first = a_subscriber(link, disk)
    first.subscribe("t")
    for sequence in range(1, 4):
        link.proxy.put(sequence)
    first.get("t", max_messages=3)  # then the process is killed
    del link.proxy.log.batches[1][:2]

    second = a_subscriber(link, disk)
    with pytest.raises(LostError):
        second.get("t")
    (again,) = second.get("t")

    assert (again.offset, again.redelivered) == (2, True)


def a_log_set_back_behind_what_was_in_hand(disk: Disk) -> Link:
    """A subscriber was handed one message and killed; then the proxy was set back before it."""
    link = Link(a_broker())
    first = a_subscriber(link, disk)
    first.subscribe("t")
    older = link.proxy.restarted()
    link.proxy.put(1)
    assert first.get("t")
    older.log.batches.clear()
    link.proxy = older
    return link


def test_what_was_in_hand_and_is_gone_with_the_end_of_the_log_is_told() -> None:
    """Seed 2585: the cursor fitted the older copy, and the message in hand never came again."""
    disk = Disk()
    link = a_log_set_back_behind_what_was_in_hand(disk)

    with pytest.raises(LogChangedError, match="handed over"):
        a_subscriber(link, disk).get("t")


@pytest.mark.parametrize("choice", ["rewind", "adopt"])
def test_what_was_in_hand_and_is_gone_is_forgotten_if_a_person_says_so(
    choice: Literal["rewind", "adopt"],
) -> None:
    disk, clock = Disk(), FakeClock()
    link = a_log_set_back_behind_what_was_in_hand(disk)
    subscriber = Subscriber(
        "s", transport=FakeTransport(link, clock), clock=clock, state=disk, on_log_changed=choice
    )

    nothing = subscriber.get("t")
    link.proxy.put(1)
    (another,) = subscriber.get("t")

    assert nothing == []
    assert (another.offset, another.redelivered) == (0, False)


def test_what_was_fetched_from_a_log_that_was_set_back_is_not_handed_over() -> None:
    """Seed 503424: acknowledging confirmed the place, not the messages that waited behind it."""
    link = Link(a_broker())
    subscriber = a_subscriber(link, Disk())
    subscriber.subscribe("t")
    link.proxy.put(1)
    older = as_stored(link.proxy.durable)
    link.proxy.put(2)
    subscriber.get("t")  # it has fetched both
    grown = MemoryProxy(older, boot="boot-2", log=link.proxy.log)
    del grown.log.batches[1][1:]
    grown.ask(a_put(2, body=a_body(b"another")), a_body(b"another"))
    link.proxy = grown

    subscriber.acknowledge("t")
    (second,) = subscriber.get("t")

    assert second.payload == b"another"


@pytest.mark.parametrize("kind", [Publisher, Subscriber])
def test_a_late_copy_of_a_hello_does_not_fence_its_sender(
    kind: type[Publisher | Subscriber],
) -> None:
    """Seeds 502786, 506861: its answer was lost, then the proxy forgot all epochs."""
    link, clock = Link(a_broker(publishers=("c",), subscribers=("c",))), FakeClock()
    transport = FakeTransport(link, clock)
    client = kind("c", transport=transport, clock=clock, retry=RetryPolicy(retries_max=0))
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


def test_a_put_that_a_set_back_proxy_took_late_is_not_put_again_by_adopt() -> None:
    """Seed 13761: the topic was born anew under another log id, by a late copy of the put."""
    link, disk, clock = Link(a_broker(publishers=())), Disk(), FakeClock()
    transport = FakeTransport(link, clock)
    first = Publisher(
        "p", transport=transport, clock=clock, state=disk, retry=RetryPolicy(retries_max=0)
    )
    link.proxy.ask(a_sub(topic="other"))  # topic 1
    link.proxy.ask(a_sub(2, topic="t"))  # topic 2
    first.ready_for("t")
    link.script("<")
    with pytest.raises(ProxyUnreachableError):
        first.put("t", b"a")
    link.proxy = a_broker(publishers=())  # set back to the beginning
    link.proxy.ask(a_hello("publisher", "p"))
    link.proxy.frames(transport.sent[-1])

    second = Publisher(
        "p", transport=FakeTransport(link, clock), clock=clock, state=disk, on_log_changed="adopt"
    )
    receipt = second.resume()

    assert receipt is not None
    assert receipt.duplicate
    assert len(link.proxy.log.batches[1]) == 1


def test_what_was_fetched_is_not_handed_over_behind_a_place_that_was_moved_in_doubt() -> None:
    """Seed 2501245: rewind moved the place, the acknowledgement behind it stayed unanswered."""
    link, clock = Link(a_broker()), FakeClock()
    subscriber = Subscriber(
        "s",
        transport=FakeTransport(link, clock),
        clock=clock,
        retry=RetryPolicy(retries_max=0),
        on_log_changed="rewind",
    )
    subscriber.subscribe("t")
    older = link.proxy.restarted()
    for sequence in range(1, 4):
        link.proxy.put(sequence)
    subscriber.get("t")  # it has fetched all three
    older.log.batches.clear()
    link.proxy = older
    link.script("...<")  # STALE, LOG_CHANGED, SUB_ACK, and no answer to the second ACK

    with pytest.raises(ProxyUnreachableError):
        subscriber.acknowledge("t")

    assert subscriber.get("t") == []


def test_a_place_that_is_recorded_with_an_output_survives_power_loss_at_qos_1_too() -> None:
    """Else the output is cut to an older length, and the proxy goes on behind it: messages lost."""
    disk = Disk()
    link = Link(a_broker())
    subscriber = a_subscriber(link, disk)
    subscriber.subscribe("t", qos=1)
    link.proxy.put(1)
    subscriber.get("t")

    subscriber.record("t", PlanMark("digest", 1, output_bytes=100))
    subscriber.acknowledge("t")
    disk.lose_power()

    again = a_subscriber(link, disk).inbox
    assert again.plan is not None
    assert (again.places["t"].cursor, again.plan.output_bytes) == (1, 100)


@pytest.mark.parametrize("answered", [True, False], ids=["refused", "in doubt"])
def test_a_place_is_given_up_before_the_proxy_may_have_moved_it(answered: bool) -> None:
    """Else who goes on from it after a doubt is told LOG_CHANGED; a refusal gives it back."""
    disk = Disk()
    link = Link(a_broker())
    subscriber = a_subscriber(link, disk)
    subscriber.subscribe("t")
    link.proxy.put(1)
    if not answered:
        link.script("<" * 20)

    with pytest.raises(OutOfRangeError if answered else ProxyUnreachableError):
        subscriber.subscribe("t", start=at_offset(9) if answered else Earliest, replay=True)

    assert ("t" in a_subscriber(link, disk).inbox.places) == answered


def test_a_proxy_that_forgets_a_session_again_and_again_fences_nobody() -> None:
    """Seed 5017108: the second time its answer was taken for a newer process of the same id."""
    publisher = a_publisher(ForgettingLink(HelloAck, 3), Disk())

    assert publisher.put("t", b"a").offset == 0

    with pytest.raises(TryLaterError) as caught:
        a_publisher(ForgettingLink(HelloAck, 1_000), Disk()).put("t", b"a")
    assert caught.value.code == "FENCED"


def test_a_proxy_that_forgets_us_behind_each_confirmation_fences_no_subscriber() -> None:
    subscriber = a_subscriber(ForgettingLink(SubAck, 1_000), Disk())
    subscriber.subscribe("t")

    with pytest.raises(TryLaterError) as caught:
        subscriber.get("t")
    assert caught.value.code == "FENCED"


def test_a_session_that_is_forgotten_behind_a_changed_log_is_begun_anew() -> None:
    """Seed 5017108: a subscriber that rewinds ended as if another process had its id."""
    before, disk = Link(a_broker()), Disk()
    before.proxy.put(1)
    a_subscriber(before, disk).subscribe("t")
    link, clock = ForgettingLink(LogChanged, 1), FakeClock()
    rewinding = Subscriber(
        "s",
        transport=FakeTransport(link, clock),
        clock=clock,
        state=disk,
        on_log_changed="rewind",
    )

    assert rewinding.subscribe("t") == 0
    assert [type(answer) for answer in link.answers].count(LogChanged) == 1


def test_a_close_that_reaches_no_proxy_ends_no_clean_session() -> None:
    """Seed 5048562: the place was dropped, and what was processed came again from the session."""
    link, disk = Link(a_broker()), Disk()
    first = a_subscriber(link, disk)
    first.subscribe("t", session="clean")
    link.proxy.put(1)
    assert len(first.get("t")) == 1
    link.script(">" * 100)
    first.close()
    a_subscriber(link, disk).close()
    link.script("")

    third = a_subscriber(link, disk)

    assert third.subscribe("t", session="clean", start=LastReceived) == 1
    assert third.get("t") == []
