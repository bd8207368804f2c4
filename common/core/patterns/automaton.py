"""Matching in linear time: automata without backtracking.

A pattern becomes a position automaton (Glushkov): state 0 is the start, every character of the
pattern is one state. Sets of states are whole numbers, one bit for each, so that reading a
character costs at most one step for each state. No text makes it slower: time is at most
characters times states, both bounded, where a backtracking matcher takes 2^n steps for `(a+)+b`.

Source: Glushkov, "The abstract theory of automata", 1961; Cox, "Regular Expression Matching Can
Be Simple And Fast", 2007.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Literal

from msgspec import Struct

from ..errors import InvalidPatternError
from ..limits import (
    OVERLAP_STEPS_MAX,
    PATTERN_STATES_MAX,
    PATTERN_STEPS_MAX,
)

LAST_CHARACTER = 0x10FFFF


class CharacterSet(Struct, frozen=True):
    """Characters, as ranges of code points, both ends included, sorted and apart."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, character: str) -> bool:
        code = ord(character)
        return any(low <= code <= high for low, high in self.ranges)

    @property
    def only(self) -> str | None:
        """The one character, if there is just one."""
        (low, high), *more = self.ranges or ((0, 1),)
        return chr(low) if low == high and not more else None


def set_of(ranges: Sequence[tuple[int, int]]) -> CharacterSet:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return CharacterSet(tuple(joined))


def others_than(characters: CharacterSet) -> CharacterSet:
    """Every character that is not in a set."""
    ranges, begin = [], 0
    for low, high in characters.ranges:
        if begin < low:
            ranges.append((begin, low - 1))
        begin = high + 1
    if begin <= LAST_CHARACTER:
        ranges.append((begin, LAST_CHARACTER))
    return CharacterSet(tuple(ranges))


ANY = CharacterSet(((0, LAST_CHARACTER),))


