"""The store: one SQLite file that holds what is durable, and the only code that writes it.

One connection writes (WAL; `synchronous=FULL` for durability `sync`), one transaction for all
records of a commit. A second, read-only connection serves cold reads and never checkpoints.
Source: sqlite.org/wal.html, sqlite.org/pragma.html#pragma_synchronous.
"""

from __future__ import annotations

import errno
import os
import secrets
import sqlite3
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from reliable_pubsub.common.core.errors import DamagedError, StorageFailedError
from reliable_pubsub.common.core.limits import GIB, MIB
from reliable_pubsub.common.core.message_base import Durability, Promise
from reliable_pubsub.common.damage import RESTORE_A_COPY, damaged_error
from reliable_pubsub.common.lock import FileLock, make_directory
from reliable_pubsub.common.owner import denied_to, give
from reliable_pubsub.common.system import FULL_SYNC_PRAGMAS, sync_directory, sync_file

from .core.records import Trimmed
from .core.rows import row_crc, statements
from .core.schema import SCHEMA_VERSION, require_version
from .core.state import Record
from .core.storage import StorageFullError
from .core.write_ahead_log import FRAME_HEADER_BYTES
from .features import SCHEMA
from .reserve import RESERVE_NAME, Reserve
from .shutdown_marker import (
    ShutdownMarker,
    machine_boot,
    read_shutdown_marker,
    write_shutdown_marker,
)
from .stored_state import FILE_NAME, UNREADABLE, has_own_schema, open_reader
from .wal_check import WalDamage, check_wal

MARK_NAME: Final = "initialised"  # exists once a store was created; records how the last proxy ran
CHECKPOINT_PAGES: Final = 2000  # 8 MiB of WAL between two checkpoints
SPARE_PAGES: Final = 4096  # 16 MiB kept free for the next messages
VACUUM_PAGES: Final = 8192  # 32 MiB returned in one commit: more than one removal frees
WAL_BYTES: Final = CHECKPOINT_PAGES * (4096 + 24)  # pages with their frame headers
LONG_WAL_BYTES: Final = 8 * WAL_BYTES  # a checkpoint could not reset it
WAL_BYTES_MAX: Final = GIB  # above this, puts are refused until other readers have ended
LOW_BYTES: Final = 64 * MIB  # of free disk; below it checkpoints are more frequent
LOW_PAGES: Final = 256  # 1 MiB of WAL, whose growth of the file fits in the reserve
ROOM_PAGES: Final = 256  # returned in one step on a full disk, which needs twice as many in the WAL
ROOM_STEPS_MAX: Final = 16  # between two looks at other work
BUSY_MS: Final = 5000  # how long to wait for another program's write
_HELD: Final = (
    "another program reads the store of the proxy without end (a sqlite3 shell, a backup), so "
    "its write-ahead log cannot be emptied; end that program, and the proxy continues"
)
_LOCKED: Final = "another program writes to the store of the proxy; end it, and the proxy continues"
_ZEROS: Final = bytes(64 * 1024)
_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})


def readable_wal(path: Path, *, accept_loss: bool = False) -> WalDamage | None:
    """Check the WAL of a store before SQLite opens it, which would ignore damage silently.

    Returns:
        What cannot be read, and may be given up.

    Raises:
        DamagedError: commits cannot be read, and `accept_loss` is off.
    """
    damage = check_wal(path, read_shutdown_marker(path.with_name(MARK_NAME)))
    if damage is None or accept_loss or damage.expected:
        return damage
    raise DamagedError(
        f"{damage}. Nothing was changed. Either {RESTORE_A_COPY}, or start once with "
        "--accept-loss to give these commits up"
    )


