"""Header predicates: what they mean, and that no text of theirs is dangerous."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reliable_pubsub.common.core.errors import InvalidPatternError
from reliable_pubsub.common.core.limits import (
    NESTING_MAX,
    PREDICATE_CHARS_MAX,
    PREDICATE_TESTS_MAX,
)
from reliable_pubsub.common.core.patterns.predicate import predicate

MESSAGE = {"region": "eu", "level": "error", "attempts": "3", "a b": "x", "note": 'say "hi"\\'}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('region = "eu"', True),
        ('region = "us"', False),
        ('region != "us"', True),
        ('level in ("warning", "error")', True),
        ('level in ("warning")', False),
        ("attempts = 3", True),
        ("attempts >= 3 and attempts < 4", True),
        ("attempts > 3", False),
        ("attempts <= 2.5", False),
        ("attempts <= 3", True),
        ("attempts < 3", False),
        ("attempts >= 3", True),
        ("region > 1", False),
        ("has(region) and not has(debug)", True),
        ('debug != "x"', False),
        ('not debug = "x"', True),
        ('region ~ "e*"', True),
        ('region ~ "?"', False),
        ('region = "us" or level = "error" and attempts = 3', True),
        ('(region = "us" or level = "error") and attempts = 4', False),
        ('`a b` = "x"', True),
        (r'note = "say \"hi\"\\"', True),
        ('not not region="eu"', True),
    ],
)
def test_an_expression_means_what_it_says(text: str, wanted: bool) -> None:
    assert predicate(text).matches(MESSAGE) is wanted


def test_a_message_without_headers_fits_only_a_denial() -> None:
    assert not predicate('region = "eu"').matches(None)
    assert predicate("not has(region)").matches(None)


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "region", "region =", '= "eu"', 'region == "eu"', "region = eu", 'region = "eu',
        '(region = "eu"', 'region = "eu")', 'region = "eu" and', 'in = "x"', "has region",
        'level in ()', 'level in ("a"', 'attempts < "many"', '__import__("os")', "a.b()",
        'region = "eu"; attempts = 3', "lambda: 1", 'region = "e\\', "``= 1", 'x ~ "["',
    ],
)  # fmt: skip
def test_what_is_no_expression_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InvalidPatternError) as caught:
        predicate(text)

    assert "at character" in caught.value.problem


def test_what_no_request_can_carry_is_refused() -> None:
    with pytest.raises(InvalidPatternError, match="lone surrogate"):
        predicate('region = "a\ud800"')


@pytest.mark.parametrize(
    "text",
    [
        'a = "' + "x" * PREDICATE_CHARS_MAX + '"',
        "(" * (NESTING_MAX + 1) + "a = 1" + ")" * (NESTING_MAX + 1),
        "not " * (NESTING_MAX + 1) + "a = 1",
        " or ".join(["a=1"] * (PREDICATE_TESTS_MAX + 1)),
        "(" * PREDICATE_CHARS_MAX,
    ],
    ids=["long", "brackets", "not", "tests", "open"],
)
def test_what_is_above_a_bound_is_refused(text: str) -> None:
    with pytest.raises(InvalidPatternError):
        predicate(text)


@given(
    st.text('ab ="\\()`~<>!,.-01andornotinhas', max_size=40), st.dictionaries(st.text(), st.text())
)
def test_any_text_is_an_expression_or_refused(text: str, headers: dict[str, str]) -> None:
    try:
        found = predicate(text)
    except InvalidPatternError:
        return
    assert found.matches(headers) in (True, False)


tests_of_one = st.sampled_from(['a = "1"', "has(b)", "a > 0", 'b in ("x", "y")', 'a ~ "*1*"'])
expressions = st.recursive(
    tests_of_one,
    lambda inner: st.one_of(
        inner.map(lambda one: f"not ({one})"),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(
            lambda three: f"({three[0]}) {three[1]} ({three[2]})"
        ),
    ),
    max_leaves=5,
)
headers = st.fixed_dictionaries(
    {}, optional={"a": st.sampled_from(["1", "0", "x11"]), "b": st.sampled_from(["x", "z"])}
)


@given(expressions, expressions, headers)
def test_and_or_and_not_are_those_of_logic(left: str, right: str, message: dict[str, str]) -> None:
    first, second = predicate(left).matches(message), predicate(right).matches(message)

    assert predicate(f"({left}) and ({right})").matches(message) == (first and second)
    assert predicate(f"({left}) or ({right})").matches(message) == (first or second)
    assert predicate(f"not ({left})").matches(message) == (not first)
