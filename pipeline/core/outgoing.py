"""Arrow rows as encoded batches, topic by topic. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import Batch, column, message_bytes
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX, KIB
from reliable_pubsub.common.core.payload import CONTENT_TYPE
from reliable_pubsub.publisher.core.outbox import Encoded, encoded_batch

BATCH_BYTES: Final = 256 * KIB  # a subscriber that wants one message is sent the whole batch

_OF_A_VALUE: Final = message_bytes(b"")  # what a message takes besides its value

_Headers = Mapping[str, str] | None


class BatchCutter:
    """Collects messages in their order, and gives a batch whenever there is enough."""

    def __init__(self, messages_max: int = BATCH_MESSAGES_MAX) -> None:
        """Begin.

        Args:
            messages_max: of a batch.
        """
        self._messages_max = messages_max
        self._clear()

    def _clear(self) -> None:
        self._values: list[bytes] = []
        self._keys: list[bytes | None] = []
        self._headers: list[_Headers] = []
        self._event_times_ns: list[int | None] = []
        self._bytes = 0

    def add(
        self,
        values: Sequence[bytes],
        keys: Sequence[bytes | None],
        headers: Sequence[_Headers],
        times_ns: Sequence[int | None],
    ) -> Iterator[Batch]:
        """Take messages; gives the batches that are full."""
        columns = (keys, headers, times_ns)
        if all(one.count(None) == len(one) for one in columns):
            sizes: Iterator[int] = map(_OF_A_VALUE.__add__, map(len, values))
        else:
            sizes = map(message_bytes, values, *columns)
        ends = list(accumulate(sizes))
        first = base = 0
        while first < len(values):
            end = bisect_right(ends, base + BATCH_BYTES - self._bytes, lo=first)
            end = min(end, first + self._messages_max - len(self._values))
            if end == first and not self._values:
                end += 1  # a long one is a batch alone; one that is too long is refused there
            self._values += values[first:end]
            self._keys += keys[first:end]
            self._headers += headers[first:end]
            self._event_times_ns += times_ns[first:end]
            if end > first:
                self._bytes += ends[end - 1] - base
                base, first = ends[end - 1], end
            if first < len(values):
                yield from self.rest()

    def rest(self) -> Iterator[Batch]:
        """What is left, at the end."""
        if self._values:
            yield Batch(
                self._values,
                column(self._keys),
                column(self._headers),
                column(self._event_times_ns),
            )
            self._clear()


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
        self._open: dict[str, BatchCutter] = {}

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
        for topic, cutter in self._open.items():
            yield from (encoded_batch(topic, one) for one in cutter.rest())

    def _add(self, topic: str, rows: pa.RecordBatch) -> Iterator[Encoded]:
        columns = (_bytes(rows, "value"), _bytes(rows, "key"), self._headers(rows))
        cutter = self._open.setdefault(topic, BatchCutter())
        for batch in cutter.add(*columns, _event_times_ns(rows)):
            yield encoded_batch(topic, batch)

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
