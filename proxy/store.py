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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import DamagedError, PubSubError, StorageFailedError
from reliable_pubsub.common.core.limits import GIB
from reliable_pubsub.common.core.messages import Durability, Terms, TopicReceipt
from reliable_pubsub.common.damage import RESTORE_A_COPY, error_of
from reliable_pubsub.common.lock import FileLock, make_directory
from reliable_pubsub.common.system import FULL_SYNC_PRAGMAS, sync_directory, sync_file

from .core.records import (
    Appended,
    ControlSeen,
    CursorMoved,
    DeadLettered,
    Expired,
    Forgotten,
    ForgottenKind,
    Granted,
    Record,
    StoredPublisher,
    StoredSegment,
    StoredSession,
    StoredState,
    StoredSubscription,
    StoredTopic,
    Subscribed,
    TopicCreated,
    TransactionCommitted,
    Trimmed,
    Unsubscribed,
)
from .core.schema import (
    KNOWN_ENDS,
    SCHEMA_ROWS,
    SCHEMA_VERSION,
    TABLES,
    meaning,
    place_of,
    row_crc,
)
from .core.write_ahead_log import FRAME_HEADER_BYTES
from .last_run import LastRun, machine_boot, read_last_run, write_last_run
from .log_check import LogDamage, check_log

FILE_NAME: Final = "proxy.sqlite3"
MARK_NAME: Final = "initialised"  # exists once a store was created; records how the last proxy ran
ROWS_PER_STATEMENT: Final = 32
CHECKPOINT_PAGES: Final = 2000  # 8 MiB of log between two checkpoints
SPARE_PAGES: Final = 4096  # 16 MiB kept free for the next messages
VACUUM_PAGES: Final = 8192  # 32 MiB returned in one commit: more than one removal frees
LOG_BYTES: Final = CHECKPOINT_PAGES * (4096 + 24)  # pages with their frame headers
LONG_LOG_BYTES: Final = 8 * LOG_BYTES  # a checkpoint could not reset it
LOG_BYTES_MAX: Final = GIB  # above this, puts are refused until other readers have ended
BUSY_MS: Final = 5000  # how long to wait for another program's write
_HELD: Final = (
    "another program reads the store of the proxy without end (a sqlite3 shell, a backup), so "
    "its log cannot be emptied; end that program, and the proxy goes on by itself"
)
_LOCKED: Final = (
    "another program writes in the store of the proxy; end it, and the proxy goes on by itself"
)
_FLOORS: Final[Mapping[ForgottenKind, str]] = {  # names in the table `meta`
    "session": "epoch_floor",
    "subscription": "generation_floor",
}
_KEYS: Final[Mapping[ForgottenKind, Sequence[str]]] = {
    "publisher": ("topic_id", "publisher", "qos"),
    "subscription": ("topic_id", "subscriber"),
    "session": ("role", "client"),
}
_ZEROS: Final = bytes(64 * 1024)
_receipts: Final = msgspec.msgpack.Decoder(tuple[TopicReceipt, ...])
_UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)  # the second for undecodable text
_FULL: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE})


class StorageFullError(PubSubError):
    """There was no space for a commit; none of it was written."""

    code = "STORAGE_FULL"

    def __init__(self, text: str, *, why: str = "the disk of the proxy is full") -> None:
        """Create the error.

        Args:
            why: the reason for clients, and what an operator can do.
        """
        super().__init__(text)
        self.why = why


