"""The promises under every kind of bad luck, seed by seed."""

from __future__ import annotations

from functools import cache

import pytest

from simulator.campaign import SEEDS_THAT_COVER, Tally
from simulator.options import replay_command
from simulator.simulation import run_seed

SEEDS = 200
SEEDS_IN_CHUNK = 20

outcome_of = cache(run_seed)


@pytest.mark.campaign  # the gate runs these seeds and more beside the tests
@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_IN_CHUNK))
def test_no_seed_breaks_a_promise(first: int) -> None:
    outcomes = [outcome_of(seed) for seed in range(first, first + SEEDS_IN_CHUNK)]

    failed = [outcome for outcome in outcomes if outcome.violations]

    assert not failed, "\n".join(
        f"seed {outcome.seed}: {outcome.violations[0]}\n  replay: {replay_command(outcome.seed)}"
        for outcome in failed
    )


@pytest.mark.campaign
def test_every_class_of_faults_happens() -> None:
    """One that never does is a hole: its rules are never put to the test."""
    tally = Tally()

    for seed in range(SEEDS_THAT_COVER):
        tally.count(outcome_of(seed))

    assert tally.never_seen == []


def test_a_seed_gives_the_same_run_again() -> None:
    first, again = run_seed(7, tracing=True), run_seed(7, tracing=True)

    assert first == again
    assert len(first.trace) > 50
