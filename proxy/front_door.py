"""The front door: the endpoints of a proxy, and waiting for messages at any of them.

Clients connect their REQ sockets to a ROUTER. The loop reads it itself and keeps the envelope of
each request, as a REP socket would, so that any number of requests can be open at once: many puts
share one commit, and a GET may wait. A bare REP socket holds one request, so it would pay every
fsync alone (docs/decisions/0041).

`zmq_poll` queries each of its sockets on every call, about 1.5 us a socket. `epoll` over the
sockets' descriptors touches only those that woke; on systems without it `selectors` has an
equivalent. A readable ZeroMQ descriptor means only that there may be a message, and reading EVENTS
or sending may consume the signal; so EVENTS is read after each use (zmq_getsockopt, ZMQ_FD).
"""

from __future__ import annotations

import select
import selectors
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import zmq
from msgspec import Struct

from reliable_pubsub.common.access.authentication import Authentication
from reliable_pubsub.common.access.entrance import Entrance
from reliable_pubsub.common.access.guard import guard_of
from reliable_pubsub.common.access.sockets import Context, end_context, listening
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.system import WakeUp
from reliable_pubsub.common.transport import sender_of

from .committer import Committer
from .core.engine import Engine
from .extension import Surroundings
from .server_settings import ServerSettings
from .shells import SHELLS
from .store import Store

if TYPE_CHECKING:
    from .postgres_store import PostgresStore

AUDIT_FILE: Final = "audit.jsonl"  # in the data directory, and older ones beside it
REQUESTS_TURN_MAX: Final = 64  # of one endpoint that one turn of the loop takes
PEER_ANSWERS_MAX: Final = 32  # kept for one connection that does not read
LAST_ANSWERS_MS: Final = 1000  # at most, for answers on their way when it closes
POLLIN: Final = 1  # of epoll, and of ZeroMQ
_MORE: Final = int(zmq.SNDMORE)


class ReturnAddress(Struct, frozen=True, gc=False):
    """Where the answer to a request goes: its door, and the frames before the delimiter."""

    door: FrontDoor
    envelope: tuple[bytes, ...]

    def answer(self, frames: Sequence[bytes]) -> None:
        """Send an answer; a peer that has left, or does not read, loses it."""
        send = self.door.send
        for frame in (*self.envelope, *frames[:-1]):
            send(frame, _MORE)
        send(frames[-1], 0)


