"""The store in PostgreSQL: the same tables and rows as in `store.py`, shared by several proxies.

One transaction for all records of a commit, sent in one piece, and with it the term of this
process: the server refuses all of it when the term is over. After an error whose outcome is unknown
nothing more is written, and the process reads everything again (docs/decisions/0051).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import psycopg

from reliable_pubsub.common.core.errors import StorageFailedError
from reliable_pubsub.common.core.message_base import Durability

from .core.rows import row_crc, statements
from .core.schema import SCHEMA_VERSION, require_version
from .core.server_promise import promise_of
from .core.serving import TIMING, Term
from .core.state import Record
from .core.storage import NotServingError, StorageFullError
from .postgres_connection import (
    PostgresConnection,
    as_not_serving,
    break_off,
    connect,
    dsn_without_password,
    elapsed_s,
)
from .postgres_sql import in_columns, table_statements
from .term import (
    BEAT,
    BEAT_AND_PROMISE,
    SERVING_TABLE,
    STANDS_BY,
    STOPS_STANDING_BY,
    Standby,
    TermKeeper,
    noting_warnings,
    promise,
)

_FULL: Final = "the disk of the database is full"
_MAKING: Final = 0x70756273  # names the advisory lock while the tables are made


class PostgresStore:
    """The writing side; opened by the one process that serves. Used by one thread at a time."""

    wal_held_bytes = 0  # see `Store`
    is_full = False

    def __init__(
        self,
        dsn: str,
        durability: Durability,
        *,
        pause: Callable[[float], None] = time.sleep,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Wait until this process may serve; make the tables in an empty database.

        Args:
            pause: lets time pass between two looks at who serves; may raise to end the wait.
            say: called with the reason, again and again, while this process stands by.

        Raises:
            ConfigurationError: the server does not promise `durability`.
            DamagedError: the tables are of another version.
        """
        self.path = dsn_without_password(dsn)
        self._dsn = dsn
        self._is_unsure = False  # whether a commit has happened
        self._pause = pause
        self._say = say
        while not self._takes_over(durability):
            pause(TIMING.look_s)

    def _takes_over(self, durability: Durability) -> bool:
        """Stand by over one connection; False: it was lost."""
        try:
            opened = connect(self._dsn)
        except psycopg.OperationalError as error:
            self._report(f"the database cannot be reached: {' '.join(str(error).split())}")
            return False
        try:
            _make_tables(opened)
            self._warnings: list[str] = []
            opened.add_notice_handler(noting_warnings(self._warnings))
            standby = Standby(opened)
            opened.execute(STANDS_BY)
            while True:
                promised = promise(opened)  # which may change while this process stands by
                self.promise = promise_of(promised, durability)
                since_s = elapsed_s()
                term = standby.look()
                if term is not None:
                    break
                self._report(f"serving={standby.row.holder} term={standby.row.term}")
                self._pause(TIMING.look_s)
            if self._warnings:  # the term is on this server only
                raise NotServingError(self._warnings[0])
            opened.execute(STOPS_STANDING_BY)
            keeper = connect(self._dsn, beside=opened)
        except (psycopg.Error, NotServingError) as error:
            opened.close()
            self._report(f"the database cannot be used: {' '.join(str(error).split())}")
            return False
        except BaseException:
            opened.close()
            raise
        self._opened = opened
        self.term_keeper = TermKeeper(keeper, Term(term, since_s=since_s), promised)
        self.connection = PostgresConnection(opened, begun=self._fence)
        self._topics: dict[int, tuple[str, str]] = {
            topic_id: (topic, log)
            for topic_id, topic, log in self.connection.execute(
                "SELECT topic_id, topic, log FROM topic"
            )
        }
        return True

    def _report(self, text: str) -> None:
        self._say(f"store={self.path} {text}")

    def open_reader(self) -> PostgresConnection:
        """A second connection, to the same server."""
        with as_not_serving("the database cannot be read"):
            return PostgresConnection(connect(self._dsn, beside=self._opened))

    def confirm(self) -> None:
        """Make sure that no other process serves; else end a commit that is under way.

        Raises:
            NotServingError: another one may.
        """
        try:
            self.term_keeper.confirm()
        except NotServingError:
            # A server that hangs, or a lock there, would keep the thread that waits for the commit,
            # and so this process, from standing by and from ending.
            break_off(self._opened)
            raise

    def _fence(self) -> None:
        self._opened.execute(BEAT, (self.term_keeper.term,))

    @property
    def standbys(self) -> int | None:
        """Return the standby proxies of the last count; None: not counted yet."""
        return self.term_keeper.standbys

    def commit(self, records: Sequence[Record]) -> None:
        """Make records durable: all of them or none, in one transaction.

        Raises:
            StorageFullError: no space; the transaction left no trace.
            NotServingError: another process serves, or the outcome is unknown.
            StorageFailedError: the server refuses the rows.
        """
        sent_at_s = elapsed_s()
        opened = self._opened
        self._warnings.clear()
        self._is_unsure = True
        try:
            with opened.pipeline(), opened.cursor(binary=True) as cursor:
                cursor.execute(b"BEGIN")
                beat = opened.execute(BEAT_AND_PROMISE, (self.term_keeper.term,))
                for statement in statements(records, self._topics):
                    cursor.execute(*in_columns(*statement))
                cursor.execute(b"COMMIT")
        except psycopg.errors.CheckViolation as error:
            raise NotServingError(
                f"term {self.term_keeper.term} is over: another proxy serves"
            ) from error
        except psycopg.errors.DiskFull as error:
            with as_not_serving("a transaction could not be rolled back"):
                opened.execute(b"ROLLBACK")
            self._is_unsure = False
            self.is_full = True
            raise StorageFullError(f"{self.path}: {error}", why=_FULL) from error
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable) as error:
            raise StorageFailedError(
                f"{self.path}: the database refuses a commit ({error}); nothing of it was stored. "
                "The tables of this database have been changed, or the rights to them: put them "
                "back, and start the proxy again"
            ) from error
        except (
            psycopg.errors.IntegrityError,
            psycopg.DataError,
            psycopg.ProgrammingError,
        ) as error:
            raise StorageFailedError(
                f"{self.path}: the database refuses a commit ({error}); nothing of it was stored. "
                "This is a defect: please report it"
            ) from error
        except psycopg.Error as error:
            raise NotServingError(
                f"the outcome of a commit is unknown: {' '.join(str(error).split())}"
            ) from error
        if self._warnings:  # confirmed, but not as promised: the wait for the standby was cancelled
            raise NotServingError(f"a commit is not where it should be: {self._warnings[0]}")
        self.term_keeper.keeps_promise(beat.fetchone())
        self._is_unsure = False
        self.term_keeper.renewed(sent_at_s)
        self.is_full = False

    def close(self) -> None:
        """Give the term back, if it is still ours; a standby then takes over at once.

        After an error nothing is said to the server: a transaction may still be under way there.
        """
        if not self._is_unsure and self.term_keeper.end():
            with suppress(psycopg.Error):
                self.term_keeper.give_back()
                self._opened.close()


def _make_tables(opened: psycopg.Connection[tuple[object, ...]]) -> None:
    """Make the tables if there are none, by one process."""
    with opened.transaction():
        opened.execute(b"SELECT pg_advisory_xact_lock(%s)", (_MAKING,))
        row = opened.execute(b"SELECT to_regclass('serving') IS NULL").fetchone()
        assert row is not None
        if row[0]:
            for statement in (*table_statements(), SERVING_TABLE):
                opened.execute(statement)
            opened.execute(b"INSERT INTO serving VALUES (1, %s, 0, 0, 0, '')", (SCHEMA_VERSION,))
            store_id = secrets.token_hex(8)
            columns = ("store_id", store_id)
            opened.execute(b"INSERT INTO meta VALUES (%s, %s, %s)", (*columns, row_crc(*columns)))
            return
    row = opened.execute(b"SELECT schema_version FROM serving").fetchone()
    require_version(row[0] if row else None, "the database")
