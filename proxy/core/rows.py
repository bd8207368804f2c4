"""Records as rows of the store's tables: records in, statements with their values out.

Of several records for one row the last counts. Each statement releases the interpreter lock and
must get it back from the loop thread, so up to ROWS_PER_STATEMENT rows share one: a statement for
each row halves the rate of a busy proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Any, Final

import msgspec

from .records import (
    Appended,
    ControlSeen,
    CursorMoved,
    DeadLettered,
    Expired,
    Forgotten,
    ForgottenKind,
    Granted,
    Record,
    Subscribed,
    TopicCreated,
    TransactionCommitted,
    Trimmed,
    Unsubscribed,
)
from .schema import place_of, row_crc

ROWS_PER_STATEMENT: Final = 32
FLOORS: Final[Mapping[ForgottenKind, str]] = {  # names in the table `meta`
    "session": "epoch_floor",
    "subscription": "generation_floor",
}
_KEYS: Final[Mapping[ForgottenKind, Sequence[str]]] = {
    "publisher": ("topic_id", "publisher", "qos"),
    "subscription": ("topic_id", "subscriber"),
    "session": ("role", "client"),
}

Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Any]]  # SQL, and its values


@dataclass(slots=True)
class _Changes:
    """What the records of one commit write."""

    batches: list[Appended] = field(default_factory=list)
    # The newest row of each key, without the key; None: removed.
    publishers: dict[Row, Appended | None] = field(default_factory=dict)
    subscriptions: dict[Row, Row | None] = field(default_factory=dict)
    sessions: dict[Row, Row | None] = field(default_factory=dict)
    floors: dict[ForgottenKind, int] = field(default_factory=dict)
    transactions: dict[str, TransactionCommitted] = field(default_factory=dict)
    topics: dict[int, Row] = field(default_factory=dict)  # start, end and newest timestamp


def statements(records: Sequence[Record], topics: dict[int, tuple[str, str]]) -> list[Statement]:
    """What to execute for the records, in this order and in one transaction.

    Args:
        topics: name and log id of each topic; those that the records create are added.
    """
    changes = _changes(records, topics)
    found: list[Statement] = []
    if changes.batches:
        found += _insert("INSERT INTO batch VALUES", list(map(_batch_row, changes.batches)))
    if changes.publishers:
        found += _replace("publisher", changes.publishers, _publisher_row)
    if changes.subscriptions:
        found += _replace("subscription", changes.subscriptions)
    if changes.sessions:
        found += _replace("session", changes.sessions)
    if changes.floors:
        floors = [(FLOORS[kind], str(floor)) for kind, floor in changes.floors.items() if floor]
        found += _insert("REPLACE INTO meta VALUES", list(map(_with_crc, floors)))
    if changes.transactions:
        transactions = list(map(_transaction_row, changes.transactions.values()))
        found += _insert("REPLACE INTO last_transaction VALUES", transactions)
    for topic_id, (start, end, timestamp_ns) in changes.topics.items():
        places = (place_of(topic_id, 0), place_of(topic_id, start))
        found.append(("DELETE FROM batch WHERE place >= ? AND place < ?", places))
        row = _with_crc((topic_id, *topics[topic_id], start, end, timestamp_ns))
        found += _insert("REPLACE INTO topic VALUES", [row])
    return found


def _changes(records: Sequence[Record], topics: dict[int, tuple[str, str]]) -> _Changes:
    changes = _Changes()
    for record in records:
        match record:
            case Appended():
                changes.batches.append(record)
                changes.publishers[record.topic_id, record.publisher, record.qos] = record
            case DeadLettered(letter, moved):
                changes.batches.append(letter)
                changes.publishers[letter.topic_id, letter.publisher, letter.qos] = letter
                _add_subscription(changes, moved)
            case CursorMoved() | Expired():
                _add_subscription(changes, record)
            case Subscribed() | Unsubscribed():
                _add_subscription(changes, record)
                control = (record.epoch, record.nonce, record.control)
                changes.sessions["subscriber", record.subscriber] = control
            case ControlSeen(subscriber, epoch, nonce, number):
                changes.sessions["subscriber", subscriber] = (epoch, nonce, number)
            case Granted(role, client, epoch, nonce):
                changes.sessions[role, client] = (epoch, nonce, 0)
            case Forgotten():
                _add_forgotten(changes, record)
            case Trimmed(topic_id, start, end, timestamp_ns):
                changes.topics[topic_id] = (start, end, timestamp_ns)
            case TransactionCommitted(client):
                changes.transactions[client] = record
            case TopicCreated(topic_id, topic, log):
                topics[topic_id] = (topic, log)
                changes.topics[topic_id] = (0, 0, 0)
    return changes


def _add_subscription(
    changes: _Changes, record: CursorMoved | Subscribed | Unsubscribed | Expired
) -> None:
    terms = record.terms
    expired = isinstance(record, Expired)
    ended = isinstance(record, Unsubscribed) or (expired and terms.session == "clean")
    is_live = isinstance(record, CursorMoved | Subscribed)
    changes.subscriptions[record.topic_id, record.subscriber] = (
        record.generation,
        record.cursor,
        int(not ended),
        terms.qos,
        record.shown if is_live else max(record.shown, record.cursor),
        int(expired),
        terms.session,
        terms.lease_ms,
    )


def _add_forgotten(changes: _Changes, record: Forgotten) -> None:
    rows: dict[Row, Any]
    match record.kind:
        case "session":
            rows = changes.sessions
        case "subscription":
            rows = changes.subscriptions
        case _:
            rows = changes.publishers
    rows[record.key] = None
    changes.floors[record.kind] = max(record.floor, changes.floors.get(record.kind, 0))


def _replace(
    table: ForgottenKind,
    rows: Mapping[Row, Any],
    row_of: Callable[[Any], Row] | None = None,
) -> Sequence[Statement]:
    """Write rows by their keys; delete those that are None.

    Args:
        row_of: makes the row; None: it is its key and its other columns.
    """
    kept: list[Row] = []
    deleted: list[Statement] = []
    for key, row in rows.items():
        if row is None:
            is_it = " AND ".join([f"{column} = ?" for column in _KEYS[table]])
            deleted.append((f"DELETE FROM {table} WHERE {is_it}", key))
        else:
            kept.append(row_of(row) if row_of else _with_crc((*key, *row)))
    return _insert(f"REPLACE INTO {table} VALUES", kept) + deleted


def _insert(statement: str, rows: Sequence[Row]) -> list[Statement]:
    """Write rows, several at once."""
    if len(rows) == 1:
        return [(_with_places(statement, len(rows[0]), 1), rows[0])]
    found: list[Statement] = []
    for first in range(0, len(rows), ROWS_PER_STATEMENT):
        some = rows[first : first + ROWS_PER_STATEMENT]
        sql = _with_places(statement, len(some[0]), len(some))
        found.append((sql, tuple(chain(*some))))
    return found


@cache
def _with_places(statement: str, columns: int, rows: int) -> str:
    """The statement with a place for each value."""
    row = f"({','.join('?' * columns)})"
    return f"{statement} {','.join([row] * rows)}"


def _batch_row(batch: Appended) -> Row:
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


def _publisher_row(batch: Appended) -> Row:
    columns = (
        batch.topic_id,
        batch.publisher,
        batch.first_sequence,
        batch.count,
        batch.base,
        batch.crc,
        batch.qos,
    )
    return (*columns, row_crc(*columns))


def _transaction_row(one: TransactionCommitted) -> Row:
    receipts = msgspec.msgpack.encode(one.receipts)
    return _with_crc((one.client, one.transaction, one.digest, receipts))


def _with_crc(columns: Row) -> Row:
    return (*columns, row_crc(*columns))
