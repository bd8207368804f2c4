"""Watches a push endpoint from a thread of its own, because the loop cannot.

With every call an XPUB reads all that has come and stores each subscription, and it goes on while
more comes. So a call does not return while peers subscribe faster than libzmq stores. This thread
counts what arrives at each connection (TCP_INFO), cuts off connections that say too much, and lets
no connection in while all together have said too much (docs/decisions/0026). The calls of libzmq
have to leave the interpreter to it: `recv` and `poll` do, `getsockopt` does not.
"""

from __future__ import annotations

import select
import threading
import time
from contextlib import suppress
from typing import Final

from reliable_pubsub.common.system import WakeUp

from .connections import Connections, counts_bytes, kernel_counts
from .core.allowance import Admission, Said
from .listener import Gate
from .sockets import Listening

LOOK_S: Final = 0.001  # between two looks at connections that go on speaking
# Data that libzmq has read already is not readable any more, but the socket can still be written:
# so both are asked for, and each arrival wakes us once.
_EACH_ARRIVAL: Final = (
    select.EPOLLIN | select.EPOLLOUT | select.EPOLLET if hasattr(select, "epoll") else 0
)


def guard_of(listening: Listening) -> Guard | None:
    """A guard, where the kernel counts bytes and drops packets for us; else None."""
    if listening.listener is None or listening.hears_resets or not counts_bytes():
        return None
    return Guard(listening.connections, Gate(listening.listener))


class Guard:
    """One thread for one endpoint, from construction to `close`."""

    def __init__(self, connections: Connections, gate: Gate) -> None:
        """Begin to watch."""
        self._connections = connections
        self._gate = gate
        self._admission = Admission(time.monotonic())
        self._said: dict[int, Said] = {}  # by descriptor; of an ended one until it is used again
        self._stop = WakeUp()
        self._stopping = False
        self._epoll = select.epoll()
        self._epoll.register(self._stop.descriptor, select.EPOLLIN)
        self._epoll.register(connections.descriptor, select.EPOLLIN)
        self._thread = threading.Thread(target=self._run, name="push-guard", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._stopping = True
        self._stop.wake()
        self._thread.join()
        self._epoll.close()
        self._stop.close()

    def _run(self) -> None:
        wait_s: float | None = 0.0  # events wake us only once there were none to take
        while not self._stopping:
            spoke = self._epoll.poll(wait_s)
            now_s = time.monotonic()
            for arrived in self._connections.arrived():
                self._said[arrived.descriptor] = self._admission.accepted(now_s)
                with suppress(OSError):  # it has ended meanwhile
                    self._epoll.register(arrived.descriptor, _EACH_ARRIVAL)
            for descriptor, _ in spoke:
                self._hear(descriptor, now_s)
            wait_s = self._admission.closed_for_s(now_s) or None
            self._gate.set_open(is_open=wait_s is None)
            time.sleep(LOOK_S)

    def _hear(self, descriptor: int, now_s: float) -> None:
        connection, said = self._connections.at(descriptor), self._said.get(descriptor)
        if connection is None or connection.is_cut or said is None:
            return
        counts = kernel_counts(descriptor)
        if counts and not self._admission.hears(said, counts.received_bytes, now_s):
            self._connections.cut(connection)
