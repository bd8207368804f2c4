"""Where a subscription or a reading begins, as a value and as text.

    from: now | last | earliest | offset 42 | newest 10 | time 2026-11-21T08:00:00Z
        | age 1h | nanoseconds 3600000000000

`LastReceived`, `Now` and an age in nanoseconds are those of the Rembus QoS article.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from msgspec import Struct

from .arguments import check_fields, checked
from .errors import UsageError
from .limits import NUMBER_MAX
from .message_base import Natural, Start

Now: Final = Start("now")  # after everything that is stored
# Everything not yet delivered: after the last acknowledged message, also of a subscription that has
# ended; without an earlier subscription the earliest.
LastReceived: Final = Start("last")
Earliest: Final = Start("earliest")  # at the first message that is still stored

EXPECTED: Final = (
    "now, last, earliest, offset N, newest N, time (ISO 8601, such as 2026-11-21T08:00:00Z), "
    "age (such as 90s, 15m, 1h, 7d), or nanoseconds N (so far back)"
)
_UNIT_NS: Final = {
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
}
_AGE: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)\s*(ms|s|m|h|d)\Z")


class Position(Struct, frozen=True):
    """A position in a topic, as `Subscriber.read` returns it and `subscribe` takes it."""

    topic: str
    offset: Natural  # of the next message
    log: str | None = None  # id of its log; None: the topic did not exist

    def __post_init__(self) -> None:
        check_fields(self)


def is_in_another_unit(time_ns: int) -> bool:
    """Return whether a time since 1970 is surely in seconds, milliseconds or microseconds.

    As nanoseconds it would lie between the first second of 1970 and 1973.
    """
    return 10**9 <= time_ns < 10**17


StartOrPosition = Annotated[
    Start | Position | None,
    "Now, LastReceived, Earliest, at_offset(n), newest(n), at_time(t), ago(age), a Position that "
    "read() gave, or None",
]
PositionToSeek = Annotated[
    Start | Position,
    "Now, LastReceived, Earliest, at_offset(n), newest(n), at_time(t), ago(age), or a Position "
    "that read() returned",
]


def start_of(place: int | Start) -> Start:
    """A start; a number is an offset.

    Raises:
        UsageError: the offset is below 0 or above 2**63 - 1.
    """
    return place if isinstance(place, Start) else at_offset(place)


@checked
def at_offset(offset: int) -> Start:
    """At this offset; the proxy refuses one that was removed, or is beyond the end.

    Raises:
        UsageError: below 0 or above 2**63 - 1.
    """
    return _checked("offset", offset)


@checked
def newest(messages: int) -> Start:
    """At `messages` before the end, or at the earliest if there are fewer.

    Raises:
        UsageError: below 0 or above 2**63 - 1.
    """
    return _checked("newest", messages)


@checked
def at_time(
    moment: Annotated[datetime | int, "a datetime, or nanoseconds since 1970"],
) -> Start:
    """At the first message that the proxy stored at this time or later.

    Args:
        moment: a datetime with its zone, or nanoseconds since 1970.

    Raises:
        UsageError: no zone, before 1970, beyond what 64 bits hold, or a number that is too small
            for nanoseconds.
    """
    if not isinstance(moment, int):
        return _checked("time", _since_1970_ns(moment))
    if is_in_another_unit(moment):
        raise UsageError(
            f"at_time({moment}) would be a time from 1970 to 1973, because a number is in "
            "nanoseconds; give a datetime with its zone, or multiply seconds by 10**9"
        )
    return _checked("time", moment)


@checked
def ago(age: Annotated[timedelta, "a timedelta, such as timedelta(hours=1)"]) -> Start:
    """At the first message that the proxy stored at most `age` ago, by its clock.

    Args:
        age: no number, which one would take for seconds and another for nanoseconds.

    Raises:
        UsageError: below 0, or no timedelta.
    """
    return _checked("age", (age // timedelta(microseconds=1)) * 1000)


def parse_start(text: str) -> Start:
    """Parse the value of `from:`.

    Raises:
        UsageError: none of `EXPECTED`.
    """
    word, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if not rest and word in ("now", "last", "earliest"):
        return Start(word)  # type: ignore[arg-type]
    if word in ("offset", "newest", "nanoseconds") and re.fullmatch(r"\d{1,19}", rest):
        return _checked("age" if word == "nanoseconds" else word, int(rest))
    age = _AGE.match(rest) if word == "age" else None
    if age is not None:
        whole, _, part = age[1].partition(".")
        unit_ns = _UNIT_NS[age[2]]
        return _checked("age", int(whole) * unit_ns + int(part or 0) * unit_ns // 10 ** len(part))
    if word == "time" and rest:
        try:
            return at_time(datetime.fromisoformat(rest))
        except ValueError as error:
            raise UsageError(f"{rest!r:.60} is no time of ISO 8601: {error}") from error
    raise UsageError(f"{text!r:.60} says no place to begin; expected {EXPECTED}")


def start_in_words(start: Start) -> str:
    """The text that `parse_start` reads; a time in nanoseconds since 1970."""
    if start.at in ("now", "last", "earliest"):
        return start.at
    return f"{'nanoseconds' if start.at == 'age' else start.at} {start.value}"


def _checked(at: str, value: int) -> Start:
    if not 0 <= value <= NUMBER_MAX:
        raise UsageError(f"{at} {value} is not allowed; expected 0 to {NUMBER_MAX:,}")
    return Start(at, value)  # type: ignore[arg-type]


def _since_1970_ns(moment: datetime) -> int:
    """Exact, where a float would lose the last digits."""
    if moment.utcoffset() is None:
        raise UsageError(
            f"{moment.isoformat()} has no zone, so it is ambiguous; append Z (UTC) "
            "or an offset such as +01:00"
        )
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since // timedelta(microseconds=1)) * 1000
