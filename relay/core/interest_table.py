"""Which patterns consumers below want, and which to request above: one copy of each, in order.

The table counts patterns over consumers (the peers directly below). The patterns requested above
are an aggregate of these. Additions are sent before removals, so that nothing is missing in between
that is still wanted: if `a` covered `ab` and `a` ends, `ab` is requested before `a` is given back.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Hashable, Iterable
from typing import Final, Generic, TypeVar

from msgspec import Struct

from reliable_pubsub.common.core.limits import (
    CONSUMER_STATES_MAX,
    MATCH_STEPS_MAX,
    SINGLY_MAX,
    TABLE_PATTERNS_MAX,
    TABLE_STATES_MAX,
    TOPICS_MAX,
)
from reliable_pubsub.common.core.patterns.automaton import Effort
from reliable_pubsub.common.core.patterns.matching import (
    EVERYTHING,
    Kinds,
    Pattern,
    Strategy,
    aggregate,
    is_simple,
)
from reliable_pubsub.common.core.settings import RELAY_MAX_SUBSCRIPTIONS

CAP: Final = RELAY_MAX_SUBSCRIPTIONS  # patterns of one consumer
_BACK = 3 / 4  # of the cap: a consumer comes back from the full feed only below this

_C = TypeVar("_C", bound=Hashable)


class AggregateChange(Struct, frozen=True):
    """One step of what is asked for above."""

    added: bool  # False: given back
    pattern: Pattern


def changes_between(
    before: frozenset[Pattern], after: frozenset[Pattern]
) -> tuple[AggregateChange, ...]:
    """The fewest steps from one set to another, additions first."""
    return (
        *(AggregateChange(True, one) for one in sorted(after - before)),
        *(AggregateChange(False, one) for one in sorted(before - after)),
    )


class Capped:
    """A set of patterns with a cap; above it the full feed is taken, until well below it."""

    def __init__(self, cap: int) -> None:
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
    __slots__ = ("capped", "is_costly", "patterns", "states", "tests")

    def __init__(self, cap: int) -> None:
        self.capped = Capped(cap)
        self.patterns: frozenset[Pattern] = frozenset()
        self.is_costly = False  # gets everything, because its patterns cost too much
        self.tests: tuple[Pattern, ...] = ()  # what is neither exact nor a prefix
        self.states = 0  # of their automata


class _Matching(Generic[_C]):
    """Who wants one topic by a test: who does, and who is not decided yet."""

    __slots__ = ("found", "waiting")

    def __init__(self, waiting: Iterable[_C]) -> None:
        self.found: list[_C] = []
        self.waiting = deque(waiting)


def _by_prefix(patterns: Container[Pattern], topic: str) -> bool:
    """Whether a topic is among exact patterns and prefixes."""
    if Pattern("exact", topic) in patterns:
        return True
    return any(Pattern("prefix", topic[:end]) in patterns for end in range(len(topic) + 1))


class InterestTable(Generic[_C]):
    """The interest of all consumers of one node."""

    def __init__(self, *, strategy: Strategy = "subsume", cap: int = CAP, kinds: Kinds) -> None:
        """Create an empty table.

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
        self._tested: dict[_C, None] = {}  # consumers with tests, in the order they came
        self._states = 0  # of the automata of all of them
        self._effort = Effort(MATCH_STEPS_MAX)
        # By topic; forgotten at every change.
        self._matching: dict[str, _Matching[_C]] = {}
        self._by_prefix: dict[str, bool] = {}
        self.above: frozenset[Pattern] = frozenset()  # what is requested, as last sent

    # What the consumers say.

    def replace(
        self, consumer: _C, patterns: Iterable[Pattern], *, is_costly: bool = False
    ) -> frozenset[Pattern]:
        """A consumer wants these and nothing else.

        Args:
            patterns: in their simplest form, from `Kinds.check`.
            is_costly: they were not all read, because they cost too much.

        Returns:
            What it will get: these, or everything where it is above the cap or they cost too much.
        """
        known = self._consumers.setdefault(consumer, _Consumer(self._cap))
        self._tested.pop(consumer, None)
        self._states -= known.states
        wanted = known.capped.take(frozenset(patterns))
        tests = tuple(one for one in wanted if not is_simple(one))
        known.states = sum(self._kinds.cost(one)[1] for one in tests)
        known.is_costly = is_costly or self._is_too_much(known, wanted, len(tests))
        if known.is_costly:
            wanted, tests, known.states = frozenset({EVERYTHING}), (), 0
        self._count(known.patterns, wanted)
        known.patterns, known.tests = wanted, tests
        self._states += known.states
        if tests:
            self._tested[consumer] = None
        return wanted

    def _is_too_much(self, known: _Consumer, wanted: frozenset[Pattern], tests: int) -> bool:
        """Whether patterns cost this node more than sending everything does."""
        more = len(self._counts) + len(wanted) > TABLE_PATTERNS_MAX
        if known.states > CONSUMER_STATES_MAX or self._states + known.states > TABLE_STATES_MAX:
            return True
        return more or (tests > 0 and len(self._tested) >= SINGLY_MAX)

    def forget(self, consumer: _C) -> None:
        """A consumer is gone."""
        known = self._consumers.pop(consumer, None)
        if known is not None:
            self._tested.pop(consumer, None)
            self._states -= known.states
            self._count(known.patterns, frozenset())

    def new_turn(self) -> None:
        """A turn of the loop begins: some topics may be matched in it."""
        self._effort = Effort(MATCH_STEPS_MAX)

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
        self._matching.clear()
        self._by_prefix.clear()

    # What follows from it.

    def changes(self) -> tuple[AggregateChange, ...]:
        """The steps from what was last sent above to what is wanted now, which count as sent."""
        if not self._is_dirty:
            return ()
        self._is_dirty = False
        wanted = aggregate(self._counts, self._strategy, self._kinds)
        steps = changes_between(self.above, wanted)
        repeats = tuple(AggregateChange(True, one) for one in self._repeats if one in wanted)
        self._repeats.clear()
        self.above = wanted
        return (*repeats, *steps)

    def singly(self, topic: str) -> tuple[_C, ...]:
        """The consumers that want a topic by a glob or an expression alone.

        The others are served by prefix, all with one send. None is in both. Who is not decided in
        the steps of this turn is among them: too much rather than too little.
        """
        matching = self._matched(topic)
        return (*matching.found, *matching.waiting)

    def is_wanted(self, topic: str) -> bool:
        """Whether any consumer wants a topic."""
        found = self._by_prefix.get(topic)
        if found is None:
            if len(self._by_prefix) >= TOPICS_MAX:
                self._by_prefix.clear()
            found = self._by_prefix[topic] = _by_prefix(self._counts, topic)
        if found or not self._tested:
            return found
        matching = self._matched(topic)
        return bool(matching.found or matching.waiting)

    def _matched(self, topic: str) -> _Matching[_C]:
        """Go on with the tests of a topic, as far as this turn allows."""
        matching = self._matching.get(topic)
        if matching is None:
            if len(self._matching) >= TOPICS_MAX:
                self._matching.clear()
            matching = self._matching[topic] = _Matching(self._tested)
        while matching.waiting and not self._effort.is_over:
            left = self._effort.left
            consumer = matching.waiting[0]
            is_wanted = self._tests(consumer, topic)
            if self._effort.is_over and left < MATCH_STEPS_MAX:
                break  # it is decided in another turn, which has more steps
            matching.waiting.popleft()
            if is_wanted:
                matching.found.append(consumer)
        return matching

    def _tests(self, consumer: _C, topic: str) -> bool:
        known = self._consumers[consumer]
        self._effort.left -= len(topic)
        if _by_prefix(known.patterns, topic):
            return False
        return any(self._kinds.matches(one, topic, self._effort) for one in known.tests)

    def patterns_of(self, consumer: _C) -> frozenset[Pattern]:
        """What a consumer gets; nothing if it is unknown."""
        known = self._consumers.get(consumer)
        return known.patterns if known else frozenset()

    @property
    def consumers(self) -> tuple[_C, ...]:
        """All consumers that have sent interest, in the order of their arrival."""
        return tuple(self._consumers)

    def is_full(self, consumer: _C) -> bool:
        """Whether a consumer is above its cap, or a bound of the node, and gets everything."""
        known = self._consumers.get(consumer)
        return known is not None and (known.capped.is_full or known.is_costly)

    @property
    def unknown_kinds(self) -> tuple[str, ...]:
        """Kinds that consumers ask for and that this node does not know."""
        return self._kinds.unknown(self._counts)
