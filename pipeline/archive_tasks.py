"""What an archive's tasks do: write a range of a topic as Parquet files, and check files."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, pairwise
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from reliable_pubsub.common.core.errors import DamagedError
from reliable_pubsub.subscriber.reader import LogReader

from .archive_files import ArchivePlace, digest_and_size, open_file
from .core.columns import ARCHIVE_SCHEMA, ROWS_MAX, TABLE_SCHEMA
from .core.manifest import SUFFIX, ArchivedFile, Manifest, folder_name
from .core.options import SourceOptions
from .core.planning import MessageRange
from .reading import arrow_batches


class StageRange(Struct, frozen=True):
    """Write this range to this archive."""

    wanted: MessageRange
    archive: str  # its address
    options: SourceOptions  # how it is read


def stage_range(work: StageRange) -> list[Manifest]:
    """In a task: write a range; see `write_range`."""
    with LogReader(work.options.endpoint, retry=work.options.retry) as reader:
        return write_range(work, reader)


def write_range(work: StageRange, reader: LogReader) -> list[Manifest]:
    """Write a range, by offset: a file for each day.

    Raises:
        DataLossError: not all of it is there.
        ProxyUnreachableError.
    """
    place, wanted = ArchivePlace(work.archive), work.wanted
    place.check_seen()
    batches = arrow_batches(
        wanted, reader, ARCHIVE_SCHEMA, fail_on_data_loss=work.options.fail_on_data_loss
    )
    runs = (run for batch in batches for run in _by_day(batch))
    return [
        _write_file(place, wanted, day, (rows for _, rows in some))
        for day, some in groupby(runs, key=itemgetter(0))
    ]


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Neighbours of one day, in UTC."""
    days = pc.run_end_encode(batch.column("timestamp").cast(pa.date32()))
    borders = pairwise([0, *days.run_ends.to_pylist()])
    for (first, end), day in zip(borders, days.values.to_pylist(), strict=True):
        yield str(day), batch.slice(first, end - first)


def _write_file(
    place: ArchivePlace, wanted: MessageRange, day: str, batches: Iterator[pa.RecordBatch]
) -> Manifest:
    """A file of this attempt alone: of two that Spark makes, one may be thought dead and write.

    What the table is partitioned by stands in the file too, for readers of single files.
    """
    topic, log = wanted.topic, wanted.log
    folder = folder_name(topic, log, day)
    partition = {"topic": topic, "log": log, "day": pa.scalar(day).cast(pa.date32())}
    rows, first, last = 0, None, (0, 0)
    with (
        place.new_file(folder) as (file, part),
        pq.ParquetWriter(file, TABLE_SCHEMA, compression="zstd") as writer,
    ):
        for batch in batches:
            columns = [
                pa.repeat(partition[one.name], batch.num_rows)
                if one.name in partition
                else batch.column(one.name).cast(one.type)
                for one in TABLE_SCHEMA
            ]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=TABLE_SCHEMA))
            rows += batch.num_rows
            edges = [batch.column(name) for name in ("offset", "timestamp_ns")]
            first = first or tuple(column[0].as_py() for column in edges)
            last = tuple(column[-1].as_py() for column in edges)
    path = f"{part.removesuffix('part')}{file.sha256}{SUFFIX}"
    place.publish(part, path)
    assert first is not None  # a day is made of rows
    return Manifest(
        path=path,
        topic=topic,
        log=log,
        day=day,
        first=first[0],
        end=last[0] + 1,
        rows=rows,
        first_ns=first[1],
        last_ns=last[1],
        bytes=file.bytes,
    )


def check_file(work: ArchivedFile) -> bool:
    """In a task, or here: compare a file with what the table says of it.

    A file that another program has compacted has none of our checksums: its size is compared.

    Raises:
        DamagedError: it is another one, or cannot be read.
    """
    manifest, path = work
    digest, count = digest_and_size(path)
    if count != manifest.bytes or manifest.sha256 not in (digest, ""):
        raise DamagedError(
            f"{path}: has {count:,} bytes and SHA-256 {digest[:16]}..., the table says "
            f"{manifest.bytes:,} and {manifest.sha256[:16]}...: the file was changed. Its "
            f"offsets are {manifest.first} to {manifest.end - 1} of {manifest.topic!r}"
        )
    return True


def rows_of(
    manifest: Manifest, path: str, columns: Sequence[str], wanted: MessageRange | None = None
) -> Iterator[Any]:
    """Return the record batches of a checked file, in the order of offsets.

    Args:
        columns: offset, and others.
        wanted: the range that is read; None: all.
    """
    with open_file(path) as opened, pq.ParquetFile(opened) as file:
        if manifest.sha256:
            groups = range(file.num_row_groups)
            if wanted is not None and manifest.rows == manifest.end - manifest.first:
                sizes = (file.metadata.row_group(number).num_rows for number in groups)
                ends = list(accumulate(sizes, initial=manifest.first))[1:]
                groups = groups[
                    bisect_right(ends, wanted.first) : bisect_left(ends, wanted.end) + 1
                ]
            batches = file.iter_batches(ROWS_MAX, row_groups=groups, columns=[*columns])
        else:
            batches = compacted_rows(file.read(), manifest, columns).to_batches(ROWS_MAX)
        for rows in batches:
            if wanted is not None:
                offset = pc.field("offset")
                rows = rows.filter((offset >= wanted.first) & (offset < wanted.end))
            yield rows


def compacted_rows(rows: pa.Table, manifest: Manifest, columns: Sequence[str]) -> pa.Table:
    """Return the rows of a file that another program has compacted, in the order of offsets.

    Such a file has an order of its own, and lacks the columns that the table is partitioned by.
    """
    if "topic" not in rows.column_names:
        rows = rows.append_column("topic", pa.repeat(manifest.topic, rows.num_rows))
    return rows.sort_by("offset").select([*columns])
