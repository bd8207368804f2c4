"""Backups with names of their time: which ones a rotation keeps, and which is the newest at a time.

A rotation keeps the newest backup of each period, as restic and Borg do. It counts only periods
that have a backup, so a timer that has stopped removes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from .errors import ConfigurationError, UsageError

_NAME: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d{6}\.\d{3})Z\Z")
_RULE: Final = re.compile(r"([1-9]\d{0,4})([hdwmy])\Z")
_PERIODS: Final[dict[str, Callable[[datetime], Sequence[int]]]] = {
    "h": lambda at: (at.year, at.month, at.day, at.hour),
    "d": lambda at: (at.year, at.month, at.day),
    "w": lambda at: at.isocalendar()[:2],
    "m": lambda at: (at.year, at.month),
    "y": lambda at: (at.year,),
}
Keep = Sequence[tuple[int, str]]  # how many periods of which length


def name_at(moment: datetime) -> str:
    """Return the name of a backup: its time in UTC. Names sort as their times do."""
    utc = moment.astimezone(UTC)
    return f"{utc:%Y-%m-%dT%H%M%S}.{utc.microsecond // 1000:03}Z"


def moment_of(name: str) -> datetime | None:
    """Return the time of a backup; None: the name is no backup's."""
    match = _NAME.match(name)
    try:
        return datetime.strptime(match[1] + "+0000", "%Y-%m-%dT%H%M%S.%f%z") if match else None
    except ValueError:  # such as month 13
        return None


def parse_keep(text: str) -> Keep:
    """Parse `7d,4w`.

    Raises:
        UsageError: another form.
    """
    rules = [_RULE.match(part.strip()) for part in text.split(",")]
    if not all(rules):
        raise UsageError(
            f"--keep {text!r:.60}: expected numbers of hours, days, weeks, months or years, such "
            "as 7d,4w: the newest backup of each of 7 days and of each of 4 weeks"
        )
    return [(int(rule[1]), rule[2]) for rule in rules if rule]


def superfluous(names: Iterable[str], keep: Keep) -> list[str]:
    """Return the backups that a rotation removes, the oldest first; never the newest one."""
    newest_first = sorted((name for name in names if moment_of(name)), reverse=True)
    kept = set(newest_first[:1])
    for count, unit in keep:
        periods: dict[Sequence[int], str] = {}
        for name in newest_first:
            moment = moment_of(name)
            assert moment is not None
            periods.setdefault(_PERIODS[unit](moment), name)
        kept.update([*periods.values()][:count])
    return [name for name in reversed(newest_first) if name not in kept]


def newest_at(names: Iterable[str], until: datetime | None, where: str) -> str:
    """Return the newest backup, or the newest one that was begun at a time or before it.

    Raises:
        ConfigurationError: there is none.
    """
    known = sorted(name for name in names if moment_of(name))
    if not known:
        raise ConfigurationError(
            f"{where} holds no backup: name one, or a directory or bucket that holds some"
        )
    before = [name for name in known if until is None or name <= name_at(until)]
    if not before:
        raise ConfigurationError(
            f"{where} holds no backup of that time or before it; the oldest one is {known[0]}"
        )
    return before[-1]
