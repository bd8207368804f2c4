"""Command line of the fuzzer of connections."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import NoReturn

import click
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from scripts.delivery import Verdict

from .board import AT_THE_PROXY, ELSEWHERE, NOWHERE
from .floods import ENDPOINTS, REQUEST
from .newcomers import Waited
from .secure import SecureTrial
from .siege import Outcome, Siege
from .trial import PLACES, Measured, Result, Trial, Window

RATIO_MIN = 0.9
WINDOW_S = 2.0
TOGETHER_S = 3.0  # accomplices on the honest topic
LONGEST_S = 10.0  # silence of the honest beside floods; generous

RATES: dict[str, Callable[[Window], float]] = {
    "puts": lambda window: window.puts,
    "deliveries": lambda window: window.deliveries,
}


def show_windows(result: Measured, console: Console) -> None:
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
    for name, of in {**RATES, "puts by CPU": lambda window: window.puts_by_cpu}.items():
        pairs = ((AT_THE_PROXY, NOWHERE), (ELSEWHERE, NOWHERE), (AT_THE_PROXY, ELSEWHERE))
        ratios.add_row(name, *(f"{result.ratio(of, *pair):.2f}" for pair in pairs))
    console.print(ratios)


def show(result: Result, console: Console) -> None:
    """Tables and counts."""
    show_windows(result, console)
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


def show_newcomers(found: Mapping[str, Mapping[str, Waited]], console: Console) -> None:
    """How long clients took to connect."""
    title = "newcomers: seconds to their first answer"
    table = Table(title=title, title_justify="left", box=box.SIMPLE)
    table.add_column("", no_wrap=True)
    for column in ("came", "answered", "median", "longest"):
        table.add_column(column, justify="right")
    for place, sorts in found.items():
        for sort, one in sorts.items():
            taken = (one.median_s, max(one.seconds)) if one.seconds else ()
            table.add_row(
                f"{place}, {sort}",
                *(str(one.came), str(len(one.seconds)), *(f"{s:.2f}" for s in taken)),
            )
    console.print(table)


def tell(outcome: Outcome, console: Console) -> None:
    """What became of a siege."""
    for name, memory in outcome.memory.items():
        console.print(
            f"{name}: {memory.before_mib:.0f} MiB before, at most {memory.most_mib:.0f}, "
            f"bound {memory.bound_mib:.0f}",
            highlight=False,
        )
    tell_verdicts(outcome.verdicts, console)
    silences = ", ".join(f"{name} {one:.2f} s" for name, one in outcome.longest_s.items())
    console.print(
        f"{outcome.attacks:,} hostile connections; longest silence: {silences}", highlight=False
    )


def tell_verdicts(verdicts: Mapping[str, Verdict], console: Console) -> None:
    """What each honest subscriber has."""
    for name, verdict in verdicts.items():
        wrong = verdict.altered + verdict.misplaced
        console.print(
            f"{name}: expected {verdict.expected:,}, received {verdict.received:,}: lost "
            f"{verdict.lost}, duplicated {verdict.duplicated}, out of order "
            f"{verdict.out_of_order}, wrong {wrong}",
            highlight=False,
        )


@contextmanager
def at_work(what: str, total: float) -> Iterator[tuple[Path, Callable[[float], None]]]:
    """A directory for a trial, and what tells how much further it is, where a person watches."""
    bar = Console(stderr=True)
    with (
        tempfile.TemporaryDirectory(prefix="fuzz-") as directory,
        Progress(console=bar, transient=True, disable=not bar.is_terminal) as progress,
    ):
        task = progress.add_task(what, total=total)
        yield Path(directory), lambda step: progress.advance(task, step)


def groups_in(seconds: float) -> int:
    """How many groups of windows fit."""
    return max(round(seconds / (3 * WINDOW_S)), 1)


def besiege(
    endpoints: frozenset[str], *, seconds: float, connections_per_s: float, seed: int
) -> list[str]:
    """Flood endpoints, tell what became of it; give what is wrong."""
    console = Console(width=None if sys.stdout.isatty() else 100)
    with at_work("flood", seconds) as (directory, advance):
        siege = Siege(directory, endpoints, seed=seed, attacks_per_s=connections_per_s)
        with siege.running():
            outcome = siege.run(seconds, advance)
    tell(outcome, console)
    return outcome.problems + [
        f"{name}: nothing for {one:.1f} s, longer than {LONGEST_S:g} s"
        for name, one in outcome.longest_s.items()
        if one > LONGEST_S
    ]


def attack_with_keys(
    endpoints: frozenset[str],
    *,
    seconds: float,
    connections_per_s: float,
    seed: int,
    newcomers_s: float,
    connections_per_s_max: int,
    puts_per_s: float,
) -> list[str]:
    """Attack encrypted endpoints, tell what became of it; give what is wrong."""
    console = Console(width=None if sys.stdout.isatty() else 100)
    groups = groups_in(seconds)
    with at_work("windows", 3 * groups) as (directory, advance):
        trial = SecureTrial(
            directory,
            endpoints,
            seed=seed,
            attacks_per_s=connections_per_s,
            connections_per_s_max=connections_per_s_max,
            puts_per_s=puts_per_s,
        )
        with trial.running():
            if newcomers_s:
                show_newcomers(trial.newcomers(newcomers_s), console)
            result = trial.measure(groups=groups, window_s=WINDOW_S, tick=lambda: advance(1))
    show_windows(result, console)
    tell_verdicts(result.verdicts, console)
    grown = ", ".join(f"{name} by {mib:.0f} MiB" for name, mib in result.grown_mib.items())
    console.print(
        f"{result.keyless:,} connections without a key, half open or slow, "
        f"{result.intrusions:,} with a wrong key, a stolen id or beyond their rights: "
        f"{result.denials:,} were DENIED\ngrown: {grown}",
        highlight=False,
    )
    return result.problems + list(too_slow(result))


def too_slow(result: Measured) -> Iterator[str]:
    """Whether the honest pair kept its rate."""
    worst = min(result.ratio(of, AT_THE_PROXY, NOWHERE) for of in RATES.values())
    if worst < RATIO_MIN:
        yield f"the honest pair kept {worst:.2f} of its rate, less than {RATIO_MIN}"


def conclude(problems: list[str], seed: int, console: Console) -> NoReturn:
    """Say whether everything held, and end."""
    for problem in problems:
        console.print(problem, style="bold red", highlight=False)
    console.print(f"seed {seed}: {'failed' if problems else 'held'}", highlight=False)
    sys.exit(1 if problems else 0)


def chosen(_: click.Context, __: click.Parameter, value: str) -> frozenset[str]:
    """The endpoints of a list."""
    names = frozenset(ENDPOINTS if value == "all" else value.split(","))
    if unknown := names.difference(ENDPOINTS):
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: not one of {', '.join(ENDPOINTS)}")
    return names


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=60.0, show_default=True, help="Measured time, about.")
@click.option("--connections-per-s", default=100.0, show_default=True, help="Pace of the crowd.")
@click.option("--seed", type=int, help="The same attacks in the same order.")
@click.option(
    "--endpoints",
    default=REQUEST,
    show_default=True,
    callback=chosen,
    help="What is attacked: a list of request, push, ingress, relay; or all.",
)
@click.option(
    "--secure",
    is_flag=True,
    help="All endpoints are encrypted and know keys and rights; some of the hostile have keys.",
)
@click.option(
    "--newcomers-s",
    default=0.0,
    help="With --secure: before the windows, let clients connect for so long without the hostile "
    "and for so long beside them, and measure how long that takes.",
)
@click.option(
    "--connections-per-s-max",
    default=0,
    help="With --secure: that setting of proxies and relays.  [default: theirs]",
)
@click.option(
    "--puts-per-s",
    default=inf,
    help="With --secure: pace of the honest publisher. Without one it uses all cores, and what the "
    "hostile take to be hostile is missing to it.  [default: as fast as it can]",
)
def main(
    seconds: float,
    connections_per_s: float,
    seed: int | None,
    endpoints: frozenset[str],
    secure: bool,
    newcomers_s: float,
    connections_per_s_max: int,
    puts_per_s: float,
) -> None:
    """Measure an honest pair alone and beside hostile connections; judge what it got.

    With other endpoints than request the connections are floods, and nothing is measured but the
    memory of proxy and relay and the longest silence of the honest.

    With --secure, half of the connections have no key, are half open or slow; the others have an
    unknown key, a known one with the id of another client, or one that asks beyond its rights.
    "Elsewhere" are then endpoints that let no connection in. "Puts by CPU" is what the pair puts
    for each second of CPU that it, proxy and relay have, without what the hostile spend themselves.

    Exit code 1 if a message was lost, doubled or wrong, if the proxy died, complained or kept
    connections, or if the honest pair kept less than 0.9 of its rate; beside floods if a process
    grew by more than its endpoints may hold, or a silence was longer than 10 s.
    """
    seed = secrets.randbits(32) if seed is None else seed
    if secure or endpoints != {REQUEST}:
        common = {"seconds": seconds, "connections_per_s": connections_per_s}
        problems = (
            attack_with_keys(
                endpoints,
                **common,
                seed=seed,
                newcomers_s=newcomers_s,
                connections_per_s_max=connections_per_s_max,
                puts_per_s=puts_per_s,
            )
            if secure
            else besiege(endpoints, **common, seed=seed)
        )
        conclude(problems, seed, Console(width=None if sys.stdout.isatty() else 100))
    groups = groups_in(seconds)
    console = Console(width=None if sys.stdout.isatty() else 100)
    with at_work("windows", 3 * groups + 1) as (directory, advance):
        trial = Trial(directory, seed=seed, attacks_per_s=connections_per_s)
        with trial.running():
            result = trial.run(
                groups=groups,
                window_s=WINDOW_S,
                together_attacks=int(TOGETHER_S * connections_per_s),
                tick=lambda: advance(1),
            )
    problems = list(result.problems)
    if len(result.windows) == len(PLACES) * groups:
        show(result, console)
        problems += too_slow(result)
    conclude(problems, seed, console)


if __name__ == "__main__":
    main(prog_name="scripts/fuzz")