def check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a store has the tables of this version.

    Raises:
        DamagedError: it has others.
    """
    if not has_own_schema(connection):
        raise DamagedError(
            f"{path}: its tables are not those of this version. If an unreleased version "
            "made it, open it with that one; if another program has changed it, "
            f"{RESTORE_A_COPY}"
        )


class Store:
    """The writing side. Used by one thread at a time."""

    confirm: None = None  # that no other process serves: this one holds the lock

    def __init__(
        self,
        directory: Path,
        durability: Durability,
        *,
        accept_loss: bool = False,
        report: Callable[[WalDamage], None] = lambda _: None,
        wal_bytes_max: int = WAL_BYTES_MAX,
    ) -> None:
        """Lock the data directory, and open its store or make a new one.

        Args:
            accept_loss: discard commits of the WAL that cannot be read; passed to `report`.
            wal_bytes_max: of the WAL, while another program prevents its reset.

        Raises:
            InUseError: another proxy uses the directory.
            DamagedError: the store is missing, incomplete, or of another program.
        """
        make_directory(directory, what="data directory")
        self._lock = FileLock(directory / "lock", what="data directory")
        self.path = directory / FILE_NAME
        self._mark = directory / MARK_NAME
        self._marker = ShutdownMarker(durability, machine_boot())
        self.promise: Promise = durability  # what an acknowledgement means
        self._wal_bytes_max = wal_bytes_max
        self.standbys: int | None = None  # a data directory has none
        self.wal_held_bytes = 0  # of the WAL, while another program prevents its reset
        self._reserve = Reserve(directory)
        self._has_no_room = False  # for messages: the reserve is not there
        self._opened: sqlite3.Connection | None = None
        try:
            damage = readable_wal(self.path, accept_loss=accept_loss)
            self._open(directory)
            if damage is not None:
                self._reset_wal()
                report(damage)
        except UNREADABLE as error:
            self.close()
            raise damaged_error(
                error, f"{self.path} cannot be opened: {error}", remedy=RESTORE_A_COPY
            ) from error
        except OSError as error:
            self.close()
            file = Path(error.filename or self.path)
            denied = denied_to(file, error)
            raise StorageFailedError(
                f"{file}: {error.strerror}{denied}; nothing is lost"
                + ("" if denied else ": look at the disk, then start again")
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """The writing connection."""
        assert self._opened is not None
        return self._opened

    def open_reader(self) -> sqlite3.Connection:
        """A second, read-only connection."""
        return open_reader(self.path)

    def _reset_wal(self) -> None:
        """Reset the WAL, so that frames after the damage are not found again."""
        with suppress(*UNREADABLE):  # without space they are found again
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        _reserve_wal(Path(f"{self.path}-wal"))

    def _open(self, directory: Path) -> None:
        fresh = not self.path.exists() or not self.path.stat().st_size
        if fresh and self._mark.exists():
            raise DamagedError(
                f"{self.path} is missing or empty, but {directory} was in use: put it back, or "
                "choose an empty data directory (clients will then see LOG_CHANGED)"
            )
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        self._opened = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        if fresh:  # an existing file cannot change it; a full disk would fail
            self.connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        # NORMAL commits without fsync: that survives the death of the process, not power loss.
        synchronous = "FULL" if self._marker.durability == "sync" else "NORMAL"
        for pragma in (
            "journal_mode = WAL",
            f"synchronous = {synchronous}",
            f"journal_size_limit = {WAL_BYTES}",
            "wal_autocheckpoint = 0",  # SQLite hides errors of its own checkpoints
            "foreign_keys = OFF",
            "trusted_schema = OFF",
            "secure_delete = FAST",  # zeros in all removed pages would need as much WAL as they had
            *FULL_SYNC_PRAGMAS,
        ):
            self.connection.execute(f"PRAGMA {pragma}")
        self._wal_pages = 0  # about the number written since the last checkpoint
        (self._page_bytes,) = self.connection.execute("PRAGMA page_size").fetchone()
        version = self.connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and not self._has_tables():
            self._initialise()
        else:
            require_version(version, str(self.path))
            check_schema(self.connection, self.path)
        _reserve_wal(Path(f"{self.path}-wal"))
        self._has_no_room = not self._reserve.make()
        write_shutdown_marker(self._mark, self._marker)
        self._keep_owner()
        sync_directory(directory)
        self._topics: dict[int, tuple[str, str]] = {
            topic_id: (topic, log)
            for topic_id, topic, log in self.connection.execute(
                "SELECT topic_id, topic, log FROM topic"
            )
        }

    def _has_tables(self) -> bool:
        return bool(self.connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0])

    def _initialise(self) -> None:
        """Create the tables and the store's identity in one transaction."""
        store_id = secrets.token_hex(8)
        begin = f"BEGIN IMMEDIATE; {SCHEMA}"
        identity = (
            f"INSERT INTO meta VALUES ('store_id', '{store_id}', {row_crc('store_id', store_id)});"
        )
        self.connection.executescript(
            f"{begin} {identity} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )

    def commit(self, records: Sequence[Record]) -> None:
        """Make records durable: all of them or none, in one transaction.

        Raises:
            StorageFullError: no space; the transaction left no trace.
            StorageFailedError: a write or sync failed; the file must not be written again.
        """
        if not records:
            self._make_room()
            return
        if self.wal_held_bytes >= self._wal_bytes_max:
            self._tidy(self._checkpoint)
        if self.wal_held_bytes >= self._wal_bytes_max:
            raise StorageFullError(f"{self.path}-wal: {_HELD}", why=_HELD)
        if self._has_no_room and _stores_messages(records):
            raise StorageFullError(f"{self.path}: no space is left")
        try:
            self._write(records)
        except sqlite3.Error as error:
            full = self._rolled_back(error)
            self._has_no_room = True
            if not self._reserve.release() or _stores_messages(records):
                raise full from error
        else:
            return
        try:  # in the space of the reserve
            self._write(records)
        except sqlite3.Error as error:
            raise self._rolled_back(error) from error

    def _write(self, records: Sequence[Record]) -> None:
        """Commit, and clean up when it is due."""
        bodies_bytes, trims = 0, False
        for record in records:
            bodies_bytes += len(getattr(record, "body", b""))
            trims = trims or isinstance(record, Trimmed)
        connection = self._opened
        assert connection is not None
        execute = connection.execute  # a cursor that is kept would keep the WAL open
        execute("BEGIN IMMEDIATE")
        for statement, values in statements(records, self._topics):
            execute(statement, values)
        execute("COMMIT")
        self._wal_pages += 4 + len(records) // 8 + bodies_bytes // 4000  # an estimate
        if trims:
            self._tidy(self._give_space_back)
        if self._wal_pages >= CHECKPOINT_PAGES or (
            self._wal_pages >= LOW_PAGES and self._reserve.free_bytes() < LOW_BYTES
        ):
            self._tidy(self._checkpoint)

    def _rolled_back(self, error: sqlite3.Error) -> StorageFullError:
        """Undo a commit that failed; return the error if there was no space.

        Raises:
            StorageFullError: another program writes to the store.
            StorageFailedError: a write or sync failed; the file must not be written again.
        """
        connection = self.connection
        code = getattr(error, "sqlite_errorcode", 0)
        locked = code & 0xFF == sqlite3.SQLITE_BUSY and not connection.in_transaction
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error as second:
            raise StorageFailedError(
                f"{self.path}: {error}, and it could not be rolled back: {second}"
            ) from error
        if code in _FULL:
            return StorageFullError(f"{self.path}: {error}")
        if locked:
            raise StorageFullError(f"{self.path}: {error}", why=_LOCKED) from error
        raise StorageFailedError(
            f"{self.path}: a commit failed ({error}); the proxy stops, because a failed write "
            "must not be retried on the same file. Check the disk, then restart the proxy"
        ) from error

    @property
    def is_full(self) -> bool:
        """Return whether the disk is too full for messages; an empty `commit` checks again."""
        return self._has_no_room or self.wal_held_bytes >= self._wal_bytes_max

    def _make_room(self, steps_max: int = ROOM_STEPS_MAX) -> None:
        """Give free pages back to the disk, and take the reserve again if there is space for it."""
        if self.wal_held_bytes >= self._wal_bytes_max:
            self._tidy(self._checkpoint)
        if not self._has_no_room:
            return
        for _ in range(steps_max):
            (free,) = self.connection.execute("PRAGMA freelist_count").fetchone()
            self._tidy(partial(self._give_pages_back, min(free, ROOM_PAGES)))
            self._tidy(self._reset_long_wal)
            if self._reserve.make():
                self._has_no_room = False
                return
            if not free:
                return

    def _reset_long_wal(self) -> None:
        """Move the WAL into the file, and cut it back to its full length.

        It is never shorter on a full disk: another program would take that space.
        """
        frames, moved = self._move_wal("PASSIVE")
        if frames == moved:  # the next commit begins it again, and cuts it
            self.connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self._move_wal("PASSIVE")

    def shrink(self) -> None:
        """Give all free pages back to the disk, in the space of the reserve."""
        self._reserve.release()
        self._has_no_room = True
        self._make_room(steps_max=self._page_count() // ROOM_PAGES + 2)

    def _page_count(self) -> int:
        return int(self.connection.execute("PRAGMA page_count").fetchone()[0])

    def _give_pages_back(self, pages: int) -> None:
        # Each page is a row without columns, of which `execute` takes only the first one.
        self.connection.executescript(f"PRAGMA incremental_vacuum({pages})")
        self._wal_pages += 2 * pages

    def _give_space_back(self) -> None:
        """Shrink the file when retention has left more free pages than are needed soon.

        Each freed page moves one from the end of the file, so this is done in steps, one with each
        removal. The file is truncated by the next checkpoint.
        """
        (free,) = self.connection.execute("PRAGMA freelist_count").fetchone()
        used = self._page_count() - free
        spare = max(SPARE_PAGES, used // 3)  # a quarter of what the file then is
        excess = min(free - spare, VACUUM_PAGES)
        if excess > 0:
            self._give_pages_back(excess)

    def _tidy(self, work: Callable[[], object]) -> None:
        """Do optional work; without space, postpone it.

        No message is stored before that: what is done then is less, and needs less space.

        Raises:
            sqlite3.Error: a write or sync failed; what was committed is in the WAL.
        """
        try:
            work()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) not in _FULL:
                raise
            self._has_no_room = True
            self._reserve.release()

    def _checkpoint(self) -> None:
        """Move the WAL into the file and reset it; without space it keeps growing.

        It also keeps growing while another program reads it, which shows in its length.
        """
        self._wal_pages = 0
        frames, moved = self._move_wal("PASSIVE")
        wal_bytes = frames * (self._page_bytes + FRAME_HEADER_BYTES)
        if wal_bytes > LONG_WAL_BYTES and moved == frames:
            frames, _ = self._move_wal("TRUNCATE")
            wal_bytes = frames * (self._page_bytes + FRAME_HEADER_BYTES)
            if not frames:
                _reserve_wal(Path(f"{self.path}-wal"))
        self.wal_held_bytes = wal_bytes if wal_bytes > LONG_WAL_BYTES else 0

    def _move_wal(self, how: str) -> tuple[int, int]:
        """Checkpoint without waiting; return the frames of the WAL, and those moved."""
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            row = self.connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        return row[1], row[2]

    def replace_file(self, file: Path) -> None:
        """Put another file, with the same contents, in the place of this one; only `close` follows.

        Raises:
            StorageFailedError: another program has the store open; nothing was changed.
            OSError: it cannot be renamed.
        """
        connection, self._opened = self.connection, None
        self._close_connection(connection)
        wal = Path(f"{self.path}-wal")
        if wal.exists():  # its commits belong to the old file
            raise StorageFailedError(
                f"{wal} could not be emptied, because another program reads the store (a sqlite3 "
                "shell); end it and try again. The store is as it was"
            )
        descriptor = os.open(file, os.O_RDONLY)
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)
        facts = self.path.stat()
        file.chmod(stat.S_IMODE(facts.st_mode))
        give([file], facts)
        file.replace(self.path)
        sync_directory(self.path.parent)

    def _keep_owner(self) -> None:
        """Let the files that root has made here belong to whom the directory belongs."""
        directory = self.path.parent
        names = ("lock", MARK_NAME, RESERVE_NAME)
        files = [directory / name for name in names]
        give(
            [*files, *directory.glob(f"{FILE_NAME}*"), *directory.glob("audit*")], directory.stat()
        )

    def close(self) -> None:
        """Move the WAL into the file, if there is space, and unlock the directory."""
        try:
            if self._opened is not None:
                self._close_connection(self._opened)
                self._keep_owner()
        finally:
            self._lock.close()

    def _close_connection(self, connection: sqlite3.Connection) -> None:
        """Record first that the WAL may be missing: SQLite deletes it after moving it."""
        moved = replace(self._marker, wal_moved=True)
        with suppress(*UNREADABLE, StorageFailedError):  # then the WAL stays, as after a kill
            _, pages, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages == done and self._mark.exists():
                write_shutdown_marker(self._mark, moved)
        connection.close()
        if self._mark.exists() and not Path(f"{self.path}-wal").exists():
            with suppress(StorageFailedError):  # SQLite has moved it anyway
                write_shutdown_marker(self._mark, moved)


def _stores_messages(records: Sequence[Record]) -> bool:
    return any(record.batch is not None for record in records)


def _reserve_wal(path: Path) -> None:
    """Extend the WAL with zeros to its full length, so that a commit need not extend it.

    An fdatasync that must also record a new file length took 150 us where one that need not took
    95 us (docs/decisions/0003). What follows the last commit is never read: it is not part
    of the checksum chain (SQLite, "WAL-mode File Format").
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        length = os.fstat(descriptor).st_size
        os.lseek(descriptor, length, os.SEEK_SET)
        for _ in range(length, WAL_BYTES, len(_ZEROS)):
            os.write(descriptor, _ZEROS)
        sync_file(descriptor)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFailedError(f"{path}: {error.strerror}") from error
        os.ftruncate(descriptor, length)  # without space it is only slower
    finally:
        os.close(descriptor)
