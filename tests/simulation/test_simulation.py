"""The promises under every kind of bad luck, seed by seed."""

from __future__ import annotations

from functools import cache

import pytest

from scripts.simulator.campaign import SEEDS_THAT_COVER, Tally
from scripts.simulator.options import replay_command
from scripts.simulator.simulation import SOUND, WHOLE, Simulation, run_seed
from scripts.simulator.world import World

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
    """A class that never happens is a hole: its rules are never tested."""
    tally = Tally()

    for seed in range(SEEDS_THAT_COVER):
        tally.count(outcome_of(seed))

    assert tally.never_seen == []


def test_a_seed_gives_the_same_run_again() -> None:
    first, again = run_seed(7, tracing=True), run_seed(7, tracing=True)

    assert first == again
    assert len(first.trace) > 50


def test_a_topic_ends_when_no_put_that_its_publisher_has_forgotten_can_arrive() -> None:
    """A publisher whose state was lost is done, and a copy of its last PUT is still under way."""
    simulations = (Simulation(World(seed), SOUND, WHOLE) for seed in range(100))
    simulation = next(one for one in simulations if _only_forgets_puts(one))
    for machine in simulation._machines:
        machine.done = True

    before = simulation._end("a")
    simulation._world.run(simulation._faults.late_s + 0.5)
    after = simulation._end("a")

    assert before is None
    assert after == simulation._store.end("a")


def _only_forgets_puts(simulation: Simulation) -> bool:
    return bool(simulation._faults.set_back) and not simulation._faults.put_qos_1
