"""Records as rows of the store's tables: records in, statements with their values out.

Of several records for one row the last counts. Each statement releases the interpreter lock and
must get it back from the loop thread, so up to ROWS_PER_STATEMENT rows share one: a statement for
each row halves the rate of a busy proxy.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from reliable_pubsub.common.core.actions import Pause, Resume
from reliable_pubsub.common.core.limits import ACTIONS_KEPT, CHOSEN_TOPICS_MAX
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
    Staged,
    Subscribed,
    TopicCreated,
    TopicDeleted,
    TransactionCommitted,
    Trimmed,
    Unstaged,
    Unsubscribed,
)

OFFSET_BITS: Final = 47  # 1.4e14 messages in a topic: four years at a million a second
# Topic ids are never reused, and no name is removed.
assert CHOSEN_TOPICS_MAX < 2 ** (63 - OFFSET_BITS)
ROWS_PER_STATEMENT: Final = 32
FLOORS: Final[Mapping[ForgottenKind, str]] = {  # names in the table `meta`
    "session": "epoch_floor",
    "subscription": "generation_floor",
}
PAUSED: Final = "paused"  # in the table `meta`: the reason; no row: puts go on
_KEYS: Final[Mapping[str, Sequence[str]]] = {  # of the tables whose rows are removed one by one
    "charge": ("kind", "name"),
    "consumer_group": ("topic_id", "name"),
    "deleted_topic": ("topic_id",),
    "last_transaction": ("client",),
    "meta": ("name",),
    "moved_subscription": ("topic_id", "subscriber"),
    "skipped_range": ("topic_id", "subscriber"),
    "pattern_subscription": ("subscriber", "kind", "text"),
    "publisher": ("topic_id", "publisher", "qos"),
    "subscription": ("topic_id", "subscriber"),
    "session": ("role", "client"),
}
_OF_GROUPS: Final = Terms()  # of the subscription that a group is
_encode: Final = msgspec.msgpack.Encoder().encode

Row = tuple[Any, ...]
Statement = tuple[str, Sequence[Any]]  # SQL, and its values


def row_key(topic_id: int, offset: int) -> int:
    """The row key of an offset: topics one after another, each in offset order.

    One number for both is SQLite's own row key, so a batch needs no index to be found by offset;
    that index cost a seventh of a commit of sixteen batches.
    """
    return topic_id << OFFSET_BITS | offset


def row_crc(*columns: int | str | bytes) -> int:
    """CRC-32 of a row's columns, in the order of the table."""
    return zlib.crc32(_encode(columns))


class _Writes(Struct):
    """What the records of one commit write."""

    topics: dict[int, tuple[str, str]]
    batches: list[Row] = []
    # By table, then by key: the newest row without its CRC-32; None: it is removed.
    rows: defaultdict[str, dict[Row, Row | None]] = field(
        default_factory=partial(defaultdict, dict)
    )
    last: list[Statement] = []  # after all rows


def statements(records: Sequence[Record], topics: dict[int, tuple[str, str]]) -> list[Statement]:
    """What to execute for the records, in this order and in one transaction.

    Args:
        topics: name and log id of each topic; those that the records create are added.
    """
    writes = _Writes(topics)
    for record in records:
        _WRITES[type(record)](writes, record)
    inserts = [("INSERT INTO batch VALUES", writes.batches)]
    for table, rows in writes.rows.items():
        kept = [(*row, row_crc(*row)) for row in rows.values() if row is not None]
        inserts.append((f"REPLACE INTO {table} VALUES", kept))
        if len(kept) < len(rows):
            is_it = " AND ".join([f"{column} = ?" for column in _KEYS[table]])
            removed = (key for key, row in rows.items() if row is None)
            writes.last += [(f"DELETE FROM {table} WHERE {is_it}", key) for key in removed]
    found: list[Statement] = []
    for statement, kept in inserts:
        for first in range(0, len(kept), ROWS_PER_STATEMENT):
            some = kept[first : first + ROWS_PER_STATEMENT]
            sql = _with_places(statement, len(some[0]), len(some))
            found.append((sql, some[0] if len(some) == 1 else tuple(chain(*some))))
    return found + writes.last


