"""The connections of an endpoint: their peers, messages and kernel counts.

A monitor of the socket reports which descriptors libzmq has accepted. The entrance of the process
decides immediately which of them stay. What a message carries of its connection is that descriptor
(`__fd`). The counts come from TCP_INFO, which Linux has; elsewhere only what an endpoint sees by
itself leads to a cut. What they lead to, `guard.py` decides.
"""

from __future__ import annotations

import secrets
import socket
import struct
import sys
import threading
from contextlib import suppress
from typing import Final, Protocol

import zmq
from msgspec import Struct

from .core.allowance import Tally, TcpCounters
from .core.attendance import Excess
from .listener import ListenerGate, borrowed, cut, hear

FRAMES_KEPT_MAX: Final = 64  # of a message; ours have three, and an envelope
FRAMES_TURN_MAX: Final = 5_000  # of a message that are taken at once
CUT_TURN_MAX: Final = 100  # messages of cut connections that are dropped in one turn
EVENTS_MAX: Final = 32  # taken at once, so that what they lead to does not wait for all of them
_EVENT: Final = struct.Struct("=Hi")  # of a monitor: what happened, and to which descriptor
_UNKNOWN_KEY: Final = int(zmq.EVENT_HANDSHAKE_FAILED_AUTH)
_FAILED: Final = int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
_FRAME_BYTES: Final = 2  # the head of a frame (ZMTP, RFC 23)
_LONG_FRAME_BYTES: Final = 9  # of more than 255 bytes
_CURVE_BYTES: Final = 33  # what encryption adds to a frame (RFC 26)
_BYTES_ACKNOWLEDGED: Final = 120  # linux/tcp.h: tcpi_bytes_acked, then tcpi_bytes_received
_BYTES_NOT_SENT: Final = 144
_SEGMENTS_RECEIVED: Final = 152  # with data
_TCP_INFO: Final = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None


class Connection:
    """One connection, as long as it lasts."""

    __slots__ = ("_home", "descriptor", "is_cut", "peer", "tally")

    def __init__(self, home: Connections, descriptor: int, peer: object) -> None:
        self._home = home
        self.descriptor = descriptor
        self.peer = peer
        self.is_cut = False
        self.tally = Tally()

    def cut(self) -> None:
        """End it from our side."""
        self._home.cut(self)

    def is_gone(self) -> bool:
        """Whether it has ended, by the events taken so far: a moment late, and cheap."""
        return self._home.at(self.descriptor) is not self

    def has_ended(self) -> bool:
        """Whether it has ended, by all events of libzmq so far."""
        return self._home.has_ended(self)


class Received(Struct, frozen=True, gc=False):
    """A message, and who has sent it."""

    frames: list[bytes]
    connection: Connection | None  # None: it has none, or one that has ended
    key: str | None = ""  # of the connection; "": no keys are known. None: it was revoked
    excess: Excess | None = None  # the connection is more than its key may have


_LET_GO: Final = Received([], None)


class Authenticates(Protocol):
    """What says whose a connection is: `Authentication`."""

    @property
    def knows_keys(self) -> bool:
        """Whether each connection has a known key."""

    def sender(
        self, first: zmq.Frame, connection: Connection | None, /
    ) -> tuple[str | None, Excess | None]:
        """Return the key of a message, and what its connection is too many of."""


class Admits(Protocol):
    """What decides who comes in: `Entrance`."""

    def admits(self, address: str, /) -> bool:
        """Return whether a connection comes in."""

    def left(self) -> None:
        """Note that a connection has ended."""

    def leads_to(self, connections: Connections, /) -> None:
        """Remember whose connections these are."""


