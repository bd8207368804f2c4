"""Messages as Arrow columns. Pure: it takes decoded batches and gives record batches."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.subscriber.core.direct_followers import StoredBatch

ROWS_MAX: Final = 10_000  # of a record batch
BYTES_MAX: Final = 4 * MIB  # of its payloads; a record batch may pass it by one stored batch

# As Spark writes it. A time is cut to the microseconds that Spark has.
COLUMNS: Final[Mapping[str, str]] = {
    "topic": "string",
    "offset": "bigint",
    "key": "binary",
    "value": "binary",
    "timestamp": "timestamp",
    "publisher": "string",
    "sequence": "bigint",
    "headers": "map<string,string>",
}
# Of a schema that names them: what Spark's types would cut away.
NAMED_COLUMNS: Final[Mapping[str, str]] = {
    "timestamp_ns": "bigint",
    "event_time_ns": "bigint",
    "qos": "tinyint",
}
# As an archive has them: with what Spark's types would cut away, so that it can be judged and
# replayed like the topic itself.
ARCHIVE_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("offset", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("publisher", pa.string()),
        ("sequence", pa.int64()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("timestamp_ns", pa.int64()),
        ("event_time_ns", pa.int64()),
        ("qos", pa.int8()),
    ]
)
# And its files: with what the table is partitioned by besides the topic.
TABLE_SCHEMA: Final = pa.schema([*ARCHIVE_SCHEMA, ("log", pa.string()), ("day", pa.date32())])


class MessageColumns:
    """Collects messages of one topic until they are worth a record batch."""

    def __init__(self, topic: str, schema: pa.Schema) -> None:
        """Begin.

        Args:
            schema: some of `COLUMNS` or `ARCHIVE_SCHEMA`, in any order.
        """
        self._topic = topic
        self._schema = schema
        self._makers: Mapping[str, Callable[[], Any]] = {
            "topic": lambda: pa.repeat(pa.scalar(topic), self.count),
            "offset": lambda: _integers(self._offsets),
            "key": lambda: pa.array(self._keys, pa.binary()),
            "value": lambda: pa.array(self._values, pa.binary()),
            "timestamp": lambda: _microseconds(_integers(self._times_ns)),
            "publisher": lambda: pa.array(self._publishers, pa.string()),
            "sequence": lambda: _integers(self._sequences),
            "headers": lambda: pa.array(self._headers, self._schema.field("headers").type),
            "timestamp_ns": lambda: _integers(self._times_ns),
            "event_time_ns": lambda: pa.array(self._event_times_ns, pa.int64()),
            "qos": lambda: pa.array(self._levels, pa.int8()),
        }
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self._bytes = 0
        self._offsets = array("q")
        self._sequences = array("q")
        self._times_ns = array("q")
        self._event_times_ns: list[int | None] = []
        self._levels: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes] = []
        self._publishers: list[str] = []
        self._headers: list[list[tuple[str, str]] | None] = []

    @property
    def full(self) -> bool:
        """Whether it is time to take them."""
        return self.count >= ROWS_MAX or self._bytes >= BYTES_MAX

    def add(self, batch: StoredBatch, *, end: int) -> None:
        """Add the messages of a batch that lie below an offset."""
        header, columns = batch.header, batch.columns
        count = min(end, batch.end) - batch.offset
        taken = slice(batch.skip, batch.skip + count)
        sequence = header.first_sequence + batch.skip
        self._offsets.extend(range(batch.offset, batch.offset + count))
        self._sequences.extend(range(sequence, sequence + count))
        self._times_ns += array("q", [header.timestamp_ns]) * count
        self._levels += [header.qos] * count
        self._publishers += [header.publisher] * count
        self._values += columns.payloads[taken]
        self._keys += [None] * count if columns.keys is None else columns.keys[taken]
        times = columns.event_times_ns
        self._event_times_ns += [None] * count if times is None else times[taken]
        if columns.headers is None:
            self._headers += [None] * count
        else:
            self._headers += [
                None if one is None else list(one.items()) for one in columns.headers[taken]
            ]
        self.count += count
        self._bytes += header.body_bytes

    def take(self) -> pa.RecordBatch:
        """Return what was collected, and start empty."""
        arrays = [self._makers[name]() for name in self._schema.names]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._clear()
        return batch


def _microseconds(times_ns: Any) -> Any:
    return pc.divide(times_ns, 1000).cast(pa.timestamp("us", "UTC"))


def _integers(values: array[int]) -> Any:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
