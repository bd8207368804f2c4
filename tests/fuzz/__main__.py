"""Command line of the fuzzer of connections."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .board import AT_THE_PROXY, ELSEWHERE, NOWHERE
from .trial import PLACES, Result, Trial, Window

RATIO_MIN = 0.9
WINDOW_S = 2.0
TOGETHER_S = 3.0  # accomplices on the honest topic

RATES: dict[str, Callable[[Window], float]] = {
    "puts": lambda window: window.puts,
    "deliveries": lambda window: window.deliveries,
}


def show(result: Result, console: Console) -> None:
    """The tables."""
    table = Table(title="medians of the windows, per second", title_justify="left", box=box.SIMPLE)
    table.add_column("", no_wrap=True)
    for column in ("puts", "deliveries", "attacks", "proxy CPU", "crowd CPU"):
        table.add_column(column, justify="right")
    for place, name in PLACES.items():
        median = result.median
        table.add_row(
            name,
            *(f"{median(place, of):,.0f}" for of in RATES.values()),
            f"{median(place, lambda window: window.attacks):,.0f}",
            f"{median(place, lambda window: window.proxy_cpu):.0%}",
            f"{median(place, lambda window: window.crowd_cpu):.1%}",
        )
    console.print(table)
    ratios = Table(title="ratios, taken group by group", title_justify="left", box=box.SIMPLE)
    ratios.add_column("")
    for column in ("at the proxy / alone", "elsewhere / alone", "at the proxy / elsewhere"):
        ratios.add_column(column, justify="right")
    for name, of in RATES.items():
        pairs = ((AT_THE_PROXY, NOWHERE), (ELSEWHERE, NOWHERE), (AT_THE_PROXY, ELSEWHERE))
        ratios.add_row(name, *(f"{result.ratio(of, *pair):.2f}" for pair in pairs))
    console.print(ratios)
    verdict = result.verdict
    wrong = verdict.altered + verdict.misplaced
    console.print(
        f"{result.attacks:,} hostile connections, {result.accomplice_answers:,} moves of "
        f"accomplices\n"
        f"expected {verdict.expected:,} ({result.puts:,} honest, {result.accomplice_puts:,} of an "
        f"accomplice), received {verdict.received:,}: lost {verdict.lost}, duplicated "
        f"{verdict.duplicated}, out of order {verdict.out_of_order}, wrong {wrong}; unanswered "
        f"{result.silences}\n"
        f"proxy: {result.before.resident_mib:.0f} MiB before, {result.after.resident_mib:.0f} "
        f"after; descriptors {result.before.descriptors} before, at most "
        f"{result.descriptors_most}, {result.after.descriptors} after",
        highlight=False,
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=60.0, show_default=True, help="Measured time, about.")
@click.option("--connections-per-s", default=100.0, show_default=True, help="Pace of the crowd.")
@click.option("--seed", type=int, help="The same attacks in the same order.")
def main(seconds: float, connections_per_s: float, seed: int | None) -> None:
    """Measure an honest pair alone and beside hostile connections; judge what it got.

    Exit code 1 if a message was lost, doubled or wrong, if the proxy died, complained or kept
    connections, or if the honest pair kept less than 0.9 of its rate.
    """
    seed = secrets.randbits(32) if seed is None else seed
    groups = max(round(seconds / (3 * WINDOW_S)), 1)
    console = Console(width=None if sys.stdout.isatty() else 100)
    bar = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as directory,
        Progress(console=bar, transient=True, disable=not bar.is_terminal) as progress,
    ):
        task = progress.add_task("windows", total=3 * groups + 1)
        trial = Trial(Path(directory), seed=seed, attacks_per_s=connections_per_s)
        with trial.running():
            result = trial.run(
                groups=groups,
                window_s=WINDOW_S,
                together_attacks=int(TOGETHER_S * connections_per_s),
                tick=lambda: progress.advance(task),
            )
    problems = list(result.problems)
    if len(result.windows) == len(PLACES) * groups:
        show(result, console)
        worst = min(result.ratio(of, AT_THE_PROXY, NOWHERE) for of in RATES.values())
        if worst < RATIO_MIN:
            problems.append(f"the honest pair kept {worst:.2f} of its rate, less than {RATIO_MIN}")
    for problem in problems:
        console.print(problem, style="bold red", highlight=False)
    console.print(f"seed {seed}: {'failed' if problems else 'held'}", highlight=False)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main(prog_name="scripts/fuzz")
