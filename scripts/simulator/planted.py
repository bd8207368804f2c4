"""The table of planted faults in docs/internals/runs.md: which seed finds each.

A change of the simulator makes another world of each seed. `python -m scripts.simulator.planted`
searches again where the seed of the table no longer finds its fault.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from concurrent.futures import as_completed
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from reliable_pubsub.common.progress import progress_bar
from scripts.worker_pool import worker_pool

from .faults import FAULTS
from .simulation import run_seed

SEEDS_MAX: Final = 10_000  # a fault that needs more seeds is a hole in the simulator
RUNS: Final = Path(__file__).parents[2] / "docs" / "internals" / "runs.md"
REFRESH: Final = "python -m scripts.simulator.planted"
_HEAD: Final = "| planted fault | seeds until found | shown first by |\n|---|---|---|\n"
_ROW: Final = re.compile(r"\| (.+?) \| ([\d,]+) \| (.+) \|\n")


class Row(Struct, frozen=True):
    """A row of the table."""

    fault: str
    seeds: int  # the last of them found it
    shown_by: str  # a rule, or an error

    @property
    def seed(self) -> int:
        """The seed that found it."""
        return self.seeds - 1


def rows() -> dict[str, Row]:
    """The table as it stands."""
    table = RUNS.read_text(encoding="utf-8").partition(_HEAD)[2]
    found = (Row(fault, int(n.replace(",", "")), by) for fault, n, by in _ROW.findall(table))
    return {row.fault: row for row in found}


def search(fault: str, first: Row | None = None, *, seeds_max: int = SEEDS_MAX) -> Row | None:
    """Its row: `first`, if that seed still finds the fault; else the first seed that does."""
    if first is not None and run_seed(first.seed, FAULTS[fault]).violations:
        return first
    for seed in range(seeds_max):
        if violations := run_seed(seed, FAULTS[fault]).violations:
            return Row(fault, seed + 1, violations[0].partition(":")[0])
    return None


def write(made: Mapping[str, Row]) -> None:
    """Write the table, in the order in which the faults are listed."""
    before, _, table = RUNS.read_text(encoding="utf-8").partition(_HEAD)
    after = table[sum(len(row[0]) for row in _ROW.finditer(table)) :]
    lines = (f"| {r.fault} | {r.seeds:,} | {r.shown_by} |\n" for f in FAULTS if (r := made.get(f)))
    RUNS.write_text(before + _HEAD + "".join(lines) + after, encoding="utf-8")


@click.command()
@click.option("--all", "everything", is_flag=True, help="Make every row again; takes much longer.")
@click.option("--jobs", default=os.cpu_count() or 2, type=click.IntRange(min=1), show_default=True)
def main(everything: bool, jobs: int) -> None:
    """Write the table of planted faults in docs/internals/runs.md, row by row as they are found.

    Exit code 1 if a fault is not found.
    """
    made = rows()
    missed = 0
    with worker_pool(jobs) as pool, progress_bar(len(FAULTS), 0, quiet=False) as advance:
        known = {} if everything else dict(made)
        running = {pool.submit(search, fault, known.get(fault)): fault for fault in FAULTS}
        for one in as_completed(running):
            fault, row = running[one], one.result()
            advance(1, "faults")
            if row is None:
                missed += 1
                click.echo(f"{SEEDS_MAX:,} seeds did not find {fault!r}")
            elif row != made.get(fault):
                click.echo(f"{fault}: {row.seeds:,} seeds, {row.shown_by}")
                made[fault] = row
                write(made)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main(prog_name=REFRESH)
