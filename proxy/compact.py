"""`reliable-pubsub compact`: the store of a stopped proxy, written again without its free pages.

A running proxy gives space back by itself, but keeps a quarter of the file for the next messages,
and pages that are partly filled. `VACUUM INTO` writes a second file; the first one is whole until
the second is checked, synced and renamed over it. Source: sqlite.org/lang_vacuum.html.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import click

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES, readable_errors
from reliable_pubsub.common.core.errors import DamagedError, StorageFailedError
from reliable_pubsub.common.damage import damaged_error
from reliable_pubsub.common.lock import make_directory
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.terminal import say

from .contents import Contents, progress_of, read_contents, stopped_store
from .store import Store
from .stored_state import FILE_NAME

_PREFIX = ".compact-"


def compact(
    directory: Path, checked: Callable[[int], None] = lambda _: None
) -> tuple[Contents, Contents]:
    """Compact the store of a data directory.

    Args:
        checked: called with the number of messages that were read so far.

    Returns:
        What it held before, and after.

    Raises:
        ConfigurationError, InUseError: there is no store, or its proxy runs.
        DamagedError: the store is damaged; it is as it was.
        StorageFailedError: a failing disk; it is as it was.
    """
    with stopped_store(directory) as store:
        for left in directory.glob(f"{_PREFIX}*"):  # by one that was killed; the lock is ours
            shutil.rmtree(left)
        before = read_contents(store, checked)
        partial = directory / f"{_PREFIX}{os.getpid()}"
        make_directory(partial, what="second file")
        try:
            if _write(store, partial / FILE_NAME):
                with stopped_store(partial) as second:
                    after = read_contents(second, checked)
                if (after.state, after.messages) != (before.state, before.messages):
                    raise DamagedError(
                        f"{directory}: the second file differs from the store and was removed; the "
                        "store is unchanged. Run `reliable-pubsub check` on it"
                    )
                store.replace_file(partial / FILE_NAME)
            else:
                shutil.rmtree(partial)
                store.shrink()
                after = read_contents(store, checked)
        except OSError as error:
            raise StorageFailedError(
                f"{error.filename or partial}: {error.strerror}; the store is as it was"
            ) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return before, Contents(after.state, after.messages, (directory / FILE_NAME).stat().st_size)


def _write(store: Store, file: Path) -> bool:
    """Write the second file; return whether there was space for it."""
    os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
    try:
        store.connection.execute("VACUUM INTO ?", (str(file),))
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL:
            return False
        raise damaged_error(error, f"{file} could not be written: {error}") from error
    return True


@click.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, readable=False))
def main(directory: Path) -> None:
    """Write the store in DIR again without its free space; its proxy must not run.

    It is checked before and after. Without space for a second file, it removes free pages from the
    first one only. Killed at any moment, it leaves the store as it was or as it shall be. A running
    proxy gives space back by itself; this gives back the rest, after much was removed.

    \b
      reliable-pubsub compact proxy-data
    """
    with readable_errors(), stop_on_signals("stopped: the store is whole"):
        with progress_of("compacting") as checked:
            before, after = compact(directory, checked)
        say(
            f"compacted: {directory} from {before.file_bytes} to {after.file_bytes} bytes, "
            f"messages={after.messages}"
        )


if __name__ == "__main__":
    main(prog_name="reliable-pubsub compact")
