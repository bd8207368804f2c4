"""`reliable-pubsub pipeline upgrade`: an archive of the form before Delta, taken over.

OLD/messages -> _generations/NUMBER                     a link
OLD/_generations/NUMBER/NAME.parquet                    one range of one topic each
OLD/_generations/NUMBER/_manifests/NAME.json            what it holds, with its SHA-256
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import file_digest
from pathlib import Path
from typing import Final

import click
import msgspec
import pyarrow.parquet as pq
from msgspec import Struct

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES
from reliable_pubsub.common.core.errors import ConfigurationError, DamagedError
from reliable_pubsub.common.progress import progress_bar
from reliable_pubsub.common.terminal import say

from .archive import Archive
from .archive_tasks import write_files
from .core.columns import ARCHIVE_SCHEMA, ROWS_MAX
from .job import ArchivePath, LocalPath, running_job

_VERSION: Final = 1


class OldFile(Struct, frozen=True, kw_only=True):
    """A manifest of the old form: offsets first to end - 1 of a topic."""

    topic: str
    log: str
    first: int
    end: int
    rows: int
    first_ns: int
    sha256: str
    v: int = _VERSION


def old_files(folder: Path) -> list[tuple[OldFile, Path]]:
    """The files of an old archive: a topic's logs as they came, each by offset.

    Raises:
        ConfigurationError: it is none.
        DamagedError: a manifest cannot be read.
    """
    generation = (folder / "messages").resolve()
    if not (generation / "_manifests").is_dir():
        raise ConfigurationError(f"{folder}: is no archive of the form before Delta")
    found: list[tuple[OldFile, Path]] = []
    for path in (generation / "_manifests").glob("*.json"):
        try:
            one = msgspec.json.decode(path.read_bytes(), type=OldFile)
        except msgspec.DecodeError as error:
            raise DamagedError(
                f"{path}: is not the manifest of an archived file: {error}"
            ) from error
        if one.v != _VERSION:
            raise DamagedError(f"{path}: has version {one.v}, this program reads {_VERSION}")
        found.append((one, generation / f"{path.stem}.parquet"))
    return sorted(found, key=lambda pair: (pair[0].topic, pair[0].log, pair[0].first))


def take_over(old: Path, archive: Archive) -> Iterator[OldFile]:
    """Bring each file into an archive, by one commit; those that it has are left out.

    Raises:
        ConfigurationError: the archive has something of a log, and not what this command adds.
        DamagedError: a file is not what its manifest says.
        StorageFailedError: it cannot be written; what is taken over stays.
    """
    for one, path in old_files(old):
        log = (one.topic, one.log)
        reached = archive.ends([log]).get(log)
        if reached is None or reached < one.end:
            _check(one, path, reached)
            with pq.ParquetFile(path) as file:
                rows = file.iter_batches(ROWS_MAX, columns=ARCHIVE_SCHEMA.names)
                files = write_files(archive.place, *log, rows)
            if not archive.add(files, {log: one.end}):
                raise ConfigurationError(
                    f"{archive.place.name}: another process adds to topic {one.topic!r}; let it "
                    "end, and run this command again"
                )
        yield one


def _check(one: OldFile, path: Path, reached: int | None) -> None:
    if reached is not None and one.first < reached:
        raise ConfigurationError(
            f"{path}: its offsets {one.first} to {one.end - 1} are archived to {reached} in the "
            "new archive, which is not what this command has done. Give an empty folder"
        )
    try:
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DamagedError(
            f"{path}: cannot be read: {error.strerror}; its manifest says that it holds offsets "
            f"{one.first} to {one.end - 1} of {one.topic!r}. If the job that made it was killed, "
            "its last files are in _staging: finish it with the program that made it"
        ) from error
    if digest != one.sha256:
        raise DamagedError(
            f"{path}: has SHA-256 {digest[:16]}..., its manifest says {one.sha256[:16]}...: the "
            f"file was changed. Its offsets are {one.first} to {one.end - 1} of {one.topic!r}"
        )


@click.command(context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@click.option(
    "--from", "old", required=True, type=LocalPath(file_okay=False), help="The old archive."
)
@click.option(
    "--folder",
    required=True,
    type=ArchivePath(),
    help="The new one, a Delta table: a folder, or s3://BUCKET/PREFIX.",
)
@click.option("-q", "--quiet", is_flag=True, help="No progress bar.")
def main(old: Path, folder: str, quiet: bool) -> None:
    """Take over an archive that was made before archives were Delta tables.

    Each file is held against its checksum, and rewritten; the old archive is not changed. Kill it
    and run it again: it goes on. Then `pipeline archive --folder` of the new one goes on where
    the old one ended.

    \b
      reliable-pubsub pipeline upgrade --from archive --folder archive-new
    """
    with running_job():
        files = old_files(old)
        rows = 0
        total = sum(one.rows for one, _ in files)
        with progress_bar(total, 0, quiet=quiet) as advance:
            for one in take_over(old, Archive(folder)):
                rows += one.rows
                advance(one.rows, one.topic)
        say(f"done: {rows} messages of {len(files)} files are in {folder}")
