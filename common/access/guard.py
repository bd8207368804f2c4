"""Watches endpoints from a thread of its own, because the loop cannot.

libzmq's own threads keep what a connection says until a message is complete, at hundreds of
megabytes a second, and with every call an XPUB reads all that has come and stores each
subscription, and goes on while more comes. This thread counts what arrives at each connection
(TCP_INFO), and cuts off connections that make the process hold too much (`Allowance`). On a push
endpoint it also cuts off connections that say too much, and lets no connection in while all
together have said too much (`Admission`; docs/decisions/0026). It takes the events of all of them,
so that the entrance of the process decides about a connection as soon as it is accepted. The calls
of libzmq have to leave the interpreter to it: `recv` and `poll` do, `getsockopt` does not.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from math import ceil
from typing import Final

from .. import threads
from ..core.limits import (
    CALM_BYTES_MAX,
    FREED_BYTES_MIN,
    GROWTH_BYTES_MAX,
    KIB,
)
from ..system import ResidentMemory, WakeUp, counts_memory, give_back_memory
from .connections import Connection, Connections, counts_bytes, kernel_counts
from .core.allowance import Admission, Allowance, Growth, Said

LOOK_S: Final = 0.01  # between two looks at connections that go on speaking, if they may hold much
PUSH_LOOK_S: Final = 0.001  # the same on a push endpoint, where each kibibyte counts
ROUND_S: Final = 0.05  # between two looks at connections that spoke of late, or do not read
RECENT_S: Final = 0.5  # that is of late: what they asked for is answered, and read or not
HEARTBEATS_BYTES: Final = 64  # a connection that has said no more has only answered a few
SWEEP_S: Final = 1.0  # between two looks at each of the others
QUIET_S: Final = 0.25  # between two looks at few connections of which none spoke of late
QUIET_MAX: Final = 100  # connections are few
LEFT_S_MAX: Final = 5.0  # that newcomers wait for messages of ended connections
LEFT_BYTES_MIN: Final = 64 * KIB  # of an ended connection that the loop has still to take
IDLE_S: Final = 1.0  # without a connection: the loop may have taken the event that would wake us
LOOKED_AT_MAX: Final = 500  # of either at once; the others have their turn in the next rounds
# Data that libzmq has read already is not readable any more, but the socket can still be written:
# so both are asked for, and each arrival wakes us once.
_EACH_ARRIVAL: Final = (
    select.EPOLLIN | select.EPOLLOUT | select.EPOLLET if hasattr(select, "epoll") else 0
)


def guard_of(*endpoints: Connections, warn: Callable[[str], None] = lambda _: None) -> Guard | None:
    """Return a guard of these endpoints, where the kernel counts bytes for us; else None.

    Args:
        warn: called with what an operator should look at.
    """
    return Guard(endpoints, warn=warn) if _can_guard() else None


def guard_of_push(endpoint: Connections) -> Guard | None:
    """Return a guard of a push endpoint, where the kernel counts bytes for us; else None."""
    if endpoint.gate is None or not _can_guard():
        return None
    return Guard([endpoint], speech=Speech(), look_s=PUSH_LOOK_S)


def _can_guard() -> bool:
    return counts_bytes() and counts_memory()


class Speech:
    """What peers may say on a push endpoint, and when more of them may come in."""

    def __init__(self) -> None:
        self._admission = Admission(time.monotonic())
        self._said: dict[Connection, Said] = {}

    def accepted(self, connection: Connection, now_s: float) -> None:
        """Count a new connection."""
        self._said[connection] = self._admission.accepted(now_s)

    def ended(self, connection: Connection) -> None:
        """Forget a connection."""
        self._said.pop(connection, None)

    def hears(self, connection: Connection, received_bytes: int, now_s: float) -> bool:
        """Count what a connection has said; False: it is to be cut."""
        return self._admission.hears(self._said[connection], received_bytes, now_s)

    def closed_for_s(self, now_s: float) -> float:
        """Seconds for which no connection may come in; 0: they may."""
        return self._admission.closed_for_s(now_s)


class Guard:
    """One thread for some endpoints, from construction to `close`."""

    def __init__(
        self,
        endpoints: Sequence[Connections],
        *,
        speech: Speech | None = None,
        look_s: float = LOOK_S,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Begin to watch.

        Args:
            speech: bounds what connections say, whether it is taken or not.
            look_s: between two looks at connections that go on speaking.
            warn: called with what an operator should look at.
        """
        self._endpoints = endpoints
        self._speech = speech
        self._look_s = look_s
        self._shortage = threads.Shortage("the watch over connections", warn)
        self._memory = ResidentMemory()  # opened now: later no descriptor may be left
        self._watched: dict[int, tuple[Connections, Connection]] = {}  # by descriptor
        self._allowance: Allowance = Allowance()
        self._growth = Growth(self._memory.resident_bytes())
        # Until when a connection spoke of late, by descriptor; in the order of their turns.
        self._recent: dict[int, float] = {}
        self._sweep: list[int] = []  # whose turn is in this sweep
        # Endpoints where messages of ended connections wait: their `drains`, and until when.
        self._left: dict[Connections, tuple[int, float]] = {}
        self._round_at_s = time.monotonic()
        self._stop = WakeUp()
        self._stopping = False
        self._epoll, self._came = select.epoll(), select.epoll()
        self._events = frozenset(one.descriptor for one in endpoints)
        for descriptor in (self._stop.descriptor, *self._events):
            self._epoll.register(descriptor, select.EPOLLIN)
            self._came.register(descriptor, select.EPOLLIN | select.EPOLLET)
        self._wait_s = 0.0  # events wake us only once there were none to take
        self._is_more = True  # connections that have come
        self._is_pressed = False  # the process has grown too much
        self._thread = threads.start(self._run, name="guard")

    def close(self) -> None:
        """Stop watching."""
        self._stopping = True
        self._stop.wake()
        self._thread.join()
        for one in (self._epoll, self._came, self._stop, self._memory):
            one.close()

    def _run(self) -> None:
        while not self._stopping:
            with self._shortage.survived():
                self._turn()

    def _turn(self) -> None:
        spoke = {descriptor for descriptor, _ in self._epoll.poll(self._wait_s)}
        now_s = time.monotonic()
        is_round = now_s >= self._round_at_s
        if self._is_more or is_round or not spoke.isdisjoint(self._events):
            self._is_more = self._take_arrived(now_s)
        for descriptor in spoke & self._watched.keys():
            self._look(descriptor, now_s, has_spoken=True)
        if is_round:
            since_s = now_s - self._round_at_s + ROUND_S
            self._round_at_s = now_s + ROUND_S
            others = {*self._recent_ones(now_s), *self._next_of_sweep(since_s)} - spoke
            for descriptor in others & self._watched.keys():
                self._look(descriptor, now_s)
        is_calm = self._allowance.held_bytes_max <= CALM_BYTES_MAX
        if is_round or not is_calm:
            self._judge(now_s)
        self._wait_s = self._next_wait_s(now_s, is_calm=is_calm)
        if self._is_more:
            self._wait_s = 0.0
        else:  # a connection that has come ends this pause, what others say does not
            self._came.poll(ROUND_S if is_calm and self._speech is None else self._look_s)

    def _next_wait_s(self, now_s: float, *, is_calm: bool) -> float:
        """Let connections in or not; return how long to wait if nothing happens."""
        closed_for_s = self._speech.closed_for_s(now_s) if self._speech else 0.0
        for one in self._endpoints:
            drains, until_s = self._left.get(one, (one.drains, now_s))
            if drains != one.drains or now_s >= until_s:
                self._left.pop(one, None)
            one.is_shut = closed_for_s > 0 or (self._is_pressed and one in self._left)
        if closed_for_s or self._left:
            return min(closed_for_s or ROUND_S, ROUND_S)
        if self._recent or not is_calm or len(self._watched) > QUIET_MAX:
            return ROUND_S
        return QUIET_S if self._watched else IDLE_S

    def _take_arrived(self, now_s: float) -> bool:
        """Watch connections that have come; return whether there may be more."""
        is_more = False
        for endpoint in self._endpoints:
            arrived, is_more_here = endpoint.arrived()
            is_more = is_more or is_more_here
            for connection in arrived:
                self._accepted(endpoint, connection, now_s)
        return is_more

    def _recent_ones(self, now_s: float) -> list[int]:
        """Those that have spoken of late, or do not read what is sent."""
        chosen = list(islice(self._recent, LOOKED_AT_MAX))
        for descriptor in chosen:
            until_s = self._recent.pop(descriptor)
            if now_s < until_s or self._allowance.is_stalled(descriptor):
                self._recent[descriptor] = until_s
        return chosen

    def _next_of_sweep(self, since_s: float) -> list[int]:
        """Some of all: what they hold changes with what they send, and no event tells their end."""
        self._sweep = self._sweep or list(self._watched)
        count = min(ceil(len(self._watched) * since_s / SWEEP_S), LOOKED_AT_MAX)
        chosen, self._sweep = self._sweep[:count], self._sweep[count:]
        return chosen

    def _accepted(self, endpoint: Connections, connection: Connection, now_s: float) -> None:
        descriptor = connection.descriptor
        if descriptor in self._watched:  # of a connection that has ended
            self._ended(descriptor)
        self._watched[descriptor] = endpoint, connection
        self._allowance.accepted(descriptor, connection.tally)
        if self._speech is not None:
            self._speech.accepted(connection, now_s)
        with suppress(OSError):  # it has ended meanwhile
            self._epoll.register(descriptor, _EACH_ARRIVAL)

    def _ended(self, descriptor: int) -> None:
        endpoint, connection = self._watched.pop(descriptor)
        if connection.tally.unheard_bytes > LEFT_BYTES_MIN:
            self._left[endpoint] = endpoint.drains, time.monotonic() + LEFT_S_MAX
        self._recent.pop(descriptor, None)
        self._allowance.ended(descriptor)
        if self._speech is not None:
            self._speech.ended(connection)

    def _look(self, descriptor: int, now_s: float, *, has_spoken: bool = False) -> None:
        endpoint, connection = self._watched[descriptor]
        counts = None if connection.is_cut else kernel_counts(descriptor)
        if endpoint.at(descriptor) is not connection or counts is None:
            self._ended(descriptor)
            return
        tally = connection.tally
        has_asked = tally.was_heard
        self._allowance.look(descriptor, counts, now_s, endpoint.drains)
        if has_spoken and (has_asked or tally.unheard_bytes > HEARTBEATS_BYTES):
            self._recent[descriptor] = now_s + RECENT_S
        elif self._allowance.is_stalled(descriptor):
            self._recent.setdefault(descriptor, now_s)
        if self._speech and not self._speech.hears(connection, counts.received_bytes, now_s):
            self._cut(descriptor)

    def _cut(self, descriptor: int) -> None:
        endpoint, connection = self._watched[descriptor]
        endpoint.cut(connection)
        self._ended(descriptor)

    def _judge(self, now_s: float) -> None:
        """Cut off connections that make the process hold too much; give back what they held."""
        resident, held_bytes_max = self._memory.resident_bytes(), self._allowance.held_bytes_max
        grown_bytes = self._growth.look(resident, held_bytes_max, now_s)
        self._is_pressed = grown_bytes > GROWTH_BYTES_MAX
        for descriptor in self._allowance.to_be_cut(grown_bytes, now_s):
            self._cut(descriptor)
        if self._speech is None and not self._left and self._growth.is_settled(now_s):
            if grown_bytes > FREED_BYTES_MIN:
                give_back_memory()
                resident = self._memory.resident_bytes()
            self._growth.settle(resident, self._allowance.held_bytes_max)
