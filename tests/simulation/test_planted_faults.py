"""A checker that cannot fail proves nothing: every planted fault must be found."""

from __future__ import annotations

import warnings

import pytest

from simulator.faults import FAULTS
from simulator.planted import REFRESH, SEEDS_MAX, rows, search
from simulator.simulation import SOUND, run_seed

pytestmark = pytest.mark.slow

ROWS = rows()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(fault: str) -> None:
    found = search(fault, ROWS.get(fault))

    assert found is not None, f"{SEEDS_MAX} seeds did not find {fault!r}"
    assert not run_seed(found.seed, SOUND).violations, "the sound core fails this seed too"
    if found != ROWS.get(fault):  # found, but only by a search that costs minutes of CPU
        stale = f"the seed of {fault!r} in docs/runs.md is stale: {REFRESH}"
        warnings.warn(stale, stacklevel=1)
