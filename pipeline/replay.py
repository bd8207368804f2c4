"""Put a range of a topic, or of an archive, on another topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from msgspec import Struct

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.subscriber.reader import LogReader

from .archive_topics import archived_range
from .core.columns import ARCHIVE_SCHEMA
from .core.outgoing import batch_of_rows
from .core.planning import MessageRange
from .job import Access
from .numbered import (
    BATCH_RECORDS,
    SourceOutcome,
    cut_again,
    numbered_publisher,
    part_of_batch,
    put_numbered,
)
from .reading import stored_range

_COLUMNS: Final = pa.schema(
    [ARCHIVE_SCHEMA.field(name) for name in ("value", "key", "headers", "event_time_ns")]
)


class ReplayTopic(Struct, frozen=True, kw_only=True):
    """Put this range on another topic, in its order."""

    wanted: MessageRange
    archive: str = ""  # that holds it; "": the proxy does
    target: str
    client: str  # the publisher: the n-th message of the range is its message n
    access: Access
    rate: float | None = None  # messages a second; None: as fast as it goes

    def batches(self, reader: LogReader) -> Iterator[Batch]:
        """Return its messages.

        Raises:
            DataLossError: not all of them are there.
            DamagedError: a file differs from the table's entry.
        """
        if self.archive:
            rows = archived_range(
                self.wanted, self.archive, _COLUMNS, fail_on_data_loss=True, checked=True
            )
            yield from map(batch_of_rows, rows)
            return
        for batch in stored_range(self.wanted, reader, fail_on_data_loss=True):
            end = min(batch.header.count, self.wanted.end - batch.header.base)
            yield part_of_batch(batch.columns, batch.skip, end)


def replay_topic(
    work: ReplayTopic, on_put: Callable[[int], None] = lambda count: None
) -> SourceOutcome:
    """Put the messages of a range that are not stored yet.

    Args:
        on_put: called with the number of messages of the next batch.

    Raises:
        As `ReplayTopic.batches` and `put_numbered`.
    """
    rate = work.rate or float("inf")
    due_s = time.monotonic()

    def before_put(count: int) -> None:
        nonlocal due_s
        time.sleep(max(due_s - time.monotonic(), 0))  # until the earlier ones had their time
        due_s = max(due_s, time.monotonic()) + count / rate
        on_put(count)

    access = work.access
    batches_max = int(max(1, min(rate, BATCH_RECORDS)))  # at most the messages of one second
    with (
        LogReader(access.read_at, retry=access.retry) as reader,
        numbered_publisher(work.client, access.put_at, access.retry) as publisher,
    ):
        return put_numbered(
            publisher,
            reader,
            work.target,
            cut_again(work.batches(reader), batches_max),
            source=f"replay {work.client} of {work.wanted.topic!r}",
            before_put=before_put,
        )
