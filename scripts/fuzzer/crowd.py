"""The crowd: sends attacks from raw sockets, at a given rate and at little cost of CPU.

One thread, one epoll, no ZeroMQ. A connection is a small state machine: connected, opening sent,
the proxy's half of the handshake read, rest sent, waiting for its end.
"""

from __future__ import annotations

import heapq
import os
import random
import select
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count

from msgspec.structs import replace

from .attacks import Attack
from .board import Board
from .floods import SCENE, Following, Place, many_small_plain_subscriptions

AGE_S_MAX = 5.0  # a connection that gets no further is closed
TRICKLE_S = 0.1  # between two bytes
TURN_S = 0.01  # what is due in it begins at once: each time that we wake takes from the attacked
READ_BYTES = 65_536
BURST, BURST_EVERY_S = 200, 10.0  # connections at once
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST
_IN = select.EPOLLIN | select.EPOLLRDHUP
_OUT = select.EPOLLOUT

Address = tuple[str, int]


def address_of(endpoint: str) -> Address:
    """Host and port of a TCP endpoint."""
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    return host, int(port)


class _Connection:
    """One hostile connection."""

    __slots__ = ("attack", "ends_at_s", "heard_bytes", "rest_sent", "socket", "unsent")

    def __init__(self, attack: Attack, address: Address, now_s: float) -> None:
        self.attack = attack
        self.heard_bytes = 0
        self.ends_at_s = now_s + AGE_S_MAX
        self.unsent = memoryview(attack.opening)
        self.rest_sent = not attack.rest
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if not attack.reads:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.connect_ex(address)


class Crowd:
    """Hostile connections, kept until they end."""

    def __init__(self, *, stays_s_max: float = AGE_S_MAX) -> None:
        """Hold none yet.

        Args:
            stays_s_max: no attack stays longer.
        """
        self.counts: Counter[str] = Counter()  # begun, refused, ended by the proxy
        self._stays_s_max = stays_s_max
        self._epoll = select.epoll()
        self._connections: dict[int, _Connection] = {}
        self._due: list[tuple[float, int, _Connection]] = []
        self._order = count()

    @property
    def size(self) -> int:
        """Connections now."""
        return len(self._connections)

    def begin(self, attack: Attack, address: Address) -> None:
        """Open one connection."""
        now_s = time.monotonic()
        self.counts["begun"] += 1
        try:
            one = _Connection(attack, address, now_s)
        except OSError:
            self.counts["refused"] += 1
            return
        self._connections[one.socket.fileno()] = one
        self._epoll.register(one.socket.fileno(), _OUT)
        self._at(one.ends_at_s, one)

    def turn(self, timeout_s: float) -> None:
        """Do what is due; wait at most this long for more."""
        now_s = time.monotonic()
        while self._due and self._due[0][0] <= now_s:
            one = heapq.heappop(self._due)[2]
            if one.socket.fileno() in self._connections:
                self._pass_time(one, now_s)
        if self._due:
            timeout_s = min(timeout_s, max(self._due[0][0] - now_s, 0.0))
        for descriptor, events in self._epoll.poll(timeout_s):
            one = self._connections[descriptor]
            try:
                self._advance(one, events)
            except OSError:
                self._end(one, "ended by the proxy")

    def close(self) -> None:
        """Leave, all at once."""
        for one in list(self._connections.values()):
            self._end(one)
        self._due.clear()

    def _at(self, at_s: float, one: _Connection) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), one))

    def _pass_time(self, one: _Connection, now_s: float) -> None:
        if now_s >= one.ends_at_s:
            self._end(one)
        elif one.attack.trickles and one.unsent:
            self._epoll.modify(one.socket.fileno(), _OUT)

    def _advance(self, one: _Connection, events: int) -> None:
        descriptor = one.socket.fileno()
        if events & (select.EPOLLERR | select.EPOLLHUP):
            self._end(one, "ended by the proxy")
        elif events & select.EPOLLOUT:
            self._write(one)
        else:
            handshake_bytes = one.attack.handshake_bytes
            wanted = handshake_bytes - one.heard_bytes if not one.rest_sent else READ_BYTES
            data = one.socket.recv(wanted)
            if not data:
                self._end(one, "ended by the proxy")
                return
            one.heard_bytes += len(data)
            if not one.rest_sent and one.heard_bytes >= handshake_bytes:
                one.rest_sent = True
                one.unsent = memoryview(one.attack.rest)
                self._epoll.modify(descriptor, _OUT)

    def _write(self, one: _Connection) -> None:
        if one.unsent:
            sent = one.socket.send(one.unsent[:1] if one.attack.trickles else one.unsent)
            one.unsent = one.unsent[sent:]
        if not one.unsent and one.rest_sent and one.attack.repeats:
            one.unsent = memoryview(one.attack.rest)
        if not one.unsent:
            self._said_all(one)
        elif one.attack.trickles:
            self._epoll.modify(one.socket.fileno(), _IN)
            self._at(time.monotonic() + TRICKLE_S, one)

    def _said_all(self, one: _Connection) -> None:
        """Everything that can be sent for now is sent."""
        if one.rest_sent:
            stays_s = min(one.attack.stays_s, self._stays_s_max)
            if not stays_s:
                self._end(one)
                return
            one.ends_at_s = min(one.ends_at_s, time.monotonic() + stays_s)
            self._at(one.ends_at_s, one)
        reads = one.attack.reads or not one.rest_sent
        self._epoll.modify(one.socket.fileno(), _IN if reads else 0)

    def _end(self, one: _Connection, how: str = "") -> None:
        if how:
            self.counts[how] += 1
        del self._connections[one.socket.fileno()]
        if one.attack.resets:
            one.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        one.socket.close()


def run_crowd(
    board: Board,
    make: Callable[[Sequence[Place], int], Following],
    places: Sequence[Place],
    per_s: float,
    bursts: Sequence[Place],
    seed: int,
) -> None:
    """The crowd's process: attacks at a given rate until the board says to end.

    A crowd that is late makes up for at most a tenth of a second.

    Args:
        make: what attacks the places.
        bursts: places where now and then many come at once.
    """
    os.nice(19)
    crowd, chance = Crowd(), random.Random(seed)
    following = make(places, seed)
    next_s = time.monotonic()
    next_burst_s = 0.0
    while not board["all_end"]:
        now_s = time.monotonic()
        board["attacks"] = crowd.counts["begun"]
        if not board["flood"]:
            crowd.close()
            time.sleep(0.02)
            continue
        if bursts and now_s >= next_burst_s:
            next_burst_s = now_s + BURST_EVERY_S
            _burst(crowd, chance.choice(bursts), chance)
        next_s = max(next_s, now_s - 0.1)
        while next_s <= now_s:
            attack, place = following()
            crowd.begin(attack, address_of(places[place].endpoint))
            next_s += 1 / per_s
        crowd.turn(max(next_s - time.monotonic(), TURN_S))
    crowd.close()


def _burst(crowd: Crowd, place: Place, chance: random.Random) -> None:
    one = many_small_plain_subscriptions(chance, SCENE, place.role)
    for _ in range(BURST):
        crowd.begin(replace(one, repeats=True), address_of(place.endpoint))
