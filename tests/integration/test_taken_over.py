"""A client is made again in its process while the old one lives, as by a notebook's cell."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reliable_pubsub import InUseError, Publisher, PubSubError, Subscriber, UsageError
from reliable_pubsub.common.core.wire import decode_batch
from tests.fakes import Link, MemoryProxy, a_world

from .harness import PATIENCE_S

TAKEN_OVER = "another client of this process took over its id and state directory"


class House:
    """A proxy and clients with one state directory."""

    def __init__(self, directory: Path) -> None:
        self.link = Link(MemoryProxy())
        self.directory = directory
        self.during: Callable[[], None] = lambda: None  # a request

    def _answer(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        during, self.during = self.during, lambda: None
        during()
        return self.link(frames)

    def publisher(self) -> Publisher:
        return Publisher("p", state_dir=self.directory, _world=a_world(self._answer))

    def subscriber(self) -> Subscriber:
        return Subscriber("s", state_dir=self.directory, _world=a_world(self._answer))

    def stored(self) -> list[bytes]:
        log = self.link.proxy.state.topics["t"]
        return [
            bytes(payload)
            for batch in self.link.proxy.log.batches[log.topic_id]
            for payload in decode_batch(batch.body, batch.count).payloads
        ]


@pytest.fixture
def house(tmp_path: Path) -> House:
    """Nothing is put yet."""
    return House(tmp_path)


def test_a_publisher_that_is_made_again_takes_over_and_the_old_one_says_so(house: House) -> None:
    old = house.publisher()
    old.put("t", b"1")

    new = house.publisher()

    assert new.put("t", b"2").first_sequence == 2
    with pytest.raises(UsageError, match=TAKEN_OVER):
        old.put("t", b"never")
    old.close()
    assert new.put("t", b"3").first_sequence == 3
    assert house.publisher().put("t", b"4").first_sequence == 4
    assert house.stored() == [b"1", b"2", b"3", b"4"]


def test_a_subscriber_that_is_made_again_gets_what_was_in_hand_again_marked(house: House) -> None:
    old = house.subscriber()
    old.subscribe("t")
    house.publisher().put_many("t", [b"1", b"2"])
    assert [message.payload for message in old.get("t")] == [b"1"]

    new = house.subscriber()
    new.subscribe("t")
    found = new.get("t", max_messages=2)

    assert [(message.payload, message.redelivered) for message in found] == [
        (b"1", True),
        (b"2", False),
    ]
    with pytest.raises(UsageError, match=TAKEN_OVER):
        old.get("t")
    old.close()
    assert new.get("t") == []


@pytest.mark.parametrize("call", ["put", "get"])
def test_a_client_in_the_middle_of_a_call_is_not_taken_over(call: str, house: House) -> None:
    publisher, subscriber = house.publisher(), house.subscriber()
    subscriber.subscribe("t")
    errors: list[PubSubError] = []

    def again() -> None:
        with pytest.raises(InUseError, match="this process, in a call") as caught:
            house.publisher() if call == "put" else house.subscriber()
        errors.append(caught.value)

    if call == "get":
        publisher.put("t", b"1")
    house.during = again
    if call == "put":
        publisher.put("t", b"1")
    else:
        subscriber.get("t")

    assert len(errors) == 1
    assert publisher.put("t", b"2").offset == 1


def test_a_call_that_was_broken_off_is_not_open(house: House) -> None:
    """What it had under way is in doubt, as after a crash, and the new client settles it."""
    old = house.publisher()
    old.put("t", b"1")

    def fails() -> None:
        raise KeyboardInterrupt

    house.during = fails
    with pytest.raises(KeyboardInterrupt):
        old.put("t", b"2")

    new = house.publisher()
    assert new.in_doubt is not None
    new.put("t", b"3")

    assert house.stored() == [b"1", b"2", b"3"]


def test_a_stream_with_messages_to_send_is_not_taken_over(house: House) -> None:
    old = house.publisher()
    stream = old.stream(linger_s=3600)
    stream.put("t", b"1")
    with pytest.raises(InUseError, match="or a stream"):
        house.publisher()
    stream.flush()

    new = house.publisher()

    ticket = stream.put("t", b"never")
    with pytest.raises(UsageError, match=TAKEN_OVER):
        stream.flush()
    with pytest.raises(UsageError, match=TAKEN_OVER):
        ticket.result(timeout_s=0)
    with pytest.raises(UsageError, match=TAKEN_OVER):
        stream.close()
    assert new.put("t", b"2").offset == 1
    assert house.stored() == [b"1", b"2"]


def test_a_transaction_that_is_open_when_its_publisher_is_taken_over_stores_nothing(
    house: House,
) -> None:
    both = house.publisher().transaction().__enter__()
    both.put("t", b"never")
    house.publisher().put("t", b"1")

    with pytest.raises(UsageError, match=TAKEN_OVER):
        both.__exit__(None, None, None)

    assert house.stored() == [b"1"]


def test_a_stream_that_is_dropped_sends_what_it_has_and_ends_on_its_own(house: House) -> None:
    publisher = house.publisher()
    stream = publisher.stream(linger_s=3600)
    ticket = stream.put("t", b"1")
    thread = stream.sender._thread
    del stream
    gc.collect()
    thread.join(PATIENCE_S)

    assert ticket.result(timeout_s=0).offset == 0
    assert publisher.put("t", b"2").offset == 1
    dropped = weakref.ref(publisher)
    del publisher
    gc.collect()
    assert dropped() is None


def test_a_stream_closes_although_an_exception_within_a_notify_left_a_waiter_that_has_gone(
    house: House,
) -> None:
    publisher = house.publisher()
    stream = publisher.stream()
    ticket = stream.put("t", b"1")
    with stream.sender.lock:
        gone = threading.Lock()
        gone.acquire()
        stream.sender._work._waiters.appendleft(gone)  # type: ignore[attr-defined]

    stream.close()

    assert ticket.result(timeout_s=0).offset == 0
    assert publisher.put("t", b"2").offset == 1


def test_a_stream_that_was_dropped_in_the_middle_of_a_put_ends_with_the_next_call(
    house: House,
) -> None:
    """The exception that ended the put came where the lock was held, and another one at once."""
    publisher = house.publisher()
    stream = publisher.stream()
    thread = stream.sender._thread
    stream.sender.lock.acquire()
    del stream
    gc.collect()

    with pytest.raises(UsageError, match="dropped without close"):
        publisher.put("t", b"1")

    thread.join(PATIENCE_S)
    assert publisher.put("t", b"1").offset == 0


def test_a_stream_that_is_dropped_with_its_publisher_keeps_neither(house: House) -> None:
    stream = house.publisher().stream()
    thread = stream.sender._thread
    publisher = weakref.ref(house_of(stream))
    del stream
    gc.collect()
    thread.join(PATIENCE_S)
    gc.collect()

    assert publisher() is None


def house_of(stream: Any) -> Publisher:
    """The publisher of a stream."""
    for cell in stream.sender._put_batch.__closure__:
        if isinstance(cell.cell_contents, Publisher):
            return cell.cell_contents
    raise AssertionError
