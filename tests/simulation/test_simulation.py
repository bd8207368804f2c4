"""The promises under every kind of bad luck, seed by seed."""

from __future__ import annotations

import pytest

from .__main__ import replay_command
from .simulation import run_seed

SEEDS = 200  # scripts/check runs 3,000 more
SEEDS_IN_CHUNK = 20


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_IN_CHUNK))
def test_no_seed_breaks_a_promise(first: int) -> None:
    outcomes = [run_seed(seed) for seed in range(first, first + SEEDS_IN_CHUNK)]

    failed = [outcome for outcome in outcomes if outcome.violations]

    assert not failed, "\n".join(
        f"seed {outcome.seed}: {outcome.violations[0]}\n  replay: {replay_command(outcome.seed)}"
        for outcome in failed
    )


def test_a_seed_gives_the_same_run_again() -> None:
    first, again = run_seed(7, tracing=True), run_seed(7, tracing=True)

    assert first == again
    assert len(first.trace) > 50
