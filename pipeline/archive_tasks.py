"""What tasks of an archive do: write a range of a topic, or several files, as Parquet files."""

from __future__ import annotations

import platform
import secrets
from collections.abc import Iterator, Sequence
from hashlib import file_digest
from itertools import groupby, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError, DamagedError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.system import sync_directory, sync_file

from .core.columns import ARCHIVE_SCHEMA, ROWS_MAX, TABLE_SCHEMA
from .core.manifest import SUFFIX, Manifest, folder_name
from .core.planning import MessageRange
from .reading import ReadsLog, arrow_batches
from .stored_log import nearest_log

_COMPRESSION: Final = "zstd"


class StageRange(Struct, frozen=True, kw_only=True):
    """Write this range to this folder."""

    wanted: MessageRange
    folder: str  # of the archive
    endpoint: str
    retry: RetryPolicy
    store: str = ""  # of the proxy, for tasks that can open it
    fail_on_data_loss: bool = True


class MergeFiles(Struct, frozen=True, kw_only=True):
    """Write the rows of these files, one after another, to one file."""

    files: tuple[tuple[Manifest, str], ...]  # with their paths
    folder: str  # of the archive


def stage_range(work: StageRange) -> list[Manifest]:
    """In a task: write a range; see `write_range`."""
    with nearest_log(work.endpoint, work.retry, work.store) as reader:
        return write_range(work, reader)


def write_range(work: StageRange, reader: ReadsLog) -> list[Manifest]:
    """Write a range: a file for each day.

    Raises:
        DataLossError: not all of it is there.
        ProxyUnreachableError.
    """
    wanted = work.wanted
    batches = arrow_batches(
        wanted, reader, ARCHIVE_SCHEMA, fail_on_data_loss=work.fail_on_data_loss
    )
    return write_files(Path(work.folder), wanted.topic, wanted.log, batches)


def merge_files(work: MergeFiles) -> Manifest:
    """Write several files of one day as one.

    Raises:
        DamagedError: one of them is not what the table says.
    """
    first, _ = work.files[0]
    names = [name for name in ARCHIVE_SCHEMA.names if name != "topic"]
    rows = (batch for one, path in work.files for batch in archived_rows(one, Path(path), names))
    (merged,) = write_files(Path(work.folder), first.topic, first.log, rows)
    return merged


def write_files(
    folder: Path, topic: str, log: str, batches: Iterator[pa.RecordBatch]
) -> list[Manifest]:
    """Write messages in the columns of `ARCHIVE_SCHEMA`, by offset: a file for each day."""
    if not folder.is_dir():
        raise ConfigurationError(
            f"{folder}: is not there on {platform.node()}, where this task runs. The driver "
            "has made it, so that machine does not see the folder of the archive: give one that "
            "all machines of the cluster have mounted at the same path"
        )
    runs = (run for batch in batches for run in _by_day(batch))
    return [
        _write_file(folder, topic, log, day, (rows for _, rows in some))
        for day, some in groupby(runs, key=itemgetter(0))
    ]


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Neighbours of one day, in UTC."""
    days = pc.run_end_encode(batch.column("timestamp").cast(pa.date32()))
    borders = pairwise([0, *days.run_ends.to_pylist()])
    for (first, end), day in zip(borders, days.values.to_pylist(), strict=True):
        yield str(day), batch.slice(first, end - first)


def _write_file(
    folder: Path, topic: str, log: str, day: str, batches: Iterator[pa.RecordBatch]
) -> Manifest:
    """A file of this attempt alone: of two that Spark makes, one may be thought dead and write.

    What the table is partitioned by stands in the file too, for readers of single files.
    """
    place = folder / folder_name(topic, log, day)
    place.mkdir(parents=True, exist_ok=True)
    attempt = secrets.token_hex(8)
    part = place / f"{attempt}.part"
    partition = {"topic": topic, "log": log, "day": pa.scalar(day).cast(pa.date32())}
    rows, first, last = 0, None, (0, 0)
    with part.open("xb") as file:
        with pq.ParquetWriter(file, TABLE_SCHEMA, compression=_COMPRESSION) as writer:
            for batch in batches:
                columns = [
                    pa.repeat(partition[one.name], batch.num_rows)
                    if one.name in partition
                    else batch.column(one.name).cast(one.type)
                    for one in TABLE_SCHEMA
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=TABLE_SCHEMA))
                rows += batch.num_rows
                places = [batch.column(name) for name in ("offset", "timestamp_ns")]
                first = first or tuple(column[0].as_py() for column in places)
                last = tuple(column[-1].as_py() for column in places)
        file.flush()
        sync_file(file.fileno())
    assert first is not None  # a day is made of rows
    path = part.rename(place / f"{attempt}.{digest_of(part)}{SUFFIX}")
    for parent in (place, place.parent, folder):
        sync_directory(parent)
    return Manifest(
        path=str(path.relative_to(folder)),
        topic=topic,
        log=log,
        day=day,
        first=first[0],
        end=last[0] + 1,
        rows=rows,
        first_ns=first[1],
        last_ns=last[1],
        bytes=path.stat().st_size,
    )


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def check_file(manifest: Manifest, path: Path) -> None:
    """Hold a file against what the table says of it.

    A file that another program has compacted has no checksum of ours: its size is compared.

    Raises:
        DamagedError: it is another one, or cannot be read.
    """
    try:
        digest, count = digest_of(path), path.stat().st_size
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read: {error.strerror}") from error
    if count != manifest.bytes or manifest.sha256 not in (digest, ""):
        raise DamagedError(
            f"{path}: has {count:,} bytes and SHA-256 {digest[:16]}..., the table says "
            f"{manifest.bytes:,} and {manifest.sha256[:16]}...: the file was changed. Its "
            f"offsets are {manifest.first} to {manifest.end - 1} of {manifest.topic!r}"
        )


def archived_rows(manifest: Manifest, path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """The record batches of a file, in the order of offsets.

    Args:
        columns: offset, and others.

    Raises:
        DamagedError: it is not what the table says.
    """
    check_file(manifest, path)
    with pq.ParquetFile(path) as file:
        if manifest.sha256:
            yield from file.iter_batches(ROWS_MAX, columns=[*columns])
        else:  # compacted by another program, in an order of its own
            yield from file.read([*columns]).sort_by("offset").to_batches(ROWS_MAX)
