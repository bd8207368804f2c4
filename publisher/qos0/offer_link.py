"""`ZmqOfferLink`: an XPUB to the ingress of the proxy, which announces what is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import zmq

from reliable_pubsub.common.access.sockets import DATA_MESSAGES_MAX, connecting
from reliable_pubsub.common.transport import ClientContext, DataLink, connect, end_with

LINGER_MS: Final = 1_000  # how long close waits to send the last messages


class ZmqOfferLink(DataLink):
    """A link over ZeroMQ. Implements `core.qos0_puts.OfferLink`."""

    def __init__(self, endpoint: str) -> None:
        self._context = ClientContext()
        end_with(self, self._context)
        # No bound on received subscriptions: ZeroMQ drops them at a bound, and they are few.
        self._socket = connecting(
            self._context, zmq.XPUB, endpoint, sent_max=DATA_MESSAGES_MAX, received_max=0
        )
        self._socket.setsockopt(zmq.XPUB_NODROP, 1)  # "no room" is an error, not a silence
        # When a connection ends its subscriptions end, and no message is queued for the next one.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        connect(self._socket, endpoint)
        self._wanted: frozenset[bytes] = frozenset()
        super().__init__(self._socket)

    def prefixes(self) -> frozenset[bytes]:
        if self._socket.poll(0):
            wanted = set(self._wanted)
            while self._socket.poll(0):
                said = self._socket.recv()
                if said[:1] == b"\1":
                    wanted.add(said[1:])
                else:
                    wanted.discard(said[1:])
            self._wanted = frozenset(wanted)
        return self._wanted

    def send(self, frames: Sequence[bytes]) -> bool:
        try:
            self._socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

    def close(self) -> None:
        self._context.destroy()  # for LINGER_MS at most
