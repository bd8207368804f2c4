"""Start-up: read the whole store once, and refuse it if anything is not as it was written.

A single copy can detect damage, not heal it. So damage stops the proxy and names topic and
offsets; giving the damaged batches up is a separate, reported act (`accept_loss`).
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from reliable_pubsub.common.batch import crc32
from reliable_pubsub.common.errors import DamagedError

from .records import StoredSegment
from .schema import KNOWN_ENDS, row_crc
from .topic_log import Segment, add_to_segments

_SMALL_TABLES = {
    "meta": "name, value",
    "topic": "topic_id, topic, log, start_offset, trimmed_end, trimmed_ns",
    "publisher": "topic_id, publisher, first_sequence, count, base, crc",
    "subscription": "topic_id, subscriber, generation, cursor, active",
    "session": "role, client, epoch, nonce, control",
}


class Checked(Struct, frozen=True):
    """What a sound store holds."""

    segments: Mapping[int, Sequence[StoredSegment]]  # by topic id
    messages: int
    body_bytes: int


class BadRange(Struct, frozen=True):
    """Offsets of a topic that cannot be read back."""

    topic: str
    first: int
    end: int
    why: str

    def __str__(self) -> str:
        return f"topic {self.topic!r} offsets {self.first} to {self.end - 1}: {self.why}"


def check_store(
    connection: sqlite3.Connection,
    *,
    accept_loss: bool = False,
    report: Callable[[BadRange], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Checked:
    """Check structure, rows, bodies and the sequence of offsets.

    Args:
        accept_loss: give up damaged batches; each is told to `report`, and subscribers that had
            not read them will be told LOST.
        progress: called with the number of bodies read so far, now and then.

    Raises:
        DamagedError: with every damaged range, at most ten in the text.
    """
    _check_structure(connection)
    segments: dict[int, deque[Segment]] = {}
    bad: list[BadRange] = []
    accepted = {
        (int(topic_id), int(first))
        for topic_id, first in (
            name.split(":")[1:]
            for (name,) in connection.execute("SELECT name FROM meta WHERE name LIKE 'lost:%'")
        )
    }
    messages = body_bytes = 0
    for topic_id, topic, start, known_end in connection.execute(KNOWN_ENDS).fetchall():
        expected, last_ns = start, -1
        mine = segments.setdefault(topic_id, deque())
        for row in connection.execute(
            "SELECT topic_id, base, count, publisher, epoch, first_sequence, timestamp_ns, crc,"
            " row_crc, body FROM batch WHERE topic_id = ? ORDER BY base",
            (topic_id,),
        ):
            *columns, stored_crc, body = row
            base, count, timestamp_ns, crc = columns[1], columns[2], columns[6], columns[7]
            if row_crc(*columns) != stored_crc or crc32(body) != crc:
                first = base if isinstance(base, int) else expected
                end = first + (count if isinstance(count, int) and count > 0 else 1)
                bad.append(BadRange(topic, first, end, "the row does not have its CRC-32"))
                expected = end
                continue
            if base != expected and (topic_id, expected) not in accepted:
                bad.append(BadRange(topic, expected, base, "these batches are missing"))
            if timestamp_ns <= last_ns:
                bad.append(BadRange(topic, base, base + count, "older than the one before it"))
            expected, last_ns = base + count, timestamp_ns
            add_to_segments(mine, base, expected, len(body), timestamp_ns)
            messages += count
            body_bytes += len(body)
            if messages % 1024 < count:
                progress(messages)
        if expected < known_end and (topic_id, expected) not in accepted:
            bad.append(BadRange(topic, expected, known_end, "the newest batches are missing"))
    if bad and not accept_loss:
        raise DamagedError(_describe(bad))
    if bad:
        _give_up(connection, bad, report)
        return check_store(connection, report=report, progress=progress)
    return Checked(
        {
            topic_id: [
                StoredSegment(s.base, s.end, s.body_bytes, s.batches, s.timestamp_ns) for s in mine
            ]
            for topic_id, mine in segments.items()
        },
        messages,
        body_bytes,
    )


def _check_structure(connection: sqlite3.Connection) -> None:
    """SQLite's own check, and the CRC of every small row."""
    try:
        verdicts = [text for (text,) in connection.execute("PRAGMA quick_check(5)")]
    except sqlite3.DatabaseError as error:
        verdicts = [str(error)]
    if verdicts != ["ok"]:
        raise DamagedError(
            "the store is damaged in its structure; restore a copy of the data directory: "
            + "; ".join(verdicts)
        )
    for table, columns in _SMALL_TABLES.items():
        for *row, stored_crc in connection.execute(f"SELECT {columns}, row_crc FROM {table}"):
            if row_crc(*row) != stored_crc:
                raise DamagedError(
                    f"the store is damaged: a row of table {table} does not have its CRC-32 "
                    f"(it begins with {row[:2]!r:.120}); restore a copy of the data directory"
                )


def _describe(bad: Sequence[BadRange]) -> str:
    listed = "; ".join(str(one) for one in bad[:10])
    more = f"; and {len(bad) - 10} more" if len(bad) > 10 else ""
    return (
        f"the store is damaged: {listed}{more}. Nothing was changed. Restore a copy of the data "
        "directory, or start once with --accept-loss to give these messages up"
    )


def _give_up(
    connection: sqlite3.Connection,
    bad: Sequence[BadRange],
    report: Callable[[BadRange], None],
) -> None:
    """Remove damaged batches, remember the gaps as accepted, and say so."""
    connection.execute("BEGIN IMMEDIATE")
    for one in bad:
        (topic_id,) = connection.execute(
            "SELECT topic_id FROM topic WHERE topic = ?", (one.topic,)
        ).fetchone()
        connection.execute(
            "DELETE FROM batch WHERE topic_id = ? AND base >= ? AND base < ?",
            (topic_id, one.first, one.end),
        )
    for topic_id, first, end in _gaps(connection):
        name, value = f"lost:{topic_id}:{first}", str(end)
        connection.execute("REPLACE INTO meta VALUES (?,?,?)", (name, value, row_crc(name, value)))
    connection.execute("COMMIT")
    for one in bad:
        report(one)


def _gaps(connection: sqlite3.Connection) -> list[tuple[int, int, int]]:
    """Every hole in the offsets of a topic: topic id, first missing, end."""
    gaps = []
    for topic_id, _, start, known_end in connection.execute(KNOWN_ENDS).fetchall():
        expected = start
        for base, count in connection.execute(
            "SELECT base, count FROM batch WHERE topic_id = ? ORDER BY base", (topic_id,)
        ):
            if base > expected:
                gaps.append((topic_id, expected, base))
            expected = base + count
        if expected < known_end:
            gaps.append((topic_id, expected, known_end))
    return gaps
