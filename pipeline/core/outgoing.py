"""Arrow rows as encoded batches, topic by topic. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import Batch, column, message_bytes
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.limits import KIB
from reliable_pubsub.publisher.core.outbox import Encoded, encoded_batch

BATCH_BYTES: Final = 256 * KIB  # a subscriber that wants one message is sent the whole batch

_Headers = dict[str, str] | None


class _Rows:
    """Rows of one topic that are not a batch yet."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.headers: list[_Headers] = []
        self.bytes = 0

    def encoded(self, topic: str) -> Encoded:
        return encoded_batch(topic, Batch(self.values, column(self.keys), column(self.headers)))


class OutgoingRows:
    """Collects rows, in their order, and gives a batch of a topic whenever there is enough."""

    def __init__(self, topic: str = "") -> None:
        """Begin.

        Args:
            topic: of all rows; "": their column `topic` says so.
        """
        self._topic = topic
        self._open: dict[str, _Rows] = {}

    def add(self, rows: pa.RecordBatch) -> Iterator[Encoded]:
        """Take rows; gives the batches that are full.

        Raises:
            UsageError: a value or a topic is null, or cannot be.
        """
        if rows.column("value").null_count:
            raise UsageError("a row has no value (null); filter such rows, or give them one")
        if self._topic:
            yield from self._add(self._topic, rows)
            return
        topics = rows.column("topic")
        if topics.null_count:
            raise UsageError("a row has no topic (null); filter such rows, or use option 'topic'")
        for topic in topics.unique().to_pylist():
            yield from self._add(names.topic(topic), rows.filter(pc.equal(topics, topic)))

    def rest(self) -> Iterator[Encoded]:
        """What is left, at the end."""
        for topic, rows in self._open.items():
            yield rows.encoded(topic)
        self._open.clear()

    def _add(self, topic: str, rows: pa.RecordBatch) -> Iterator[Encoded]:
        values = _bytes(rows, "value")
        keys = _bytes(rows, "key")
        headers = _headers(rows)
        ends = list(accumulate(map(message_bytes, values, keys, headers)))
        first = base = 0
        while first < len(values):
            open_rows = self._open.setdefault(topic, _Rows())
            end = bisect_right(ends, base + BATCH_BYTES - open_rows.bytes, lo=first)
            if end == first and not open_rows.values:
                end += 1  # a long row is a batch alone; one that is too long is refused there
            open_rows.values += values[first:end]
            open_rows.keys += keys[first:end]
            open_rows.headers += headers[first:end]
            if end > first:
                open_rows.bytes += ends[end - 1] - base
                base, first = ends[end - 1], end
            if first < len(values):
                yield self._open.pop(topic).encoded(topic)


def _bytes(rows: pa.RecordBatch, name: str) -> list[bytes]:
    if name not in rows.schema.names:
        return [None] * rows.num_rows  # type: ignore[list-item]  # a key may be null
    column = rows.column(name)
    values: list[bytes] = column.cast(pa.binary()).to_pylist()
    return values


def _headers(rows: pa.RecordBatch) -> list[_Headers]:
    if "headers" not in rows.schema.names:
        return [None] * rows.num_rows
    found = rows.column("headers").to_pylist()
    return [None if one is None else dict(one) for one in found]
