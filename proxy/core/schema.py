"""The tables of the store; every row carries a checksum.

Only durable state is stored here; docs/internals/architecture.md shows the tables in a picture. The
unique index `batch_once` repeats rule R4 on disk: the store itself refuses a second copy.
"""

from __future__ import annotations

import re
from typing import Final

from reliable_pubsub.common.core.errors import DamagedError

SCHEMA_VERSION: Final = 4

TABLES: Final = """
CREATE TABLE meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL,
    row_crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE topic (
    topic_id INTEGER PRIMARY KEY,
    topic TEXT NOT NULL UNIQUE,
    log TEXT NOT NULL,
    start_offset INTEGER NOT NULL,  -- first stored offset
    trimmed_end INTEGER NOT NULL,   -- end of the topic when it was last trimmed
    trimmed_ns INTEGER NOT NULL,    -- newest timestamp at that time
    row_crc INTEGER NOT NULL
);
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
CREATE TABLE session (
    role TEXT NOT NULL,
    client TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    nonce BLOB NOT NULL,
    control INTEGER NOT NULL,
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (role, client)
) WITHOUT ROWID;
CREATE TABLE last_transaction (
    client TEXT PRIMARY KEY,        -- the publisher
    number INTEGER NOT NULL,        -- of the last transaction that it has committed
    digest BLOB NOT NULL,           -- of its content, by the publisher
    receipts BLOB NOT NULL,         -- msgpack: what it appended to each topic
    row_crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE consumer_group (
    topic_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    terms BLOB NOT NULL,            -- msgpack, as the three below
    runs BLOB NOT NULL,             -- what is held, free and ended, from the cursor on
    members BLOB NOT NULL,
    lost BLOB NOT NULL,             -- what no member is known to have heard of
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (topic_id, name)
) WITHOUT ROWID;
CREATE TABLE pattern_subscription (
    subscriber TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    qos INTEGER NOT NULL,           -- as the next two, of the subscriptions that it makes
    session TEXT NOT NULL,          -- persistent or clean
    lease_ms INTEGER NOT NULL,
    reader TEXT NOT NULL,           -- keys that may read what it matches; empty: none
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (subscriber, kind, text)
) WITHOUT ROWID;
CREATE TABLE deleted_topic (        -- its row, and those of its publishers, stay
    topic_id INTEGER PRIMARY KEY,
    row_crc INTEGER NOT NULL
);
CREATE TABLE admin_action (
    number INTEGER PRIMARY KEY,     -- 1, 2, 3, ...; the newest are kept
    nonce BLOB NOT NULL,
    at_ns INTEGER NOT NULL,
    who TEXT NOT NULL,              -- name of the key; empty: none
    client TEXT NOT NULL,
    action BLOB NOT NULL,           -- msgpack, as in ADMIN
    effect BLOB NOT NULL,           -- msgpack, as in ADMIN_ACK
    row_crc INTEGER NOT NULL
);
CREATE TABLE moved_subscription (   -- by an operator, and its subscriber has not yet taken it
    topic_id INTEGER NOT NULL,
    subscriber TEXT NOT NULL,
    moved TEXT NOT NULL,            -- set or skip
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (topic_id, subscriber)
) WITHOUT ROWID;
CREATE TABLE skipped_range (        -- messages that a start or a seek passed over unacknowledged
    topic_id INTEGER NOT NULL,
    subscriber TEXT NOT NULL,
    first_offset INTEGER NOT NULL,
    end_offset INTEGER NOT NULL,
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (topic_id, subscriber)
) WITHOUT ROWID;
CREATE TABLE charge (               -- what counts for which key
    kind TEXT NOT NULL,             -- publisher or subscriber (an id), or topic
    name TEXT NOT NULL,
    key_name TEXT NOT NULL,
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
"""

# What SQLite keeps of TABLES, without what ANALYZE adds: numbers that only help to plan a query.
# As bytes: damaged text may not be text.
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
    """A statement of TABLES without its comments and its layout, which may change."""
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
