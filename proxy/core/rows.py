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

from reliable_pubsub.common.core.actions import Pause, Resume
from reliable_pubsub.common.core.limits import ACTIONS_KEPT
from reliable_pubsub.common.core.message_base import Terms

from .group_state import stored_runs
from .records import (
    Administered,
    Appended,
    Charged,
    ControlSeen,
    CursorMoved,
    DeadLettered,
    Expired,
    Forgotten,
    ForgottenKind,
    Granted,
    GroupChanged,
    GroupLetter,
    PatternEnded,
    PatternSubscribed,
    Record,
    Subscribed,
    TopicCreated,
    TopicDeleted,
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
_KEYS: Final[Mapping[str, Sequence[str]]] = {
    "charge": ("kind", "name"),
    "deleted_topic": ("topic_id",),
    "moved_subscription": ("topic_id", "subscriber"),
    "pattern_subscription": ("subscriber", "kind", "text"),
    "publisher": ("topic_id", "publisher", "qos"),
    "subscription": ("topic_id", "subscriber"),
    "session": ("role", "client"),
}
PAUSED: Final = "paused"  # in the table `meta`: the reason; no row: puts go on

_OF_GROUPS: Final = Terms()  # of the subscription that a group is

Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Any]]  # SQL, and its values


@dataclass(slots=True)
class _Changes:
    """What the records of one commit write."""

    batches: list[Appended] = field(default_factory=list)
    # The newest row of each key, without the key; None: removed.
    publishers: dict[Row, Appended | None] = field(default_factory=dict)
    subscriptions: dict[Row, Row | None] = field(default_factory=dict)
    patterns: dict[Row, Row | None] = field(default_factory=dict)
    sessions: dict[Row, Row | None] = field(default_factory=dict)
    floors: dict[ForgottenKind, int] = field(default_factory=dict)
    transactions: dict[str, TransactionCommitted | None] = field(default_factory=dict)
    moved: dict[Row, Row | None] = field(default_factory=dict)
    actions: list[Administered] = field(default_factory=list)
    groups: dict[tuple[int, str], GroupChanged] = field(default_factory=dict)
    deleted: dict[Row, Row | None] = field(default_factory=dict)  # topics
    charges: dict[Row, Row | None] = field(default_factory=dict)
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
    for table, rows in (
        ("subscription", changes.subscriptions),
        ("pattern_subscription", changes.patterns),
        ("session", changes.sessions),
        ("deleted_topic", changes.deleted),
        ("moved_subscription", changes.moved),
        ("charge", changes.charges),
    ):
        if rows:
            found += _replace(table, rows)
    if changes.floors:
        floors = [(FLOORS[kind], str(floor)) for kind, floor in changes.floors.items() if floor]
        found += _insert("REPLACE INTO meta VALUES", list(map(_with_crc, floors)))
    if changes.transactions:
        kept = [one for one in changes.transactions.values() if one is not None]
        found += _insert("REPLACE INTO last_transaction VALUES", list(map(_transaction_row, kept)))
        gone = [client for client, one in changes.transactions.items() if one is None]
        found += [("DELETE FROM last_transaction WHERE client = ?", (one,)) for one in gone]
    for action in changes.actions:
        found += _action_statements(action)
    if changes.groups:
        found += _group_statements(changes.groups)
    for topic_id, (start, end, timestamp_ns) in changes.topics.items():
        places = (place_of(topic_id, 0), place_of(topic_id, start))
        found.append(("DELETE FROM batch WHERE place >= ? AND place < ?", places))
        row = _with_crc((topic_id, *topics[topic_id], start, end, timestamp_ns))
        found += _insert("REPLACE INTO topic VALUES", [row])
    return found


def _changes(records: Sequence[Record], topics: dict[int, tuple[str, str]]) -> _Changes:
    changes = _Changes()
    for record in records:
        if isinstance(record, GroupChanged | GroupLetter):
            _add_of_group(changes, record)
        elif isinstance(record, PatternSubscribed | PatternEnded):
            _add_pattern(changes, record)
        elif isinstance(record, Charged):
            changes.charges[record.kind, record.name] = (record.key,)
        else:
            _add(changes, record, topics)
    return changes


