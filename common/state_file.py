"""A client's durable state: one small SQLite file for each client id and role, locked.

Named values, written together in one transaction. A lazy write survives `kill -9` of the process
(the operating system has it); a durable one survives power loss too, with every write before it.

Beside them are marks (`core/client_state.py`), in a file that is mapped into memory.
"""

from __future__ import annotations

import mmap
import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Final, get_args

from .core.client_state import MARKS_MAX, ClientState, Marks, MemoryState
from .core.errors import DamagedError, StorageFailedError
from .core.message_base import Role
from .core.names import client_id
from .damage import damaged_error
from .lock import FileLock, make_directory
from .system import FULL_SYNC_PRAGMAS, fill_file, sync_directory, system_errors

STATE_VERSION: Final = 1
MARK_BYTES: Final = 8


_open: weakref.WeakSet[StateFile] = weakref.WeakSet()
_inherited: Final[list[sqlite3.Connection]] = []


def _keep_in_child() -> None:
    """Keep connections open in a forked child: SQLite forbids it to close its parent's."""
    _inherited.extend(state._connection for state in _open)


os.register_at_fork(after_in_child=_keep_in_child)


class StateFile:
    """State in a file. Implements `ClientState`; usable from one thread at a time."""

    def __init__(self, directory: Path, role: Role, client: str) -> None:
        """Lock and open the state of a client, or create it.

        Raises:
            InUseError: another process uses this id, or a call of this process that is open.
            DamagedError: the file is not a state file, or cannot be read back.
            StorageFailedError: the system refuses to open or to sync it.
        """
        make_directory(directory, what="state directory")
        name = f"{role}-{client_id(client)}"
        self.path = directory / f"{name}.sqlite3"
        self._marks: memoryview[int] | None = None
        self._maker = threading.get_ident()
        self._lock = FileLock(
            directory / f"{name}.lock",
            what=f"state of {role} {client!r} in",
            make_way=self._close_unfinished,
        )
        try:
            with system_errors(
                lambda error: StorageFailedError(
                    f"{error.filename or directory}: {error.strerror}; nothing is lost: look at "
                    "the disk, then run the same command again"
                )
            ):
                self._connection = sqlite3.connect(
                    self.path, isolation_level=None, check_same_thread=False
                )
                _open.add(self)
                self.path.chmod(0o600)
                self._prepare()
                sync_directory(directory)  # each time: who made the file may have died here
        except BaseException as error:
            self._close_connection()
            self._lock.close()
            if isinstance(error, sqlite3.Error):
                raise self._unreadable(error) from error
            raise

    def _unreadable(self, error: sqlite3.Error) -> DamagedError:
        return damaged_error(
            error,
            f"{self.path}, the client's state, cannot be opened: {error} (without it the client "
            "would start over: its step file from the first step, and put messages a second time)",
        )

    def _prepare(self) -> None:
        paths = (str(self.path), str(self.path.with_suffix(".lock")))
        self._files = cycle([(path, _identity_of(path)) for path in paths])
        self._cursor = self._connection.cursor()  # for all: closing it ends what was interrupted
        self._execute = self._cursor.execute
        self._is_durable: bool | None = None  # how writes are made now; None: it is not known
        for pragma in (
            "journal_mode = WAL",
            "synchronous = NORMAL",
            "trusted_schema = OFF",
            *FULL_SYNC_PRAGMAS,
        ):
            self._execute(f"PRAGMA {pragma}")
        self._execute(
            "CREATE TABLE IF NOT EXISTS state "
            "(name TEXT PRIMARY KEY, value BLOB NOT NULL, crc INTEGER NOT NULL) WITHOUT ROWID"
        )
        (version,) = self._execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._execute(f"PRAGMA user_version = {STATE_VERSION}")
        elif version != STATE_VERSION:
            raise DamagedError(
                f"{self.path} has state version {version}, this program reads {STATE_VERSION}"
            )

    def load(self) -> dict[str, bytes]:
        """Every value by its name.

        Raises:
            DamagedError: a value does not have its CRC-32.
        """
        values: dict[str, bytes] = {}
        try:
            self._undo()
            rows = self._execute("SELECT name, value, crc FROM state").fetchall()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        for name, value, crc in rows:
            types = type(name), type(value)  # of a file that was cut off, SQLite reads NULL
            if types != (str, bytes) or _crc(name, value) != crc:
                raise DamagedError(f"{self.path}: the value {name!r} does not have its CRC-32")
            values[name] = value
        return values

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        """Set values, or remove those that are None, all or none of them.

        Raises:
            StorageFailedError: the disk is full or failed, or the files were removed or replaced;
                the state is as before.
        """
        self._check_files()
        try:
            execute = self._execute
            if durable != self._is_durable:
                self._is_durable = None  # until it is set, also if this is interrupted
                execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._is_durable = durable
            execute("BEGIN IMMEDIATE")
            for name, value in changes.items():
                if value is None:
                    execute("DELETE FROM state WHERE name = ?", (name,))
                else:
                    execute("REPLACE INTO state VALUES (?,?,?)", (name, value, _crc(name, value)))
            execute("COMMIT")
        except sqlite3.Error as error:
            self._undo()
            raise StorageFailedError(
                f"{self.path}: cannot write the client's state ({error}); nothing is lost, make "
                "space and run the same command again"
            ) from error

    def _check_files(self) -> None:
        """Check that the next process with this id will find the state and the lock.

        One of the two files at each write, because looking at one takes as long as a third of it.

        Raises:
            StorageFailedError: it will not.
        """
        path, identity = next(self._files)
        with suppress(FileNotFoundError, NotADirectoryError):
            if _identity_of(path) == identity:
                return
        raise StorageFailedError(
            f"{self.path.parent}: the state directory was removed or replaced while in use, so "
            "this client cannot store its state; another process may use the same id. Nothing "
            "was written. Put the directory back, or start again; without the old state, what is "
            "in doubt may be put twice, and what is in hand is redelivered"
        )

    def _undo(self) -> None:
        """Roll back an uncommitted transaction."""
        if self._connection.in_transaction:
            self._execute("ROLLBACK")

    @property
    def marks(self) -> Marks:
        """The marks, in a file next to that of the values.

        Raises:
            StorageFailedError: the file cannot be made.
        """
        if self._marks is None:
            path = self.path.with_suffix(".marks")
            with system_errors(
                lambda error: StorageFailedError(
                    f"{path}: cannot be made ({error.strerror}); nothing is lost, make space and "
                    "run the same command again"
                )
            ):
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fill_file(descriptor, MARKS_MAX * MARK_BYTES)
                    mapped = mmap.mmap(descriptor, MARKS_MAX * MARK_BYTES)
                finally:
                    os.close(descriptor)
            self._marks = memoryview(mapped).cast("Q")
        return self._marks

    def _close_unfinished(self) -> bool:
        """Close it for another client, unless a thread is just making the client that it is for.

        A thread that makes another one is not: an exception of a signal handler broke it off.
        """
        if self._maker != threading.get_ident():
            return False
        self._close_connection()
        self._lock.close()
        return True

    def _close_connection(self) -> None:
        if hasattr(self, "_cursor"):
            with suppress(sqlite3.ProgrammingError):  # it is closed again
                self._cursor.close()
        if hasattr(self, "_connection"):
            self._connection.close()

    def may_be_taken(self, make_way: Callable[[], bool]) -> None:
        """Let another client of this process take over the id; see `FileLock.make_way`."""
        self._lock.make_way = make_way

    def close(self) -> None:
        """Close the files and release the lock."""
        self._marks = None  # unmapped when nothing refers to it
        self._close_connection()
        self._lock.close()


def open_state(directory: Path | str | None, role: Role, client: str) -> ClientState:
    """State in `directory`, or in memory if there is none."""
    return MemoryState() if directory is None else StateFile(Path(directory), role, client)


def has_state(directory: Path, client: str) -> bool:
    """Return whether a publisher or subscriber of this id has a state here."""
    return any((directory / f"{role}-{client}.sqlite3").exists() for role in get_args(Role))


def _identity_of(path: str) -> tuple[int, int]:
    """Return values that distinguish a file from another of the same name."""
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _crc(name: str, value: bytes) -> int:
    return zlib.crc32(value, zlib.crc32(name.encode()))
