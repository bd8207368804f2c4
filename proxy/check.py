"""Start-up: read the whole store once, and refuse it if anything is not as it was written.

A single copy can detect damage, not heal it. So damage stops the proxy and names topic and
offsets; discarding the damaged batches is a separate, reported step (`accept_loss`).
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import DamagedError
from reliable_pubsub.common.damage import RESTORE_A_COPY

from .core.rows import row_crc, row_key
from .core.schema import BATCH, KNOWN_ENDS
from .core.stored import StoredSegment
from .core.topic_log import Segment, add_to_segments
from .features import TABLES
from .stored_state import FILE_NAME, SqlConnection, reading


class Checked(Struct, frozen=True):
    """What a sound store holds."""

    segments: Mapping[int, Sequence[StoredSegment]]  # by topic id
    messages: int


class BadRange(Struct, frozen=True):
    """Offsets of a topic that cannot be read back."""

    topic: str
    first: int
    end: int
    why: str

    def __str__(self) -> str:
        if self.first == self.end:
            return f"topic {self.topic!r}: {self.why}"
        return f"topic {self.topic!r} offsets {self.first} to {self.end - 1}: {self.why}"


def check_store(
    connection: SqlConnection,
    *,
    accept_loss: bool = False,
    report: Callable[[BadRange], None] = lambda _: None,
    progress: Callable[[int], None] = lambda _: None,
) -> Checked:
    """Check structure, rows, bodies and the sequence of offsets.

    SQLite's file is read whole. A database server checks its own files; there the order of a topic
    is judged by sums that the server makes, so that a standby takes over soon, and each row is
    checked with its body when it is read. Where the sums do not fit, every row is read.

    Args:
        accept_loss: discard damaged batches; each is passed to `report`, and subscribers that had
            not read them get LOST.
        progress: called from time to time with the number of bodies read so far.

    Raises:
        DamagedError: with every damaged range, at most ten in the text.
    """
    with reading():
        if isinstance(connection, sqlite3.Connection):
            _check_structure(connection)
        _check_rows(connection)
        checked = [
            _summed_topic(connection, known)
            or _check_topic(
                connection, known, accepted=_accepted_holes(connection, known[0]), progress=progress
            )
            for known in connection.execute(KNOWN_ENDS).fetchall()
        ]
    bad = [one for topic in checked for one in topic.bad]
    if bad and not accept_loss:
        raise DamagedError(_describe(bad))
    if bad:
        _give_up(connection, checked)
        for one in bad:
            report(one)
        return check_store(connection, progress=progress)
    return Checked(
        {topic.topic_id: topic.segments for topic in checked},
        sum(topic.messages for topic in checked),
    )


class _CheckedTopic(Struct, frozen=True):
    """One topic, read once."""

    topic_id: int
    segments: Sequence[StoredSegment]
    messages: int
    bad: Sequence[BadRange]
    bad_rows: Sequence[int]  # their places


def _summed_topic(
    connection: SqlConnection, known: tuple[int, str, int, int]
) -> _CheckedTopic | None:
    """A topic by the sums of a database server; None: its rows have to be looked at one by one."""
    if isinstance(connection, sqlite3.Connection):
        return None
    from .postgres_sql import PUBLISHER_SUMS, SEGMENT_SUMS

    topic_id, _, start, known_end = known
    places = (row_key(topic_id, 0), row_key(topic_id + 1, 0))
    segments, in_order, messages, end = [], True, 0, start
    by_segment: dict[int, dict[str, int]] = {}
    for first, publisher, size_bytes in connection.execute(PUBLISHER_SUMS, places):
        by_segment.setdefault(int(first), {})[publisher] = int(size_bytes)
    for *facts, fits in connection.execute(SEGMENT_SUMS, (places[0], *places)):
        base, last, size_bytes, batches, newest_ns = map(int, facts)
        bytes_by = by_segment.get(base, {})
        segment = StoredSegment(base, last, size_bytes, batches, newest_ns, newest_ns, bytes_by)
        in_order = in_order and fits and segment.base == end
        messages += segment.end - segment.base
        end = segment.end
        segments.append(segment)
    if not in_order or end != known_end:
        return None
    return _CheckedTopic(topic_id, tuple(segments), messages, (), ())


def _check_topic(
    connection: SqlConnection,
    known: tuple[int, str, int, int],
    *,
    accepted: Mapping[int, int],
    progress: Callable[[int], None],
) -> _CheckedTopic:
    """Read a topic in offset order; a batch that is not contiguous or is damaged is bad.

    No column of a damaged row is trusted: its offsets are those between its sound neighbours.
    """
    topic_id, topic, start, known_end = known
    expected, last_ns, messages = start, -1, 0
    why = ""  # set after a damaged row, until a sound one follows
    segments: deque[Segment] = deque()
    bad: list[BadRange] = []
    bad_rows: list[int] = []

    def hole(end: int, missing: str) -> None:
        first = _after_accepted(expected, end, accepted)
        if first < end:
            bad.append(BadRange(topic, first, end, why or missing))

    with_bodies = isinstance(connection, sqlite3.Connection)
    body_column = "body" if with_bodies else "length(body)"
    for place, *columns, stored_crc, body in connection.execute(
        "SELECT place, topic_id, base, count, publisher, epoch, first_sequence, timestamp_ns, crc,"
        f" qos, row_crc, {body_column} FROM batch WHERE place >= ? AND place < ? ORDER BY place",
        (row_key(topic_id, 0), row_key(topic_id + 1, 0)),
    ):
        _, base, count, publisher, _, _, timestamp_ns, crc, _ = columns
        sound = row_crc(*columns) == stored_crc and not (with_bodies and crc32(body) != crc)
        if (
            not sound
            or place != row_key(topic_id, base)
            or base < expected
            or timestamp_ns <= last_ns
        ):
            why = "a batch does not have its CRC-32" if not sound else "a batch is out of place"
            bad_rows.append(place)
            continue
        hole(base, "these batches are missing")
        why, expected, last_ns = "", base + count, timestamp_ns
        body_bytes = len(body) if with_bodies else body
        add_to_segments(segments, base, expected, body_bytes, timestamp_ns, publisher)
        messages += count
        if messages % 1024 < count:
            progress(messages)
    hole(known_end, "the newest batches are missing")
    if bad_rows and not bad:
        bad.append(BadRange(topic, known_end, known_end, "a damaged row has no offset"))
    values = tuple(segment.value for segment in segments)
    return _CheckedTopic(topic_id, values, messages, bad, bad_rows)


def _accepted_holes(connection: SqlConnection, topic_id: int) -> dict[int, int]:
    """Losses of a topic that an operator accepted: first missing offset, and the end."""
    prefix = f"lost:{topic_id}:"
    return {
        int(name.removeprefix(prefix)): int(value)
        for name, value in connection.execute(
            "SELECT name, value FROM meta WHERE name LIKE ?", (prefix + "%",)
        )
    }


def _after_accepted(first: int, end: int, accepted: Mapping[int, int]) -> int:
    """The first offset of a hole that no operator has accepted."""
    while first < end and first in accepted:
        first = min(accepted[first], end)
    return first


def _check_structure(connection: sqlite3.Connection) -> None:
    """SQLite's own check, that of the indexes too."""
    try:
        verdicts = [text for (text,) in connection.execute("PRAGMA integrity_check(5)")]
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        verdicts = [str(error)]
    if verdicts != ["ok"]:
        raise DamagedError(
            f"the store {FILE_NAME} is damaged in its structure; {RESTORE_A_COPY}: "
            f"{' '.join('; '.join(verdicts).split())}"
        )


