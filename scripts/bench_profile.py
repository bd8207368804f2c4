"""`scripts/bench profile`: what a put and a delivered message cost in CPU, and what became worse.

What else runs on the machine makes the same work dearer, never cheaper, so the lower quartile of
many short passes is shown. Two versions are measured pass by pass in turn, and the median of the
ratios of such pairs is what counts.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from reliable_pubsub.lab.text_table import text_table, wide_console

from .cpu_costs import REQUESTS, STEPS, WAITING, WAITING_STEP, Costs, Here, Source, There
from .measuring import checkout, version
from .watched_proxy import COUNTS

PASSES_MIN: Final = 3
WORSE: Final = 1.10  # a ratio above it is named


class Cost(Struct, frozen=True):
    """What one process costs for one piece of work, in us of CPU, and its threads."""

    work: str
    process: str
    us: float
    threads: dict[str, float]


class Profile(Struct, frozen=True):
    """One version, measured."""

    version: str
    passes: int
    others_cpus: float  # CPUs that other work used meanwhile
    waiting_requests_per_s: float
    costs: list[Cost]


def passes(
    sources: Sequence[Source], seconds: float, tick: Callable[[float], None]
) -> list[list[Costs]]:
    """Passes of each source until the time is over; they take turns with every step."""
    found: list[list[Costs]] = [[] for _ in sources]
    begin_s = time.monotonic()
    while len(found[0]) < PASSES_MIN or time.monotonic() < begin_s + seconds:
        for costs in found:
            costs.append({})
        for number in range(STEPS):
            order = list(zip(sources, found, strict=True))
            for source, costs in order if (number + len(found[0])) % 2 else reversed(order):
                costs[-1] |= source.step(number)
        tick((time.monotonic() - begin_s) / max(seconds, 1.0))
    return found


def by_process(costs: Costs) -> dict[tuple[str, str], float]:
    """The sums over threads."""
    sums: dict[tuple[str, str], float] = defaultdict(float)
    for (work, process, _), us in costs.items():
        sums[work, process] += us
    return sums


def lower_quartile(values: Sequence[float]) -> float:
    """The value that a quarter of them are below; of few, about the smallest."""
    return statistics.quantiles(values, n=4, method="inclusive")[0] if values[1:] else values[0]


def profile_of(name: str, found: Sequence[Costs], waiting: Costs, others_cpus: float) -> Profile:
    """Passes of one version as one profile."""
    costs = []
    requests_per_s = waiting.pop(REQUESTS)
    for part in (found, [waiting]):
        for work, process in by_process(part[0]):
            totals = [by_process(one)[work, process] for one in part]
            total = lower_quartile(totals)
            threads: dict[str, float] = defaultdict(float)
            for one in part:
                for key, used in one.items():
                    if key[:2] == (work, process):
                        threads[key[2]] += used * total / (sum(totals) or 1.0)
            costs.append(Cost(work, process, total, dict(threads)))
    return Profile(name, len(found), others_cpus, requests_per_s, costs)


# Comparing.


def ratios_of(ours: Sequence[Costs], theirs: Sequence[Costs]) -> dict[tuple[str, str], list[float]]:
    """Ratios of the passes that were made in turn."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for one, other in zip(map(by_process, ours), map(by_process, theirs), strict=True):
        for key in one.keys() & other.keys():
            if other[key]:
                found[key].append(one[key] / other[key])
    return found


def ratios_to(ours: Profile, before: Profile) -> dict[tuple[str, str], list[float]]:
    """Ratios to a profile that was kept."""
    was = {(cost.work, cost.process): cost.us for cost in before.costs}
    now = {(cost.work, cost.process): cost.us for cost in ours.costs if cost.work != WAITING}
    return {key: [us / was[key]] for key, us in now.items() if was.get(key)}


def sure_range(ratios: Sequence[float]) -> tuple[float, float]:
    """Where the true median lies with 99 %: by the sign test, whatever the distribution.

    Of two to seven ratios nothing is sure; a single one, to a kept profile, is taken as it is.
    """
    if len(ratios) == 1:
        return ratios[0], ratios[0]
    ordered, outside = sorted(ratios), -1
    chance = total = 0.5 ** len(ordered)
    while total <= 0.005:  # that at most this many of them lie below, or above, the true median
        outside += 1
        chance *= (len(ordered) - outside) / (outside + 1)
        total += chance
    return (ordered[outside], ordered[-1 - outside]) if outside >= 0 else (0.0, math.inf)


def is_worse(ratios: Sequence[float]) -> bool:
    """Whether it costs more by more than a tenth, and surely more."""
    return statistics.median(ratios) > WORSE and sure_range(ratios)[0] > 1.0


# Showing.


