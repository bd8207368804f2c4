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
from reliable_pubsub.common.core.payload import CONTENT_TYPE
from reliable_pubsub.publisher.core.outbox import Encoded, encoded_batch

BATCH_BYTES: Final = 256 * KIB  # a subscriber that wants one message is sent the whole batch

_Headers = dict[str, str] | None


class _Rows:
    """Rows of one topic that are not a batch yet."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.keys: list[bytes | None] = []
        self.headers: list[_Headers] = []
        self.event_times_ns: list[int | None] = []
        self.bytes = 0

    def encoded(self, topic: str) -> Encoded:
        columns = (column(self.keys), column(self.headers), column(self.event_times_ns))
        return encoded_batch(topic, Batch(self.values, *columns))


class OutgoingRows:
    """Collects rows, in their order, and gives a batch of a topic whenever there is enough."""

    def __init__(self, topic: str = "", content_type: str = "") -> None:
        """Begin.

        Args:
            topic: of all rows; "": their column `topic` says so.
            content_type: of rows whose headers name none; "": they get none.
        """
        self._topic = topic
        self._content_type = content_type
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
        headers = self._headers(rows)
        times_ns = _event_times_ns(rows)
        ends = list(accumulate(map(message_bytes, values, keys, headers, times_ns)))
        first = base = 0
        while first < len(values):
            open_rows = self._open.setdefault(topic, _Rows())
            end = bisect_right(ends, base + BATCH_BYTES - open_rows.bytes, lo=first)
            if end == first and not open_rows.values:
                end += 1  # a long row is a batch alone; one that is too long is refused there
            open_rows.values += values[first:end]
            open_rows.keys += keys[first:end]
            open_rows.headers += headers[first:end]
            open_rows.event_times_ns += times_ns[first:end]
            if end > first:
                open_rows.bytes += ends[end - 1] - base
                base, first = ends[end - 1], end
            if first < len(values):
                yield self._open.pop(topic).encoded(topic)

    def _headers(self, rows: pa.RecordBatch) -> list[_Headers]:
        named = "headers" in rows.schema.names
        found = rows.column("headers").to_pylist() if named else [None] * rows.num_rows
        given: list[_Headers] = [None if one is None else dict(one) for one in found]
        if not self._content_type:
            return given
        return [
            one
            if one is not None and any(name.lower() == CONTENT_TYPE for name in one)
            else {**(one or {}), CONTENT_TYPE: self._content_type}
            for one in given
        ]


def _event_times_ns(rows: pa.RecordBatch) -> list[int | None]:
    """Return the event times: column `event_time_ns`, or `event_time`, which has microseconds."""
    names = rows.schema.names
    if "event_time_ns" in names:
        times: list[int | None] = rows.column("event_time_ns").to_pylist()
        return times
    if "event_time" not in names:
        return [None] * rows.num_rows
    micros = rows.column("event_time").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return [None if one is None else one * 1000 for one in micros.to_pylist()]


def _bytes(rows: pa.RecordBatch, name: str) -> list[bytes]:
    if name not in rows.schema.names:
        return [None] * rows.num_rows  # type: ignore[list-item]  # a key may be null
    column = rows.column(name)
    values: list[bytes] = column.cast(pa.binary()).to_pylist()
    return values
