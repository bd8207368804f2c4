"""The front door: the ROUTER to which clients connect their REQ sockets.

The loop reads it itself and keeps the envelope of each request, as a REP socket would, so that any
number of requests can be open at once: many puts share one commit, and a GET may wait. A bare REP
socket holds one request, so it would pay every fsync alone (docs/decisions/0002, 0041).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import zmq
from msgspec import Struct

from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.transport import sender_of
from reliable_pubsub.relay.authentication import Authentication
from reliable_pubsub.relay.core.attendance import Excess
from reliable_pubsub.relay.sockets import Context, Receiver, listening

PEER_ANSWERS_MAX: Final = 32  # kept for one connection that does not read
_MORE: Final = int(zmq.SNDMORE)
LAST_ANSWERS_MS: Final = 200  # that a door which closes has for answers on their way


class ReturnAddress(Struct, frozen=True, gc=False):
    """Where the answer to a request goes: its door, and the frames before the delimiter."""

    door: FrontDoor
    envelope: tuple[bytes, ...]
    key: str = ""  # public key of the connection, where keys are known
    excess: Excess | None = None  # the connection is more than its key may have

    def answer(self, frames: Sequence[bytes]) -> None:
        """Send an answer; a peer that has left, or does not read, loses it."""
        send = self.door.send
        for frame in (*self.envelope, *frames[:-1]):
            send(frame, _MORE)
        send(frames[-1], 0)


class FrontDoor:
    """One endpoint; used by the loop thread only."""

    def __init__(
        self,
        context: Context,
        role: Role,
        endpoint: str,
        authentication: Authentication | None = None,
    ) -> None:
        """Bind.

        Args:
            authentication: says whose a connection is; None: each may speak.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        self.role = role
        self._authentication = authentication
        # A REQ peer has one request in flight. A peer that does not read loses its replies, and one
        # that floods is stopped, so that neither piles up in memory.
        listener = listening(context, zmq.ROUTER, endpoint, role, sent_max=PEER_ANSWERS_MAX)
        self.socket, self.hears_resets = listener.socket, listener.hears_resets
        self.connections = listener.connections
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self.send = sender_of(self.socket)
        self._receiver = Receiver(self.socket)

    def take(self) -> tuple[ReturnAddress, list[bytes]] | None:
        """The next request; None if it gets no answer, or is so long that more of it follows.

        Raises:
            zmq.Again: there is none.
        """
        taken = self._receiver.take()
        if taken is None:
            return None
        first, frames = taken
        speaker = self.connections.heard(first)
        key, excess = "", None
        if self._authentication is not None:
            found = self._authentication.key_of(first)
            if found is None:
                return None  # it was revoked
            key, excess = found, self._authentication.excess(speaker, found)
        try:
            begin = frames.index(b"", 1) + 1  # after the name that the ROUTER gave its peer
        except ValueError:
            return None  # no delimiter, so there is no return address
        reply_to = ReturnAddress(self, tuple(frames[:begin]), key, excess)
        return reply_to, frames[begin:]

    def close(self) -> None:
        """Unbind."""
        self.connections.close()
        self.socket.close(linger=LAST_ANSWERS_MS)
