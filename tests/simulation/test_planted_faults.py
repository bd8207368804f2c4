"""A checker that cannot fail proves nothing: every planted fault must be found."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from .faults import FAULTS
from .simulation import SOUND, run_seed

pytestmark = pytest.mark.slow

SEEDS_MAX = 10_000  # a fault that needs more is a hole in the simulator
# How many seeds each fault took when the table was made: the last of them is tried first. A change
# of the simulator makes another world of it, and then the search begins at seed 0, as for the table
# (`PLANTED_FAULTS_ANEW=1 pytest -s` of this file makes it again).
GUARANTEES = Path(__file__).parents[2] / "docs" / "guarantees.md"
ROWS = re.findall(r"(?m)^\| (.+?) \| ([\d,]+) \| .+ \|$", GUARANTEES.read_text(encoding="utf-8"))
FOUND_BY = {fault: int(seeds.replace(",", "")) - 1 for fault, seeds in ROWS}


@pytest.fixture(scope="session")
def seeds_until_found() -> Iterator[dict[str, tuple[int, str]]]:
    """Collect a row for each fault; print the table at the end (`pytest -s`)."""
    rows: dict[str, tuple[int, str]] = {}
    yield rows
    table = Table("planted fault", "seeds until found", "broken rule")
    for fault, (seeds, violation) in rows.items():
        table.add_row(fault, str(seeds), violation[:80])
    Console(width=150).print(table)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(
    fault: str, seeds_until_found: dict[str, tuple[int, str]]
) -> None:
    first = [] if "PLANTED_FAULTS_ANEW" in os.environ else [FOUND_BY.get(fault, 0)]
    for seed in chain(first, range(SEEDS_MAX)):
        violations = run_seed(seed, FAULTS[fault]).violations
        if violations:
            seeds_until_found[fault] = (seed + 1, violations[0])
            assert not run_seed(seed, SOUND).violations, "the sound core fails this seed too"
            return
    pytest.fail(f"{SEEDS_MAX} seeds did not find {fault!r}")
