"""Counts the frames in one way of a ZeroMQ connection, from its bytes. Pure.

Source: ZMTP 3.1, rfc.zeromq.org/spec/37: a greeting of 64 bytes, then frames of a flag, a size of
one or of eight bytes, and that many bytes.
"""

from __future__ import annotations

from typing import Final

GREETING_BYTES: Final = 64
_LONG, _COMMAND = 0x02, 0x04


class FrameCounter:
    """What has passed, however the bytes were cut into pieces."""

    def __init__(self) -> None:
        self.frames = 0  # of messages; commands such as a heartbeat are not counted
        self.bytes = 0
        self._skip = GREETING_BYTES  # bytes until the next flag
        self._head = bytearray()  # of a frame whose size is not there yet

    def feed(self, data: bytes) -> None:
        """These bytes have passed."""
        self.bytes += len(data)
        place = 0
        while place < len(data):
            if self._skip:
                step = min(self._skip, len(data) - place)
                self._skip -= step
                place += step
                continue
            self._head.append(data[place])
            place += 1
            if len(self._head) == (9 if self._head[0] & _LONG else 2):
                self.frames += not self._head[0] & _COMMAND
                self._skip = int.from_bytes(self._head[1:], "big")
                self._head.clear()
