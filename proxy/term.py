"""Keeps the term of the proxy that serves a database, and lets a standby take the next one.

What the row, the term and the lease of answers mean, and when each is over: `core/serving.py`.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from typing import Any, Final

import psycopg

from reliable_pubsub.common import threads

from .core.server_promise import ServerPromise
from .core.serving import TIMING, ServingRow, SilenceWatch, Term
from .core.storage import NotServingError
from .postgres_connection import OpenConnection, as_not_serving, elapsed_s

SERVING_TABLE: Final = b"""
CREATE TABLE serving (
    one bigint PRIMARY KEY CHECK (one = 1),
    schema_version bigint NOT NULL,
    term bigint NOT NULL,
    said bigint NOT NULL,
    beat bigint NOT NULL,
    holder text NOT NULL,
    CONSTRAINT term_is_over CHECK (said = term)
) WITH (fillfactor = 10)
"""
TAKE_OVER: Final = (
    b"UPDATE serving SET term = term + 1, said = term + 1, beat = 0, holder = %s"
    b" WHERE term = %s AND beat = %s RETURNING term"
)
# Sessions with a transaction that has the row. No timeout of the server ends one whose client was
# stopped, or lost its host, in the middle of sending a commit. Those that wait for it come first:
# the beat of the same proxy would else be stored as soon as its commit is gone, and begin the
# silence again.
END_WHAT_HOLDS_THE_ROW: Final = b"""
SELECT pg_terminate_backend(pid) FROM (
    SELECT pid FROM pg_locks AS held
    WHERE relation = 'serving'::regclass AND mode = 'RowExclusiveLock' AND granted
        AND pid <> pg_backend_pid()
    ORDER BY EXISTS (SELECT FROM pg_locks WHERE pid = held.pid AND NOT granted) DESC
) AS waiting_then_holding
"""
# Fails by the constraint when the term is over; waits for a transaction that has the row.
BEAT: Final = b"UPDATE serving SET said = %s, beat = beat + 1"
STANDS_BY: Final = b"SET application_name = 'reliable-pubsub standby'"
STOPS_STANDING_BY: Final = b"RESET application_name"
# A session whose host is gone may stay for hours; one that stands by asks four times a second.
_STANDBYS: Final = b"""
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'reliable-pubsub standby'
    AND coalesce(state_change > clock_timestamp() - interval '5 s', true)
"""
COUNT_EVERY_BEATS: Final = 4
LOCK_MS: Final = 500  # that a standby waits for the row
_PROMISE: Final = (
    b"current_setting('fsync'), current_setting('synchronous_commit'),"
    b" current_setting('synchronous_standby_names')"
)
# With what the server promises for this very transaction.
BEAT_AND_PROMISE: Final = BEAT + b" RETURNING " + _PROMISE


def promise(opened: OpenConnection) -> ServerPromise:
    """What the server promises now."""
    row = opened.execute(b"SELECT " + _PROMISE).fetchone()
    assert row is not None
    return ServerPromise(*row)


class Standby:
    """Polls the row until this process may serve."""

    def __init__(self, opened: OpenConnection) -> None:
        self._opened = opened
        self._silence = SilenceWatch(TIMING)
        self.row = ServingRow(0, 0, "")  # as it was seen last

    def look(self) -> int | None:
        """Take over if the one that serves is silent; return the term, which is committed then.

        A session that keeps the row from us is ended; then a later look takes over.
        """
        found = self._opened.execute(b"SELECT term, beat, holder FROM serving").fetchone()
        assert found is not None
        self.row = ServingRow(*found)
        if not self._silence.is_over(self.row, elapsed_s()):
            return None
        name = f"{socket.gethostname()}:{os.getpid()}"
        try:
            with self._opened.transaction():
                self._opened.execute(f"SET LOCAL lock_timeout = {LOCK_MS}".encode())
                values = (name, self.row.term, self.row.beat)
                taken = self._opened.execute(TAKE_OVER, values).fetchone()
        except psycopg.errors.LockNotAvailable:
            self._opened.execute(END_WHAT_HOLDS_THE_ROW)
            return None
        return None if taken is None else int(taken[0])


class TermKeeper:
    """Keeps a term by a thread of its own, on a connection of its own."""

    def __init__(self, opened: OpenConnection, term: Term, promised: ServerPromise) -> None:
        self.term = term.number
        self._term = term
        self._opened = opened
        self._promised = promised
        self._over = ""
        self.standbys: int | None = None
        self._ending = threading.Event()
        self._thread = threads.start(self._keep, name="term")

    def renewed(self, sent_at_s: float) -> None:
        """A transaction with our beat, sent at this time, is committed."""
        self._term.renewed(sent_at_s)

    def confirm(self) -> None:
        """Make sure that no other process serves.

        Raises:
            NotServingError: another one may; nothing may be answered from memory.
        """
        self._term.confirm(elapsed_s(), self._over)

    def _keep(self) -> None:
        beats = 0
        try:
            while not self._ending.wait(TIMING.beat_s):
                now_s = elapsed_s()
                if self._term.may_beat(now_s):
                    self._beat(now_s)
                    if beats % COUNT_EVERY_BEATS == 0:
                        self._count_standbys()
                    beats += 1
        except (NotServingError, psycopg.Error) as error:
            self._over = " ".join(str(error).split())
        except BaseException as error:
            self._over = f"its thread has died: {error}"
            raise

    def _beat(self, now_s: float) -> None:
        warnings: list[str] = []
        note: Callable[[psycopg.errors.Diagnostic], None] = noting_warnings(warnings)
        self._opened.add_notice_handler(note)
        try:
            with as_not_serving("the beat was not stored"):
                row = self._opened.execute(BEAT_AND_PROMISE, (self.term,)).fetchone()
        finally:
            self._opened.remove_notice_handler(note)
        if warnings:
            raise NotServingError(warnings[0])
        self.keeps_promise(row)
        self.renewed(now_s)

    def _count_standbys(self) -> None:
        """Count the standby proxies; no promise depends on it."""
        try:
            row = self._opened.execute(_STANDBYS).fetchone()
        except psycopg.Error:  # the next beat finds out whether the connection is lost
            self.standbys = None
        else:
            self.standbys = None if row is None else int(row[0])

    def keeps_promise(self, row: tuple[Any, ...] | None) -> None:
        """Make sure that a transaction was promised what ours say.

        Args:
            row: what its `BEAT_AND_PROMISE` gave.

        Raises:
            NotServingError: it was not.
        """
        assert row is not None
        if ServerPromise(*row) != self._promised:
            raise NotServingError("the server has changed what its commits promise")

    def end(self) -> bool:
        """Stop beating; return whether the term is still ours and can be given back."""
        self._ending.set()
        self._thread.join(timeout=TIMING.beat_s)
        return not self._thread.is_alive() and self._term.is_ours(elapsed_s())

    def give_back(self) -> None:
        """Let a standby take over at once; nothing is answered any longer."""
        # A hint that may be lost: it waits neither for a standby server nor for a lock.
        self._opened.execute(b"SET synchronous_commit = local; SET lock_timeout = '1s'")
        self._opened.execute(b"UPDATE serving SET said = %s, holder = ''", (self.term,))
        self._opened.close()


def noting_warnings(found: list[str]) -> Callable[[psycopg.errors.Diagnostic], None]:
    """Collect warnings: a commit that could not wait for the standby is confirmed with one."""

    def note(diagnostic: psycopg.errors.Diagnostic) -> None:
        if diagnostic.severity_nonlocalized == "WARNING":
            found.append(diagnostic.message_primary or "a warning of the database")

    return note
