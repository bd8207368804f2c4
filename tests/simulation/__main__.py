"""Command line of the simulator: seeds in parallel, a bar, and how to replay a failure."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .faults import FAULTS
from .simulation import SOUND, WHOLE, Outcome, run_seed
from .swarm import Shape

SEEDS_PER_TASK = 50
FAILURES_SHOWN = 10


def replay_command(seed: int, fault: str | None = None, shape: Shape = WHOLE) -> str:
    """How to see one seed again."""
    planted = f" --fault '{fault}'" if fault else ""
    return f"scripts/simulate --start {seed} --seeds 1{planted} --trace"


def _run_task(first: int, count: int, fault: str | None, shape: Shape) -> list[Outcome]:
    """Run seeds in a process of the pool; give those that failed."""
    variant = FAULTS[fault] if fault else SOUND
    outcomes = (run_seed(seed, variant, shape) for seed in range(first, first + count))
    return [outcome for outcome in outcomes if outcome.violations]


def _run_all(
    start: int, seeds: int, jobs: int, fault: str | None, shape: Shape
) -> Iterator[list[Outcome]]:
    """Give the failures of each task as it ends; the bar moves by a task."""
    tasks = range(start, start + seeds, SEEDS_PER_TASK)
    sizes = [min(SEEDS_PER_TASK, start + seeds - first) for first in tasks]
    console = Console(stderr=True)
    columns = (TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        ProcessPoolExecutor(max_workers=jobs) as pool,
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
    ):
        bar = progress.add_task("seeds", total=seeds)
        running = {
            pool.submit(_run_task, first, size, fault, shape): size
            for first, size in zip(tasks, sizes, strict=True)
        }
        for task in as_completed(running):
            progress.advance(bar, running[task])
            yield task.result()


def _show(outcome: Outcome, fault: str | None, shape: Shape) -> None:
    for line in outcome.trace:
        click.echo(line)
    for violation in outcome.violations:
        click.echo(f"seed {outcome.seed}: {violation}")
    if outcome.violations:
        click.echo(f"seed {outcome.seed}: replay with {replay_command(outcome.seed, fault, shape)}")


@click.command()
@click.option("--seeds", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--start", default=0, show_default=True, type=click.IntRange(min=0))
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1))
@click.option("--fault", type=click.Choice(sorted(FAULTS)), help="Plant this fault.")
@click.option("--trace", is_flag=True, help="Print everything that happens; one process.")
def main(seeds: int, start: int, jobs: int, fault: str | None, trace: bool) -> None:
    """Run seeds of the simulator; exit 1 if one of them breaks a rule."""
    shape = WHOLE
    begin_s = time.perf_counter()
    failed: list[Outcome] = []
    if trace:
        for seed in range(start, start + seeds):
            outcome = run_seed(seed, FAULTS[fault] if fault else SOUND, shape, tracing=True)
            _show(outcome, fault, shape)
            failed += [outcome] if outcome.violations else []
    else:
        for outcomes in _run_all(start, seeds, jobs, fault, shape):
            failed += outcomes
        for outcome in sorted(failed, key=lambda o: o.seed)[:FAILURES_SHOWN]:
            _show(outcome, fault, shape)
    rate = seeds / (time.perf_counter() - begin_s)
    click.echo(f"{seeds:,} seeds from {start}, {len(failed):,} failed, {rate:.0f} seeds/s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main(prog_name="scripts/simulate")
