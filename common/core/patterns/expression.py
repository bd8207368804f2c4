"""Globs and regular expressions as automata: readers of text, by hand, each character once."""

from __future__ import annotations

from ..errors import InvalidPatternError
from ..limits import NESTING_MAX, PATTERN_STATES_MAX
from .automaton import (
    ANY,
    ANYTHING,
    AnyOf,
    Automaton,
    Builder,
    Characters,
    CharacterSet,
    InTurn,
    Repeated,
    SyntaxNode,
    others_than,
    set_of,
)

_REPEATS_MAX = PATTERN_STATES_MAX
_DIGIT = ((ord("0"), ord("9")),)
_WORD = (*_DIGIT, (ord("A"), ord("Z")), (ord("_"), ord("_")), (ord("a"), ord("z")))
_SPACE = ((ord(" "), ord(" ")),)
_NAMED = {"d": _DIGIT, "w": _WORD, "s": _SPACE}


def literal(text: str) -> Automaton:
    return Builder(text).finish(InTurn(_characters(text)))


def prefix(text: str) -> Automaton:
    """The automaton of every text that begins so."""
    return Builder(text).finish(InTurn((*_characters(text), ANYTHING)))


def _characters(text: str) -> tuple[SyntaxNode, ...]:
    return tuple(Characters(set_of([(ord(one), ord(one))])) for one in text)


def glob(pattern: str) -> Automaton:
    """The automaton of a glob: `*` any text, `?` any character, `[a-z]` `[!a-z]` one of a set.

    `/` is a character as any other. `[*]`, `[?]` and `[[]` stand for themselves.

    Raises:
        InvalidPatternError: `[` without `]`, or too many states.
    """
    parts: list[SyntaxNode] = []
    reader = _Reader(pattern)
    while not reader.at_end:
        one = reader.take()
        if one == "*":
            if not parts or parts[-1] != ANYTHING:
                parts.append(ANYTHING)
        elif one == "?":
            parts.append(Characters(ANY))
        elif one == "[":
            parts.append(Characters(reader.character_set(negation="!", escapes=False)))
        else:
            parts += _characters(one)
    return Builder(pattern).finish(InTurn(tuple(parts)))


def regex(pattern: str) -> Automaton:
    r"""The automaton of a regular expression; the whole topic has to fit.

    Known are `.`, `[a-z]`, `[^a-z]`, `\d \w \s` (ASCII), `|`, `( )`, `* + ?`, `{2}`, `{2,}`,
    `{2,5}`, and `\` before any mark that means something else. No anchors, no groups that
    capture, no references: what cannot be matched in linear time is not there.

    Raises:
        InvalidPatternError: not such an expression, nested deeper than 16, or too many states.
    """
    reader = _Reader(pattern)
    tree = reader.alternatives(0)
    if not reader.at_end:
        raise reader.wrong("a `)` without its `(`")
    return Builder(pattern).finish(tree)


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    @property
    def at_end(self) -> bool:
        return self._at == len(self._pattern)

    @property
    def _next(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def take(self) -> str:
        if self.at_end:
            raise self.wrong("it ends too early")
        self._at += 1
        return self._pattern[self._at - 1]

    def wrong(self, problem: str) -> InvalidPatternError:
        return InvalidPatternError(
            pattern=self._pattern, problem=f"at character {self._at}: {problem}"
        )

    def alternatives(self, depth: int) -> SyntaxNode:
        if depth > NESTING_MAX:
            raise self.wrong(f"nested deeper than {NESTING_MAX}")
        parts = [self._sequence(depth)]
        while self._next == "|":
            self.take()
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def _sequence(self, depth: int) -> SyntaxNode:
        parts: list[SyntaxNode] = []
        while not self.at_end and self._next not in "|)":
            part = self._atom(depth)
            while self._next and self._next in "*+?{":
                part = self._repetition(part, depth)
                depth += 1  # `a****` nests as `(((a*)*)*)*` does
            parts.append(part)
        return parts[0] if len(parts) == 1 else InTurn(tuple(parts))

    def _atom(self, depth: int) -> SyntaxNode:
        one = self.take()
        if one == "(":
            inner = self.alternatives(depth + 1)
            if self.at_end or self.take() != ")":
                raise self.wrong("a `(` without its `)`")
            return inner
        if one == "[":
            return Characters(self.character_set(negation="^", escapes=True))
        if one == "\\":
            return Characters(set_of(self._escape()))
        if one == ".":
            return Characters(ANY)
        if one in "*+?{":
            raise self.wrong(f"`{one}` has nothing before it to repeat")
        if one in "^$":
            raise self.wrong(
                f"the whole topic has to match, so leave out `{one}` (as a character: `\\{one}`)"
            )
        return _characters(one)[0]

    def _escape(self) -> tuple[tuple[int, int], ...]:
        one = self.take()
        if one in _NAMED:
            return _NAMED[one]
        if one.isalnum():
            raise self.wrong(f"`\\{one}` is unknown; known are \\d \\w \\s")
        return ((ord(one), ord(one)),)

    def _repetition(self, part: SyntaxNode, depth: int) -> SyntaxNode:
        if depth > NESTING_MAX:
            raise self.wrong(f"nested deeper than {NESTING_MAX}")
        one = self.take()
        if one != "{":
            return Repeated(part, 1 if one == "+" else 0, 1 if one == "?" else None)
        least = self._number()
        most: int | None = least
        if self._next == ",":
            self.take()
            most = None if self._next == "}" else self._number()
        if self.take() != "}" or (most is not None and most < least):
            raise self.wrong("a repetition is {2}, {2,} or {2,5}")
        return Repeated(part, least, most)

    def _number(self) -> int:
        digits = ""
        while self._next and self._next in "0123456789":
            digits += self.take()
        if not digits or len(digits) > 4 or int(digits) > _REPEATS_MAX:
            raise self.wrong(f"a count is a number from 0 to {_REPEATS_MAX}")
        return int(digits)

    def character_set(self, *, negation: str, escapes: bool) -> CharacterSet:
        """Read a set after its `[`; a `]` that comes first is a character."""
        negated = self._next == negation
        if negated:
            self.take()
        ranges: list[tuple[int, int]] = []
        while not ranges or self._next != "]":
            one = self.take()
            if escapes and one == "\\":
                ranges += self._escape()
                continue
            high = one
            if self._next == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("]", ""):
                self.take()
                high = self.take()
            if ord(high) < ord(one) or (escapes and high == "\\"):
                raise self.wrong(f"the range {one}-{high} runs backwards or ends in an escape")
            ranges.append((ord(one), ord(high)))
        self.take()
        taken = set_of(ranges)
        return others_than(taken) if negated else taken
