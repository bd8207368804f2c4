"""The columns of stored batches say of each message what it says of itself."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.common.core.batch import Batch, Message, StoredBatch
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.pipeline.core.columns import ARCHIVE_SCHEMA, MessageColumns

AT_NS = 1_700_000_000_123_456_789


def some(values: st.SearchStrategy[Any], count: int) -> st.SearchStrategy[Any]:
    """A column of a batch: of all messages, of some, or of none."""
    return st.none() | st.lists(st.none() | values, min_size=count, max_size=count)


@st.composite
def stored(draw: st.DrawFn) -> list[StoredBatch]:
    """Batches that follow one another; the reading may begin in the middle of the first."""
    base, found = draw(st.integers(0, 9)), []
    for number in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 4))
        columns = Batch(
            draw(st.lists(st.binary(max_size=3), min_size=count, max_size=count)),
            draw(some(st.binary(max_size=2), count)),
            draw(some(st.dictionaries(st.text(max_size=1), st.text(max_size=2)), count)),
            draw(some(st.integers(-9, 9), count)),
        )
        header = BatchHeader(
            publisher=draw(st.sampled_from("pq")),
            first_sequence=draw(st.integers(1, 99)),
            base=base,
            count=count,
            timestamp_ns=AT_NS + draw(st.integers(0, 5_000)),
            body_bytes=9,
            crc=0,
            qos=draw(st.sampled_from([1, 2])),
        )
        found.append(StoredBatch(header, columns, 0 if number else draw(st.integers(0, count - 1))))
        base += count
    return found


def row_of(one: Message) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "offset": one.offset,
        "key": one.key,
        "value": one.payload,
        "timestamp": one.timestamp_ns // 1000,
        "publisher": one.publisher,
        "sequence": one.sequence,
        "headers": None if one.headers is None else [*one.headers.items()],
        "timestamp_ns": one.timestamp_ns,
        "event_time_ns": one.event_time_ns,
        "qos": one.qos,
    }


@given(
    batches=stored(),
    left_out=st.integers(0, 3),
    names=st.lists(st.sampled_from(ARCHIVE_SCHEMA.names), min_size=1, unique=True),
)
def test_each_message_has_its_own_values_in_the_columns_that_are_wanted(
    batches: list[StoredBatch], left_out: int, names: list[str]
) -> None:
    end = max(batches[-1].end - left_out, batches[-1].offset + 1)
    schema = pa.schema([ARCHIVE_SCHEMA.field(name) for name in names])
    columns = MessageColumns("t", schema)
    expected = []
    for batch in batches:
        columns.add(batch, end=end)
        expected += [
            {name: row_of(one)[name] for name in names}
            for one in batch.messages("t")
            if one.offset < end
        ]

    taken = columns.take()

    assert taken.schema == schema
    arrays = {
        name: taken.column(name).cast(pa.int64()) if name == "timestamp" else taken.column(name)
        for name in names
    }
    assert pa.RecordBatch.from_pydict(arrays).to_pylist() == expected
    assert columns.count == 0