class Store:
    """The writing side. Used by one thread at a time."""

    def __init__(
        self,
        directory: Path,
        durability: Durability,
        *,
        accept_loss: bool = False,
        report: Callable[[LogDamage], None] = lambda _: None,
        log_bytes_max: int = LOG_BYTES_MAX,
    ) -> None:
        """Lock the data directory, and open its store or make a new one.

        Args:
            accept_loss: discard commits of the log that cannot be read; passed to `report`.
            log_bytes_max: of the log, while another program prevents its reset.

        Raises:
            InUseError: another proxy uses the directory.
            DamagedError: the store is missing, incomplete, or of another program.
        """
        make_directory(directory, what="data directory")
        self._lock = FileLock(directory / "lock", what="data directory")
        self.path = directory / FILE_NAME
        self._mark = directory / MARK_NAME
        self._run = LastRun(durability, machine_boot())
        self._log_bytes_max = log_bytes_max
        self.log_held_bytes = 0  # of the log, while another program prevents its reset
        self._opened: sqlite3.Connection | None = None
        try:
            damage = self._judge_log(accept_loss)
            self._open(directory)
            if damage is not None:
                self._forget_log()
                report(damage)
        except _UNREADABLE as error:
            self.close()
            raise error_of(
                error, f"{self.path} cannot be opened: {error}", remedy=RESTORE_A_COPY
            ) from error
        except OSError as error:
            self.close()
            raise StorageFailedError(
                f"{error.filename or self.path}: {error.strerror}; nothing is lost: look at the "
                "disk, then start again"
            ) from error
        except BaseException:
            self.close()
            raise

    @property
    def connection(self) -> sqlite3.Connection:
        """The writing connection."""
        assert self._opened is not None
        return self._opened

    def _judge_log(self, accept_loss: bool) -> LogDamage | None:
        """Check the log before SQLite opens it, which would ignore damage silently.

        Raises:
            DamagedError: commits cannot be read, and `accept_loss` is off.
        """
        damage = check_log(self.path, read_last_run(self._mark))
        if damage is None or accept_loss or damage.expected:
            return damage
        raise DamagedError(
            f"{damage}. Nothing was changed. Either {RESTORE_A_COPY}, or start once with "
            "--accept-loss to give these commits up"
        )

    def _forget_log(self) -> None:
        """Reset the log, so that frames after the damage are not found again."""
        with suppress(*_UNREADABLE):  # without space they are found again
            self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        _reserve_log(Path(f"{self.path}-wal"))

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
        synchronous = "FULL" if self._run.durability == "sync" else "NORMAL"
        for pragma in (
            "journal_mode = WAL",
            f"synchronous = {synchronous}",
            "wal_autocheckpoint = 0",  # SQLite hides errors of its own checkpoints
            "foreign_keys = OFF",
            "trusted_schema = OFF",
            *FULL_SYNC_PRAGMAS,
        ):
            self.connection.execute(f"PRAGMA {pragma}")
        self._log_pages = 0  # about the number written since the last checkpoint
        (self._page_bytes,) = self.connection.execute("PRAGMA page_size").fetchone()
        version = self.connection.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and not self._has_tables():
            self._initialise()
        elif version != SCHEMA_VERSION:
            raise DamagedError(
                f"{self.path} has schema version {version}, this program reads {SCHEMA_VERSION}"
            )
        elif _schema(self.connection) != _own_schema():
            raise DamagedError(
                f"{self.path}: its tables are not as they were made; {RESTORE_A_COPY}"
            )
        _reserve_log(Path(f"{self.path}-wal"))
        write_last_run(self._mark, self._run)
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
        begin = f"BEGIN IMMEDIATE; {TABLES}"
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
        if self.log_held_bytes >= self._log_bytes_max:
            self._tidy(self._checkpoint)
        if self.log_held_bytes >= self._log_bytes_max:
            raise StorageFullError(f"{self.path}-wal: {_HELD}", why=_HELD)
        try:
            self.connection.execute("BEGIN IMMEDIATE")
            self._write(records)
            self.connection.execute("COMMIT")
            self._log_pages += _pages(records)
            if any(isinstance(record, Trimmed) for record in records):
                self._tidy(self._give_space_back)
            if self._log_pages >= CHECKPOINT_PAGES:
                self._tidy(self._checkpoint)
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0)
            full = code in _FULL
            locked = code & 0xFF == sqlite3.SQLITE_BUSY and not self.connection.in_transaction
            try:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
            except sqlite3.Error as second:
                raise StorageFailedError(
                    f"{self.path}: {error}, and it could not be rolled back: {second}"
                ) from error
            if full:
                raise StorageFullError(f"{self.path}: {error}") from error
            if locked:
                raise StorageFullError(f"{self.path}: {error}", why=_LOCKED) from error
            raise StorageFailedError(
                f"{self.path}: a commit failed ({error}); the proxy stops, because a write that "
                "failed must not be tried again on the same file. Look at the disk, then start it"
            ) from error

    def _give_space_back(self) -> None:
        """Shrink the file when retention has left more free pages than are needed soon.

        Each freed page moves one from the end of the file, so this is done in steps, one with each
        removal. The file is truncated by the next checkpoint.
        """
        (free,) = self.connection.execute("PRAGMA freelist_count").fetchone()
        (pages,) = self.connection.execute("PRAGMA page_count").fetchone()
        spare = max(SPARE_PAGES, (pages - free) // 3)  # a quarter of what the file then is
        excess = min(free - spare, VACUUM_PAGES)
        if excess > 0:
            # Each page is a row without columns, of which `execute` takes only the first one.
            self.connection.executescript(f"PRAGMA incremental_vacuum({excess})")
            self._log_pages += 2 * excess

    def _tidy(self, work: Callable[[], None]) -> None:
        """Do optional work; without space it is left for the next time.

        Raises:
            sqlite3.Error: a write or sync failed; what was committed is in the log.
        """
        try:
            work()
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) not in _FULL:
                raise

    def _checkpoint(self) -> None:
        """Move the log into the file and reset it; without space it keeps growing.

        It also keeps growing while another program reads it, which shows in its length.
        """
        self._log_pages = 0
        frames, moved = self._move_log("PASSIVE")
        log_bytes = frames * (self._page_bytes + FRAME_HEADER_BYTES)
        if log_bytes > LONG_LOG_BYTES and moved == frames:
            frames, _ = self._move_log("TRUNCATE")
            log_bytes = frames * (self._page_bytes + FRAME_HEADER_BYTES)
            if not frames:
                _reserve_log(Path(f"{self.path}-wal"))
        self.log_held_bytes = log_bytes if log_bytes > LONG_LOG_BYTES else 0

    def _move_log(self, how: str) -> tuple[int, int]:
        """Checkpoint without waiting; return the frames of the log, and those moved."""
        self.connection.execute("PRAGMA busy_timeout = 0")
        try:
            row = self.connection.execute(f"PRAGMA wal_checkpoint({how})").fetchone()
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        return row[1], row[2]

    def _write(self, records: Sequence[Record]) -> None:
        """Write the records as rows; of several records for one row the last counts."""
        batches: list[tuple[object, ...]] = []
        publishers: dict[tuple[int, str, int], Appended | None] = {}  # None: removed
        subscriptions: dict[tuple[int, str], tuple[int | str, ...] | None] = {}
        sessions: dict[tuple[str, str], tuple[int, bytes, int] | None] = {}
        forgettable: Mapping[ForgottenKind, dict[Any, Any]] = {
            "publisher": publishers,
            "subscription": subscriptions,
            "session": sessions,
        }
        floors: dict[ForgottenKind, int] = {}
        trimmed: dict[int, Trimmed] = {}
        transactions: dict[str, TransactionCommitted] = {}
        for record in _rows_of(records):
            match record:
                case Appended():
                    batches.append(_batch_row(record))
                    publishers[(record.topic_id, record.publisher, record.qos)] = record
                case CursorMoved() | Expired():
                    key = (record.topic_id, record.subscriber)
                    subscriptions[key] = _subscription_columns(record)
                case Subscribed() | Unsubscribed():
                    key = (record.topic_id, record.subscriber)
                    subscriptions[key] = _subscription_columns(record)
                    session = (record.epoch, record.nonce, record.control)
                    sessions[("subscriber", record.subscriber)] = session
                case ControlSeen(subscriber, epoch, nonce, control):
                    sessions[("subscriber", subscriber)] = (epoch, nonce, control)
                case Granted(role, client, epoch, nonce):
                    sessions[(role, client)] = (epoch, nonce, 0)
                case Forgotten(kind, key, floor):
                    rows: dict[Any, Any] = forgettable[kind]
                    rows[key] = None
                    floors[kind] = max(floor, floors.get(kind, 0))
                case Trimmed():
                    trimmed[record.topic_id] = record
                case TransactionCommitted(client):
                    transactions[client] = record
                case TopicCreated(topic_id, topic, log):
                    self._topics[topic_id] = (topic, log)
                    self._write_topic(topic_id, 0, 0, 0)
        self._insert("INSERT INTO batch VALUES", batches)
        self._replace("publisher", publishers, lambda _, batch: _publisher_row(batch))
        self._replace("subscription", subscriptions, lambda key, row: _with_crc((*key, *row)))
        self._replace("session", sessions, lambda key, row: _with_crc((*key, *row)))
        self._insert(
            "REPLACE INTO meta VALUES",
            [_with_crc((_FLOORS[kind], str(floor))) for kind, floor in floors.items() if floor],
        )
        self._insert(
            "REPLACE INTO last_transaction VALUES",
            [_transaction_row(one) for one in transactions.values()],
        )
        for topic_id, trim in trimmed.items():
            self.connection.execute(
                "DELETE FROM batch WHERE place >= ? AND place < ?",
                (place_of(topic_id, 0), place_of(topic_id, trim.start)),
            )
            self._write_topic(topic_id, trim.start, trim.end, trim.timestamp_ns)

    def _replace(
        self,
        table: ForgottenKind,
        rows: Mapping[Any, Any],
        row_of: Callable[[Any, Any], tuple[object, ...]],
    ) -> None:
        """Write rows by their keys; delete those that are None."""
        kept = [row_of(key, row) for key, row in rows.items() if row is not None]
        self._insert(f"REPLACE INTO {table} VALUES", kept)
        gone = [key for key, row in rows.items() if row is None]
        if gone:
            is_it = " AND ".join(f"{column} = ?" for column in _KEYS[table])
            self.connection.executemany(f"DELETE FROM {table} WHERE {is_it}", gone)

    def _insert(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Write rows, up to ROWS_PER_STATEMENT at once.

        Each statement releases the interpreter lock and must get it back from the loop thread; one
        statement for each row halves the rate of a busy proxy.
        """
        for first in range(0, len(rows), ROWS_PER_STATEMENT):
            some = rows[first : first + ROWS_PER_STATEMENT]
            self.connection.execute(
                _with_values(statement, len(some[0]), len(some)),
                [column for row in some for column in row],
            )

    def _write_topic(self, topic_id: int, start: int, end: int, timestamp_ns: int) -> None:
        topic, log = self._topics[topic_id]
        self.connection.execute(
            "REPLACE INTO topic VALUES (?,?,?,?,?,?,?)",
            _with_crc((topic_id, topic, log, start, end, timestamp_ns)),
        )

    def close(self) -> None:
        """Move the log into the file, if there is space, and unlock the directory."""
        try:
            if self._opened is not None:
                self._close_connection(self._opened)
        finally:
            self._lock.close()

    def _close_connection(self, connection: sqlite3.Connection) -> None:
        """Record first that the log may be missing: SQLite deletes it after moving it."""
        moved = replace(self._run, log_moved=True)
        with suppress(*_UNREADABLE, StorageFailedError):  # then the log stays, as after a kill
            _, pages, done = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages == done and self._mark.exists():
                write_last_run(self._mark, moved)
        connection.close()
        if self._mark.exists() and not Path(f"{self.path}-wal").exists():
            with suppress(StorageFailedError):  # SQLite has moved it anyway
                write_last_run(self._mark, moved)


def _reserve_log(path: Path) -> None:
    """Extend SQLite's log with zeros to its full length, so that a commit need not extend it.

    An fdatasync that must also record a new file length took 150 us where one that need not took
    95 us (docs/decisions/0003). What follows the last commit is never read: it is not part
    of the checksum chain (SQLite, "WAL-mode File Format").
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        length = os.fstat(descriptor).st_size
        os.lseek(descriptor, length, os.SEEK_SET)
        for _ in range(length, LOG_BYTES, len(_ZEROS)):
            os.write(descriptor, _ZEROS)
        sync_file(descriptor)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFailedError(f"{path}: {error.strerror}") from error
        os.ftruncate(descriptor, length)  # without space it is only slower
    finally:
        os.close(descriptor)


@contextmanager
def reading() -> Iterator[None]:
    """Translate an SQLite error: the file is damaged, or the system cannot read it."""
    try:
        yield
    except _UNREADABLE as error:
        raise error_of(
            error, f"the store {FILE_NAME} cannot be read: {error}", remedy=RESTORE_A_COPY
        ) from error


def open_reader(path: Path) -> sqlite3.Connection:
    """A second, read-only connection."""
    with reading():
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None
        )
        connection.execute("PRAGMA query_only = ON")
    return connection


