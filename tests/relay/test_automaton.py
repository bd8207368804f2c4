"""Globs and regular expressions: what they match, and that nothing makes them slow."""

from __future__ import annotations

import contextlib
import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.common.core.errors import InvalidPatternError
from reliable_pubsub.common.core.limits import (
    NESTING_MAX,
    OVERLAP_STEPS_MAX,
    PATTERN_STATES_MAX,
)
from reliable_pubsub.common.core.patterns.automaton import Effort, overlap
from reliable_pubsub.common.core.patterns.expression import glob, literal, prefix, regex

LETTERS = "ab/"
texts = st.text(LETTERS, max_size=8)
characters = st.sampled_from(["a", "b", "/", ".", "[ab]", "[^a]", r"\w"])
expressions = st.recursive(
    characters,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"({two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
    ),
    max_leaves=6,
)
globs = st.lists(st.sampled_from(["a", "b", "/", "*", "?", "[ab]", "[!a]"]), max_size=6).map(
    "".join
)


@given(expressions, texts)
def test_a_regex_matches_what_the_standard_library_matches(pattern: str, text: str) -> None:
    assert regex(pattern).matches(text) == bool(re.fullmatch(pattern, text))


@given(globs, texts)
def test_a_glob_matches_what_a_shell_matches(pattern: str, text: str) -> None:
    assert glob(pattern).matches(text) == fnmatch.fnmatchcase(text, pattern)


@given(st.text(max_size=6), st.text(max_size=6))
def test_a_literal_is_one_text_and_a_prefix_all_that_begin_with_it(text: str, more: str) -> None:
    assert literal(text).matches(text)
    assert literal(text).matches(text + more) == (not more)
    assert prefix(text).matches(text + more)
    assert prefix(text + more).matches(text) == (not more)


@given(expressions, texts)
def test_everything_that_fits_begins_with_the_literal_prefix(pattern: str, text: str) -> None:
    one = regex(pattern)

    assert not one.matches(text) or text.startswith(one.literal_prefix())


@pytest.mark.parametrize(
    ("pattern", "begin"),
    [("sensor/.*", "sensor/"), ("a[0-9]b", "a"), ("ab?", "a"), ("(ab|ac)d", "a"), (".*", "")],
)
def test_the_literal_prefix_is_as_long_as_can_be_determined(pattern: str, begin: str) -> None:
    assert regex(pattern).literal_prefix() == begin


BOMBS = [
    "(a+)+b",
    "(a|a)*b",
    "(a*)*b",
    "(a|aa)+b",
    "(.*)(.*)(.*)(.*)b",
    "a{0,80}a{80}b",
    "(a?){80}b",
]


@pytest.mark.parametrize("pattern", BOMBS)
def test_what_makes_backtracking_explode_costs_one_step_for_each_state(pattern: str) -> None:
    """Counted, not timed: the states are bounded, and each character is read once."""
    one = regex(pattern)

    assert len(one.characters) <= PATTERN_STATES_MAX + 1
    assert not one.matches("a" * 255)
    assert one.matches("a" * 80 + "b")


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "(a", "[", "[]", "[b-a]", "*a", "a|*", "a{", "a{2", "a{3,2}", "a{x}", "\\",
        "\\q", "^a", "a$", "(?:a)", "(?=a)", r"(a)\1", "a{99999}", "((a{99}){99}){99}",
        "((((){99}){99}){99}){99}", "(" * (NESTING_MAX + 2) + "a" + ")" * (NESTING_MAX + 2),
        "a" + "*" * 100, "(" * 255,
    ],
)  # fmt: skip
def test_what_is_no_expression_or_too_large_a_one_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPatternError):
        regex(pattern)


@given(st.text("ab()[]{}|*+?^$\\-,0123", max_size=20))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    for make in (regex, glob):
        with contextlib.suppress(InvalidPatternError):
            assert make(text).matches("abab") in (True, False)


@given(expressions, expressions, texts)
def test_two_expressions_overlap_wherever_a_text_fits_both(
    left: str, right: str, text: str
) -> None:
    one, other = regex(left), regex(right)
    found = overlap(one, other, Effort(OVERLAP_STEPS_MAX))

    assert found is not False or not (one.matches(text) and other.matches(text))


@pytest.mark.parametrize(
    ("left", "right", "shared"),
    [
        ("a*", "*b", True),
        ("a*", "b*", False),
        ("sensor/*/heat", "sensor/7/*", True),
        ("sensor/*/heat", "sensor/?", False),
        ("[a-c]x", "[c-e]x", True),
        ("[a-c]x", "[d-e]x", False),
        ("", "*", True),
        ("", "?*", False),
    ],
)
def test_whether_two_globs_share_a_text_is_decided(left: str, right: str, shared: bool) -> None:
    assert overlap(glob(left), glob(right), Effort(OVERLAP_STEPS_MAX)) is shared


def test_two_expressions_that_take_too_long_to_compare_are_not_decided() -> None:
    many = "|".join("ab"[i % 2] * (i + 1) for i in range(20))
    effort = Effort(OVERLAP_STEPS_MAX)

    assert overlap(regex(f"({many})*a"), regex(f"({many})*b"), effort) is None
    assert -100 < effort.left <= 0
