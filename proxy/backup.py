"""A copy of a data directory, also while its proxy runs, that is checked.

The store is one SQLite file with a write-ahead log (WAL) beside it; two files that are copied one
after the other show two different moments. SQLite's own backup copies one moment, page by page,
while commits go on. Source: sqlite.org/backup.html; a read transaction holds the snapshot, so that
a commit in between does not restart the copy.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from glob import escape
from pathlib import Path
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError, InUseError, StorageFailedError
from reliable_pubsub.common.damage import damaged_error
from reliable_pubsub.common.lock import make_directory
from reliable_pubsub.common.owner import denied_to, give
from reliable_pubsub.common.system import sync_directory, system_errors

from .check import check_store
from .contents import require_store, untouched_store
from .reserve import RESERVE_NAME
from .shutdown_marker import ShutdownMarker, read_shutdown_marker
from .store import MARK_NAME, Store
from .stored_state import FILE_NAME, open_reader, read_state, reading

STEP_PAGES: Final = 1024  # 4 MiB between two looks at signals and at the progress
SHOWN_TOPICS_MAX: Final = 8
_PARTIAL: Final = ".partial-"  # then the id of the process that copies


class BackedUp(Struct, frozen=True):
    """What a copy holds."""

    store_id: str
    topics: dict[str, tuple[int, int]]  # start and end of each
    messages: int
    stored_bytes: int

    def __str__(self) -> str:
        shown = [f"{name}={ends[0]}..{ends[1]}" for name, ends in sorted(self.topics.items())]
        more = len(shown) - SHOWN_TOPICS_MAX
        left_out = f" and {more:,} more" if more > 0 else ""
        return (
            f"store={self.store_id} topics={len(self.topics)} messages={self.messages} "
            f"bytes={self.stored_bytes} offsets: {' '.join(shown[:SHOWN_TOPICS_MAX]) or 'none'}"
            f"{left_out}"
        )


def back_up(
    source: Path,
    target: Path,
    *,
    copied: Callable[[int, int], None] = lambda _done, _all: None,
    checked: Callable[[int], None] = lambda _: None,
) -> BackedUp:
    """Copy a data directory into a new one; it appears under its name when it is whole.

    Args:
        copied: called with the number of pages copied, and of all pages.
        checked: called with the number of messages of the copy that were read.

    Raises:
        ConfigurationError: there is no store, or the target is in use.
        DamagedError: the source is damaged, so its copy is, and was removed.
        StorageFailedError: the disk is full or failing.
    """
    require_store(source)

    def fill(partial: Path) -> ShutdownMarker | None:
        with _source(source) as connection:
            _copy(connection, partial / FILE_NAME, copied)
        return read_shutdown_marker(source / MARK_NAME)

    return new_copy(target, fill, like=source, checked=checked)


def new_copy(
    target: Path,
    fill: Callable[[Path], ShutdownMarker | None],
    *,
    like: Path,
    checked: Callable[[int], None] = lambda _: None,
) -> BackedUp:
    """Make a checked data directory that appears under its name when it is whole.

    Args:
        fill: writes the store into a directory, and returns how its last proxy ran.
        like: the directory whose owner gets the new one, unless the target exists, whose owner
            and mode then stay.

    Raises as `back_up`.
    """
    _require_new(target)
    remove_what_was_killed(target.parent, escape(target.name))
    partial = target.parent / f".{target.name}{_PARTIAL}{os.getpid()}"
    make_directory(partial, what="backup")
    try:
        found = _checked(partial, fill(partial), checked)
        facts = like.stat()
        if target.exists():  # an empty directory, whose owner and mode were chosen
            facts = target.stat()
            partial.chmod(stat.S_IMODE(facts.st_mode))
        give([partial, *partial.iterdir()], facts)
        partial.rename(target)
        sync_directory(target.parent)
    except OSError as error:
        raise StorageFailedError(
            f"{error.filename or target}: {error.strerror}; no copy was made"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return found


def _require_new(target: Path) -> None:
    with system_errors(
        lambda error: ConfigurationError(
            f"{target} cannot be read: {error.strerror}{denied_to(target, error)}"
        )
    ):
        is_used = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if is_used:
        what = "is not empty" if target.is_dir() else "is no directory"
        raise ConfigurationError(
            f"{target} {what}, and nothing is written over: name a new directory"
        )


def remove_what_was_killed(folder: Path, names: str) -> None:
    """Remove the partial copies of these names (a glob) whose process has ended."""
    for left in folder.glob(f".{names}{_PARTIAL}*"):
        try:
            os.kill(int(left.name.rpartition("-")[2]), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except (PermissionError, ValueError):  # it runs as another user; not our copy
            continue


@contextmanager
def _source(directory: Path) -> Iterator[sqlite3.Connection]:
    """A snapshot of the store, whether its proxy runs or not."""
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(untouched_store(directory)).connection
        except InUseError:
            connection = stack.enter_context(closing(open_reader(directory / FILE_NAME)))
            stack.enter_context(reading())
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM meta").fetchone()  # the moment
        yield connection


def _copy(connection: sqlite3.Connection, file: Path, copied: Callable[[int, int], None]) -> None:
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    try:
        with closing(sqlite3.connect(file)) as copy:
            connection.backup(
                copy,
                pages=STEP_PAGES,
                progress=lambda _status, left, total: copied(total - left, total),
            )
    except sqlite3.Error as error:
        raise damaged_error(error, f"{file.parent} could not be written: {error}") from error


def _checked(
    partial: Path, last: ShutdownMarker | None, checked: Callable[[int], None]
) -> BackedUp:
    """Start the copy as a proxy does: that checks everything, and leaves what a start needs."""
    with closing(Store(partial, last.durability if last else "sync")) as store:
        found = check_store(store.connection, progress=checked)
        with reading():
            state = read_state(store.connection, found.segments)
    for name in ("lock", RESERVE_NAME):
        (partial / name).unlink(missing_ok=True)
    sync_directory(partial)
    return BackedUp(
        state.store_id,
        {topic.topic: (topic.start, topic.end) for topic in state.topics},
        found.messages,
        (partial / FILE_NAME).stat().st_size,
    )
