"""Patterns of topics: kinds, what they match, which covers which, what a node forwards of them.

A kind that a node does not know means everything: it sends too much rather than too little, and
says so. Forwarding is then still correct, because the last node filters again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final

from ..dead_letter import DEAD_SUFFIX, is_dead
from ..settings import RelayStrategy
from . import expression
from .automaton import Automaton, Effort, overlap
from .pattern import Pattern as Pattern

TopicTest = Callable[[str], bool]
Strategy = RelayStrategy

KINDS_SHOWN: Final = 16  # of those that are not known, in a report

EVERYTHING: Final = Pattern("prefix", "")

_SIMPLE = frozenset({"exact", "prefix"})
_AUTOMATA: Mapping[str, Callable[[str], Automaton]] = {
    "exact": expression.literal,
    "prefix": expression.prefix,
    "glob": expression.glob,
    "regex": expression.regex,
}


def is_simple(pattern: Pattern) -> bool:
    """Whether it is exact or a prefix: what a ZeroMQ socket can test by itself."""
    return pattern.kind in _SIMPLE


@lru_cache(maxsize=512)  # one may take 80 KB
def automaton_of(pattern: Pattern) -> Automaton | None:
    """The automaton of a known kind; None for another.

    Raises:
        InvalidPatternError: its text is no such pattern.
    """
    make = _AUTOMATA.get(pattern.kind)
    return make(pattern.text) if make else None


@lru_cache(maxsize=4096)
def canonical(pattern: Pattern) -> Pattern:
    """The simplest pattern that means the same: a glob without marks is exact, `a*` is a prefix.

    Raises:
        InvalidPatternError: its text is no pattern of its kind.
    """
    if is_simple(pattern):
        return pattern
    known = automaton_of(pattern)
    simple = known.simple_form() if known else None
    return Pattern(*simple) if simple else pattern


class Kinds:
    """The kinds one node knows; a node of a later version may ask for more."""

    def knows(self, pattern: Pattern) -> bool:
        """Whether this node can test topics by it."""
        return pattern.kind in _AUTOMATA

    def unknown(self, patterns: Iterable[Pattern]) -> tuple[str, ...]:
        """Return the unknown kinds among these, as many as a report may name."""
        return tuple(sorted({one.kind for one in patterns if not self.knows(one)})[:KINDS_SHOWN])

    def check(self, pattern: Pattern) -> Pattern:
        """Accept a pattern, in its simplest form.

        Raises:
            InvalidPatternError: its text is no pattern of its kind.
        """
        return canonical(pattern)

    def test(self, pattern: Pattern) -> TopicTest:
        """The test of a topic; an unknown kind accepts every topic."""
        if pattern.kind == "exact":
            return pattern.text.__eq__
        if pattern.kind == "prefix":
            return lambda topic: topic.startswith(pattern.text)
        known = automaton_of(pattern)
        return known.matches if known else lambda _: True

    def matches(self, pattern: Pattern, topic: str, effort: Effort) -> bool:
        """Whether a topic is meant; True also when the effort is over before that is known."""
        known = automaton_of(pattern)
        return known.matches(topic, effort) if known else True

    def cost(self, pattern: Pattern) -> tuple[int, int]:
        """Steps to make the automaton of a pattern, and its states; nothing for a simple one."""
        known = None if is_simple(pattern) else automaton_of(pattern)
        return (known.steps, len(known.characters)) if known else (0, 0)

    def literal_prefix(self, pattern: Pattern) -> str:
        """What every topic begins with that a pattern matches."""
        if is_simple(pattern):
            return pattern.text
        known = automaton_of(pattern)
        return known.literal_prefix() if known else ""

    def everything(self, pattern: Pattern) -> bool:
        """Whether this node sends every topic to a peer with this pattern."""
        return pattern == EVERYTHING or not self.knows(pattern)

    def covers(self, wide: Pattern, narrow: Pattern) -> bool:
        """Whether `wide` surely matches every topic that `narrow` matches.

        A glob or an expression is only known to cover itself; a prefix covers what begins with it.
        """
        if wide == narrow or self.everything(wide):
            return True
        if wide.kind != "prefix" or self.everything(narrow):
            return False
        return self.literal_prefix(narrow).startswith(wide.text)

    def overlap(self, left: Pattern, right: Pattern, effort: Effort) -> bool | None:
        """Whether both mean some topic; None where that cannot be decided in so few steps."""
        if self.everything(left) or self.everything(right):
            return True
        if left.kind in _SIMPLE and right.kind in _SIMPLE:
            return self.test(left)(right.text) or self.test(right)(left.text)
        one, other = automaton_of(left), automaton_of(right)
        assert one is not None
        assert other is not None
        return overlap(one, other, effort)


_EVERYWHERE: Final = Kinds()


def is_of(pattern: Pattern, topic: str) -> bool:
    """Whether a subscription by pattern includes a topic.

    Topics of dead letters only if the pattern ends so: a subscriber that rejects messages would get
    its own dead letters.
    """
    if is_dead(topic) is not pattern.text.endswith(DEAD_SUFFIX):
        return False
    return _EVERYWHERE.test(pattern)(topic)


def aggregate(patterns: Iterable[Pattern], strategy: Strategy, kinds: Kinds) -> frozenset[Pattern]:
    """What a node asks for above, so that everything asked for below can come.

    Args:
        strategy: `none` and `dedup` ask for each pattern (they differ in how often they say it),
            `subsume` for those that no prefix covers, `all` for everything if anything is wanted.
    """
    distinct = frozenset(EVERYTHING if kinds.everything(one) else one for one in patterns)
    if strategy == "all":
        return frozenset({EVERYTHING}) if distinct else distinct
    return _maximal(distinct, kinds) if strategy == "subsume" else distinct


def _maximal(patterns: frozenset[Pattern], kinds: Kinds) -> frozenset[Pattern]:
    """The patterns that no prefix among them covers."""
    begins = {one: kinds.literal_prefix(one) for one in patterns}
    found: list[Pattern] = []
    prefix: str | None = None
    # In this order everything below a prefix follows it directly.
    for one in sorted(patterns, key=lambda one: (begins[one], one.kind != "prefix")):
        if prefix is None or not begins[one].startswith(prefix):
            found.append(one)
            prefix = one.text if one.kind == "prefix" else prefix
    return frozenset(found)
