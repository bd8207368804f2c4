"""Which REP sockets hold a request, without asking every one of them each time.

`zmq_poll` asks each of its sockets on every call, about 1 us a socket and turn, which is a
quarter of what a request costs us. `epoll` over the sockets' descriptors touches only those that
woke; where there is none, `selectors` has another of the kind. A ZeroMQ descriptor says only "look
at EVENTS", and a look or a send may use the signal up; so each socket is looked at when it wakes
and again after each use (libzmq, zmq_getsockopt, ZMQ_FD).
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
        """Watch whether it can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def poll(self, timeout_s: float) -> list[tuple[int, int]]:
        """What can be read, after at most so long."""
        return [(key.fd, POLLIN) for key, _ in self._selector.select(timeout_s)]

    def close(self) -> None:
        """Stop watching."""
        self._selector.close()


class SocketPoll:
    """Waits for requests, and for one descriptor that other threads write to."""

    def __init__(
        self,
        sockets: Sequence[zmq.Socket[bytes]],
        wake_descriptor: int,
        *,
        unasked: zmq.Socket[bytes] | None = None,
    ) -> None:
        """Watch the sockets; all of them are looked at first.

        Args:
            unasked: is served whenever it woke, because the look at its EVENTS does not leave the
                interpreter to other threads, and may take long (relay/guard.py).
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
        self._look: set[zmq.Socket[bytes]] = set(sockets)

    def look_at(self, socket: zmq.Socket[bytes]) -> None:
        """A socket was used: its next request may be there without a further signal."""
        self._look.add(socket)

    def wait(self, timeout_s: float) -> tuple[bool, list[zmq.Socket[bytes]]]:
        """Wait until something is there; say whether we were woken, and which sockets to serve."""
        woken = False
        look, self._look = self._look, set()
        for descriptor, _ in self._epoll.poll(0 if look else timeout_s):
            if descriptor == self._wake_descriptor:
                woken = True
            else:
                look.add(self._by_descriptor[descriptor])
        return woken, [
            socket
            for socket in look
            if socket is self._unasked or int(socket.getsockopt(zmq.EVENTS)) & POLLIN
        ]

    def close(self) -> None:
        """Stop watching."""
        self._epoll.close()
