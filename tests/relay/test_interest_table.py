"""The table of interest: counted, aggregated, and never missing anything on the way."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reliable_pubsub.common.core.patterns.matching import EVERYTHING, Pattern, Strategy
from reliable_pubsub.relay.core.interest_table import CAP, AggregateChange, InterestTable
from tests.relay.wishes import ALL_TOPICS, KINDS, patterns, wanted_topics


def exact(*topics: str) -> set[Pattern]:
    return {Pattern("exact", topic) for topic in topics}


def a_table(strategy: Strategy = "subsume", cap: int = CAP) -> InterestTable[str]:
    return InterestTable(strategy=strategy, cap=cap, kinds=KINDS)


A, AB, AC = (Pattern("prefix", text) for text in ("a", "ab", "ac"))


class TestReferenceCounts:
    def test_the_second_consumer_of_a_pattern_is_not_heard_above(self) -> None:
        table = a_table("dedup")

        table.replace("one", [A])
        assert table.changes() == (AggregateChange(True, A),)
        table.replace("two", [A])
        assert table.changes() == ()

    def test_only_the_last_consumer_that_goes_is_heard_above(self) -> None:
        table = a_table("dedup")
        table.replace("one", [A])
        table.replace("two", [A])
        table.changes()

        table.forget("one")
        assert table.changes() == ()
        table.replace("two", [])
        assert table.changes() == (AggregateChange(False, A),)


class TestCompensation:
    def test_what_a_pattern_covers_is_not_asked_for(self) -> None:
        table = a_table()
        table.replace("one", [A])
        table.replace("two", [AB])

        assert table.changes() == (AggregateChange(True, A),)

    def test_before_a_pattern_goes_what_it_covered_is_asked_for(self) -> None:
        table = a_table()
        table.replace("one", [A])
        table.replace("two", [AC, AB])
        table.changes()

        table.forget("one")

        assert table.changes() == (
            AggregateChange(True, AB),
            AggregateChange(True, AC),
            AggregateChange(False, A),
        )

    def test_a_wider_pattern_comes_before_the_narrow_ones_go(self) -> None:
        table = a_table()
        table.replace("one", [AB])
        table.changes()

        table.replace("two", [A])

        assert table.changes() == (AggregateChange(True, A), AggregateChange(False, AB))


class TestTheCap:
    def test_gives_the_full_feed_to_a_consumer_above_it(self) -> None:
        table = a_table()
        at_cap = exact(*map(str, range(CAP)))

        assert table.replace("one", at_cap) == at_cap
        assert not table.is_full("one")
        assert table.replace("one", at_cap | exact("more")) == {EVERYTHING}
        assert table.is_full("one")
        assert table.changes() == (AggregateChange(True, EVERYTHING),)

    def test_is_left_only_well_below_it(self) -> None:
        table = a_table(cap=4)
        table.replace("one", exact("1", "2", "3", "4", "5"))

        assert table.replace("one", exact("1", "2", "3", "4")) == {EVERYTHING}
        assert table.replace("one", exact("1", "2", "3")) == exact("1", "2", "3")
        assert table.replace("one", exact("1", "2", "3", "4")) == exact("1", "2", "3", "4")

    def test_is_of_each_consumer_alone(self) -> None:
        table = a_table(cap=1)
        table.replace("one", exact("1", "2"))
        table.replace("two", exact("1"))

        assert (table.is_full("one"), table.is_full("two")) == (True, False)
        table.forget("one")
        assert table.changes() == (AggregateChange(True, Pattern("exact", "1")),)


class TestStrategies:
    @pytest.mark.parametrize(
        ("strategy", "told"),
        [("none", [A, AB, A]), ("dedup", [A, AB]), ("subsume", [A]), ("all", [EVERYTHING])],
    )
    def test_differ_in_what_is_said_above(self, strategy: Strategy, told: list[Pattern]) -> None:
        table = a_table(strategy)
        said = []
        for consumer, pattern in (("one", A), ("two", AB), ("three", A)):
            table.replace(consumer, [pattern])
            said += [change.pattern for change in table.changes()]

        assert said == told


def test_kinds_that_are_not_known_are_reported() -> None:
    table = a_table()
    table.replace("one", [Pattern("sql", "x"), A])

    assert table.unknown_kinds == ("sql",)
    assert table.changes() == (AggregateChange(True, EVERYTHING),)


class ATableOfInterest(RuleBasedStateMachine):
    """Consumers come, change their minds and go; the sets of both sides are compared."""

    strategy: Strategy = "subsume"

    def __init__(self) -> None:
        super().__init__()
        self.table = a_table(self.strategy, cap=4)
        self.below: dict[str, frozenset[Pattern]] = {}
        self.at_last_telling: dict[str, frozenset[Pattern]] = {}
        self.above: set[Pattern] = set()

    @rule(consumer=st.sampled_from("xyz"), some=st.frozensets(patterns, max_size=6))
    def wants(self, consumer: str, some: frozenset[Pattern]) -> None:
        given = self.table.replace(consumer, some)

        assert given in (some, {EVERYTHING})
        assert len(some) <= 4 or given == {EVERYTHING}
        self.below[consumer] = given

    @rule(consumer=st.sampled_from("xyz"))
    def goes(self, consumer: str) -> None:
        self.table.forget(consumer)
        self.below.pop(consumer, None)

    @rule()
    def tells_above(self) -> None:
        before, after = self._wanted(self.at_last_telling), self._wanted(self.below)
        steps = self.table.changes()

        for step in steps:
            if step.added:
                self.above.add(step.pattern)
            else:
                self.above.remove(step.pattern)
            assert wanted_topics(self.above) >= before & after
        assert wanted_topics(self.above) >= after
        if self.strategy in ("dedup", "subsume"):
            assert wanted_topics(self.above) == after
            touched = [step.pattern for step in steps]
            assert len(touched) == len(set(touched))
        assert self.above == self.table.above
        self.at_last_telling = dict(self.below)

    def _wanted(self, consumers: dict[str, frozenset[Pattern]]) -> set[str]:
        return wanted_topics(frozenset().union(*consumers.values()))

    @invariant()
    def knows_what_each_consumer_wants(self) -> None:
        assert set(self.table.consumers) == set(self.below)
        wanted = self._wanted(self.below)
        self.table.new_turn()
        assert {topic for topic in ALL_TOPICS if self.table.is_wanted(topic)} == wanted

    @invariant()
    def sends_a_copy_of_its_own_only_to_those_that_no_prefix_serves(self) -> None:
        for topic in ALL_TOPICS[:12]:
            expected = [
                consumer
                for consumer, some in self.below.items()
                if topic in wanted_topics(some)
                and topic not in wanted_topics({p for p in some if p.kind in ("exact", "prefix")})
            ]
            self.table.new_turn()
            assert sorted(self.table.singly(topic)) == sorted(expected)


class WithStrategyNone(ATableOfInterest):
    strategy = "none"


class WithStrategyDedup(ATableOfInterest):
    strategy = "dedup"


class WithStrategyAll(ATableOfInterest):
    strategy = "all"


TestWithStrategySubsume = ATableOfInterest.TestCase
TestWithStrategyNone = WithStrategyNone.TestCase
TestWithStrategyDedup = WithStrategyDedup.TestCase
TestWithStrategyAll = WithStrategyAll.TestCase
TestWithStrategySubsume.settings = settings(max_examples=50, stateful_step_count=30)
for _other in (TestWithStrategyNone, TestWithStrategyDedup, TestWithStrategyAll):
    _other.settings = settings(max_examples=20, stateful_step_count=30)
