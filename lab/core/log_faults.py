"""The faults that a log alone can show, in words: for the checker and for Spark. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from reliable_pubsub.common.core.dead_letter import is_dead
from reliable_pubsub.common.core.journal import Seen

from .finding import as_range
from .verdict import Violation, key_of

Sight = tuple[str, Seen]  # who saw it, and what


def differs(topic: str, one: Sight, other: Sight, reports: str = "") -> Violation:
    """Two saw two messages at one offset (V3).

    Args:
        reports: the half sentence on clients to which a loss was reported.
    """
    seen = other[1]
    return Violation(
        f"offset {seen.offset} of {topic!r} is {_words(one[1])} for {one[0]}, and "
        f"{_words(seen)} for {other[0]}{reports}",
        key_of(topic, seen),
    )


def _words(seen: Seen) -> str:
    time = f", {seen.timestamp_ns} ns" if seen.timestamp_ns else ""
    return f"{seen.publisher}_{seen.sequence} (crc {seen.crc:08x}{time})"


def time_goes_back(topic: str, entry: Seen, highest_ns: int) -> Violation:
    """A message is older than one before it (V3)."""
    return Violation(
        f"{topic!r}: the time goes back at offset {entry.offset}: {entry.timestamp_ns} ns "
        f"after {highest_ns} ns",
        key_of(topic, entry),
    )


def hole(topic: str, first: int, end: int, before: Seen | None) -> Violation:
    """Offsets first to end - 1 have no message (V3); `before` is the last one below them."""
    return Violation(
        f"{topic!r}: the log has nothing at offset {as_range(first, end - 1)}",
        key_of(topic, before) if before else None,
    )


def beyond_the_end(topic: str, offset: int, end: int, entry: Seen | None) -> Violation:
    """There is a message where the log was said to have ended (V3)."""
    return Violation(
        f"{topic!r}: the auditor found offset {offset} and said the log ends at {end}",
        key_of(topic, entry) if entry else None,
    )


def found_after(topic: str, seen: Seen, last: int) -> Violation:
    """An offset was read after a higher one, or twice (V3)."""
    return Violation(
        f"the auditor found offset {seen.offset} of {topic!r} after {last}", key_of(topic, seen)
    )


def stored_twice(topic: str, entry: Seen, before: int) -> Violation:
    """A number is there a second time (V2)."""
    return Violation(
        f"{key_of(topic, entry).message_id} is on {topic!r} twice: at offsets {before} and "
        f"{entry.offset}",
        key_of(topic, entry),
    )


def out_of_order(topic: str, entry: Seen, highest: int) -> Violation:
    """A number comes after a higher one of its publisher (V4)."""
    return Violation(
        f"{key_of(topic, entry).message_id} is on {topic!r} at offset {entry.offset}, after "
        f"sequence {highest}",
        key_of(topic, entry),
    )


def missing_before(topic: str, entry: Seen, highest: int) -> Violation:
    """Numbers of a publisher are left out before this one (V4)."""
    return Violation(
        f"{entry.publisher} on {topic!r}: sequence {as_range(highest + 1, entry.sequence - 1)} is "
        f"missing before {entry.sequence} at offset {entry.offset}",
        key_of(topic, entry),
    )


def unknown_writers(topic: str, publishers: Collection[str]) -> Iterator[str]:
    """The warning that no journal has the puts of these publishers, of whom a log has messages."""
    if publishers and not is_dead(topic):
        names = ", ".join(sorted(publishers))
        yield f"{topic!r} has messages of {names}, of whom there is no put"
