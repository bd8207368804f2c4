"""Command line of the fuzzer of connections."""

from __future__ import annotations

import secrets
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.progress import Progress

from reliable_pubsub.lab.text_table import text_table, wide_console
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
WIDTH = 100  # of what is shown where no terminal is

RATES: dict[str, Callable[[Window], float]] = {
    "puts": lambda window: window.puts,
    "deliveries": lambda window: window.deliveries,
}


def show_windows(result: Measured, console: Console) -> None:
    """The tables."""
    of_each: list[tuple[str, Callable[[Window], float], str]] = [
        ("#puts", RATES["puts"], ",.0f"),
        ("#deliveries", RATES["deliveries"], ",.0f"),
        ("#attacks", lambda window: window.attacks, ",.0f"),
        ("#proxy CPU", lambda window: window.proxy_cpu, ".0%"),
        ("#crowd CPU", lambda window: window.crowd_cpu, ".1%"),
    ]
    rows = [
        (name, *(format(result.median(place, of), digits) for _, of, digits in of_each))
        for place, name in PLACES.items()
    ]
    columns = ("", *(column for column, _, _ in of_each))
    title = "medians of the windows, per second"
    console.print(text_table(title, columns, rows, box=box.SIMPLE))
    pairs = {
        "#at the proxy / alone": (AT_THE_PROXY, NOWHERE),
        "#elsewhere / alone": (ELSEWHERE, NOWHERE),
        "#at the proxy / elsewhere": (AT_THE_PROXY, ELSEWHERE),
    }
    ratios = [
        (name, *(f"{result.ratio(of, *pair):.2f}" for pair in pairs.values()))
        for name, of in {**RATES, "puts by CPU": lambda window: window.puts_by_cpu}.items()
    ]
    title = "ratios, taken group by group"
    console.print(text_table(title, ("", *pairs), ratios, box=box.SIMPLE))


def show(result: Result, console: Console) -> None:
    """Tables and counts."""
    show_windows(result, console)
    console.print(
        f"{result.attacks:,} hostile connections, {result.accomplice_answers:,} moves of "
        f"accomplices; {result.puts:,} honest puts, {result.accomplice_puts:,} of an accomplice; "
        f"unanswered {result.silences}\n"
        f"proxy: {result.before.resident_mib:.0f} MiB before, {result.after.resident_mib:.0f} "
        f"after; descriptors {result.before.descriptors} before, at most "
        f"{result.descriptors_most}, {result.after.descriptors} after"
    )
    tell_verdicts(result.verdicts, console)


def show_newcomers(found: Mapping[str, Mapping[str, Waited]], console: Console) -> None:
    """How long clients took to connect."""
    rows = []
    for place, sorts in found.items():
        for sort, one in sorts.items():
            taken = (one.median_s, max(one.seconds)) if one.seconds else ()
            counts = (f"{place}, {sort}", str(one.came), str(len(one.seconds)))
            rows.append((*counts, *(f"{s:.2f}" for s in taken)))
    columns = ("", "#came", "#answered", "#median", "#longest")
    title = "newcomers: seconds to their first answer"
    console.print(text_table(title, columns, rows, box=box.SIMPLE))


def tell(outcome: Outcome, console: Console) -> None:
    """The outcome of a siege."""
    for name, memory in outcome.memory.items():
        console.print(
            f"{name}: {memory.before_mib:.0f} MiB before, at most {memory.most_mib:.0f}, "
            f"bound {memory.bound_mib:.0f}"
        )
    tell_verdicts(outcome.verdicts, console)
    silences = ", ".join(f"{name} {one:.2f} s" for name, one in outcome.longest_s.items())
    console.print(
        f"{outcome.attacks:,} hostile connections; longest silence: {silences}", highlight=False
    )


def tell_verdicts(verdicts: Mapping[str, Verdict], console: Console) -> None:
    """What each honest subscriber received."""
    for name, verdict in verdicts.items():
        said = ", ".join(f"{what} {count:,}" for what, count in verdict.counts.items())
        console.print(f"{name}: {said}")


@contextmanager
def at_work(what: str, total: float) -> Iterator[tuple[Path, Callable[[float], None]]]:
    """A directory for a trial, and a progress bar, on a terminal."""
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


def measure_pair(seconds: float, seed: int, connections_per_s: float) -> list[str]:
    """Measure an honest pair alone and with a crowd, show the figures, and return what is wrong."""
    groups = groups_in(seconds)
    with at_work("windows", 3 * groups + 1) as (directory, advance):
        trial = Trial(directory, seed=seed, attacks_per_s=connections_per_s)
        with trial.running():
            result = trial.run(
                groups=groups,
                window_s=WINDOW_S,
                together_attacks=int(TOGETHER_S * connections_per_s),
                tick=lambda: advance(1),
            )
    if len(result.windows) < len(PLACES) * groups:
        return result.problems
    show(result, wide_console(WIDTH))
    return result.problems + list(too_slow(result))


def besiege(
    seconds: float, seed: int, connections_per_s: float, endpoints: frozenset[str]
) -> list[str]:
    """Flood endpoints, show the outcome, and return what is wrong."""
    with at_work("flood", seconds) as (directory, advance):
        siege = Siege(directory, endpoints, seed=seed, attacks_per_s=connections_per_s)
        with siege.running():
            outcome = siege.run(seconds, advance)
    tell(outcome, wide_console(WIDTH))
    return outcome.problems + [
        f"{name}: nothing for {one:.1f} s, longer than {LONGEST_S:g} s"
        for name, one in outcome.longest_s.items()
        if one > LONGEST_S
    ]


def attack_with_keys(
    seconds: float,
    seed: int,
    connections_per_s: float,
    endpoints: frozenset[str],
    newcomers_s: float,
    **settings: Any,
) -> list[str]:
    """Attack encrypted endpoints, show the outcome, and return what is wrong."""
    console, groups = wide_console(WIDTH), groups_in(seconds)
    with at_work("windows", 3 * groups) as (directory, advance):
        trial = SecureTrial(
            directory, endpoints, seed=seed, attacks_per_s=connections_per_s, **settings
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
        f"{result.denials:,} were DENIED\ngrown: {grown}"
    )
    return result.problems + list(too_slow(result))


def too_slow(result: Measured) -> Iterator[str]:
    """Whether the honest pair kept its rate."""
    worst = min(result.ratio(of, AT_THE_PROXY, NOWHERE) for of in RATES.values())
    if worst < RATIO_MIN:
        yield f"the honest pair kept {worst:.2f} of its rate, less than {RATIO_MIN}"


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
    help="With --secure: before the windows, measure how long clients take to connect, for this "
    "long without the hostile and as long beside them.",
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
    common = (seconds, seed, connections_per_s)
    if secure:
        problems = attack_with_keys(
            *common,
            endpoints,
            newcomers_s,
            connections_per_s_max=connections_per_s_max,
            puts_per_s=puts_per_s,
        )
    else:
        problems = measure_pair(*common) if endpoints == {REQUEST} else besiege(*common, endpoints)
    console = wide_console(WIDTH)
    for problem in problems:
        console.print(problem, style="bold red")
    console.print(f"seed {seed}: {'failed' if problems else 'held'}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main(prog_name="scripts/fuzz")
