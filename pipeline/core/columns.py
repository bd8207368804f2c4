"""Messages as Arrow columns. Pure: it takes decoded batches and gives record batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from reliable_pubsub.common.core.batch import Batch, StoredBatch
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX, MIB
from reliable_pubsub.common.core.message_base import BatchHeader

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
    "event_time": "timestamp",  # null where the publisher gave none
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
    """Collects messages of one topic until they are worth a record batch.

    What all messages of a stored batch share is repeated by Arrow, and what none of them has is
    null; no column has a Python object for each message but those whose values are its own.
    """

    def __init__(self, topic: str, schema: pa.Schema) -> None:
        """Begin.

        Args:
            schema: some of `COLUMNS` or `ARCHIVE_SCHEMA`, in any order.
        """
        self._schema = schema
        self._makers: Mapping[str, Callable[[pa.DataType], pa.Array]] = {
            "topic": lambda kind: pa.repeat(pa.scalar(topic, kind), self.count),
            "offset": lambda kind: self._counted(lambda one: one.offset),
            "key": lambda kind: self._of_each(lambda one: one.keys, kind),
            "value": lambda kind: self._of_each(lambda one: one.payloads, kind),
            "timestamp": lambda kind: self._shared(lambda one: one.timestamp_ns // 1000, kind),
            "publisher": lambda kind: self._shared(lambda one: one.publisher, kind),
            "sequence": lambda kind: self._counted(
                lambda one: one.header.first_sequence + one.skip
            ),
            "headers": lambda kind: self._of_each(_header_pairs, kind),
            "event_time": lambda kind: self._of_each(_event_times_us, kind),
            "timestamp_ns": lambda kind: self._shared(lambda one: one.timestamp_ns, kind),
            "event_time_ns": lambda kind: self._of_each(lambda one: one.event_times_ns, kind),
            "qos": lambda kind: self._shared(lambda one: one.qos, kind),
        }
        self._clear()

    def _clear(self) -> None:
        self.count = 0
        self._bytes = 0
        self._batches: list[StoredBatch] = []
        self._ends: list[int] = []  # rows up to each batch and with it

    @property
    def full(self) -> bool:
        """Whether it is time to take them."""
        return self.count >= ROWS_MAX or self._bytes >= BYTES_MAX

    def add(self, batch: StoredBatch, *, end: int) -> None:
        """Add the messages of a batch that lie below an offset."""
        self.count += min(end, batch.end) - batch.offset
        self._bytes += batch.header.body_bytes
        self._batches.append(batch)
        self._ends.append(self.count)

    def take(self) -> pa.RecordBatch:
        """Return what was collected, and start empty."""
        arrays = [self._makers[one.name](one.type) for one in self._schema]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        self._clear()
        return batch

    def _shared(self, value: Callable[[BatchHeader], Any], kind: pa.DataType) -> pa.Array:
        """A column of which all messages of a stored batch have the same value."""
        return self._repeated([value(one.header) for one in self._batches], kind)

    def _counted(self, first: Callable[[StoredBatch], int]) -> pa.Array:
        """A column that goes up by one within a stored batch."""
        begins = [0, *self._ends[:-1]]
        above = [first(one) - begin for one, begin in zip(self._batches, begins, strict=True)]
        return pc.add(_rows().slice(0, self.count), self._repeated(above, pa.int64()))

    def _repeated(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        ends = pa.array(self._ends, pa.int32())
        runs = pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, kind))
        return pc.run_end_decode(runs)

    def _of_each(
        self, column: Callable[[Batch], Sequence[Any] | None], kind: pa.DataType
    ) -> pa.Array:
        """A column of which each message has its own value, or none."""
        found = [column(one.columns) for one in self._batches]
        if not any(found):
            return pa.nulls(self.count, kind)
        values: list[Any] = []
        for batch, some, end in zip(self._batches, found, self._ends, strict=True):
            count = end - len(values)
            values += some[batch.skip : batch.skip + count] if some else [None] * count
        return pa.array(values, kind)


def _header_pairs(columns: Batch) -> Sequence[Any] | None:
    if columns.headers is None:
        return None
    return [None if one is None else list(one.items()) for one in columns.headers]


def _event_times_us(columns: Batch) -> Sequence[Any] | None:
    times_ns = columns.event_times_ns
    return times_ns and [None if one is None else one // 1000 for one in times_ns]


@cache
def _rows() -> pa.Array:
    """The numbers of the rows of the largest record batch. Not at import: Arrow's first array costs
    a process 0.3 s, and not every one makes columns.
    """
    return pc.cumulative_sum(pa.repeat(1, ROWS_MAX + BATCH_MESSAGES_MAX), start=-1)
