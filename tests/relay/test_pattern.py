"""Kinds of patterns, which covers which, and what is forwarded of a set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.common.core.patterns.matching import (
    EVERYTHING,
    Pattern,
    aggregate,
    canonical,
)
from tests.relay.wishes import KINDS, patterns, topics, wanted_topics


@pytest.mark.parametrize(
    ("kind", "text", "topic", "wanted"),
    [
        ("exact", "a/b", "a/b", True),
        ("exact", "a/b", "a/bc", False),
        ("prefix", "a/", "a/b", True),
        ("prefix", "", "anything", True),
        ("prefix", "a/", "b/a/", False),
        ("glob", "sensor/*/t", "sensor/eu/1/t", True),
        ("glob", "sensor/?", "sensor/12", False),
        ("regex", r"sensor/\d+", "sensor/12", True),
        ("regex", r"sensor/\d+", "my/sensor/12", False),
    ],
)
def test_a_kind_that_is_known_everywhere(kind: str, text: str, topic: str, wanted: bool) -> None:
    assert KINDS.test(KINDS.check(Pattern(kind, text)))(topic) is wanted


def test_a_kind_that_is_not_known_means_everything_and_is_named() -> None:
    unknown = Pattern("sql", "topic like 'a%'")

    assert KINDS.test(unknown)("whatever")
    assert KINDS.unknown([unknown, EVERYTHING]) == ("sql",)
    assert aggregate([unknown, Pattern("exact", "a")], "subsume", KINDS) == {EVERYTHING}


@pytest.mark.parametrize(
    ("pattern", "simple"),
    [
        (Pattern("glob", "a*"), Pattern("prefix", "a")),
        (Pattern("glob", "a"), Pattern("exact", "a")),
        (Pattern("glob", "**"), EVERYTHING),
        (Pattern("glob", "[*]"), Pattern("exact", "*")),
        (Pattern("regex", r"a\.b"), Pattern("exact", "a.b")),
        (Pattern("regex", "ab.*"), Pattern("prefix", "ab")),
        (Pattern("regex", "ab.+"), Pattern("regex", "ab.+")),
        (Pattern("regex", "ab?"), Pattern("regex", "ab?")),
        (Pattern("glob", "a*b*"), Pattern("glob", "a*b*")),
    ],
)
def test_a_pattern_is_taken_in_its_simplest_form(pattern: Pattern, simple: Pattern) -> None:
    assert canonical(pattern) == simple


@given(patterns, patterns, topics)
def test_what_covers_another_matches_all_that_it_matches(
    wide: Pattern, narrow: Pattern, topic: str
) -> None:
    if KINDS.covers(wide, narrow) and KINDS.test(narrow)(topic):
        assert KINDS.test(wide)(topic)


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        (EVERYTHING, Pattern("sql", "?"), True),
        (Pattern("sql", "?"), EVERYTHING, True),
        (Pattern("prefix", "a"), Pattern("sql", "?"), False),
        (Pattern("prefix", "a"), Pattern("exact", "ab"), True),
        (Pattern("prefix", "a"), Pattern("prefix", "ab"), True),
        (Pattern("prefix", "ab"), Pattern("prefix", "a"), False),
        (Pattern("prefix", "a"), Pattern("glob", "a*b"), True),
        (Pattern("glob", "a*b"), Pattern("glob", "a*b"), True),
        (Pattern("exact", "a"), Pattern("prefix", "a"), False),
    ],
)
def test_what_covers_what_is_decided(wide: Pattern, narrow: Pattern, covered: bool) -> None:
    assert KINDS.covers(wide, narrow) is covered


@given(st.lists(patterns, max_size=12))
def test_the_maximal_patterns_want_the_same_topics_with_none_to_spare(some: list[Pattern]) -> None:
    wanted = aggregate(some, "subsume", KINDS)

    assert wanted_topics(wanted) == wanted_topics(some)
    assert not [(a, b) for a in wanted for b in wanted if a != b and KINDS.covers(a, b)]


@given(st.lists(patterns, max_size=8))
def test_every_strategy_wants_at_least_what_is_wanted(some: list[Pattern]) -> None:
    assert aggregate(some, "none", KINDS) == aggregate(some, "dedup", KINDS)
    assert wanted_topics(aggregate(some, "dedup", KINDS)) == wanted_topics(some)
    assert wanted_topics(aggregate(some, "all", KINDS)) >= wanted_topics(some)
    assert aggregate([], "all", KINDS) == frozenset()