def _check_rows(connection: SqlConnection) -> None:
    """The CRC of every small row."""
    for table in TABLES.tables:
        if table is BATCH:
            continue
        sql = f"SELECT {table.checked_columns}, row_crc FROM {table.name}"
        for *row, stored_crc in connection.execute(sql):
            if row_crc(*row) != stored_crc:
                raise DamagedError(
                    f"the store is damaged: a row of table {table.name} does not have its CRC-32 "
                    f"(it begins with {row[:2]!r:.120}); {RESTORE_A_COPY}"
                )


def _describe(bad: Sequence[BadRange]) -> str:
    listed = "; ".join(str(one) for one in bad[:10])
    more = f"; and {len(bad) - 10} more" if len(bad) > 10 else ""
    return (
        f"the store is damaged: {listed}{more}. Nothing was changed. Either {RESTORE_A_COPY}, or "
        "start once with --accept-loss to give these messages up"
    )


def _give_up(connection: SqlConnection, checked: Sequence[_CheckedTopic]) -> None:
    """Remove damaged rows and remember the holes as accepted, in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    for topic in checked:
        for place in topic.bad_rows:
            connection.execute("DELETE FROM batch WHERE place = ?", (place,))
        for one in topic.bad:
            if one.first == one.end:
                continue
            name, value = f"lost:{topic.topic_id}:{one.first}", str(one.end)
            connection.execute(
                "REPLACE INTO meta VALUES (?,?,?)", (name, value, row_crc(name, value))
            )
    connection.execute("COMMIT")
