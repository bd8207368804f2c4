"""What a stopped store holds: read as a start of the proxy reads it, and shown."""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import Struct
from rich import box
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn
from rich.table import Table

from reliable_pubsub.common.core.errors import ConfigurationError, InUseError
from reliable_pubsub.common.owner import denied_to
from reliable_pubsub.common.system import system_errors
from reliable_pubsub.common.terminal import cell, say

from .check import check_store
from .core.schema import SCHEMA_VERSION
from .core.stored import StoredState, StoredTopic
from .core.write_ahead_log import HEADER_BYTES, parse_header
from .shutdown_marker import read_shutdown_marker
from .store import MARK_NAME, Store, check_schema, readable_wal
from .stored_state import FILE_NAME, open_reader, read_state, reading

SHOWN_TOPICS_MAX: Final = 20


class Contents(Struct, frozen=True):
    """A store that was read and found sound."""

    state: StoredState
    messages: int
    file_bytes: int


def holds_store(directory: Path) -> bool:
    """Return whether a directory is a proxy's.

    Raises:
        ConfigurationError: it may not be read.
    """
    file = directory / FILE_NAME
    with system_errors(
        lambda error: ConfigurationError(
            f"{file} cannot be read: {error.strerror}{denied_to(file, error)}"
        )
    ):
        return file.is_file()


def require_store(directory: Path) -> None:
    """Refuse a directory that is not a proxy's, before anything is created in it.

    Raises:
        ConfigurationError: it holds no store, or may not be read.
    """
    if not holds_store(directory):
        raise ConfigurationError(
            f"{directory} holds no store ({FILE_NAME} is missing): name the --data-dir of a proxy, "
            "or a backup of one"
        )


@contextmanager
def stopped_store(directory: Path) -> Iterator[Store]:
    """The store of a proxy that does not run, locked.

    Raises:
        ConfigurationError: there is none.
        InUseError: its proxy runs.
        DamagedError: it cannot be read; nothing was changed.
    """
    require_store(directory)
    last = read_shutdown_marker(directory / MARK_NAME)
    with closing(Store(directory, last.durability if last else "sync")) as store:
        yield store


class ReadStore(Struct, frozen=True):
    """A store that is only read."""

    connection: sqlite3.Connection
    path: Path


@contextmanager
def untouched_store(directory: Path) -> Iterator[ReadStore]:
    """Open the store of a stopped proxy without changing it.

    Only where its proxy was killed and its write-ahead log holds commits is it opened as by a
    proxy: in a copy, if the directory cannot be written.

    Raises:
        ConfigurationError: there is none, or it may not be read.
        InUseError: its proxy runs.
        DamagedError: it cannot be read.
    """
    require_store(directory)
    path = directory / FILE_NAME
    with ExitStack() as stack:
        stack.enter_context(_not_running(directory))
        readable_wal(path)
        connection = stack.enter_context(closing(open_reader(path, is_immutable=True)))
        with reading():
            (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA_VERSION and not _has_commits(Path(f"{path}-wal")):
            check_schema(connection, path)
            yield ReadStore(connection, path)
            return
        stack.close()
        if not os.access(directory, os.W_OK):
            copy = Path(stack.enter_context(TemporaryDirectory()))
            for file in (*directory.glob(f"{FILE_NAME}*"), directory / MARK_NAME):
                if file.exists():
                    shutil.copyfile(file, copy / file.name)
            directory = copy
        with stopped_store(directory) as store:
            yield ReadStore(store.connection, path)


@contextmanager
def _not_running(directory: Path) -> Iterator[None]:
    """Keep a proxy from starting meanwhile, if one has been there; a backup has no lock.

    Raises:
        ConfigurationError: it may not be read.
        InUseError: one runs.
    """
    lock = directory / "lock"
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise ConfigurationError(
            f"{lock} cannot be read: {error.strerror}{denied_to(lock, error)}"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InUseError(path=str(directory), what="data directory") from None
    finally:
        os.close(descriptor)


def _has_commits(wal: Path) -> bool:
    try:
        with wal.open("rb") as file:
            return parse_header(file.read(HEADER_BYTES)) is not None
    except FileNotFoundError:
        return False


def read_contents(
    store: Store | ReadStore, checked: Callable[[int], None] = lambda _: None
) -> Contents:
    """Check everything as a start of the proxy does, and read the state.

    Args:
        checked: called with the number of messages that were read so far.

    Raises:
        DamagedError: with every damaged range.
    """
    found = check_store(store.connection, progress=checked)
    with reading():
        state = read_state(store.connection, found.segments)
    return Contents(state, found.messages, store.path.stat().st_size)


@contextmanager
def progress_of(what: str) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many messages were read."""
    if not sys.stderr.isatty():
        yield lambda messages: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda messages: bar.update(task, description=f"{what}: {messages:,} messages")


def show_contents(contents: Contents) -> None:
    """Print a line with the sums, and a table of the topics with the most messages."""
    state = contents.state
    sizes = {one.topic: sum(part.body_bytes for part in one.segments) for one in state.topics}
    say(
        f"store={state.store_id} topics={len(state.topics)} messages={contents.messages} "
        f"clients={len(state.sessions)} body-bytes={sum(sizes.values())} "
        f"file-bytes={contents.file_bytes}"
    )
    largest = sorted(state.topics, key=lambda one: (one.start - one.end, one.topic))
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("topic", overflow="fold")
    for name in ("start", "end", "bytes", "newest", "publishers", "subscriptions", "greatest lag"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in largest[:SHOWN_TOPICS_MAX]:
        table.add_row(*map(cell, _row(one, sizes[one.topic])))
    if len(largest) > SHOWN_TOPICS_MAX:
        table.add_row(f"and {len(largest) - SHOWN_TOPICS_MAX} more")
    if largest:
        Console(width=None if sys.stdout.isatty() else 140).print(table)


def _row(topic: StoredTopic, body_bytes: int) -> Sequence[str]:
    live = [one for one in topic.subscriptions if one.active]
    lag = max((topic.end - one.cursor for one in live), default=0)
    newest = datetime.fromtimestamp(topic.timestamp_ns / 1e9, UTC) if topic.timestamp_ns else None
    return (
        topic.topic,
        f"{topic.start}",
        f"{topic.end}",
        f"{body_bytes:,}",
        f"{newest:%Y-%m-%d %H:%M:%S}Z" if newest else "",
        f"{len(topic.publishers)}",
        f"{len(live)}",
        f"{lag:,}",
    )
