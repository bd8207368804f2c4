"""Clients whose proxy was set back to an older log: what they report, drop and keep."""

from __future__ import annotations

from typing import Literal
from unittest.mock import patch

import pytest

from reliable_pubsub.common.core.errors import LogChangedError, ProxyUnreachableError
from reliable_pubsub.common.core.retry import RetryPolicy
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
    a_hello,
    a_put,
    a_sub,
    a_world,
    as_stored,
)


def a_subscriber(link: Link, disk: Disk) -> Subscriber:
    clock = FakeClock()
    return Subscriber("s", _world=a_world(FakeTransport(link, clock), clock, disk))


def a_log_set_back_below_what_was_in_hand(disk: Disk) -> Link:
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


def test_what_was_in_hand_and_is_gone_with_the_end_of_the_log_is_reported() -> None:
    """The cursor fitted the older copy, and the message in hand never came again."""
    disk = Disk()
    link = a_log_set_back_below_what_was_in_hand(disk)

    with pytest.raises(LogChangedError, match="were delivered"):
        a_subscriber(link, disk).get("t")


@pytest.mark.parametrize("choice", ["rewind", "adopt"])
def test_what_was_in_hand_and_is_gone_is_forgotten_if_a_person_says_so(
    choice: Literal["rewind", "adopt"],
) -> None:
    disk, clock = Disk(), FakeClock()
    link = a_log_set_back_below_what_was_in_hand(disk)
    subscriber = Subscriber(
        "s", _world=a_world(FakeTransport(link, clock), clock, disk), on_log_changed=choice
    )

    nothing = subscriber.get("t")
    link.proxy.put(1)
    (another,) = subscriber.get("t")

    assert nothing == []
    assert (another.offset, another.redelivered) == (0, False)


def test_what_was_fetched_from_a_log_that_was_set_back_is_not_handed_over() -> None:
    """Acknowledging confirmed the place, not the messages that waited after it."""
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


def test_a_put_that_a_set_back_proxy_took_late_is_not_put_again_by_adopt() -> None:
    """The topic was created again under another log id, by a late copy of the put."""
    link, disk, clock = Link(a_broker(publishers=())), Disk(), FakeClock()
    transport = FakeTransport(link, clock)
    first = Publisher("p", retry=RetryPolicy(retries_max=0), _world=a_world(transport, clock, disk))
    link.proxy.ask(a_sub(topic="other"))  # topic 1
    link.proxy.ask(a_sub(2, topic="t"))  # topic 2
    first.ready_for("t")
    link.script("<")
    with pytest.raises(ProxyUnreachableError):
        first.put("t", b"a")
    link.proxy = a_broker(publishers=())  # set back to the beginning
    link.proxy.ask(a_hello("publisher", "p"))
    link.proxy.frames(transport.sent[-1])

    second = Publisher("p", on_log_changed="adopt", _world=a_world(link, clock, disk))
    receipt = second.resume()

    assert receipt is not None
    assert receipt.duplicate
    assert len(link.proxy.log.batches[1]) == 1


def test_a_late_copy_of_what_was_put_before_an_adoption_is_not_taken_for_the_next_put() -> None:
    link, clock = Link(a_broker(publishers=())), FakeClock()
    transport = FakeTransport(link, clock)
    publisher = Publisher("p", on_log_changed="adopt", _world=a_world(transport, clock, Disk()))
    publisher.connect()
    publisher.ready_for("t")
    older = link.proxy.restarted()  # it has granted the session
    publisher.put("t", b"1")
    publisher.put("t", b"2")
    late = transport.sent[-1]
    older.log.batches.clear()
    link.proxy = older
    with (
        pytest.raises(KeyboardInterrupt),
        patch.object(transport, "send", side_effect=KeyboardInterrupt),
    ):
        publisher.put("t", b"3")

    receipt = publisher.resume()  # in the session that it has, and after a comparison
    link.proxy.frames(late)

    assert receipt is not None
    assert (receipt.first_sequence, receipt.offset) == (1, 0)
    assert [one.header.count for one in link.proxy.log.batches[1]] == [1]


def test_what_was_fetched_is_not_handed_over_after_a_place_that_was_moved_in_doubt() -> None:
    """Rewind moved the place, the acknowledgement after it stayed unanswered."""
    link, clock = Link(a_broker()), FakeClock()
    subscriber = Subscriber(
        "s",
        _world=a_world(FakeTransport(link, clock), clock),
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