def read_state(
    connection: sqlite3.Connection, segments: Mapping[int, Sequence[StoredSegment]]
) -> StoredState:
    """Read the stored state of a broker; the caller has counted the segments.

    Used at start-up, after `check.check_store`, and after a failed commit.
    """
    meta = dict(connection.execute("SELECT name, value FROM meta").fetchall())
    publishers: dict[int, list[StoredPublisher]] = {}
    for topic_id, *row in connection.execute(
        "SELECT topic_id, publisher, first_sequence, count, base, crc, qos FROM publisher"
    ):
        publishers.setdefault(topic_id, []).append(StoredPublisher(*row))
    subscriptions: dict[int, list[StoredSubscription]] = {}
    for topic_id, *place, active, shown, expired, qos, session, lease_ms in connection.execute(
        "SELECT topic_id, subscriber, generation, cursor, active, shown, expired, qos, session,"
        " lease_ms FROM subscription"
    ):
        terms = Terms(qos=qos, session=session, lease_ms=lease_ms)
        subscriber, generation, cursor = place
        subscription = StoredSubscription(
            subscriber, generation, cursor, bool(active), shown, terms, bool(expired)
        )
        subscriptions.setdefault(topic_id, []).append(subscription)
    known_ends = {topic_id: end for topic_id, _, _, end in connection.execute(KNOWN_ENDS)}
    topics = []
    for topic_id, topic, log, start, trimmed_ns in connection.execute(
        "SELECT topic_id, topic, log, start_offset, trimmed_ns FROM topic"
    ).fetchall():
        newest = connection.execute(
            "SELECT base + count, timestamp_ns FROM batch WHERE place >= ? AND place < ?"
            " ORDER BY place DESC LIMIT 1",
            (place_of(topic_id, 0), place_of(topic_id + 1, 0)),
        ).fetchone()
        end, timestamp_ns = newest or (0, 0)
        topics.append(
            StoredTopic(
                topic_id,
                topic,
                log,
                start,
                max(end, known_ends[topic_id]),
                max(timestamp_ns, trimmed_ns),
                segments.get(topic_id, ()),
                publishers.get(topic_id, ()),
                subscriptions.get(topic_id, ()),
            )
        )
    sessions = [
        StoredSession(role, client, epoch, nonce, control)
        for role, client, epoch, nonce, control in connection.execute(
            "SELECT role, client, epoch, nonce, control FROM session"
        )
    ]
    transactions = [
        TransactionCommitted(client, number, digest, _receipts.decode(receipts))
        for client, number, digest, receipts in connection.execute(
            "SELECT client, number, digest, receipts FROM last_transaction"
        )
    ]
    return StoredState(
        meta["store_id"],
        topics,
        sessions,
        transactions,
        epoch_floor=int(meta.get(_FLOORS["session"], 0)),
        generation_floor=int(meta.get(_FLOORS["subscription"], 0)),
    )


