"""What the simulator prints: failed seeds, shrunk, and how often each class of faults occurred."""

from __future__ import annotations

from collections.abc import Sequence

import click
from msgspec.structs import replace
from rich.console import Console

from reliable_pubsub.common.progress import progress_bar
from reliable_pubsub.lab.text_table import text_table

from .campaign import Tally
from .faults import FAULTS
from .options import replay_command
from .shrink import RUNS_MAX, Shrunk, shrink
from .simulation import SOUND, Outcome
from .swarm import CLASSES, Shape

FAILURES_SHOWN = 10
FAILURES_SHRUNK = 3
TRACE_LINES_SHOWN = 60


def show_failures(
    failed: Sequence[Outcome], fault: str | None, shape: Shape, *, shrinking: bool
) -> None:
    """The first seeds that failed; the first of these are shrunk."""
    for number, outcome in enumerate(failed[:FAILURES_SHOWN]):
        if shrinking and number < FAILURES_SHRUNK:
            _show_shrunk(outcome, _shrunk(outcome.seed, fault, shape), fault)
        else:
            show(outcome, fault, shape)


def _shrunk(seed: int, fault: str | None, shape: Shape) -> Shrunk:
    with progress_bar(RUNS_MAX, 0, quiet=False) as advance:
        variant = FAULTS[fault] if fault else SOUND
        return shrink(seed, variant, shape, on_run=lambda: advance(1, f"shrinking seed {seed}"))


def _show_shrunk(whole: Outcome, shrunk: Shrunk, fault: str | None) -> None:
    for violation in whole.violations:
        click.echo(f"seed {whole.seed}: {violation}")
    trace = shrunk.outcome.trace
    shown = trace[-TRACE_LINES_SHOWN:]
    click.echo(
        f"seed {whole.seed} in a smaller world, the last {len(shown)} of {len(trace)} lines:"
    )
    show(replace(shrunk.outcome, trace=shown), fault, shrunk.shape)


def show(outcome: Outcome, fault: str | None, shape: Shape) -> None:
    """The trace if there is one, the broken rules, the command that shows it all again."""
    for line in outcome.trace:
        click.echo(line)
    for violation in outcome.violations:
        click.echo(f"seed {outcome.seed}: {violation}")
    if outcome.violations:
        click.echo(f"seed {outcome.seed}: replay with {replay_command(outcome.seed, fault, shape)}")


def show_coverage(tally: Tally, seeds: int) -> None:
    """How often each class of faults has happened."""
    rows = [(name, f"{tally.seeds[name]:,}", f"{tally.times[name]:,}") for name in CLASSES]
    Console().print(text_table("", ("fault class", f"#of {seeds:,} seeds", "#times"), rows))