def table(
    ours: Profile,
    ratios: dict[tuple[str, str], list[float]],
    against: str,
    *,
    counts_calls: bool,
) -> Table:
    """Costs by work and process, each with its threads."""
    unit = "calls" if counts_calls else "us"
    what = "Functions called" if counts_calls else "CPU in us"
    rows: list[list[str]] = []
    last = ""
    for cost in ours.costs:
        of_it = sorted(cost.threads.items(), key=lambda item: -item[1])
        named = ", ".join(f"{name} {us:,.2f}" for name, us in of_it if us > cost.us / 100)
        found = ratios.get((cost.work, cost.process), [])
        ratio = [compared(found)] if ratios else []
        work = "" if cost.work == last else cost.work
        rows.append([work, cost.process, f"{cost.us:,.2f}", *ratio, named])
        last = cost.work
    columns = ("work", "process", f"#{unit}", *([f"#to {against}"] if ratios else []), "of it")
    return text_table(f"{what} a message, version {ours.version}", columns, rows)


def compared(ratios: Sequence[float]) -> str:
    """A median, and where it is sure to lie."""
    if not ratios:
        return ""
    low, high = sure_range(ratios)
    sure = "" if len(ratios) == 1 else f" ({low:.2f} to {high:.2f})"
    return f"{statistics.median(ratios):.2f}{sure}"


class OtherWork:
    """CPUs that other processes use in a span of time."""

    def __init__(self) -> None:
        self._begin = self._now()

    @staticmethod
    def _now() -> tuple[float, float, float]:
        busy = list(map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]))
        used = os.times()
        idle = busy[3] + busy[4]
        ours_s = used.user + used.system + used.children_user + used.children_system
        return (sum(busy) - idle) / os.sysconf("SC_CLK_TCK"), ours_s, time.monotonic()

    def cpus(self) -> float:
        """The average number since the beginning; our processes count when they have ended."""
        (busy_s, ours_s, now_s), (busy_was_s, ours_was_s, was_s) = self._now(), self._begin
        return max((busy_s - busy_was_s) - (ours_s - ours_was_s), 0.0) / (now_s - was_s)


def compare(
    seconds: float, against: str | None, scale: float
) -> tuple[Profile, dict[tuple[str, str], list[float]]]:
    """This version measured, and the ratios to a commit or a file."""
    is_file = against is not None and Path(against).is_file()
    ratios: dict[tuple[str, str], list[float]] = {}
    others = OtherWork()
    with Progress(console=Console(stderr=True), transient=True) as bar, ExitStack() as first:
        task = bar.add_task("profile", total=1.0)
        with ExitStack() as stack:
            sources: list[Source] = [Here(stack, scale)]
            if against is not None and not is_file:
                sources.append(There(stack, first.enter_context(checkout(against)), scale))
            found = passes(sources, seconds, lambda share: bar.update(task, completed=share))
            waiting = sources[0].step(WAITING_STEP)
    ours = profile_of(version(), found[0], waiting, others.cpus())
    if is_file and against is not None:
        ratios = ratios_to(ours, msgspec.json.decode(Path(against).read_bytes(), type=Profile))
    elif len(found) == 2:
        ratios = ratios_of(found[0], found[1])
    return ours, ratios


@click.command()
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(0, 3600))
@click.option("--against", metavar="FILE|COMMIT", help="Compare with it; exit code 1 if worse.")
@click.option("--calls", is_flag=True, help="Functions that are called, instead of CPU.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for --against FILE.")
@click.option("--scale", default=1.0, type=click.FloatRange(0.01, 100), hidden=True)
def profile(seconds: float, against: str | None, calls: bool, as_json: bool, scale: float) -> None:
    """CPU of a put and of a delivered message, by process and thread; below 40 s.

    --against a commit measures both versions in turn, shows the median of the ratios with the range
    in which it lies with 99 %, and names what costs over 10 % more and surely more. A FILE is what
    --json gave before; compare with it only if the machine was as quiet then as it is now. While
    other work runs the range is wide: give it more --seconds, or count --calls of Python functions,
    which no other work changes.
    """
    if calls:
        os.environ[COUNTS] = "yes"  # the processes that are measured see it
    try:
        ours, ratios = compare(seconds, against, scale)
    finally:
        os.environ.pop(COUNTS, None)
    if as_json:
        click.echo(msgspec.json.encode(ours).decode())
    else:
        wide_console(130).print(table(ours, ratios, against or "", counts_calls=calls))
        click.echo(
            f"A subscriber that waits sends {ours.waiting_requests_per_s:.1f} requests a second. "
            f"{ours.passes} passes; other work used {ours.others_cpus:.1f} CPUs meanwhile."
        )
    worse = [key for key, values in ratios.items() if is_worse(values)]
    for work, process in worse:
        click.echo(f"worse: {work}, {process}", err=True)
    sys.exit(1 if worse else 0)
