"""An interrupted call undoes at most the deliveries that it made itself (rule R31).

As in `test_every_exit.py`, a program runs once for each line of the call that is interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.client_state import MemoryState
from reliable_pubsub.common.core.errors import LeaseLostError, UsageError
from reliable_pubsub.common.core.patterns.pattern import Topics, glob
from reliable_pubsub.subscriber.client import Subscriber
from tests.core.test_every_exit import CalmLink, House, Program, at_every_line, until_it_returns
from tests.fakes import Disk, MemoryProxy
from tests.interrupting import Interrupted, Interrupter

PUT = [b"%d" % number for number in range(6)]
EVERY_BUSY = glob("bus?")


def _plain(subscriber: Subscriber) -> Topics:
    subscriber.subscribe("busy", max_deliveries=2)
    return "busy"


def _pattern(subscriber: Subscriber) -> Topics:
    subscriber.subscribe(match=EVERY_BUSY)
    return EVERY_BUSY


def _group(subscriber: Subscriber) -> Topics:
    subscriber.subscribe("busy", group="g", max_deliveries=2)
    return "busy"


def _get(subscriber: Subscriber, busy: Topics) -> list[Message]:
    return subscriber.get(busy, max_messages=2)


def _loop(subscriber: Subscriber, busy: Topics) -> list[Message]:
    found = []
    for message in subscriber.messages(busy, timeout_s=0):
        found.append(message)
        if len(found) == 2:
            break  # the second is in hand
    return found


WAYS: dict[str, Callable[[Subscriber], Topics]] = {
    "plain": _plain,
    "pattern": _pattern,
    "group": _group,
}
TAKES: dict[str, Callable[[Subscriber, Topics], list[Message]]] = {"get": _get, "loop": _loop}
CALLS: dict[str, Callable[[Subscriber, Topics], object]] = {
    "a wait": lambda one, busy: one.get("quiet"),
    "a wait in a group": lambda one, busy: one.get("quiet-group"),
    "the history": lambda one, busy: one.history("quiet"),
    "an acknowledgement": lambda one, busy: one.acknowledge("quiet"),
    "the end of another": lambda one, busy: one.unsubscribe("quiet"),
    "keep_alive": lambda one, busy: one.keep_alive(),
}


def _beside(way: str, take: str, call: str) -> Program:
    def program(house: House, make: Callable[[], Interrupter]) -> None:
        subscriber = house.subscriber()
        subscriber.subscribe("quiet")
        subscriber.subscribe("quiet-group", group="g")
        busy = WAYS[way](subscriber)
        house.publisher().put_many("busy", PUT)
        seen = TAKES[take](subscriber, busy)
        with suppress(Interrupted), make():
            CALLS[call](subscriber, busy)
        while found := TAKES[take](subscriber, busy):
            seen += found
        _judge(seen)
        assert not house.stored("busy.dead")

    return program


def _judge(seen: Sequence[Message]) -> None:
    assert [message.payload for message in seen] == PUT
    assert not any(message.redelivered for message in seen)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("take", TAKES)
@pytest.mark.parametrize("way", WAYS)
def test_what_was_in_hand_of_another_topic_stays_in_hand(way: str, take: str, call: str) -> None:
    state = Disk if way == "plain" else MemoryState
    at_every_line(_beside(way, take, call), state, step=7)


def _own(way: str) -> Program:
    def program(house: House, make: Callable[[], Interrupter]) -> None:
        subscriber = house.subscriber()
        busy = WAYS[way](subscriber)
        house.publisher().put_many("busy", PUT)
        seen = _get(subscriber, busy)
        try:
            with make():
                found = _get(subscriber, busy)
            seen += found
        except Interrupted:
            pass
        while found := _get(subscriber, busy):
            seen += found
        _judge(seen)

    return program


@pytest.mark.parametrize("way", WAYS)
def test_a_get_that_was_interrupted_repeats_nothing_of_the_get_before(way: str) -> None:
    state = Disk if way == "plain" else MemoryState
    at_every_line(_own(way), state, step=5)


UNDER_WAY = ("dead_letters.py", "group_requests.py", "requests.py", "requester.py", "wire.py")


def _settles(way: str, settle: Callable[[Subscriber, Message], Any]) -> Program:
    """A message whose rejection or return was interrupted never counts as processed."""

    def program(house: House, make: Callable[[], Interrupter]) -> None:
        subscriber = house.subscriber()
        busy = WAYS[way](subscriber)
        house.publisher().put_many("busy", PUT[:3])
        message = subscriber.get(busy, max_messages=1)[0]
        with suppress(Interrupted), make() as interrupter:
            settle(subscriber, message)
        if not all(place.startswith(UNDER_WAY) for place in interrupter.places):
            return  # perhaps nothing had begun
        again = []
        for _ in range(6):
            with suppress(LeaseLostError):
                again += subscriber.get(busy, max_messages=1)
        dead = [payload for _, _, payload in house.stored("busy.dead")]
        assert message.payload in {*dead, *(one.payload for one in again)}
        assert {b"1", b"2"} <= {one.payload for one in again}

    return program


@pytest.mark.parametrize(
    ("way", "settle"),
    [
        ("plain", lambda one, message: one.reject(message, "poison")),
        ("group", lambda one, message: one.reject(message, "poison")),
        ("group", lambda one, message: one.nack(message)),
    ],
)
def test_a_message_whose_rejection_was_interrupted_is_not_taken_for_processed(
    way: str, settle: Callable[[Subscriber, Message], Any]
) -> None:
    at_every_line(_settles(way, settle), Disk, step=5)


class LeavesAfterALetter(CalmLink):
    """A link to a proxy that stores a dead letter; then an exception leaves the call once."""

    has_left = False

    def __call__(self, frames: Sequence[bytes]) -> Sequence[bytes] | None:
        reply = super().__call__(frames)
        if "busy.dead" in self.proxy.state.topics and not self.has_left:
            self.has_left = True
            raise Interrupted
        return reply


def _rejects_until_it_is_done(house: House, make: Callable[[], Interrupter]) -> None:
    house.link = LeavesAfterALetter(MemoryProxy())
    subscriber = house.subscriber()
    subscriber.subscribe("busy", max_deliveries=5)
    house.publisher().put_many("busy", PUT[:4])
    first = subscriber.get("busy", max_messages=3)[0]
    with pytest.raises(Interrupted):
        subscriber.reject(first, "poison")
    with suppress(UsageError):  # an interrupted call has rejected it
        until_it_returns(make(), lambda: subscriber.reject(first, "poison"))
    again = subscriber.get("busy", max_messages=4)
    assert [one.payload for one in again] == [b"3"]
    assert [payload for _, _, payload in house.stored("busy.dead")] == [b"0"]


def test_what_came_with_a_rejected_message_stays_in_hand_if_the_rejection_is_interrupted() -> None:
    at_every_line(_rejects_until_it_is_done, Disk)
