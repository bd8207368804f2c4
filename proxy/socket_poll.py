"""Finds the sockets that hold a message without polling each of them.

`zmq_poll` queries each of its sockets on every call, about 1.5 us a socket. `epoll` over the
sockets' descriptors touches only those that woke; on systems without it `selectors` has an
equivalent. A readable ZeroMQ descriptor means only that there may be a message, and reading EVENTS
or sending may consume the signal; so EVENTS is read after each use (zmq_getsockopt, ZMQ_FD).
"""

from __future__ import annotations

import select
import selectors
from collections.abc import Sequence
from typing import Final

import zmq

POLLIN: Final = 1  # of epoll, and of ZeroMQ


class OtherPoll:
    """The part of `select.epoll` that is used here, where the system has none (kqueue on macOS)."""

    def __init__(self) -> None:
        """Watch nothing."""
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
                interpreter lock and may take long (relay/guard.py).
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
        ready = {one for one in self.look_at if one is self._unasked or is_readable(one)}
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


def is_readable(socket: zmq.Socket[bytes]) -> bool:
    """Whether there is a message to be taken."""
    return bool(int(socket.getsockopt(zmq.EVENTS)) & POLLIN)
