"""The newest batches of each topic, so that one fetch above serves many readers below. Pure.

What is here was durable at the proxy when it was seen, and an offset never changes within one start
of the proxy. After a restart (another boot) all of it is forgotten.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from msgspec import Struct

from reliable_pubsub.common.core.batch import ENTRY_BYTES, whole_batches
from reliable_pubsub.common.core.limits import CACHE_BYTES_MAX, REPLY_BATCHES_MAX
from reliable_pubsub.common.core.message_base import BatchHeader


class CachedBatches(Struct, frozen=True):
    """Whole batches, the first of which holds the offset asked for."""

    headers: tuple[BatchHeader, ...]
    body: bytes
    end: int  # of the topic, as far as it was seen


class _Topic:
    __slots__ = ("bases", "batches")

    def __init__(self) -> None:
        self.bases: list[int] = []  # sorted, without gap between the batches
        self.batches: list[tuple[BatchHeader, bytes]] = []

    @property
    def end(self) -> int:
        header, _ = self.batches[-1]
        return header.base + header.count


class BatchCache:
    """Holds at most `bytes_max` of bodies; drops the oldest first."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._topics: dict[str, _Topic] = {}
        self._order: deque[tuple[str, int, int]] = deque()  # topic, base, bytes
        self.size_bytes = 0
        self.boot = ""

    def add(self, topic: str, boot: str, header: BatchHeader, body: bytes) -> None:
        """Keep a batch, if it follows what is here; after a gap the topic starts over."""
        if boot != self.boot:
            self._topics.clear()
            self._order.clear()
            self.size_bytes, self.boot = 0, boot
        known = self._topics.get(topic)
        if known and known.batches and header.base < known.end:
            return
        if known is None or (known.batches and header.base > known.end):
            known = self._topics[topic] = _Topic()
        known.bases.append(header.base)
        known.batches.append((header, body))
        size = len(body) + ENTRY_BYTES
        self._order.append((topic, header.base, size))
        self.size_bytes += size
        while self.size_bytes > self._bytes_max:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        topic, base, size = self._order.popleft()
        self.size_bytes -= size
        known = self._topics.get(topic)
        if known and known.bases and known.bases[0] == base:
            del known.bases[0], known.batches[0]
            if not known.bases:
                del self._topics[topic]

    def read(
        self, topic: str, offset: int, *, messages_max: int, bytes_max: int
    ) -> CachedBatches | None:
        """The batches from an offset on, as the proxy would answer; None if they are not here.

        Args:
            messages_max, bytes_max: as in GET: one batch at least, none after the one that
                reaches the first, none that would pass the second.
        """
        known = self._topics.get(topic)
        if known is None or not known.bases or not known.bases[0] <= offset < known.end:
            return None
        begin = bisect_right(known.bases, offset) - 1
        found = [
            *whole_batches(
                known.batches[begin : begin + REPLY_BATCHES_MAX],
                offset,
                messages_max=messages_max,
                bytes_max=bytes_max,
            )
        ]
        return CachedBatches(
            tuple(header for header, _ in found), b"".join(body for _, body in found), known.end
        )
