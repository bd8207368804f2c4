"""The tables and statements of the store in PostgreSQL's words, made from those for SQLite.

There is one description of tables (`schema.py`) and of rows (`rows.py`); a table that is added
there needs nothing here. The two differ in the names of types, the mark of a value, REPLACE, and
what only SQLite's files need.
Source: postgresql.org/docs/15/sql-insert.html (ON CONFLICT), datatype-numeric.html.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from itertools import chain, repeat
from struct import Struct as PackedHead
from struct import pack
from typing import Any, Final

from msgspec import Struct

from .core.schema import StoredTable
from .core.topic_log import SEGMENT_BATCHES, SEGMENT_BYTES
from .features import SCHEMA, TABLES

_TYPES: Final = {"INTEGER": "bigint", "TEXT": 'text COLLATE "C"', "BLOB": "bytea"}
_REPLACE: Final = re.compile(r"REPLACE INTO (\w+) VALUES (.*)\Z", re.DOTALL)
_INSERT: Final = re.compile(r"(?:INSERT|REPLACE) INTO (\w+) VALUES ")
ELEMENTS: Final = {"bigint": 20, "text": 25, "bytea": 17}  # numbers of types, in pg_type.dat
_HEAD: Final = PackedHead("!iiIii")  # dimensions, whether NULLs, type, length, first index
# The segments of a topic, cut as in `topic_log.py` or smaller; and whether each row of one follows
# directly on the row before it. Its values: the topic's first place twice, and the next topic's.
SEGMENT_SUMS: Final = f"""
SELECT min(base), max(base + count), sum(bytes), count(*), max(timestamp_ns), min(follows) FROM (
    SELECT base, count, timestamp_ns, length(body) AS bytes,
        CASE WHEN place = ? + base
            AND base = coalesce(lag(base + count) OVER in_order, base)
            AND timestamp_ns > coalesce(lag(timestamp_ns) OVER in_order, -1)
            THEN 1 ELSE 0 END AS follows,
        row_number() OVER in_order / {SEGMENT_BATCHES} AS batches,
        sum(length(body)) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING) / {SEGMENT_BYTES} AS mib
    FROM batch WHERE place >= ? AND place < ? WINDOW in_order AS (ORDER BY place)
) AS every_row GROUP BY batches, mib ORDER BY min(base)
"""


# The bytes of each publisher in each of these segments, which is named by its first offset. Its
# values: the topic's first place, and the next topic's.
PUBLISHER_SUMS: Final = f"""
SELECT first, publisher, sum(bytes) FROM (
    SELECT publisher, bytes, min(base) OVER (PARTITION BY batches, mib) AS first FROM (
        SELECT base, publisher, length(body) AS bytes,
            row_number() OVER in_order / {SEGMENT_BATCHES} AS batches,
            sum(length(body)) OVER (in_order ROWS UNBOUNDED PRECEDING) / {SEGMENT_BYTES} AS mib
        FROM batch WHERE place >= ? AND place < ? WINDOW in_order AS (ORDER BY place)
    ) AS every_row
) AS in_segments GROUP BY first, publisher
"""


def table_statements() -> list[bytes]:
    """The statements that make the tables."""
    plain = re.sub(r"--[^\n]*", "", SCHEMA).replace(" WITHOUT ROWID", "")
    for theirs, ours in _TYPES.items():
        plain = re.sub(rf"\b{theirs}\b", ours, plain)
    made = [one.strip().encode() for one in plain.split(";") if one.strip()]
    return [*made, b"ALTER TABLE batch ALTER COLUMN body SET STORAGE EXTERNAL"]  # not compressed


@cache
def translated(sql: str) -> bytes:
    """One of our statements for psycopg: its values at `%s`, REPLACE as an upsert."""
    if found := _REPLACE.match(sql):
        table, values = found.groups()
        key, columns = _tables()[table].key, _tables()[table].types
        new = ", ".join(f"{one} = excluded.{one}" for one in columns if one not in key)
        sql = f"INSERT INTO {table} VALUES {values} ON CONFLICT ({', '.join(key)}) DO UPDATE"
        sql += f" SET {new}"
    return sql.replace("%", "%%").replace("?", "%s").encode()


class Column(Struct, frozen=True):
    """The values of one column, for several rows, as an array in PostgreSQL's binary form."""

    type: str
    data: bytes


def in_columns(sql: str, values: Sequence[Any]) -> tuple[bytes, Sequence[Any]]:
    """A statement of `rows.py` as one whose text does not depend on how many rows it writes.

    So it is translated and prepared once. A value for each column then stands for all rows.
    """
    columns = _columns_of(sql)
    if not columns or len(values) == len(columns):
        return translated(sql), values
    width = len(columns)
    given = [array(kind, values[first::width]) for first, kind in enumerate(columns)]
    return _in_columns(sql.partition(" VALUES ")[0]), given


def array(kind: str, values: Sequence[Any]) -> Column:
    """Values of one type, none of them NULL. Source: array_recv in arrayfuncs.c of PostgreSQL."""
    head = _HEAD.pack(1, 0, ELEMENTS[kind], len(values), 1)
    if kind == "bigint":
        lengths_and_values = chain.from_iterable(zip(repeat(8), values))
        return Column(kind, head + pack(f"!{'iq' * len(values)}", *lengths_and_values))
    encoded = [one.encode() for one in values] if kind == "text" else values
    return Column(
        kind, head + b"".join([part for one in encoded for part in (pack("!i", len(one)), one)])
    )


@cache
def _columns_of(sql: str) -> Sequence[str]:
    """The types of the columns of a statement that inserts rows; empty: it inserts none."""
    found = _INSERT.match(sql)
    return _types()[found[1]] if found else ()


@cache
def _in_columns(insert: str) -> bytes:
    """`INSERT INTO table` or `REPLACE INTO table`, from arrays."""
    table = insert.rpartition(" ")[2]
    row = f"({','.join('?' * len(_types()[table]))})"
    arrays = ", ".join(f"%s::{kind}[]" for kind in _types()[table])
    one_row = translated(f"{insert} VALUES {row}").decode()
    marks = f"VALUES ({','.join(['%s'] * len(_types()[table]))})"
    return one_row.replace(marks, f"SELECT * FROM unnest({arrays})").encode()


@cache
def _types() -> dict[str, Sequence[str]]:
    """The types of the columns of each table."""
    names = {theirs: ours.split()[0] for theirs, ours in _TYPES.items()}
    return {one.name: [names[kind] for kind in one.types.values()] for one in TABLES.tables}


@cache
def _tables() -> dict[str, StoredTable]:
    return {one.name: one for one in TABLES.tables}
