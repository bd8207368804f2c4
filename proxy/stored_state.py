"""Reading the store: the state from which a broker starts, over a second, read-only connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import UNSET

from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.damage import RESTORE_A_COPY, damaged_error

from .core.rows import FLOORS, row_key
from .core.schema import KNOWN_ENDS, SCHEMA_ROWS, StoredTable, meaning
from .core.stored import (
    StoredPublisher,
    StoredSegment,
    StoredSession,
    StoredState,
    StoredSubscription,
    StoredTopic,
)
from .features import SCHEMA, TABLES

FILE_NAME: Final = "proxy.sqlite3"
UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)  # the second for undecodable text


class SqlRows(Protocol):
    """The result of a statement."""

    def fetchone(self) -> Any:
        """The next row, or None."""

    def fetchall(self) -> list[Any]:
        """The rows that are left."""

    def __iter__(self) -> Iterator[Any]:
        """The rows that are left, one by one."""

    def close(self) -> object:
        """Give up the rows that are left."""


class SqlConnection(Protocol):
    """To SQLite, or to another database that takes the statements of `core/schema.py`."""

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> SqlRows:
        """Execute a statement; its values are at `?`."""

    def close(self) -> object:
        """Close it."""


@contextmanager
def reading() -> Iterator[None]:
    """Translate an SQLite error: the file is damaged, or the system cannot read it."""
    try:
        yield
    except UNREADABLE as error:
        raise damaged_error(
            error, f"the store {FILE_NAME} cannot be read: {error}", remedy=RESTORE_A_COPY
        ) from error


def open_reader(path: Path, *, is_immutable: bool = False) -> sqlite3.Connection:
    """Return a read-only connection.

    Args:
        is_immutable: nothing writes the file, so neither locks nor a log are used.
    """
    with reading():
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' * is_immutable}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,  # the loop, whose it is, may go to another thread
        )
        connection.execute("PRAGMA query_only = ON")
    return connection


def read_state(
    connection: SqlConnection, segments: Mapping[int, Sequence[StoredSegment]]
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
    subscriptions = _subscriptions(connection)
    deleted = {topic_id for (topic_id,) in connection.execute("SELECT topic_id FROM deleted_topic")}
    known_ends = {topic_id: end for topic_id, _, _, end in connection.execute(KNOWN_ENDS)}
    topics = []
    for topic_id, topic, log, start, trimmed_ns in connection.execute(
        "SELECT topic_id, topic, log, start_offset, trimmed_ns FROM topic"
    ).fetchall():
        newest = connection.execute(
            "SELECT base + count, timestamp_ns FROM batch WHERE place >= ? AND place < ?"
            " ORDER BY place DESC LIMIT 1",
            (row_key(topic_id, 0), row_key(topic_id + 1, 0)),
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
                topic_id in deleted,
            )
        )
    sessions = [
        StoredSession(role, client, epoch, nonce, control)
        for role, client, epoch, nonce, control in connection.execute(
            "SELECT role, client, epoch, nonce, control FROM session"
        )
    ]
    return StoredState(
        meta["store_id"],
        topics,
        sessions,
        epoch_floor=int(meta.get(FLOORS["session"], 0)),
        generation_floor=int(meta.get(FLOORS["subscription"], 0)),
        rows={table.kind: _rows(connection, table) for table in TABLES.tables if table.kind},
    )


def _rows(connection: SqlConnection, table: StoredTable) -> list[Any]:
    """Return what a feature has stored in a table, in the order of its key."""
    assert table.row is not None
    key = ", ".join(table.key)
    sql = f"SELECT {table.checked_columns} FROM {table.name} ORDER BY {key}"
    return [table.row(*columns) for columns in connection.execute(sql)]


def _subscriptions(connection: SqlConnection) -> dict[int, list[StoredSubscription]]:
    """The subscriptions of each topic."""
    moved = {
        (topic_id, subscriber): how
        for topic_id, subscriber, how in connection.execute(
            "SELECT topic_id, subscriber, moved FROM moved_subscription"
        )
    }
    skipped = {
        (topic_id, subscriber): (first, end)
        for topic_id, subscriber, first, end in connection.execute(
            "SELECT topic_id, subscriber, first_offset, end_offset FROM skipped_range"
        )
    }
    subscriptions: dict[int, list[StoredSubscription]] = {}
    for topic_id, *place, active, shown, expired, qos, session, lease_ms in connection.execute(
        "SELECT topic_id, subscriber, generation, cursor, active, shown, expired, qos, session,"
        " lease_ms FROM subscription"
    ):
        terms = Terms(qos=qos, session=session, lease_ms=lease_ms, by_pattern=active == 2 or UNSET)
        subscriber, generation, cursor = place
        subscription = StoredSubscription(
            subscriber,
            generation,
            cursor,
            bool(active),
            shown,
            terms,
            bool(expired),
            moved.get((topic_id, subscriber), ""),
            skipped.get((topic_id, subscriber)),
        )
        subscriptions.setdefault(topic_id, []).append(subscription)
    return subscriptions


def has_own_schema(connection: sqlite3.Connection) -> bool:
    """Whether the tables are as this version makes them."""
    return _schema(connection) == _own_schema()


def _schema(connection: sqlite3.Connection) -> list[tuple[bytes, ...]]:
    rows = connection.execute(SCHEMA_ROWS).fetchall()
    return [(*names, meaning(sql)) for *names, sql in rows]


@cache
def _own_schema() -> list[tuple[bytes, ...]]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(SCHEMA)
        return _schema(connection)