class Effort:
    """Steps that may still be taken; shared by all that is done at once."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    @property
    def is_over(self) -> bool:
        """Whether what was found last is not decided."""
        return self.left < 0


class Automaton(Struct, frozen=True):
    """States 0 (the start), 1, 2, ...; being in state n, its characters were read last."""

    characters: tuple[CharacterSet, ...]  # read to enter a state; of the start, none
    follow: tuple[int, ...]  # by state: the set of states that may come next
    last: int  # the set of states in which a text may end
    steps: int = 0  # that it took to build it

    def matches(self, text: str, effort: Effort | None = None) -> bool:
        """Whether the whole text fits; True also when the effort is over before that is known."""
        entered: dict[str, int] = {}  # by character: the states it can enter
        states = 1
        for character in text:
            if character not in entered:
                entered[character] = self.entered_by(character)
                if effort is not None:
                    effort.left -= len(self.characters)
            if effort is not None:
                effort.left -= states.bit_count()
                if effort.is_over:
                    return True
            states = self.after(states) & entered[character]
            if not states:
                return False
        return bool(states & self.last)

    def entered_by(self, character: str) -> int:
        """The set of states that a character can enter."""
        return sum(1 << state for state, taken in enumerate(self.characters) if character in taken)

    def after(self, states: int) -> int:
        """The states that may follow any of these."""
        reached = 0
        for state in members(states):
            reached |= self.follow[state]
        return reached

    def literal_prefix(self) -> str:
        """What every text that fits begins with."""
        return self._literal()[0]

    def simple_form(self) -> tuple[Literal["exact", "prefix"], str] | None:
        """The one text that fits, or what just begins all that fit; None if it is neither.

        Looks at the form, not at all it may mean: `a|a` is not seen to be exact.
        """
        text, states = self._literal()
        following = self.after(states)
        if not states & self.last:
            return None
        if not following:
            return "exact", text
        anything = (
            following & self.last == following == self.after(following)
            and following.bit_count() == 1
            and self.characters[following.bit_length() - 1] == ANY
        )
        return ("prefix", text) if anything else None

    def _literal(self) -> tuple[str, int]:
        """Read as long as there is one way on and no end; give the text and the states then."""
        text, states = "", 1
        while not states & self.last:
            following = self.after(states)
            begins = {self.characters[state].only for state in members(following)}
            (only, *more) = begins or {None}
            if only is None or more:
                break
            text, states = text + only, following
        return text, states


def members(states: int) -> Iterator[int]:
    """The states of a set."""
    while states:
        lowest = states & -states
        yield lowest.bit_length() - 1
        states ^= lowest


def overlap(left: Automaton, right: Automaton, effort: Effort) -> bool | None:
    """Whether some text fits both; None if it is too long to tell."""
    left_at_end = max(effort.left - OVERLAP_STEPS_MAX, 0)
    seen = {(0, 0)}
    waiting = [(0, 0)]
    while waiting:
        one, other = waiting.pop()
        if left.last >> one & right.last >> other & 1:
            return True
        for pair in product(members(left.follow[one]), members(right.follow[other])):
            read = left.characters[pair[0]], right.characters[pair[1]]
            effort.left -= len(read[0].ranges) * len(read[1].ranges)
            if effort.left < left_at_end:
                return None
            if pair not in seen and _share(*read):
                seen.add(pair)
                waiting.append(pair)
    return False


def _share(left: CharacterSet, right: CharacterSet) -> bool:
    return any(
        low <= other_high and other_low <= high
        for (low, high), (other_low, other_high) in product(left.ranges, right.ranges)
    )


# Patterns as trees, before they are automata.


class Characters(Struct, frozen=True):
    """One character of a set."""

    taken: CharacterSet


class InTurn(Struct, frozen=True):
    """One part after another."""

    parts: tuple[SyntaxNode, ...]


class AnyOf(Struct, frozen=True):
    """One of several parts."""

    parts: tuple[SyntaxNode, ...]


class Repeated(Struct, frozen=True):
    """A part several times; `most` None: as often as one likes."""

    part: SyntaxNode
    least: int
    most: int | None


SyntaxNode = Characters | InTurn | AnyOf | Repeated
ANYTHING = Repeated(Characters(ANY), 0, None)


class _Fragment(Struct, frozen=True):
    """A part of an automaton: where it may begin and end, and whether it may be empty."""

    first: int
    last: int
    empty: bool


class Builder:
    """Numbers the states of a tree and links them."""

    def __init__(self, pattern: str) -> None:
        """Begin with the start state; the pattern is for errors."""
        self._pattern = pattern
        self._steps = self._links = 0
        self.characters = [CharacterSet(())]
        self.follow = [0]

    def finish(self, node: SyntaxNode) -> Automaton:
        """Build the automaton of a whole tree.

        Raises:
            InvalidPatternError: it needs more states or links than are allowed.
        """
        whole = self._build(node)
        self.follow[0] = whole.first
        last = whole.last | (1 if whole.empty else 0)
        steps = len(self.characters) + self._links
        return Automaton(tuple(self.characters), tuple(self.follow), last, steps)

    def _build(self, node: SyntaxNode) -> _Fragment:
        self._steps += 1  # bounds empty repetitions too, which make no states
        if max(self._steps // 8, len(self.characters)) > PATTERN_STATES_MAX:
            raise InvalidPatternError(
                pattern=self._pattern,
                problem=f"it needs more than {PATTERN_STATES_MAX} states; count less, or less deep",
            )
        match node:
            case Characters():
                state = 1 << len(self.characters)
                self.characters.append(node.taken)
                self.follow.append(0)
                return _Fragment(state, state, False)
            case InTurn():
                whole = _Fragment(0, 0, True)
                for part in node.parts:
                    whole = self._then(whole, self._build(part))
                return whole
            case AnyOf():
                return self._any_of([self._build(part) for part in node.parts])
            case Repeated():
                return self._repeat(node)

    def _then(self, left: _Fragment, right: _Fragment) -> _Fragment:
        self._link(left.last, right.first)
        return _Fragment(
            left.first | (right.first if left.empty else 0),
            right.last | (left.last if right.empty else 0),
            left.empty and right.empty,
        )

    def _any_of(self, parts: Sequence[_Fragment]) -> _Fragment:
        first = last = 0
        for part in parts:
            first |= part.first
            last |= part.last
        return _Fragment(first, last, any(part.empty for part in parts))

    def _repeat(self, node: Repeated) -> _Fragment:
        whole = _Fragment(0, 0, True)
        for _ in range(node.least):
            part = self._build(node.part)
            if part.empty:  # then fewer are as good as all of them: `(a?){5}` is `a{0,5}`
                return self._optional(part, node)
            whole = self._then(whole, part)
        if node.most is None:
            loop = self._build(node.part)
            self._link(loop.last, loop.first)
            return self._then(whole, _Fragment(loop.first, loop.last, True))
        if node.most == node.least:
            return whole
        return self._then(whole, self._optional(self._build(node.part), node))

    def _optional(self, first: _Fragment, node: Repeated) -> _Fragment:
        """As many as may follow `first`, each only after the one before: `(a(a(a)?)?)?`."""
        begun = 0 if first.empty else node.least
        if node.most is None:
            self._link(first.last, first.first)
            return _Fragment(first.first, first.last, True)
        last, before = first.last, first
        for _ in range(node.most - begun - 1):
            part = self._build(node.part)
            self._link(before.last, part.first)
            last, before = last | part.last, part
        return _Fragment(first.first, last, True)

    def _link(self, sources: int, targets: int) -> None:
        self._links += sources.bit_count()
        if self._links > PATTERN_STEPS_MAX:
            raise InvalidPatternError(
                pattern=self._pattern,
                problem=f"it needs more than {PATTERN_STEPS_MAX} links between its states; let "
                "fewer parts in a row be left out",
            )
        for state in members(sources):
            self.follow[state] |= targets