class FrontDoor:
    """The ROUTER of one role; used by the loop thread only."""

    def __init__(
        self,
        context: Context,
        role: Role,
        endpoint: str,
        authentication: Authentication | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """Bind.

        Args:
            authentication: says whose a connection is; None: each may speak.
            entrance: decides who comes in; None: each connection does.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        self.role = role
        # A REQ peer has one request in flight. A peer that does not read loses its replies, and a
        # guard ends one that floods, so that neither piles up in memory.
        listener = listening(
            context,
            zmq.ROUTER,
            endpoint,
            role,
            authentication=authentication,
            entrance=entrance,
            sent_max=PEER_ANSWERS_MAX,
        )
        self.socket, self.endpoint = listener.socket, listener.endpoint
        self.connections = listener.connections
        self.send = sender_of(self.socket)

    def turn(self, engine: Engine, carry_out: Callable[[], None]) -> bool:
        """Take what has come, at most REQUESTS_TURN_MAX; the rest waits for the next turn.

        Args:
            carry_out: called after a request that has outputs, so that what waits for nothing
                leaves at once.

        Returns:
            Whether to look for more; False: not before less waits for the disk.
        """
        for _ in range(REQUESTS_TURN_MAX):
            if not engine.takes_more(self.role):
                return False
            try:
                received = self.connections.take()
            except zmq.Again:
                break
            # None: more of it follows. Without a delimiter there is no return address, and none is
            # answered whose key was revoked.
            if received is not None and received.key is not None and b"" in received.frames[1:]:
                frames, key, excess = received.frames, received.key, received.excess
                begin = frames.index(b"", 1) + 1  # after the name that the ROUTER gave its peer
                engine.receive(
                    frames[begin:],
                    ReturnAddress(self, tuple(frames[:begin])),
                    role=self.role,
                    now_s=time.monotonic(),
                    now_ns=time.time_ns(),
                    key=key,
                    excess=excess,
                )
                if engine.outputs:
                    carry_out()
            if not int(self.socket.getsockopt(zmq.EVENTS)) & POLLIN:
                self.connections.drains += 1
                break
        return True

    def close(self) -> None:
        """Unbind."""
        self.connections.close()
        self.socket.close(linger=LAST_ANSWERS_MS)


class OtherPoll:
    """The part of `select.epoll` that is used here, where the system has none (kqueue on macOS)."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def register(self, descriptor: int, _events: int) -> None:
        """Watch a descriptor for reading."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        """Return the readable descriptors, after at most `timeout_s`."""
        return [(key.fd, POLLIN) for key, _ in self._selector.select(timeout_s)]

    def close(self) -> None:
        """Stop watching."""
        self._selector.close()


class SocketPoll:
    """Waits for requests, and for one descriptor to which other threads write."""

    def __init__(
        self,
        sockets: Sequence[zmq.Socket[bytes]],
        wake_descriptor: int,
        *,
        unasked: zmq.Socket[bytes] | None = None,
    ) -> None:
        """Create a poll over the sockets; the first `wait` reads EVENTS of all of them.

        Args:
            unasked: is served whenever it wakes, without reading its EVENTS: that call keeps the
                interpreter lock and may take long (common/access/guard.py).
        """
        self._unasked = unasked
        self._epoll = select.epoll() if hasattr(select, "epoll") else OtherPoll()
        self._epoll.register(wake_descriptor, POLLIN)
        self._wake_descriptor = wake_descriptor
        self._by_descriptor: dict[int, zmq.Socket[bytes]] = {}
        for socket in sockets:
            descriptor = int(socket.getsockopt(zmq.FD))
            self._epoll.register(descriptor, POLLIN)
            self._by_descriptor[descriptor] = socket
        self.look_at = set(sockets)  # those that were used: their next request may not signal

    def wait(self, timeout_s: float) -> tuple[bool, set[zmq.Socket[bytes]]]:
        """Wait for work; return whether another thread woke us, and the sockets to serve.

        A socket whose descriptor woke may have nothing to be taken.
        """
        woken = False
        ready = {
            one
            for one in self.look_at
            if one is self._unasked or int(one.getsockopt(zmq.EVENTS)) & POLLIN
        }
        self.look_at.clear()
        for descriptor, _ in self._epoll.poll(0 if ready else timeout_s):
            if descriptor == self._wake_descriptor:
                woken = True
            else:
                ready.add(self._by_descriptor[descriptor])
        return woken, ready

    def close(self) -> None:
        """Stop watching."""
        self._epoll.close()


class Endpoints:
    """All endpoints of one proxy, and who may speak there; used by the loop thread only."""

    def __init__(
        self,
        settings: ServerSettings,
        *,
        boot: str,
        wake_up: WakeUp,
        committer: Committer,
        store: Store | PostgresStore,
        scrapes: Any,
        warn: Callable[[str], None],
    ) -> None:
        """Bind all of them.

        Args:
            boot: random name of this start of the proxy.
            wake_up: by which other threads wake the loop.
            committer, store, scrapes: for the extensions.
            warn: called with what an operator should look at.

        Raises:
            ConfigurationError: an endpoint cannot be bound, or the known keys cannot be read.
        """
        self._context: Context = zmq.Context()
        self.authentication = known = Authentication(
            self._context, settings.keys, settings.data_dir / AUDIT_FILE, warn
        )
        self.entrance = entrance = Entrance(settings.connections, settings.keys, warn)
        self.doors = [
            FrontDoor(self._context, "publisher", settings.publisher_endpoint, known, entrance),
            FrontDoor(self._context, "subscriber", settings.subscriber_endpoint, known, entrance),
        ]
        self.door_of = {door.socket: door for door in self.doors}
        publishers, subscribers = (door.endpoint for door in self.doors)
        surroundings = Surroundings(
            context=self._context,
            settings=settings,
            authentication=known,
            entrance=entrance,
            boot=boot,
            publisher_endpoint=publishers,
            subscriber_endpoint=subscribers,
            store=store,
            committer=committer,
            wake=wake_up.wake,
            scrapes=scrapes,
        )
        self.extensions = [make(surroundings) for make in SHELLS]
        self.extension_of = {one.socket: one for one in self.extensions if one.socket is not None}
        guarded = [one.connections for one in self.extensions if one.connections is not None]
        asked = (door.connections for door in self.doors)
        self._guard = guard_of(*guarded, *asked, warn=warn)
        unasked = (socket for socket, one in self.extension_of.items() if one.is_unasked)
        self.poll = SocketPoll(
            [*self.door_of, *self.extension_of], wake_up.descriptor, unasked=next(unasked, None)
        )

    def close(self) -> None:
        """Unbind; clients retry requests that were not answered."""
        self.poll.close()
        if self._guard is not None:
            self._guard.close()
        for door in self.doors:
            door.close()
        for one in self.extensions:
            one.close()
        self.authentication.close()
        end_context(self._context.term)