class Connections:
    """Belongs to the thread of the loop, whichever thread has the socket.

    A guard, which is another thread, may call `arrived`, `at` and `cut`.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        endpoint: zmq.Socket[bytes],
        authentication: Authenticates | None = None,
    ) -> None:
        """Watch a socket that is not bound yet.

        Args:
            authentication: says whose a connection is; None: each may speak.
        """
        self._endpoint = endpoint
        self._lets_go = endpoint.type != zmq.XPUB  # which reports the end of subscriptions too
        self._cut_here: set[int] = set()  # descriptors of cut connections, until they are others'
        self._names_peers = endpoint.type == zmq.ROUTER  # by a first frame that was not sent
        self._frame_bytes = _CURVE_BYTES if endpoint.getsockopt(zmq.CURVE_SERVER) else 0
        has_keys = authentication is not None and authentication.knows_keys
        self._authentication = authentication if has_keys else None
        self._first: zmq.Frame | None = None  # of a message that is being taken
        self._frames: list[bytes] = []
        self._is_more = False  # frames of that message are still to be taken
        self._size_bytes = 0  # of these frames, as they came
        self.drains = 0  # how often nothing was left to be taken
        self.entrance: Admits | None = None  # None: each connection comes in
        self.is_shut = False  # no connection comes in for now; set by a guard
        self.unknown_keys = self.failed_handshakes = 0  # connections that were refused for these
        address = f"inproc://connections-{secrets.token_hex(8)}"
        events = zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED | _UNKNOWN_KEY | _FAILED
        endpoint.monitor(address, events)
        self._events = context.socket(zmq.PAIR)
        self._events.setsockopt(zmq.LINGER, 0)
        self._events.setsockopt(zmq.RCVHWM, 0)  # at a mark libzmq's own thread would wait for us
        self._events.connect(address)
        self.descriptor = int(self._events.getsockopt(zmq.FD))  # readable: connections came, ended
        self._lock = threading.Lock()  # of `_events` and of what they report
        self._by_descriptor: dict[int, Connection] = {}
        self._arrived: list[Connection] | None = None  # kept once there is a guard
        self._ended: list[Connection] | None = None  # kept once they are asked for
        self.gate: ListenerGate | None = None  # None: libzmq accepts all that come

    def __len__(self) -> int:
        return len(self._by_descriptor)

    def take(self) -> Received | None:
        """Return the next message without waiting, however many frames a stranger sends.

        Our messages have few. Of a longer one the first are kept, and the others are let go in
        parts, so that none takes the loop for long. The connection of one that has ended may be
        that of the next with the same descriptor. Messages of connections that were cut are let go.

        Returns:
            None if the next call continues, with the frames of a long message or after messages
            that are let go.

        Raises:
            zmq.Again: there is none.
        """
        for _ in range(CUT_TURN_MAX):
            received = self._take_one()
            if received is not _LET_GO:
                return received
        return None

    def _take_one(self) -> Received | None:
        if self._first is None:
            try:
                self._first = self._endpoint.recv(zmq.DONTWAIT, copy=False)
            except zmq.Again:
                self.drains += 1
                raise
            self._frames, self._is_more = [self._first.bytes], self._first.more
            self._size_bytes = 0 if self._names_peers else self._wire_bytes(self._first)
        taken = 0
        while self._is_more:
            if taken == FRAMES_TURN_MAX:
                return None
            taken += 1
            # A frame says whether more follow; asking the socket costs as much as taking one.
            frame = self._endpoint.recv(zmq.DONTWAIT, copy=False)
            self._is_more = frame.more
            self._size_bytes += self._wire_bytes(frame)
            if len(self._frames) < FRAMES_KEPT_MAX:
                self._frames.append(frame.bytes)
        first, self._first = self._first, None
        try:
            descriptor = int(first.get("__fd"))
        except zmq.ZMQError:
            connection = None
        else:
            if descriptor not in self._by_descriptor:
                self._take_events()
            connection = self._by_descriptor.get(descriptor)
            if self._cut_here and descriptor in self._cut_here and self._lets_go:
                return _LET_GO
        if connection is not None:
            connection.tally.take(self._size_bytes, self.drains)
        if self._authentication is None:
            return Received(self._frames, connection)
        return Received(self._frames, connection, *self._authentication.sender(first, connection))

    def ended(self) -> list[Connection]:
        """Those that have ended since the last time; the first time, none."""
        self._take_events()
        with self._lock:
            ended, self._ended = self._ended or [], []
        return ended

    def has_ended(self, connection: Connection) -> bool:
        """Whether a connection of this endpoint has ended."""
        self._take_events()
        return self.at(connection.descriptor) is not connection

    def look(self, count_max: int) -> None:
        """Take the events that happened, at most this many."""
        self._take_events(count_max)

    def arrived(self) -> tuple[list[Connection], bool]:
        """Those that have come since the last time and are there; the first time, all of them.

        Returns:
            Some of them, and whether there may be more.
        """
        is_more = self._take_events(EVENTS_MAX)
        with self._lock:
            if self._arrived is None:
                self._arrived = list(self._by_descriptor.values())
            arrived, self._arrived = self._arrived, []
        # The descriptor of one that has ended may be that of a connection of another endpoint now.
        return [one for one in arrived if self.at(one.descriptor) is one], is_more

    def at(self, descriptor: int) -> Connection | None:
        return self._by_descriptor.get(descriptor)

    def cut(self, connection: Connection) -> None:
        """End a connection from our side."""
        if connection.is_cut:
            return
        with suppress(OSError), borrowed(connection.descriptor) as held:
            if held.getpeername() == connection.peer:  # else the descriptor is another one's now
                self._cut_here.add(connection.descriptor)
                cut(held)
                connection.is_cut = True

    def close(self) -> None:
        self._events.close()
        if self.gate is not None:
            self.gate.close()

    def _wire_bytes(self, frame: zmq.Frame) -> int:
        """Return how many bytes a frame had on its way."""
        size_bytes = len(frame) + self._frame_bytes
        return size_bytes + (_FRAME_BYTES if size_bytes < 256 else _LONG_FRAME_BYTES)

    def _take_events(self, count_max: int = sys.maxsize) -> bool:
        """Take what has come, at most so much of it; return whether there may be more."""
        with self._lock:
            return self._take_events_locked(count_max)

    def _take_events_locked(self, count_max: int) -> bool:
        for _ in range(count_max):
            try:
                event, _ = self._events.recv_multipart(zmq.DONTWAIT)
            except zmq.Again:
                return False
            what, descriptor = _EVENT.unpack(event)
            if what in (_UNKNOWN_KEY, _FAILED):
                self.unknown_keys += what == _UNKNOWN_KEY
                self.failed_handshakes += what == _FAILED
                continue
            gone = self._by_descriptor.pop(descriptor, None)
            if gone is not None:
                if self._ended is not None:
                    self._ended.append(gone)
                if self.entrance is not None:
                    self.entrance.left()
            if what == zmq.EVENT_ACCEPTED:
                self._accepted(descriptor)
        return True

    def _accepted(self, descriptor: int) -> None:
        with suppress(OSError), borrowed(descriptor) as held:  # else it has ended meanwhile
            # Or the descriptor is that of a connection that this process has begun.
            if self.gate is not None and held.getsockname()[1] != self.gate.port:
                return
            peer = held.getpeername()
            address = peer[0] if isinstance(peer, tuple) else ""  # else it comes by `ipc:`
            is_in = not self.is_shut and (self.entrance is None or self.entrance.admits(address))
            if not is_in:
                cut(held)
                return
            hear(held)
            self._cut_here.discard(descriptor)
            connection = Connection(self, descriptor, peer)
            self._by_descriptor[descriptor] = connection
            if self._arrived is not None:
                self._arrived.append(connection)


def counts_bytes() -> bool:
    """Whether the kernel counts the bytes of a connection for us."""
    return _TCP_INFO is not None


def kernel_counts(descriptor: int) -> TcpCounters | None:
    """What the kernel has counted; None where it does not."""
    if _TCP_INFO is None:
        return None
    try:
        with borrowed(descriptor, socket.AF_INET, socket.SOCK_STREAM) as held:
            info = held.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 256)
    except OSError:  # it has ended meanwhile, or comes by `ipc:`
        return None
    if len(info) < _SEGMENTS_RECEIVED + 4:
        return None
    acknowledged, received = struct.unpack_from("=QQ", info, _BYTES_ACKNOWLEDGED)
    (not_sent,) = struct.unpack_from("=I", info, _BYTES_NOT_SENT)
    (segments,) = struct.unpack_from("=I", info, _SEGMENTS_RECEIVED)
    return TcpCounters(received, acknowledged, not_sent > 0, segments)
