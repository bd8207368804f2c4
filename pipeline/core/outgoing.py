"""Arrow rows as encoded batches, topic by topic. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

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

    def add(self, rows: Batch) -> Iterator[Batch]:
        """Take messages; gives the batches that are full."""
        values, none = rows.payloads, [None] * len(rows.payloads)
        keys, headers = rows.keys or none, rows.headers or none
        times_ns = rows.event_times_ns or none
        if rows.keys or rows.headers or rows.event_times_ns:
            sizes = map(message_bytes, values, keys, headers, times_ns)
        else:
            sizes = map(_OF_A_VALUE.__add__, map(len, values))
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
        found = batch_of_rows(rows)
        if self._content_type:
            named = found.headers or [None] * rows.num_rows
            found = replace(found, headers=[self._with_content_type(one) for one in named])
        for batch in self._open.setdefault(topic, BatchCutter()).add(found):
            yield encoded_batch(topic, batch)

    def _with_content_type(self, headers: _Headers) -> _Headers:
        if headers is not None and any(name.lower() == CONTENT_TYPE for name in headers):
            return headers
        return {**(headers or {}), CONTENT_TYPE: self._content_type}


def batch_of_rows(rows: pa.RecordBatch) -> Batch:
    """Return rows as a batch; a column that none of them uses is left out.

    Args:
        rows: column value, and key, headers, event_time_ns, or event_time, if they are there.
    """

    def used(name: str, kind: pa.DataType | None = None) -> list[Any] | None:
        one = rows.column(name) if name in rows.schema.names else None
        if one is None or one.null_count == len(one):
            return None
        values: list[Any] = (one if kind is None else one.cast(kind)).to_pylist()
        return values

    headers = used("headers")
    times_ns: Sequence[int | None] | None = used("event_time_ns")
    if "event_time_ns" not in rows.schema.names and "event_time" in rows.schema.names:
        micros = rows.column("event_time").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        times_ns = column([None if one is None else one * 1000 for one in micros.to_pylist()])
    return Batch(
        [one or b"" for one in rows.column("value").cast(pa.binary()).to_pylist()],
        used("key", pa.binary()),
        headers and [None if one is None else dict(one) for one in headers],
        times_ns,
    )
