"""The topics of an archive, as a query sees them: the same offsets, however files are compacted.

A query over the Parquet files themselves knows them by name, and after `optimize.compact` it would
read rows a second time. Here Spark's checkpoint has offsets. The log of the table lists the files;
compacted ones stay until `vacuum`, by default a week, so a list stays good.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from reliable_pubsub.common.core.retry import Clock
from reliable_pubsub.common.transport import SystemClock

from .archive import archived_files, read_manifests
from .archive_files import Location, open_file
from .archive_tasks import check_file, rows_of
from .core.columns import ROWS_MAX, TABLE_SCHEMA
from .core.loss import DataLossError
from .core.manifest import newest_logs
from .core.offsets import Offsets, TopicOffset
from .core.options import SourceOptions
from .core.planning import MessageRange, TopicExtent

LOOK_S: Final = 1.0  # an idle query asks about 90 times a second; the log is read once

_STORED: Final = {"event_time": "event_time_ns"}  # columns that are made of others

_log = logging.getLogger("reliable_pubsub.pipeline")


class ArchiveTopics:
    """What a driver asks of an archive; the part of `ProxyTopics` that a query needs."""

    keeps_place = False

    def __init__(self, options: SourceOptions, *, clock: Clock | None = None) -> None:
        """Prepare; the table is read at the first call."""
        self._options = options
        self._clock = clock or SystemClock()
        self._looked_s = float("-inf")
        self._extents: dict[str, TopicExtent] = {}
        self.names: Collection[str] = ()  # of all topics, at the last look

    def extents(self) -> dict[str, TopicExtent]:
        """The topics that the query wants, as they were at most `LOOK_S` ago.

        Raises:
            ConfigurationError, DamagedError: as `read_manifests`.
        """
        if self._clock.now_s() - self._looked_s >= LOOK_S:
            logs = newest_logs(read_manifests(self._options.archive))
            self.names = logs.keys()
            self._extents = {
                topic: TopicExtent(files[-1].log, files[0].first, files[-1].end)
                for topic, files in logs.items()
                if self._options.wants(topic)
            }
            self._looked_s = self._clock.now_s()
        return self._extents

    def find_time(self, topic: str, extent: TopicExtent, time_ns: int) -> int:
        """The offset of the first message taken at a time or later; the end if there is none."""
        for one, path in archived_files(self._options.archive):
            if (one.topic, one.log) != (topic, extent.log) or one.last_ns < time_ns:
                continue
            wanted = [("timestamp_ns", ">=", time_ns)]
            with open_file(path) as file:
                offsets = pq.read_table(file, columns=["offset"], filters=wanted).column(0)
            if len(offsets):
                return min(int(offsets[0].as_py()), extent.end)
        return extent.end

    def witnessed(self, offsets: Offsets, known: Offsets) -> dict[str, TopicOffset]:
        """The same offsets: an archive is never set back, and has a log id."""
        return dict(offsets)

    def begin_place(self, topic: str, place: TopicOffset | None) -> TopicOffset:
        raise AssertionError("an archive has no subscriptions")

    def tell_places(self, offsets: Offsets) -> None:
        """Do nothing: nothing waits."""

    def close(self) -> None:
        """Do nothing."""


def archived_range(
    wanted: MessageRange,
    archive: Location,
    schema: pa.Schema,
    *,
    fail_on_data_loss: bool,
    checked: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The messages of a range in Arrow.

    Args:
        schema: the columns that are asked for, by their names.
        checked: compare each file with what the table says of it.

    Raises:
        DataLossError: not all of it is there.
        DamagedError: a file differs from the table's entry.
    """

    def lose(first: int, end: int) -> None:
        why = "the archive does not have all of them"
        loss = DataLossError(topic=wanted.topic, first=first, end=end, why=why)
        loss.raise_or_tell(fail_on_data_loss, _log.warning)

    offset = wanted.first
    stored = [*dict.fromkeys(("offset", *(_STORED.get(name, name) for name in schema.names)))]
    kinds = pa.schema([TABLE_SCHEMA.field(name) for name in stored])
    for file in archived_files(archive):
        one, path = file
        if (one.topic, one.log) != (wanted.topic, wanted.log):
            continue
        if one.end <= offset or one.first >= wanted.end:
            continue
        if checked:
            check_file(file)
        rows = pa.Table.from_batches(rows_of(one, path, stored, wanted), kinds)
        whole = one.first <= offset and rows.num_rows == min(one.end, wanted.end) - offset
        if not whole:
            lose(offset, max(one.first, offset + 1))
        if "event_time" in schema.names:
            micros = pc.divide(rows.column("event_time_ns"), 1000)
            rows = rows.append_column("event_time", micros.cast(pa.timestamp("us", "UTC")))
        yield from rows.select(schema.names).cast(schema).to_batches(max_chunksize=ROWS_MAX)
        offset = one.end
    if offset < wanted.end:
        lose(offset, wanted.end)