@cache
def _with_places(statement: str, columns: int, rows: int) -> str:
    """The statement with a place for each value."""
    row = f"({','.join('?' * columns)})"
    return f"{statement} {','.join([row] * rows)}"


# What each record writes.


def _append(writes: _Writes, batch: Appended) -> None:
    topic_id, publisher, base, count = batch.topic_id, batch.publisher, batch.base, batch.count
    first, crc, qos = batch.first_sequence, batch.crc, batch.qos
    columns = (topic_id, base, count, publisher, batch.epoch, first, batch.timestamp_ns, crc, qos)
    row = (row_key(topic_id, base), *columns, row_crc(*columns), batch.body)
    writes.batches.append(row)
    newest = (topic_id, publisher, first, count, base, crc, qos)
    writes.rows["publisher"][topic_id, publisher, qos] = newest


def _add_dead_letter(writes: _Writes, one: DeadLettered) -> None:
    _append(writes, one.letter)
    _add_subscription(writes, one.moved)


def _add_group_letter(writes: _Writes, one: GroupLetter) -> None:
    _append(writes, one.letter)


def _add_control(writes: _Writes, one: ControlSeen) -> None:
    row = ("subscriber", one.subscriber, one.epoch, one.nonce, one.control)
    writes.rows["session"]["subscriber", one.subscriber] = row


def _add_session(writes: _Writes, one: Granted) -> None:
    row = (one.role, one.client, one.epoch, one.nonce, 0)
    writes.rows["session"][one.role, one.client] = row


def _add_subscription(
    writes: _Writes, record: CursorMoved | Subscribed | Unsubscribed | Expired
) -> None:
    terms = record.terms
    expired = isinstance(record, Expired)
    ended = isinstance(record, Unsubscribed) or (expired and terms.session == "clean")
    is_live = isinstance(record, CursorMoved | Subscribed)
    key = (record.topic_id, record.subscriber)
    if isinstance(record, Subscribed | Unsubscribed):
        control = ("subscriber", record.subscriber, record.epoch, record.nonce, record.control)
        writes.rows["session"]["subscriber", record.subscriber] = control
    writes.rows["subscription"][key] = (
        *key,
        record.generation,
        record.cursor,
        0 if ended else 1 + bool(terms.by_pattern),
        terms.qos,
        record.shown if is_live else max(record.shown, record.cursor),
        int(expired),
        terms.session,
        terms.lease_ms,
    )
    if isinstance(record, Subscribed) and record.moved:
        writes.rows["moved_subscription"][key] = (*key, record.moved)
    elif (
        isinstance(record, Subscribed)
        or (ended and terms.session == "clean")
        or getattr(record, "takes", False)
    ):
        writes.rows["moved_subscription"][key] = None
    if isinstance(record, Subscribed):
        skipped = record.skipped
        writes.rows["skipped_range"][key] = (*key, *skipped) if skipped else None


def _add_pattern(writes: _Writes, record: PatternSubscribed | PatternEnded) -> None:
    key, row = (record.subscriber, record.pattern.kind, record.pattern.text), None
    if isinstance(record, PatternSubscribed):
        terms = record.terms
        row = (*key, terms.qos, terms.session, terms.lease_ms, record.reader)
    writes.rows["pattern_subscription"][key] = row
    control = ("subscriber", record.subscriber, record.epoch, record.nonce, record.control)
    writes.rows["session"]["subscriber", record.subscriber] = control


def _add_group(writes: _Writes, one: GroupChanged) -> None:
    key, row = (one.topic_id, one.group), None
    if not one.ends:
        values = (one.terms, stored_runs(one.runs), one.members, one.lost)
        row = (*key, *map(_encode, values))
    writes.rows["consumer_group"][key] = row
    writes.rows["subscription"][one.topic_id, one.subscriber] = (
        *(one.topic_id, one.subscriber, one.generation, one.cursor, int(not one.ends)),
        *(_OF_GROUPS.qos, one.cursor, 0, _OF_GROUPS.session, _OF_GROUPS.lease_ms),
    )


