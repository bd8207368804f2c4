"""A listening TCP socket, and how the kernel keeps connections away from it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from ..system import IS_LINUX

_THROWN_AWAY_BYTES: Final = 2**20  # at once
_IP_MINTTL: Final = 21  # linux/in.h; Python has no names for these
_IPV6_MINHOPCOUNT: Final = 73  # linux/in6.h
_HIGHEST_TTL: Final = 255
_SO_MEMINFO: Final = 55  # asm-generic/socket.h
_DROPS: Final = struct.Struct("=32xI")  # linux/sock_diag.h: SK_MEMINFO_DROPS


class ListenerGate:
    """Opens or closes a listening socket to connections, from any thread.

    While it is closed, the kernel drops requests for a connection that have a time to live below
    255, which all systems set by default. Their systems ask again after 1 s, 2 s, 4 s and so on,
    and the open connections continue. Linux lets every process set this minimum (IP_MINTTL, RFC
    5082); elsewhere, and for peers that send 255, the gate stays open.
    """

    def __init__(self, descriptor: int) -> None:
        """Take a listening socket that belongs to libzmq."""
        self._listening = socket.socket(fileno=os.dup(descriptor))
        self._is_open = True
        self.port = int(self._listening.getsockname()[1])

    def set_open(self, *, is_open: bool) -> None:
        """Open or close it."""
        if is_open == self._is_open or not IS_LINUX:
            return
        self._is_open = is_open
        lowest = 0 if is_open else _HIGHEST_TTL
        self._listening.setsockopt(socket.IPPROTO_IP, _IP_MINTTL, lowest)
        if self._listening.family == socket.AF_INET6:
            self._listening.setsockopt(socket.IPPROTO_IPV6, _IPV6_MINHOPCOUNT, lowest)

    def kept_out(self) -> int:
        """Return how many requests for a connection the kernel has dropped, repeated ones too."""
        if not IS_LINUX:
            return 0
        found = self._listening.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _DROPS.size)
        (count,) = _DROPS.unpack(found)
        return int(count)

    def close(self) -> None:
        """Free the descriptor."""
        self._listening.close()


def hear(connection: socket.socket) -> None:
    """Let a connection hear its peer that came while the gate was closed, and has its minimum."""
    with suppress(OSError):  # it comes by `ipc:`, or has ended meanwhile
        connection.setsockopt(socket.IPPROTO_IP, _IP_MINTTL, 0)
        if connection.family == socket.AF_INET6:
            connection.setsockopt(socket.IPPROTO_IPV6, _IPV6_MINHOPCOUNT, 0)


def listen(endpoint: str, backlog: int, receive_buffer_bytes: int | None = None) -> int:
    """Listen at `tcp://host:port`; `*` is every IPv4 address, or a port of the system's choice.

    A name that has both kinds of address means IPv4. `[::]` is every address of both kinds.

    Args:
        receive_buffer_bytes: of each connection, in the kernel; None: as the system has it.

    Returns:
        The descriptor, which the caller owns.

    Raises:
        OSError: the address is in use, or not of this machine.
    """
    host, port = endpoint.removeprefix("tcp://").rsplit(":", 1)
    found = socket.getaddrinfo(
        "0.0.0.0" if host == "*" else host.strip("[]"),
        0 if port == "*" else int(port),
        type=socket.SOCK_STREAM,
    )
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_bytes is not None:  # before there are connections, which inherit it
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        listening.bind(address)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return listening.detach()


@contextmanager
def borrowed(descriptor: int, family: int = -1, kind: int = -1) -> Iterator[socket.socket]:
    """Use a socket of libzmq, which stays libzmq's; this takes no descriptor.

    Args:
        family, kind: of the socket, where no address is asked for; -1: the system is asked.

    Raises:
        OSError: it has ended meanwhile.
    """
    held = socket.socket(family, kind, fileno=descriptor)
    try:
        yield held
    finally:
        held.detach()


def cut(connection: socket.socket) -> None:
    """Close a connection so that libzmq notices its end.

    What has come and libzmq has not read, megabytes perhaps, is thrown away, because libzmq would
    read it to its end. What still comes is answered by a reset.
    """
    with suppress(OSError):  # nothing is left, or it has ended meanwhile
        while connection.recv(_THROWN_AWAY_BYTES, socket.MSG_TRUNC | socket.MSG_DONTWAIT):
            pass
    with suppress(OSError):  # it has ended meanwhile
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RDWR)
