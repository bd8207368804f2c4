"""Backups that are named after their times: their rotation, and the one to restore."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from reliable_pubsub.common.core.backup_series import (
    moment_of,
    name_at,
    newest_at,
    parse_keep,
    superfluous,
)
from reliable_pubsub.common.core.errors import ConfigurationError, UsageError

NOW = datetime(2026, 11, 27, 3, 0, tzinfo=UTC)


def nights(count: int) -> list[str]:
    """One backup of each night, the oldest first."""
    return [name_at(NOW - timedelta(days=n)) for n in reversed(range(count))]


def test_a_name_is_the_time_in_utc_and_is_read_again() -> None:
    moment = datetime(2026, 11, 27, 4, 5, 6, 789_000, timezone(timedelta(hours=1)))

    name = name_at(moment)

    assert name == "2026-11-27T030506.789Z"
    assert moment_of(name) == moment


@pytest.mark.parametrize("name", ["monday", "2026-13-27T030506.789Z", "2026-11-27T030506.789Z.tar"])
def test_no_other_name_is_that_of_a_backup(name: str) -> None:
    assert moment_of(name) is None


def test_a_rotation_keeps_the_newest_of_each_day_and_week() -> None:
    names = nights(30)
    earlier_that_day = name_at(NOW - timedelta(hours=2))

    removed = superfluous([*names, earlier_that_day, "monday"], parse_keep("7d,4w"))

    kept = [name for name in names if name not in removed]
    days = [name_at(NOW - timedelta(days=n)) for n in range(7)]
    weeks = ["2026-11-22", "2026-11-15", "2026-11-08"]  # Sundays; the newest week has its day above
    assert kept == sorted([*days, *(f"{day}T030000.000Z" for day in weeks if day < days[-1])])
    assert earlier_that_day in removed
    assert "monday" not in removed
    assert removed == sorted(removed)


def test_a_timer_that_has_stopped_removes_nothing() -> None:
    """Periods without a backup do not count: the last ones stay, however old they are."""
    assert superfluous(nights(7), parse_keep("7d")) == []
    assert superfluous([name_at(NOW - timedelta(days=400))], parse_keep("1h")) == []


@pytest.mark.parametrize(
    ("keep", "kept"), [("2h", 2), ("3d", 3), ("1w", 1), ("2m", 2), ("1y", 1), ("3d, 2m", 4)]
)
def test_each_unit_counts_its_periods(keep: str, kept: int) -> None:
    names = nights(60)

    assert len(names) - len(superfluous(names, parse_keep(keep))) == kept


@pytest.mark.parametrize("text", ["", "7", "d", "0d", "7d;4w", "7d,,4w", "-1d", "7x"])
def test_another_rotation_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="such as 7d,4w"):
        parse_keep(text)


def test_the_backup_to_restore_is_the_newest_that_was_begun_at_the_time_or_before() -> None:
    names = nights(3)

    assert newest_at(names, None, "x") == names[-1]
    assert newest_at(names, NOW, "x") == names[-1]
    assert newest_at(names, NOW - timedelta(milliseconds=1), "x") == names[-2]
    with pytest.raises(ConfigurationError, match=names[0]):
        newest_at(names, NOW - timedelta(days=3), "x")
    with pytest.raises(ConfigurationError, match="holds no backup"):
        newest_at(["monday"], None, "x")
