"""How users write where to begin, and the errors for what cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub import Earliest, LastReceived, Now, UsageError, ago, at_offset, at_time, newest
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.start import parse_start, start_in_words

HOUR_NS = 3600 * 10**9


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("now", Now),
        ("last", LastReceived),
        ("earliest", Earliest),
        ("offset 42", at_offset(42)),
        ("newest 10", newest(10)),
        ("nanoseconds 3600000000000", Start("age", HOUR_NS)),
        ("age 1h", Start("age", HOUR_NS)),
        ("age 1.5h", Start("age", HOUR_NS * 3 // 2)),
        ("age 250ms", Start("age", 250 * 10**6)),
        ("age 90 s", Start("age", 90 * 10**9)),
        ("age 15m", Start("age", HOUR_NS // 4)),
        ("age 7d", Start("age", 7 * 24 * HOUR_NS)),
        ("time 1970-01-01T00:00:01Z", Start("time", 10**9)),
        ("time 1970-01-01T01:00:00.000001+01:00", Start("time", 1000)),
        ("  earliest ", Earliest),
    ],
)
def test_a_start_is_read_as_it_is_meant(text: str, start: Start) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize(
    "text",
    [
        "",
        "tomorrow",
        "offset",
        "offset -1",
        "offset 1.5",
        "offset 9223372036854775808",
        "now 3",
        "age 1 fortnight",
        "age -1h",
        "age 99999999999d",
        "time yesterday",
        "time 2026-11-21T08:00:00",
        "time 1969-12-31T23:59:59Z",
        "42",
    ],
)
def test_what_says_no_place_is_refused_with_what_can_be_said(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected|ISO 8601|no zone"):
        parse_start(text)


@given(
    st.sampled_from(["now", "last", "earliest"]).map(parse_start)
    | st.builds(at_offset, st.integers(0, 2**63 - 1))
    | st.builds(newest, st.integers(0, 2**63 - 1))
    | st.builds(ago, st.timedeltas(timedelta(0), timedelta(days=36_500)))
)
def test_a_start_in_words_is_read_back_as_it_was(start: Start) -> None:
    assert parse_start(start_in_words(start)) == start


def test_a_moment_keeps_its_microseconds_and_its_zone() -> None:
    moment = datetime(2026, 11, 21, 9, 0, 0, 123456, tzinfo=timezone(timedelta(hours=1)))

    assert at_time(moment) == at_time(moment.astimezone(UTC))
    assert at_time(moment).value % 10**9 == 123_456_000


@pytest.mark.parametrize("make", [at_offset, newest, at_time, ago])
def test_a_number_outside_64_bits_is_refused_before_anything_is_sent(make) -> None:  # type: ignore[no-untyped-def]
    for value in (-1, 2**63, True):
        with pytest.raises(UsageError):
            make(value)


def test_an_age_is_no_number_because_one_would_take_it_for_seconds() -> None:
    with pytest.raises(UsageError, match=r"timedelta\(hours=1\)"):
        ago(3600)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="age -1000 is not allowed"):
        ago(timedelta(microseconds=-1))
