"""ZMTP by hand, as bytes: what a peer without a library may send.

Source: the ZMTP 3.1 specification (rfc.zeromq.org/spec/37), 2.0 (spec/15) and 1.0 (spec/13).
"""

from __future__ import annotations

from collections.abc import Sequence

SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
GREETING_BYTES = 64

# What the proxy sends unasked: its greeting and its READY. A peer that speaks before it has
# read them is cut off, because ZeroMQ takes its bytes for a part of the handshake.
HANDSHAKE_BYTES = GREETING_BYTES + 43

MORE, LONG, COMMAND = 0x01, 0x02, 0x04


def greeting(major: int = 3, minor: int = 1, mechanism: bytes = b"NULL") -> bytes:
    """The 64 bytes that open a connection of version 3."""
    return SIGNATURE + bytes([major, minor]) + mechanism.ljust(20, b"\0") + bytes(32)


def framed(body: bytes, flags: int = 0) -> bytes:
    """One frame of version 2 or 3."""
    if len(body) < 256:
        return bytes([flags, len(body)]) + body
    return bytes([flags | LONG]) + len(body).to_bytes(8, "big") + body


def announced(size: int, flags: int = 0) -> bytes:
    """The head of a long frame, and nothing of the frame."""
    return bytes([flags | LONG]) + size.to_bytes(8, "big")


def multipart(frames: Sequence[bytes]) -> bytes:
    """One message."""
    return b"".join(framed(f, MORE) for f in frames[:-1]) + framed(frames[-1])


def unfinished(frames: Sequence[bytes]) -> bytes:
    """A message that promises another frame."""
    return b"".join(framed(frame, MORE) for frame in frames)


def asked(frames: Sequence[bytes]) -> bytes:
    """A message as a REQ socket sends it, after the empty delimiter."""
    return multipart([b"", *frames])


def command(name: bytes, body: bytes = b"") -> bytes:
    """A command, which ZeroMQ keeps to itself."""
    return framed(bytes([len(name)]) + name + body, COMMAND)


def metadata(name: bytes, value: bytes) -> bytes:
    """One property of READY."""
    return bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value


def ready(kind: bytes = b"REQ", routing_id: bytes = b"") -> bytes:
    """The end of a peer's half of the handshake."""
    return command(b"READY", metadata(b"Socket-Type", kind) + metadata(b"Identity", routing_id))


OPENED = greeting() + ready()  # all that an ordinary REQ socket says before its first request
V1_OPENED = b"\x01\x00"  # version 1: an empty routing id
V2_OPENED = SIGNATURE + b"\x01\x03" + b"\0\0"  # version 2: revision, REQ, an empty routing id


def v1_asked(frames: Sequence[bytes]) -> bytes:
    """A request of version 1; its frames are short."""
    head = [b"", *frames]
    last = len(head) - 1
    return b"".join(
        bytes([len(frame) + 1, MORE if index < last else 0]) + frame
        for index, frame in enumerate(head)
    )
