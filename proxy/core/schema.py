"""The tables of the store; every row carries a checksum. Features add theirs.

Only durable state is stored here; docs/internals/architecture.md shows the tables in a picture. The
unique index `batch_once` repeats rule R4 on disk: the store itself refuses a second copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from reliable_pubsub.common.core.errors import DamagedError

SCHEMA_VERSION: Final = 5

_NAME: Final = re.compile(r"CREATE TABLE (\w+)")
_COLUMN: Final = re.compile(r"^\s*(\w+) (INTEGER|TEXT|BLOB)\b", re.MULTILINE)
_KEY: Final = re.compile(r"^\s*PRIMARY KEY \(([^)]*)\)", re.MULTILINE)
_KEY_COLUMN: Final = re.compile(r"^\s*(\w+) \w+ PRIMARY KEY", re.MULTILINE)


class StoredTable:
    """A table of the store: its name, columns and key are read from the SQL that creates it."""

    def __init__(
        self, sql: str, kind: type[Any] | None = None, row: Callable[..., Any] | None = None
    ) -> None:
        """Create the description.

        Args:
            kind: of the values that a feature has in it; None: it belongs to the core.
            row: makes such a value from the columns; None: `kind` does.
        """
        self.sql = sql
        self.kind = kind
        self.row = row or kind
        found = _NAME.search(sql)
        assert found is not None, sql
        self.name = found[1]
        self.types = dict(_COLUMN.findall(sql))  # of each column, in their order
        key = _KEY.search(sql)
        self.key: Sequence[str] = key[1].split(", ") if key else _KEY_COLUMN.findall(sql)

    @property
    def checked_columns(self) -> str:
        """The columns of which each row has the CRC-32."""
        return ", ".join(one for one in self.types if one != "row_crc")


META: Final = StoredTable("""
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    row_crc INTEGER NOT NULL
) WITHOUT ROWID;
""")
TOPIC: Final = StoredTable("""
CREATE TABLE topic (
    topic_id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL UNIQUE,
    log TEXT NOT NULL,
    start_offset INTEGER NOT NULL,  -- first stored offset
    trimmed_end INTEGER NOT NULL,   -- end of the topic when it was last trimmed
    trimmed_ns INTEGER NOT NULL,    -- newest timestamp at that time
    row_crc INTEGER NOT NULL
);
""")
BATCH: Final = StoredTable("""
CREATE TABLE batch (
    place INTEGER PRIMARY KEY,      -- topic_id and base in one number, see `place_of`
    topic_id INTEGER NOT NULL,
    base INTEGER NOT NULL,          -- offset of the first message
    count INTEGER NOT NULL,
    publisher TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    first_sequence INTEGER NOT NULL,
    timestamp_ns INTEGER NOT NULL,
    crc INTEGER NOT NULL,           -- of the body
    qos INTEGER NOT NULL,
    row_crc INTEGER NOT NULL,       -- of the columns above, without place
    body BLOB NOT NULL
);
CREATE UNIQUE INDEX batch_once ON batch (topic_id, publisher, first_sequence) WHERE qos = 2;
""")
PUBLISHER: Final = StoredTable("""
CREATE TABLE publisher (
    topic_id INTEGER NOT NULL,
    publisher TEXT NOT NULL,
    first_sequence INTEGER NOT NULL,
    count INTEGER NOT NULL,
    base INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    qos INTEGER NOT NULL,
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (topic_id, publisher, qos)
) WITHOUT ROWID;
""")
SUBSCRIPTION: Final = StoredTable("""
CREATE TABLE subscription (
    topic_id INTEGER NOT NULL,
    subscriber TEXT NOT NULL,
    generation INTEGER NOT NULL,
    cursor INTEGER NOT NULL,
    active INTEGER NOT NULL,        -- 0: ended; 2: made by patterns alone; 1: others
    qos INTEGER NOT NULL,
    shown INTEGER NOT NULL,         -- messages below it were sent
    expired INTEGER NOT NULL,
    session TEXT NOT NULL,          -- persistent or clean
    lease_ms INTEGER NOT NULL,
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (topic_id, subscriber)
) WITHOUT ROWID;
""")
SESSION: Final = StoredTable("""
CREATE TABLE session (
    role TEXT NOT NULL,
    client TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    nonce BLOB NOT NULL,
    control INTEGER NOT NULL,
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (role, client)
) WITHOUT ROWID;
""")
DELETED_TOPIC: Final = StoredTable("""
CREATE TABLE deleted_topic (        -- its row, and those of its publishers, stay
    topic_id INTEGER PRIMARY KEY,
    row_crc INTEGER NOT NULL
);
""")
MOVED_SUBSCRIPTION: Final = StoredTable("""
CREATE TABLE moved_subscription (   -- by an operator, and its subscriber has not yet taken it
    topic_id INTEGER NOT NULL,
    subscriber TEXT NOT NULL,
    moved TEXT NOT NULL,            -- set or skip
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (topic_id, subscriber)
) WITHOUT ROWID;
""")
SKIPPED_RANGE: Final = StoredTable("""
CREATE TABLE skipped_range (        -- messages that a start or a seek passed over unacknowledged
    topic_id INTEGER NOT NULL,
    subscriber TEXT NOT NULL,
    first_offset INTEGER NOT NULL,
    end_offset INTEGER NOT NULL,
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (topic_id, subscriber)
) WITHOUT ROWID;
""")
CORE_TABLES: Final = (
    *(META, TOPIC, BATCH, PUBLISHER, SUBSCRIPTION, SESSION),
    *(DELETED_TOPIC, MOVED_SUBSCRIPTION, SKIPPED_RANGE),
)

# What SQLite keeps of the tables, without what ANALYZE adds: numbers that only help to plan
# queries. As bytes: damaged text may not be text.
SCHEMA_ROWS: Final = """
SELECT CAST(type AS BLOB), CAST(name AS BLOB), CAST(tbl_name AS BLOB), CAST(sql AS BLOB)
FROM sqlite_master WHERE name NOT LIKE 'sqlite~_stat_' ESCAPE '~' ORDER BY name
"""

# The end of a topic by all tables but `batch`: if its batches end earlier, some are lost.
KNOWN_ENDS: Final = """
SELECT topic_id, topic, start_offset, (SELECT max(known) FROM (
    SELECT t.trimmed_end AS known UNION ALL
    SELECT base + count FROM publisher AS p WHERE p.topic_id = t.topic_id
) AS every_end) FROM topic AS t ORDER BY topic_id
"""


def meaning(sql: bytes | None) -> bytes:
    """A statement without its comments and its layout, which may change."""
    return b" ".join(re.sub(rb"--[^\n]*", b"", sql or b"").split())


def require_version(version: object, store: str) -> None:
    """Accept a store of the format of this program.

    Raises:
        DamagedError: it has another one.
    """
    if version != SCHEMA_VERSION:
        raise DamagedError(
            f"{store} has schema version {version}, this program reads {SCHEMA_VERSION}; nothing "
            "was changed. Use the version that wrote it, or begin with an empty store"
        )
