"""Who below wants what, and what to ask for above: one copy of each, in the right order.

The table counts patterns over consumers (the peers right below). What is asked for above is an
aggregate of them, and changes by additions first and removals last, so that at no moment something
is missing that was wanted before and still is. If `a` covered `ab` and `a` goes, then `ab` is asked
for before `a` is given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable
from typing import Final, Generic, TypeVar

from msgspec import Struct

from reliable_pubsub.common.limits import TOPICS_MAX
from reliable_pubsub.common.settings import RELAY_MAX_SUBSCRIPTIONS

from .pattern import EVERYTHING, Kinds, Pattern, Strategy, TopicTest, aggregate, is_simple

CAP: Final = RELAY_MAX_SUBSCRIPTIONS  # patterns of one consumer
_BACK = 3 / 4  # of the cap: a consumer comes back from the full feed only below this

_C = TypeVar("_C", bound=Hashable)


class Change(Struct, frozen=True):
    """One step of what is asked for above."""

    added: bool  # False: given back
    pattern: Pattern


def changes_between(before: frozenset[Pattern], after: frozenset[Pattern]) -> tuple[Change, ...]:
    """The fewest steps from one set to another, additions first."""
    return (
        *(Change(True, one) for one in sorted(after - before)),
        *(Change(False, one) for one in sorted(before - after)),
    )


class Capped:
    """A set of patterns with a cap; above it the full feed is taken, until well below it."""

    def __init__(self, cap: int) -> None:
        """Nothing is wanted yet."""
        self._cap = cap
        self.is_full = False

    def take(self, patterns: frozenset[Pattern]) -> frozenset[Pattern]:
        """What to ask for in place of these."""
        if len(patterns) > self._cap:
            self.is_full = True
        elif len(patterns) <= self._cap * _BACK:
            self.is_full = False
        return frozenset({EVERYTHING}) if self.is_full else patterns


class _Consumer:
    __slots__ = ("capped", "patterns", "tests")

    def __init__(self, cap: int) -> None:
        self.capped = Capped(cap)
        self.patterns: frozenset[Pattern] = frozenset()
        self.tests: tuple[TopicTest, ...] = ()  # of what is neither exact nor a prefix


def _by_prefix(patterns: Container[Pattern], topic: str) -> bool:
    """Whether a topic is among exact patterns and prefixes."""
    if Pattern("exact", topic) in patterns:
        return True
    return any(Pattern("prefix", topic[:end]) in patterns for end in range(len(topic) + 1))


class InterestTable(Generic[_C]):
    """The interest of all consumers of one node."""

    def __init__(self, *, strategy: Strategy = "subsume", cap: int = CAP, kinds: Kinds) -> None:
        """Nobody wants anything yet.

        Args:
            cap: patterns of one consumer, beyond which it gets everything.
        """
        self._strategy = strategy
        self._cap = cap
        self._kinds = kinds
        self._consumers: dict[_C, _Consumer] = {}
        self._counts: Counter[Pattern] = Counter()
        self._is_dirty = False
        self._repeats: list[Pattern] = []  # strategy `none`: asked for again though it is there
        # By topic; forgotten at every change.
        self._singly: dict[str, tuple[_C, ...]] = {}
        self._wanted: dict[str, bool] = {}
        self.above: frozenset[Pattern] = frozenset()  # what is asked for, as last told

    # What the consumers say.

    def replace(self, consumer: _C, patterns: Iterable[Pattern]) -> frozenset[Pattern]:
        """A consumer wants these and nothing else.

        Args:
            patterns: in their simplest form, from `Kinds.check`.

        Returns:
            What it will get: these, or everything where it is above the cap.
        """
        known = self._consumers.setdefault(consumer, _Consumer(self._cap))
        wanted = known.capped.take(frozenset(patterns))
        self._count(known.patterns, wanted)
        known.patterns = wanted
        known.tests = tuple(self._kinds.test(one) for one in wanted if not is_simple(one))
        return wanted

    def forget(self, consumer: _C) -> None:
        """A consumer is gone."""
        known = self._consumers.pop(consumer, None)
        if known is not None:
            self._count(known.patterns, frozenset())

    def _count(self, before: frozenset[Pattern], after: frozenset[Pattern]) -> None:
        if before == after:
            return
        self._is_dirty = True
        if self._strategy == "none":
            self._repeats += sorted(one for one in after - before if one in self._counts)
        self._counts.update(after - before)
        self._counts.subtract(before - after)
        for gone in before - after:
            if not self._counts[gone]:
                del self._counts[gone]
        self._singly.clear()
        self._wanted.clear()

    # What follows from it.

    def changes(self) -> tuple[Change, ...]:
        """The steps from what was last told above to what is wanted now; then they are told."""
        if not self._is_dirty:
            return ()
        self._is_dirty = False
        wanted = aggregate(self._counts, self._strategy, self._kinds)
        steps = changes_between(self.above, wanted)
        repeats = tuple(Change(True, one) for one in self._repeats if one in wanted)
        self._repeats.clear()
        self.above = wanted
        return (*repeats, *steps)

    def singly(self, topic: str) -> tuple[_C, ...]:
        """The consumers that want a topic by a glob, an expression or an own kind alone.

        The others are served by prefix, all with one send. None is in both.
        """
        found = self._singly.get(topic)
        if found is None:
            found = tuple(
                consumer
                for consumer, known in self._consumers.items()
                if known.tests
                and not _by_prefix(known.patterns, topic)
                and any(test(topic) for test in known.tests)
            )
            if len(self._singly) >= TOPICS_MAX:
                self._singly.clear()
            self._singly[topic] = found
        return found

    def is_wanted(self, topic: str) -> bool:
        """Whether anybody wants a topic."""
        found = self._wanted.get(topic)
        if found is None:
            found = _by_prefix(self._counts, topic) or any(
                test(topic) for known in self._consumers.values() for test in known.tests
            )
            if len(self._wanted) >= TOPICS_MAX:
                self._wanted.clear()
            self._wanted[topic] = found
        return found

    def patterns_of(self, consumer: _C) -> frozenset[Pattern]:
        """What a consumer gets; nothing if it is unknown."""
        known = self._consumers.get(consumer)
        return known.patterns if known else frozenset()

    @property
    def consumers(self) -> tuple[_C, ...]:
        """Everybody who has said something, in the order in which they came."""
        return tuple(self._consumers)

    def is_full(self, consumer: _C) -> bool:
        """Whether a consumer is above its cap and gets everything."""
        known = self._consumers.get(consumer)
        return known is not None and known.capped.is_full

    @property
    def unknown_kinds(self) -> tuple[str, ...]:
        """Kinds that consumers ask for and that this node does not know."""
        return self._kinds.unknown(self._counts)
