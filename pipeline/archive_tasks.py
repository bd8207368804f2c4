"""What tasks of an archive do: write a range of a topic, or several files, to one staged file."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import DamagedError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.system import sync_file
from reliable_pubsub.subscriber.reader import LogReader

from .core.columns import ARCHIVE_SCHEMA, ROWS_MAX, MessageColumns
from .core.manifest import Manifest, file_name
from .core.planning import MessageRange
from .reading import stored_range

_COMPRESSION: Final = "zstd"


class StageRange(Struct, frozen=True, kw_only=True):
    """Write this range to this folder."""

    wanted: MessageRange
    folder: str  # of the archive
    run: str  # of the staged files, below it
    endpoint: str
    retry: RetryPolicy
    fail_on_data_loss: bool = True


class MergeFiles(Struct, frozen=True, kw_only=True):
    """Write the rows of these files, one after another, to one file."""

    manifests: tuple[Manifest, ...]
    folder: str
    generation: str  # where they are
    run: str


def stage_range(work: StageRange) -> Manifest:
    """In a task: write a range; see `write_range`."""
    with LogReader(work.endpoint, retry=work.retry) as reader:
        return write_range(work, reader)


def write_range(work: StageRange, reader: LogReader) -> Manifest:
    """Write a range.

    Raises:
        DataLossError: not all of it is there.
        ProxyUnreachableError.
    """
    wanted = work.wanted
    staged = _staged(work.run, file_name(wanted.topic, wanted.log, wanted.first, wanted.end))
    columns = MessageColumns(wanted.topic, ARCHIVE_SCHEMA)
    rows, first_ns, reached, witness_ns = 0, 0, wanted.first, None
    with _parquet(Path(work.folder, staged)) as writer:
        for batch in stored_range(wanted, reader, fail_on_data_loss=work.fail_on_data_loss):
            columns.add(batch, end=wanted.end)
            first_ns = first_ns or batch.header.timestamp_ns
            reached, witness_ns = batch.end, batch.header.timestamp_ns
            if columns.full:
                rows += columns.count
                writer.write_batch(columns.take())
        if columns.count:
            rows += columns.count
            writer.write_batch(columns.take())
    manifest = Manifest(
        topic=wanted.topic,
        log=wanted.log,
        first=wanted.first,
        end=wanted.end,
        rows=rows,
        first_ns=first_ns,
        witness_ns=witness_ns if reached >= wanted.end else None,
        bytes=0,
        sha256="",
        staged=staged,
    )
    return sealed(manifest, Path(work.folder, manifest.staged))


def merge_files(work: MergeFiles) -> Manifest:
    """Write several files as one.

    Raises:
        DamagedError: one of them is not what its manifest says.
    """
    first, last = work.manifests[0], work.manifests[-1]
    staged = _staged(work.run, file_name(first.topic, first.log, first.first, last.end))
    with _parquet(Path(work.folder, staged)) as writer:
        for one in work.manifests:
            path = Path(work.generation, one.name)
            check_file(one, path)
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(ROWS_MAX):
                    writer.write_batch(batch)
    merged = replace(
        first,
        end=last.end,
        rows=sum(one.rows for one in work.manifests),
        witness_ns=last.witness_ns,
        staged=staged,
    )
    return sealed(merged, Path(work.folder, merged.staged))


def _staged(run: str, name: str) -> str:
    """A file of this attempt alone: of two that Spark makes, one may be thought dead and write."""
    return f"{run}/{secrets.token_hex(4)}.{name}"


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """A writer; when it is done the file is on disk."""
    with path.open("xb") as file:
        with pq.ParquetWriter(file, ARCHIVE_SCHEMA, compression=_COMPRESSION) as writer:
            yield writer
        file.flush()
        sync_file(file.fileno())


def sealed(manifest: Manifest, path: Path) -> Manifest:
    """The manifest with size and checksum of a file that is complete."""
    with path.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    return replace(manifest, bytes=path.stat().st_size, sha256=digest)


def check_file(manifest: Manifest, path: Path) -> None:
    """Hold a file against its manifest.

    Raises:
        DamagedError: it is another one, or cannot be read.
    """
    try:
        found = sealed(manifest, path)
    except OSError as error:
        raise DamagedError(f"{path}: cannot be read: {error.strerror}") from error
    if found != manifest:
        raise DamagedError(
            f"{path}: has {found.bytes:,} bytes and SHA-256 {found.sha256[:16]}..., its manifest "
            f"says {manifest.bytes:,} and {manifest.sha256[:16]}...: the file was changed. Its "
            f"offsets are {manifest.first} to {manifest.end - 1} of {manifest.topic!r}"
        )


def archived_rows(manifest: Manifest, path: Path, columns: Sequence[str]) -> Iterator[Any]:
    """The record batches of a file, in the order of offsets.

    Raises:
        DamagedError: it is not what its manifest says.
    """
    check_file(manifest, path)
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(ROWS_MAX, columns=list(columns))
