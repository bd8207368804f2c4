"""Header predicates: a small language over the headers of a message, safe to take from strangers.

    region = "eu" and level in ("warning", "error") and not has(debug)
    attempts >= 3 or trace ~ "0af7*"

An expression is read by hand into a tree of bounded size and depth, and judged in one pass over
it. Nothing is evaluated as code, nothing loops, and `~` is a glob without backtracking.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from msgspec import Struct

from ..errors import InvalidPatternError
from ..limits import NESTING_MAX, PREDICATE_CHARS_MAX, PREDICATE_TESTS_MAX
from ..names import is_encodable
from .automaton import Automaton
from .expression import glob

Headers = Mapping[str, str]


class _Test(Struct, frozen=True):
    """A comparison of one header; a header that is not there fits no comparison."""

    name: str
    operator: str
    values: tuple[str, ...] = ()  # of `in`; of the others one
    pattern: Automaton | None = None  # of `~`

    def fits(self, headers: Headers) -> bool:
        found = headers.get(self.name)
        if found is None:
            return False
        if self.operator in ("has", "in"):
            return self.operator == "has" or found in self.values
        if self.pattern is not None:
            return self.pattern.matches(found)
        (value,) = self.values
        if self.operator in _OF_TEXT:
            return _OF_TEXT[self.operator](found, value)
        left, right = _number(found), _number(value)
        return left is not None and right is not None and _OF_NUMBERS[self.operator](left, right)


class _Not(Struct, frozen=True):
    part: _Node

    def fits(self, headers: Headers) -> bool:
        return not self.part.fits(headers)


class _All(Struct, frozen=True):
    parts: tuple[_Node, ...]

    def fits(self, headers: Headers) -> bool:
        return all(part.fits(headers) for part in self.parts)


class _Any(Struct, frozen=True):
    parts: tuple[_Node, ...]

    def fits(self, headers: Headers) -> bool:
        return any(part.fits(headers) for part in self.parts)


_Node = _Test | _Not | _All | _Any

_OF_TEXT: Mapping[str, Callable[[str, str], bool]] = {
    "=": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
}
_OF_NUMBERS: Mapping[str, Callable[[float, float], bool]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_NUMBER = re.compile(r"-?[0-9]{1,30}(\.[0-9]{1,30})?\Z")


def _number(text: str) -> float | None:
    return float(text) if len(text) <= 64 and _NUMBER.match(text) else None


class Predicate(Struct, frozen=True):
    """A condition on the headers of a message."""

    text: str
    _tree: _Node

    def matches(self, headers: Headers | None) -> bool:
        """Whether a message with these headers is wanted."""
        return self._tree.fits(headers or {})


def predicate(text: str) -> Predicate:
    r"""Read an expression.

        expression = conjunction { "or" conjunction }
        conjunction = negation { "and" negation }
        negation = { "not" } ( "(" expression ")" | test )
        test = "has" "(" name ")" | name "in" "(" value { "," value } ")"
             | name ( "=" | "!=" | "~" | "<" | "<=" | ">" | ">=" ) value
        name = a word, or text in back quotes
        value = "text" with \" and \\, or a number

    `=` and `!=` compare text, `~` is a glob, the others compare numbers. A test of a header that
    is not there, or of a header that is no number where one is needed, is false.

    Raises:
        InvalidPatternError: not such an expression, or above a bound: 512 characters, 16 levels
            of brackets and `not`, 64 tests.
    """
    if len(text) > PREDICATE_CHARS_MAX:
        raise InvalidPatternError(
            pattern=text, problem=f"{len(text)} characters, at most {PREDICATE_CHARS_MAX}"
        )
    if not is_encodable(text):
        raise InvalidPatternError(pattern=text, problem="it has a lone surrogate")
    reader = _Reader(text)
    tree = reader.expression(0)
    if reader.kind != "end":
        raise reader.wrong("the end, `and` or `or`")
    return Predicate(text, tree)


# No alternative of a token begins as another one ends, so reading is linear.
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<quoted>`[^`]+`)|(?P<number>-?[0-9]+(?:\.[0-9]+)?)
    |(?P<word>[A-Za-z_][A-Za-z0-9_.-]*)|(?P<mark>!=|<=|>=|[=~<>(),])|(?P<end>\Z))""",
    re.VERBOSE | re.DOTALL,
)
_KEYWORDS = frozenset({"and", "or", "not", "in", "has"})
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class _Reader:
    """Reads an expression token by token; `kind` and `token` are the next one."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self._tests = 0
        self.kind = self.token = ""
        self._advance()

    def _advance(self) -> None:
        self._begin = self._end
        found = _TOKEN.match(self._text, self._end)
        if found is None:
            raise self.wrong("a name, a value or an operator")
        self.kind = str(found.lastgroup)
        self.token = found[self.kind]
        self._begin, self._end = found.start(self.kind), found.end()
        if self.kind == "word" and self.token in _KEYWORDS:
            self.kind = "keyword"

    def wrong(self, expected: str) -> InvalidPatternError:
        rest = self._text[self._begin : self._begin + 20]
        return InvalidPatternError(
            pattern=self._text,
            problem=f"at character {self._begin}: found {rest!r}, expected {expected}",
        )

    def _take(self, *tokens: str) -> bool:
        if self.kind not in ("keyword", "mark") or self.token not in tokens:
            return False
        self._advance()
        return True

    def _need(self, token: str) -> None:
        if not self._take(token):
            raise self.wrong(f"`{token}`")

    def expression(self, depth: int) -> _Node:
        parts = [self._conjunction(depth)]
        while self._take("or"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else _Any(tuple(parts))

    def _conjunction(self, depth: int) -> _Node:
        parts = [self._negation(depth)]
        while self._take("and"):
            parts.append(self._negation(depth))
        return parts[0] if len(parts) == 1 else _All(tuple(parts))

    def _negation(self, depth: int) -> _Node:
        if depth > NESTING_MAX:
            raise self.wrong(f"at most {NESTING_MAX} levels of brackets and `not`")
        if self._take("not"):
            return _Not(self._negation(depth + 1))
        if self._take("("):
            inner = self.expression(depth + 1)
            self._need(")")
            return inner
        return self._test()

    def _test(self) -> _Node:
        self._tests += 1
        if self._tests > PREDICATE_TESTS_MAX:
            raise self.wrong(f"at most {PREDICATE_TESTS_MAX} tests")
        if self._take("has"):
            self._need("(")
            name = self._name()
            self._need(")")
            return _Test(name, "has")
        name = self._name()
        if self._take("in"):
            self._need("(")
            values = [self._value()]
            while self._take(","):
                values.append(self._value())
            self._need(")")
            return _Test(name, "in", tuple(values))
        operator = self.token
        if self.kind != "mark" or operator not in ("~", *_OF_TEXT, *_OF_NUMBERS):
            raise self.wrong("an operator")
        self._advance()
        begin = self._begin
        value = self._value()
        if operator in _OF_NUMBERS and _number(value) is None:
            self._begin = begin
            raise self.wrong("a number")
        return _Test(name, operator, (value,), glob(value) if operator == "~" else None)

    def _name(self) -> str:
        if self.kind not in ("word", "quoted"):
            raise self.wrong("the name of a header (words such as `in` are put in back quotes)")
        name = self.token.strip("`")
        self._advance()
        return name

    def _value(self) -> str:
        if self.kind not in ("text", "number"):
            raise self.wrong('"text" or a number')
        value = self.token
        if self.kind == "text":
            value = _ESCAPE.sub(r"\1", value[1:-1])
        self._advance()
        return value