def _add(changes: _Changes, record: Record, topics: dict[int, tuple[str, str]]) -> None:
    match record:
        case Appended():
            changes.batches.append(record)
            changes.publishers[record.topic_id, record.publisher, record.qos] = record
        case DeadLettered(letter, moved):
            changes.batches.append(letter)
            changes.publishers[letter.topic_id, letter.publisher, letter.qos] = letter
            _add_subscription(changes, moved)
        case CursorMoved() | Expired() | Subscribed() | Unsubscribed():
            _add_subscription(changes, record)
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
        case Administered():
            changes.actions.append(record)
        case TopicDeleted(topic_id, is_back):
            changes.deleted[topic_id,] = None if is_back else ()
        case TopicCreated(topic_id, topic, log):
            topics[topic_id] = (topic, log)
            changes.topics[topic_id] = (0, 0, 0)


def _add_subscription(
    changes: _Changes, record: CursorMoved | Subscribed | Unsubscribed | Expired
) -> None:
    terms = record.terms
    expired = isinstance(record, Expired)
    ended = isinstance(record, Unsubscribed) or (expired and terms.session == "clean")
    is_live = isinstance(record, CursorMoved | Subscribed)
    if isinstance(record, Subscribed | Unsubscribed):
        control = (record.epoch, record.nonce, record.control)
        changes.sessions["subscriber", record.subscriber] = control
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
    key = (record.topic_id, record.subscriber)
    if isinstance(record, Subscribed) and record.moved:
        changes.moved[key] = (record.moved,)
    elif isinstance(record, Subscribed) or ended or getattr(record, "takes", False):
        changes.moved[key] = None


def _add_pattern(changes: _Changes, record: PatternSubscribed | PatternEnded) -> None:
    key, row = (record.subscriber, record.pattern.kind, record.pattern.text), None
    if isinstance(record, PatternSubscribed):
        terms = record.terms
        row = (terms.qos, terms.session, terms.lease_ms, record.reader)
    changes.patterns[key] = row
    control = (record.epoch, record.nonce, record.control)
    changes.sessions["subscriber", record.subscriber] = control


def _add_of_group(changes: _Changes, record: GroupChanged | GroupLetter) -> None:
    if isinstance(record, GroupLetter):
        letter = record.letter
        changes.batches.append(letter)
        changes.publishers[letter.topic_id, letter.publisher, letter.qos] = letter
        return
    changes.groups[record.topic_id, record.group] = record
    changes.subscriptions[record.topic_id, record.subscriber] = (
        *(record.generation, record.cursor, int(not record.ends), _OF_GROUPS.qos),
        *(record.cursor, 0, _OF_GROUPS.session, _OF_GROUPS.lease_ms),
    )


def _add_forgotten(changes: _Changes, record: Forgotten) -> None:
    if record.kind == "transaction":
        changes.transactions[str(record.key[0])] = None
        return
    rows: dict[Row, Any]
    match record.kind:
        case "session":
            rows = changes.sessions
        case "subscription":
            rows = changes.subscriptions
        case "charge":
            rows = changes.charges
        case _:
            rows = changes.publishers
    rows[record.key] = None
    changes.floors[record.kind] = max(record.floor, changes.floors.get(record.kind, 0))


def _action_statements(one: Administered) -> list[Statement]:
    """An operator's action; the oldest that is kept goes."""
    encode = msgspec.msgpack.encode
    row = (one.number, one.nonce, one.at_ns, one.who, one.client)
    found = _insert(
        "INSERT INTO admin_action VALUES",
        [_with_crc((*row, encode(one.action), encode(one.effect)))],
    )
    found.append(
        ("DELETE FROM admin_action WHERE number <= ?", (one.number - ACTIONS_KEPT,)),
    )
    match one.action:
        case Pause(reason=reason):
            found += _insert("REPLACE INTO meta VALUES", [_with_crc((PAUSED, reason))])
        case Resume():
            found.append(("DELETE FROM meta WHERE name = ?", (PAUSED,)))
    return found


def _replace(
    table: str,
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


def _group_statements(groups: Mapping[tuple[int, str], GroupChanged]) -> list[Statement]:
    encode = msgspec.msgpack.encode
    kept, deleted = [], []
    for (topic_id, name), one in groups.items():
        if one.ends:
            sql = "DELETE FROM consumer_group WHERE topic_id = ? AND name = ?"
            deleted.append((sql, (topic_id, name)))
        else:
            runs = stored_runs(one.runs)
            blobs = [encode(value) for value in (one.terms, runs, one.members, one.lost)]
            kept.append(_with_crc((topic_id, name, *blobs)))
    return (_insert("REPLACE INTO consumer_group VALUES", kept) if kept else []) + deleted


def _transaction_row(one: TransactionCommitted) -> Row:
    receipts = msgspec.msgpack.encode(one.receipts)
    return _with_crc((one.client, one.transaction, one.digest, receipts))


def _with_crc(columns: Row) -> Row:
    return (*columns, row_crc(*columns))
