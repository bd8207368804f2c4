"""What has passed one way of a connection, with times. Pure."""

from __future__ import annotations

from bisect import bisect_left


class Transcript:
    """Bytes in the order in which they passed, in pieces of any size."""

    def __init__(self) -> None:
        self._content = bytearray()
        self._ends: list[int] = []  # of the pieces
        self._times_ns: list[int] = []

    def add(self, data: bytes, at_ns: int) -> None:
        """Note that this has passed; another thread may look at the same time."""
        self._times_ns.append(at_ns)
        self._ends.append(len(self._content) + len(data))
        self._content += data

    def first_ns(self, content: bytes) -> int | None:
        """When the last byte of the first copy of a content passed; None: it has not."""
        place = self._content.find(content)
        if place < 0:
            return None
        return self._times_ns[bisect_left(self._ends, place + len(content))]