def _schema(connection: sqlite3.Connection) -> list[tuple[bytes, ...]]:
    rows = connection.execute(SCHEMA_ROWS).fetchall()
    return [(*names, meaning(sql)) for *names, sql in rows]


@cache
def _own_schema() -> list[tuple[bytes, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(TABLES)
        return _schema(connection)


def _pages(records: Sequence[Record]) -> int:
    """An estimate of the log pages that a commit used."""
    bodies = sum(len(record.body) for record in records if isinstance(record, Appended))
    return 4 + len(records) // 8 + bodies // 4000


@cache
def _with_values(statement: str, columns: int, rows: int) -> str:
    """The statement with a place for each value."""
    row = f"({','.join('?' * columns)})"
    return f"{statement} {','.join([row] * rows)}"


def _rows_of(records: Sequence[Record]) -> Iterator[Record]:
    """The records that are written, compound ones taken apart."""
    for record in records:
        if isinstance(record, DeadLettered):
            yield record.letter
            yield record.moved
        else:
            yield record


def _batch_row(batch: Appended) -> tuple[object, ...]:
    columns = (
        batch.topic_id,
        batch.base,
        batch.count,
        batch.publisher,
        batch.epoch,
        batch.first_sequence,
        batch.timestamp_ns,
        batch.crc,
        batch.qos,
    )
    return (place_of(batch.topic_id, batch.base), *columns, row_crc(*columns), batch.body)


def _subscription_columns(
    record: CursorMoved | Subscribed | Unsubscribed | Expired,
) -> tuple[int | str, ...]:
    """All but the key, in the order of the table."""
    terms = record.terms
    expired = isinstance(record, Expired)
    ended = isinstance(record, Unsubscribed) or (expired and terms.session == "clean")
    goes_on = isinstance(record, CursorMoved | Subscribed)
    return (
        record.generation,
        record.cursor,
        int(not ended),
        terms.qos,
        record.shown if goes_on else max(record.shown, record.cursor),
        int(expired),
        terms.session,
        terms.lease_ms,
    )


def _publisher_row(batch: Appended) -> tuple[object, ...]:
    return _with_crc(
        (
            batch.topic_id,
            batch.publisher,
            batch.first_sequence,
            batch.count,
            batch.base,
            batch.crc,
            batch.qos,
        )
    )


def _transaction_row(one: TransactionCommitted) -> tuple[object, ...]:
    receipts = msgspec.msgpack.encode(one.receipts)
    return _with_crc((one.client, one.transaction, one.digest, receipts))


def _with_crc(columns: tuple[int | str | bytes, ...]) -> tuple[object, ...]:
    return (*columns, row_crc(*columns))
