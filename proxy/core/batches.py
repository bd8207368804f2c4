"""Batches of a topic, and how a broker reads those that are durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from reliable_pubsub.common.core.message_base import BatchHeader, StoredQoS


class LogBatch(Struct, frozen=True, gc=False):
    """Some messages of one publisher, with neighbouring offsets."""

    topic_id: int
    base: int  # offset of the first message
    count: int
    publisher: str
    epoch: int
    first_sequence: int
    timestamp_ns: int
    crc: int
    body: bytes
    qos: StoredQoS = 2

    @property
    def end(self) -> int:
        """The offset after its last message."""
        return self.base + self.count

    @property
    def header(self) -> BatchHeader:
        """Everything except the body."""
        return BatchHeader(
            self.base,
            self.count,
            self.publisher,
            self.first_sequence,
            self.timestamp_ns,
            self.crc,
            len(self.body),
            self.qos,
        )

    @property
    def last_sequence(self) -> int:
        """Sequence of its last message."""
        return self.first_sequence + self.count - 1


class BatchReader(Protocol):
    """Reads durable batches, from memory or from the store; none below a topic's start is asked."""

    def read(
        self, topic_id: int, offset: int, *, messages_max: int, bytes_max: int
    ) -> Sequence[LogBatch]:
        """Batches in order, from the one that holds `offset` (or the next one after it).

        At least one if there is one; then more while both bounds hold.
        """

    def timestamp_ns(self, topic_id: int, offset: int) -> int | None:
        """When the batch of an offset was stored; None if there is none. Reads no body."""

    def first_since(self, topic_id: int, base: int, end: int, timestamp_ns: int) -> int | None:
        """Base of the first batch in [base, end) that was stored at `timestamp_ns` or later.

        None if there is none. Reads no body.
        """

    def find(self, topic_id: int, publisher: str, sequence: int) -> LogBatch | None:
        """The QoS 2 batch that contains a publisher's sequence; None if there is none."""
