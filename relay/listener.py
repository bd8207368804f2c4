"""A listening TCP socket whose connections do not hear resets.

libzmq 4.3.5 ends the process (assertion `!_io_error`) when a connection is reset while its input is
stopped at a high-water mark and a PING is due (zeromq/libzmq, issue 4364). A reset that the kernel
drops is a peer that has fallen silent: the heartbeat closes its connection (docs/decisions/0014).
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_network
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.system import IS_LINUX

# Packet filters over the TCP header.
_LOAD_BYTE, _LOAD_WORD, _IF_EQUAL = 0x30, 0x20, 0x15  # linux/bpf_common.h
_IF_ANY_BIT, _SHIFT_RIGHT, _RETURN = 0x45, 0x74, 0x06
_FLAGS_BYTE, _RST = 13, 0x04  # RFC 9293, section 3.1
_IP_HEADER: Final = 0xFFF0_0000  # SKF_NET_OFF of linux/filter.h
_SOURCE_ADDRESS: Final = _IP_HEADER + 12  # RFC 791, section 3.1
_SOURCE_NETWORK_6: Final = _IP_HEADER + 8  # RFC 8200, section 3: the first half of the address
_IPV6: Final = 6  # of the version field, the upper half of the header's first byte
_THROWN_AWAY_BYTES: Final = 2**20  # at once
_Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if not, operand
_DROP: Final[_Instruction] = (_RETURN, 0, 0, 0)
_DROP_RESETS: Final = (
    (_LOAD_BYTE, 0, 0, _FLAGS_BYTE),
    (_IF_ANY_BIT, 0, 1, _RST),
    _DROP,
    (_RETURN, 0, 0, 0xFFFF_FFFF),
)
_SO_ATTACH_FILTER: Final = 26  # asm-generic/socket.h; Python has no name for these
_SO_MEMINFO: Final = 55
_DROPS: Final = struct.Struct("=32xI")  # linux/sock_diag.h: SK_MEMINFO_DROPS


class Listener(Struct, frozen=True):
    """A socket that listens."""

    descriptor: int  # owned by the holder of this value
    hears_resets: bool  # the system did not take the filter: some let only root set one


class ListenerGate:
    """Whether a listening socket lets connections in.

    Where it does not, the kernel drops what asks for one, and the peer's kernel asks again after
    1 s, 2 s, 4 s and so on. The connections that are there notice nothing.
    """

    def __init__(self, listener: Listener) -> None:
        self._descriptor = listener.descriptor
        self._is_open = True
        self._without: frozenset[str] = frozenset()

    def set_open(self, *, is_open: bool, without: frozenset[str] = frozenset()) -> None:
        """Open or close it.

        Args:
            without: sources (`inflow.source_of`) that are kept out though it is open.
        """
        if (is_open, without) == (self._is_open, self._without):
            return
        let_in = (*_drop_of(without), *_DROP_RESETS)
        with socket.socket(fileno=os.dup(self._descriptor)) as listening:
            if _filter(listening, let_in if is_open else (_DROP,)):
                self._is_open, self._without = is_open, without

    def kept_out(self) -> int:
        """Requests for a connection that the kernel has dropped here, repeated ones included."""
        with socket.socket(fileno=os.dup(self._descriptor)) as listening:
            (count,) = _DROPS.unpack(
                listening.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, _DROPS.size)
            )
        return int(count)


def _drop_of(sources: frozenset[str]) -> list[_Instruction]:
    """Drop what comes from these IPv4 addresses and IPv6 networks."""
    program: list[_Instruction] = []
    for source in sorted(sources):
        program += [(_LOAD_BYTE, 0, 0, _IP_HEADER), (_SHIFT_RIGHT, 0, 0, 4)]
        network = ip_network(source)
        if network.version == _IPV6:
            high, low = struct.unpack_from("!II", network.network_address.packed)
            program += [
                *((_IF_EQUAL, 0, 5, _IPV6), (_LOAD_WORD, 0, 0, _SOURCE_NETWORK_6)),
                *((_IF_EQUAL, 0, 3, high), (_LOAD_WORD, 0, 0, _SOURCE_NETWORK_6 + 4)),
                *((_IF_EQUAL, 0, 1, low), _DROP),
            ]
        else:
            (number,) = struct.unpack("!I", network.network_address.packed)
            program += [
                *((_IF_EQUAL, 3, 0, _IPV6), (_LOAD_WORD, 0, 0, _SOURCE_ADDRESS)),
                *((_IF_EQUAL, 0, 1, number), _DROP),
            ]
    return program


def listen(endpoint: str, backlog: int, receive_buffer_bytes: int | None = None) -> Listener:
    """Listen at `tcp://host:port`; `*` is every IPv4 address, or a port of the system's choice.

    A name that has both kinds of address means IPv4. `[::]` is every address of both kinds.

    Args:
        receive_buffer_bytes: of each connection, in the kernel; None: as the system has it.

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
        # Before there are connections, which inherit both.
        if receive_buffer_bytes is not None:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        hears_resets = not _filter(listening, _DROP_RESETS)
        listening.bind(address)
        listening.listen(backlog)
    except BaseException:
        listening.close()
        raise
    return Listener(listening.detach(), hears_resets)


def cut(connection: socket.socket) -> None:
    """Hear nothing more from a connection, and let libzmq find its end.

    Only its input is shut down: an end in both directions that comes while its input is stopped
    at a high-water mark is what libzmq does not survive. The filter keeps out what is still sent,
    acknowledgements too; so the connection is reset when libzmq closes it, or the kernel would
    keep it, and its peer would not learn of the end, until retransmission gives up. What has come
    and libzmq has not read, megabytes perhaps, is thrown away, because it would be read to its end.
    """
    _filter(connection, (_DROP,))
    with suppress(OSError):  # nothing is left, or it has ended meanwhile
        while connection.recv(_THROWN_AWAY_BYTES, socket.MSG_TRUNC | socket.MSG_DONTWAIT):
            pass
    with suppress(OSError):  # it has ended meanwhile
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.shutdown(socket.SHUT_RD)


def _filter(filtered: socket.socket, instructions: Sequence[_Instruction]) -> bool:
    """Set a packet filter; False if we may not."""
    if not IS_LINUX:
        return False
    program = b"".join(struct.pack("=HBBI", *one) for one in instructions)
    held = ctypes.create_string_buffer(program, len(program))
    option = struct.pack("HP", len(instructions), ctypes.addressof(held))
    try:
        filtered.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)
    except OSError:
        return False
    return True
