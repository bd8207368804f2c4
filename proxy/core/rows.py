"""Records as rows of the store's tables: records in, statements with their values out.

Of several records for one row the last counts. Each statement releases the interpreter lock and
must get it back from the loop thread, so up to ROWS_PER_STATEMENT rows share one: a statement for
each row halves the rate of a busy proxy.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct, field

from reliable_pubsub.common.core.limits import CHOSEN_TOPICS_MAX

from .schema import StoredTable
from .stored import ForgottenKind

OFFSET_BITS: Final = 47  # 1.4e14 messages in a topic: four years at a million a second
# Topic ids are never reused, and no name is removed.
assert CHOSEN_TOPICS_MAX < 2 ** (63 - OFFSET_BITS)
ROWS_PER_STATEMENT: Final = 32
FLOORS: Final[Mapping[ForgottenKind, str]] = {  # names in the table `meta`
    "session": "epoch_floor",
    "subscription": "generation_floor",
}
encode: Final = msgspec.msgpack.Encoder().encode  # a column that is a structure

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
    return zlib.crc32(encode(columns))


class Writes(Struct):
    """What the records of one commit write; each adds its rows (`Record.store`)."""

    topics: dict[int, tuple[str, str]]
    batches: list[Row] = []
    # By table, then by key: the newest row without its CRC-32; None: it is removed.
    rows: defaultdict[StoredTable, dict[Row, Row | None]] = field(
        default_factory=partial(defaultdict, dict)
    )
    last: list[Statement] = []  # after all rows


class Stored(Protocol):
    """What adds its rows to a commit."""

    def store(self, writes: Writes, /) -> None:
        """Add them."""


def statements(records: Sequence[Stored], topics: dict[int, tuple[str, str]]) -> list[Statement]:
    """What to execute for the records, in this order and in one transaction.

    Args:
        topics: name and log id of each topic; those that the records create are added.
    """
    writes = Writes(topics)
    for record in records:
        record.store(writes)
    inserts = [("INSERT INTO batch VALUES", writes.batches)]
    for table, rows in writes.rows.items():
        kept = [(*row, row_crc(*row)) for row in rows.values() if row is not None]
        inserts.append((f"REPLACE INTO {table.name} VALUES", kept))
        if len(kept) < len(rows):
            is_it = " AND ".join([f"{column} = ?" for column in table.key])
            removed = (key for key, row in rows.items() if row is None)
            writes.last += [(f"DELETE FROM {table.name} WHERE {is_it}", key) for key in removed]
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