_FORGOTTEN: Final[Mapping[ForgottenKind, str]] = {  # tables
    "charge": "charge",
    "session": "session",
    "subscription": "subscription",
    "transaction": "last_transaction",
    "publisher": "publisher",
}


def _forget(writes: _Writes, one: Forgotten) -> None:
    writes.rows[_FORGOTTEN[one.kind]][one.key] = None
    if one.kind == "subscription":
        writes.rows["moved_subscription"][one.key] = None
        writes.rows["skipped_range"][one.key] = None
    name = FLOORS.get(one.kind)
    if name is not None and one.floor:
        before = writes.rows["meta"].get((name,))
        floor = max(one.floor, int(before[1]) if before else 0)
        writes.rows["meta"][name,] = (name, str(floor))


def _add_charge(writes: _Writes, one: Charged) -> None:
    writes.rows["charge"][one.kind, one.name] = (one.kind, one.name, one.key)


def _add_transaction(writes: _Writes, one: TransactionCommitted) -> None:
    row = (one.client, one.transaction, one.digest, _encode(one.receipts))
    writes.rows["last_transaction"][one.client,] = row


def _add_action(writes: _Writes, one: Administered) -> None:
    """Write an operator's action; remove those that are no longer kept."""
    values = (_encode(one.action), _encode(one.effect))
    row = (one.number, one.nonce, one.at_ns, one.who, one.client, *values)
    writes.rows["admin_action"][one.number,] = row
    old = (one.number - ACTIONS_KEPT,)
    writes.last.append(("DELETE FROM admin_action WHERE number <= ?", old))
    match one.action:
        case Pause(reason=reason):
            writes.rows["meta"][PAUSED,] = (PAUSED, reason)
        case Resume():
            writes.rows["meta"][PAUSED,] = None


def _trim(writes: _Writes, one: Trimmed) -> None:
    """Remove the batches of a topic below its start; also those that this commit appends."""
    topic_id, start = one.topic_id, one.start
    places = (row_key(topic_id, 0), row_key(topic_id, start))
    writes.last.append(("DELETE FROM batch WHERE place >= ? AND place < ?", places))
    row = (topic_id, *writes.topics[topic_id], start, one.end, one.timestamp_ns)
    writes.rows["topic"][topic_id,] = row


def _add_topic(writes: _Writes, one: TopicCreated) -> None:
    writes.topics[one.topic_id] = (one.topic, one.log)
    writes.rows["topic"][one.topic_id,] = (one.topic_id, one.topic, one.log, 0, 0, 0)


def _delete_topic(writes: _Writes, one: TopicDeleted) -> None:
    writes.rows["deleted_topic"][one.topic_id,] = None if one.is_back else (one.topic_id,)


def _write_nothing(_writes: _Writes, _record: Staged | Unstaged) -> None:
    """What is staged is in memory only."""


_WRITES: Final[Mapping[type[Any], Callable[[_Writes, Any], None]]] = {
    Appended: _append,
    DeadLettered: _add_dead_letter,
    GroupLetter: _add_group_letter,
    CursorMoved: _add_subscription,
    Expired: _add_subscription,
    Subscribed: _add_subscription,
    Unsubscribed: _add_subscription,
    ControlSeen: _add_control,
    Granted: _add_session,
    PatternSubscribed: _add_pattern,
    PatternEnded: _add_pattern,
    GroupChanged: _add_group,
    Forgotten: _forget,
    Charged: _add_charge,
    TransactionCommitted: _add_transaction,
    Administered: _add_action,
    Trimmed: _trim,
    TopicCreated: _add_topic,
    TopicDeleted: _delete_topic,
    Staged: _write_nothing,
    Unstaged: _write_nothing,
}
