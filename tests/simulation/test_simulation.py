"""The promises under every kind of bad luck, seed by seed."""

from __future__ import annotations

from functools import cache

import pytest

from .campaign import Tally
from .options import replay_command
from .simulation import run_seed
from .swarm import CLASSES

SEEDS = 200  # scripts/check runs 3,000 more
SEEDS_IN_CHUNK = 20
SEEDS_OF_COVERAGE = 300

outcome_of = cache(run_seed)


@pytest.mark.slow  # the gate runs seeds beside the tests, too
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_IN_CHUNK))
def test_no_seed_breaks_a_promise(first: int) -> None:
    outcomes = [outcome_of(seed) for seed in range(first, first + SEEDS_IN_CHUNK)]

    failed = [outcome for outcome in outcomes if outcome.violations]

    assert not failed, "\n".join(
        f"seed {outcome.seed}: {outcome.violations[0]}\n  replay: {replay_command(outcome.seed)}"
        for outcome in failed
    )


@pytest.mark.slow
def test_every_class_of_faults_happens() -> None:
    """One that never does is a hole: its rules are never put to the test."""
    tally = Tally()

    for seed in range(SEEDS_OF_COVERAGE):
        tally.count(outcome_of(seed))

    assert [name for name in CLASSES if not tally.seeds[name]] == []


def test_a_seed_gives_the_same_run_again() -> None:
    first, again = run_seed(7, tracing=True), run_seed(7, tracing=True)

    assert first == again
    assert len(first.trace) > 50
