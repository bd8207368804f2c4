"""Rings: a bounded memory of QoS 0 messages. Pure.

Each topic has a ring. A message in it has a place: 0, 1, 2, ... within one start of the proxy, so
that a reader knows what it has read and what it missed. When a ring is full its oldest messages are
discarded; nothing is ever written to disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice

from msgspec import UNSET, Struct, UnsetType

from reliable_pubsub.common.core.batch import ENTRY_BYTES, whole_batches
from reliable_pubsub.common.core.limits import RING_BYTES_MAX, RINGS_BYTES_MAX
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.status import RingStatus


class Read(Struct, frozen=True):
    """What a reader finds in a ring."""

    headers: tuple[BatchHeader, ...]
    body: bytes
    first: int  # the first held place at or above the requested one; lower ones are lost
    end: int  # the next place


class _Ring:
    __slots__ = ("batches", "dropped", "first", "size_bytes")

    def __init__(self) -> None:
        self.batches: deque[tuple[BatchHeader, bytes]] = deque()
        self.dropped = 0  # batches that are no longer held
        self.first = 0  # held place; without batches the next one
        self.size_bytes = 0


class _Lost(Struct):
    count: int = 0
    counted_to: int = 0  # lost places below it are counted


class Rings:
    """The rings of one start of the proxy."""

    def __init__(
        self, bytes_max: int = RING_BYTES_MAX, total_bytes_max: int = RINGS_BYTES_MAX
    ) -> None:
        """Create empty rings.

        Args:
            bytes_max: of one topic. total_bytes_max: of all of them.
        """
        self._bytes_max = bytes_max
        self._total_bytes_max = total_bytes_max
        self._rings: dict[str, _Ring] = {}
        self.ends: dict[str, int] = {}  # by topic: the next place, once something was put
        # Topic, base, and which of its ring's batches it is, by age.
        self._order: deque[tuple[str, int, int]] = deque()
        self.number = 0  # of the next batch, of all topics
        self._lost: dict[tuple[str, str], _Lost] = {}  # by topic and subscriber
        self.size_bytes = 0

    def add(
        self,
        topic: str,
        *,
        publisher: str,
        first_sequence: int,
        count: int,
        crc: int,
        body: bytes,
        now_ns: int,
    ) -> BatchHeader:
        """Add a batch to its ring; return its header, whose base is its place."""
        ring = self._rings.setdefault(topic, _Ring())
        place = self.ends.get(topic, 0)
        header = BatchHeader(place, count, publisher, first_sequence, now_ns, crc, len(body), qos=0)
        self.ends[topic] = place + count
        ring.batches.append((header, body))
        ring.size_bytes += len(body) + ENTRY_BYTES
        self.size_bytes += len(body) + ENTRY_BYTES
        self._order.append((topic, header.base, ring.dropped + len(ring.batches) - 1))
        self.number += 1
        while ring.size_bytes > self._bytes_max:
            self._drop(ring)
        while self.size_bytes > self._total_bytes_max:
            oldest, base, _ = self._order.popleft()
            if self._rings[oldest].first == base:
                self._drop(self._rings[oldest])
        while self._order and self._rings[self._order[0][0]].first > self._order[0][1]:
            self._order.popleft()  # already discarded because its own ring was full
        return header

    def _drop(self, ring: _Ring) -> None:
        header, body = ring.batches.popleft()
        ring.dropped += 1
        ring.first = header.base + header.count
        ring.size_bytes -= len(body) + ENTRY_BYTES
        self.size_bytes -= len(body) + ENTRY_BYTES

    def read(self, topic: str, place: int, *, messages_max: int, bytes_max: int) -> Read:
        """Whole batches from a place; the first batch may begin below it.

        Args:
            messages_max, bytes_max: as in GET: one batch at least, if there is one.
        """
        ring = self._rings.get(topic)
        if ring is None:
            return Read((), b"", place, 0)
        found = [
            *whole_batches(ring.batches, place, messages_max=messages_max, bytes_max=bytes_max)
        ]
        return Read(
            tuple(header for header, _ in found),
            b"".join(body for _, body in found),
            max(place, ring.first),
            self.ends[topic],
        )

    def since(self, number: int) -> Iterator[tuple[int, str, BatchHeader, bytes]]:
        """Return the kept batches of all topics from a number on, the oldest first."""
        count = min(self.number - number, len(self._order))
        newest = list(islice(reversed(self._order), count)) if count > 0 else []
        for number_before, (topic, base, index) in enumerate(reversed(newest), self.number - count):
            ring = self._rings[topic]
            if base >= ring.first:
                header, body = ring.batches[index - ring.dropped]
                yield number_before + 1, topic, header, body

    # For operators.

    def asked(self, topic: str, subscriber: str, place: int) -> None:
        """A subscriber reads from a place: count the discarded messages, each once."""
        ring = self._rings.get(topic)
        if ring is None or place >= ring.first:
            return
        lost = self._lost.setdefault((topic, subscriber), _Lost())
        lost.count += max(ring.first - max(place, lost.counted_to), 0)
        lost.counted_to = ring.first

    def forget(self, topic: str, subscriber: str) -> None:
        """A subscription has begun again, or ended: reset its count."""
        self._lost.pop((topic, subscriber), None)

    def lost(self, topic: str, subscriber: str) -> int | UnsetType:
        """How many messages a subscriber lost because it read too late; unset: none."""
        lost = self._lost.get((topic, subscriber))
        return lost.count if lost else UNSET

    def status(self, topic: str) -> RingStatus | UnsetType:
        """The row of a ring in a STATUS; unset if nothing was put."""
        ring = self._rings.get(topic)
        if ring is None:
            return UNSET
        end = self.ends[topic]
        return RingStatus(end=end, held=end - ring.first, held_bytes=ring.size_bytes)
