"""The clients' side of ZeroMQ: one REQ socket, and the real clock. No other client file knows zmq.

A REQ socket that misses its answer is closed and replaced (rule R1): the options that would let
it send again (REQ_RELAXED, REQ_CORRELATE) have open defects, libzmq issue 1695.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import zmq

from .limits import FRAME_BYTES_MAX

RECONNECT_MS = 50  # while nobody listens, ZeroMQ tries again at this pace
RECONNECT_MS_MAX = 1_000


class ReqTransport:
    """A REQ socket to one endpoint. Implements `retry.Transport`; used by one thread."""

    def __init__(self, endpoint: str) -> None:
        """Connect in the background; that nobody listens shows only as silence."""
        self.endpoint = endpoint
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._open()

    def _open(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.REQ)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        socket.connect(self.endpoint)
        return socket

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a request; queued by ZeroMQ until the connection stands."""
        self._socket.send_multipart(frames)

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        """Wait for the answer; None after `timeout_s`."""
        self._socket.setsockopt(zmq.RCVTIMEO, max(int(timeout_s * 1000), 1))
        try:
            return self._socket.recv_multipart()
        except zmq.Again:
            return None

    def reopen(self) -> None:
        """Abandon the socket and what is under way on it; open a new one."""
        self._socket.close(linger=0)
        self._socket = self._open()

    def close(self) -> None:
        """Close the socket and its context."""
        self._context.destroy(linger=0)


class SystemClock:
    """The real clock. Implements `retry.Clock`."""

    def now_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep; a signal handler that raises ends it early."""
        time.sleep(seconds)
