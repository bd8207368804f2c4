"""Command line of the simulator: runs seeds in parallel, and shrinks those that fail."""

from __future__ import annotations

import sys
import time
from functools import partial

import click

from reliable_pubsub.common.progress import progress_bar

from .campaign import SEEDS_THAT_COVER, run_campaign, run_seeds
from .faults import FAULTS
from .options import shape_of, shape_options
from .report import show, show_coverage, show_failures
from .swarm import CLASSES, Shape

PLANT = "Plant this fault in the sound system: it must be found."


@click.command(
    epilog=f"Classes of faults: {', '.join(CLASSES)}. Faults to plant: {', '.join(sorted(FAULTS))}."
)
@click.option("--seeds", default=1000, show_default=True, type=click.IntRange(min=1))
@click.option("--start", default=0, show_default=True, type=click.IntRange(min=0))
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1))
@click.option("--fault", type=click.Choice(sorted(FAULTS)), metavar="FAULT", help=PLANT)
@click.option("--trace", is_flag=True, help="Print everything that happens; one process.")
@click.option("--no-shrink", is_flag=True, help="Do not look for a smaller world that fails.")
@click.option("--coverage", is_flag=True, help="Print how often each class of faults happened.")
@shape_options
def main(
    seeds: int,
    start: int,
    jobs: int,
    fault: str | None,
    trace: bool,
    no_shrink: bool,
    coverage: bool,
    without: tuple[str, ...],
    only: tuple[str, ...],
    **numbers: float | None,
) -> None:
    """Run seeds of the simulator; exit 1 if one breaks a rule, or a class of faults never happens.

    A seed is a world: proxy, publishers, subscribers, and what goes wrong for them. The same seed
    gives the same run, on every machine. Of the first seeds that fail it looks for the smallest
    world that still breaks the same rule, shows the end of its trace, and the command that runs it
    again; with --trace that prints all of it.

    \b
    Look for faults, here and there:    scripts/simulate --seeds 20000 --start 500000
    See one seed whole:                 scripts/simulate --start 7 --seeds 1 --trace
    Only kills and lost answers:        scripts/simulate --only kill --only drop_reply
    See that a planted fault is found:  scripts/simulate --seeds 50 --fault 'no dedup'
    """
    shape = shape_of(without, only, **numbers)
    todo = range(start, start + seeds)
    begin_s = time.perf_counter()
    if trace:
        tally = run_seeds(todo, fault, shape, on_seed=lambda one: show(one, fault, shape))
    else:
        with progress_bar(seeds, 0, quiet=False) as advance:
            seen = partial(advance, what="seeds")
            tally = run_campaign(todo, fault, shape, jobs=jobs, on_seeds=seen)
    rate = seeds / (time.perf_counter() - begin_s)
    if not trace:
        show_failures(tally.failed, fault, shape, shrinking=not no_shrink)
    if coverage:
        show_coverage(tally, seeds)
    click.echo(f"{seeds:,} seeds from {start}, {len(tally.failed):,} failed, {rate:.0f} seeds/s")
    covers = seeds >= SEEDS_THAT_COVER and fault is None and shape == Shape()
    never_seen = tally.never_seen if covers else []
    for name in never_seen:
        click.echo(f"{name} never happened in these seeds: no rule about it was put to the test")
    sys.exit(1 if tally.failed or never_seen else 0)


if __name__ == "__main__":
    main(prog_name="scripts/simulate")
