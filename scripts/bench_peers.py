"""`scripts/bench peers`: this broker and those that a Python user would choose instead.

The same work for each, in turn and in one run: 100 bytes a message, clients in processes of their
own, each broker as durable as it can be made. Every message is counted by its reader.
"""

from __future__ import annotations

import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Final

import click
from msgspec import Struct
from rich.table import Table

from reliable_pubsub.common.progress import progress_bar
from reliable_pubsub.lab.text_table import text_table, wide_console

from .peer_servers import SYSTEMS, System
from .peer_stations import PUSHED, STREAMED, Station

# The rows.


class Work(Struct, frozen=True):
    """What is measured at one time, and gives one figure or more."""

    title: str
    measure: Callable[[Station, float], list[float]]
    figures: tuple[str, ...] = ("/s",)
    floors: tuple[float | None, ...] = (None,)  # goals: ours to Redis
    floor_to_bare: float | None = None
    ways: tuple[tuple[str, str, tuple[float | None, ...]], ...] = ()  # other ways to use ours


def works(clients: int) -> list[Work]:
    """Everything that is measured; `clients` are the processes of the second line."""
    return [
        Work("`put` in a loop", Station.put, floors=(0.8,)),
        Work(
            f"{clients} processes, each `put` in a loop",
            lambda one, s: one.crowd(s, clients),
            ("/s", "ms, p99"),
            (1.0, 1.0),
        ),
        Work(
            "put to handler",
            Station.latency,
            ("ms, p50", "ms, p99"),
            (1 / 1.2, 1 / 1.2),
            ways=((PUSHED, "the same, pushed", (None, None)),),
        ),
        Work("end to end one by one", lambda one, s: one.end_to_end(s, 1)),
        Work(
            "`put_many` of 100, `messages()`",
            lambda one, s: one.end_to_end(s, 100),
            floors=(5.0,),
            floor_to_bare=0.2,
            ways=((STREAMED, "the same with `stream()`", (10.0,)),),
        ),
        Work(
            "`put_many` of 1000, `messages()`",
            lambda one, s: one.end_to_end(s, 1000),
            floors=(8.0,),
            floor_to_bare=0.15,
        ),
    ]


class Row(Struct, frozen=True):
    """One line of the table."""

    title: str
    unit: str
    values: dict[str, float]  # medians of the rounds, by the name of the broker
    to_redis: float | None  # above 1: ours is better
    to_bare: float | None
    floor: float | None
    floor_to_bare: float | None

    @property
    def reached(self) -> bool:
        """Whether both goals, as far as there are any, are reached."""
        pairs = ((self.to_redis, self.floor), (self.to_bare, self.floor_to_bare))
        return all(value is None or floor is None or value >= floor for value, floor in pairs)


Rounds = dict[str, list[list[float]]]  # by station: the figures of each round


def rows_of(work: Work, rounds: Rounds) -> Iterator[Row]:
    """The lines of one work: of all brokers, then of the other ways to use ours."""
    for way, title, floors in (("ours", work.title, work.floors), *work.ways):
        if way != "ours" and way not in rounds:
            continue
        for index, unit in enumerate(work.figures):
            of = {name: [one[index] for one in found] for name, found in rounds.items()}
            shown = [name for name in SYSTEMS if name in of] if way == "ours" else []
            values = {name: statistics.median(of[name]) for name in shown}
            if way in of:
                values["ours"] = statistics.median(of[way])
            yield Row(
                title=title if index == 0 else "",
                unit=unit,
                values=values,
                to_redis=ratio(of.get(way), of.get("redis"), unit),
                to_bare=ratio(of.get(way), of.get("bare"), unit),
                floor=floors[index],
                floor_to_bare=work.floor_to_bare if way == "ours" else None,
            )


def ratio(ours: Sequence[float] | None, theirs: Sequence[float] | None, unit: str) -> float | None:
    """How much better ours is: the median of the ratios within the rounds."""
    if ours is None or theirs is None:
        return None
    pairs = zip(ours, theirs, strict=True)
    return statistics.median(b / a if unit.startswith("ms") else a / b for a, b in pairs)


def measure(
    todo: Sequence[Work],
    systems: Sequence[System],
    seconds: float,
    rounds: int,
    tick: Callable[[str], None],
) -> tuple[list[Row], dict[str, Counter[str]]]:
    """All works with all systems in turn; the rows, and what the readers counted by station."""
    found: dict[str, Rounds] = {work.title: {} for work in todo}
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        stations: dict[str, Station] = {}
        for system in systems:
            tick(f"starting {system.title}")
            address = stack.enter_context(system.start())
            for name in (system.name, *((PUSHED, STREAMED) if system.name == "ours" else ())):
                stations[name] = Station(stack, name, address)
        begin_s = time.monotonic()
        for number in range(rounds):
            spent_s = time.monotonic() - begin_s
            if number and spent_s * (number + 1) / number > BOUND_S:
                click.echo(f"{number} of {rounds} rounds: this machine is slow now", err=True)
                break
            for work in todo:
                wanted = stations_of(work, list(stations))
                for name in wanted if number % 2 == 0 else reversed(wanted):
                    tick(f"{work.title}: {name}")
                    figures = work.measure(stations[name], seconds)
                    found[work.title].setdefault(name, []).append(figures)
        counted = {name: one.counted for name, one in stations.items() if one.counted}
    return [row for work in todo for row in rows_of(work, found[work.title])], counted


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Make SIGTERM leave the block as Ctrl-C does, so that the servers are ended."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def stations_of(work: Work, stations: Sequence[str]) -> list[str]:
    """Those that do this work."""
    ways = [way for way, _, _ in work.ways]
    return [name for name in stations if name in SYSTEMS or name in ways]


# Showing.


def written(value: float | None) -> str:
    """A figure with three digits that count."""
    if value is None:
        return ""
    if value >= 100:
        digits = 10 ** max(len(str(int(value))) - 3, 0)
        return f"{round(value / digits) * digits:,}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def cells(row: Row, names: Sequence[str]) -> list[str]:
    """One line, without its goals."""
    title = f"{row.title}, {row.unit}" if row.title else f"the same, {row.unit}"
    ratios = [written(row.to_redis)] if "redis" in names else []
    values = [written(row.values.get(name)) for name in names if name != "bare"]
    bare = [written(row.values.get("bare")), written(row.to_bare)] if "bare" in names else []
    return [title, *values, *ratios, *bare]


def heads(names: Sequence[str]) -> list[str]:
    """The names of the columns of `cells`."""
    titles = [SYSTEMS[name].title for name in names if name != "bare"]
    ratios = ["here to Redis"] if "redis" in names else []
    return ["work", *titles, *ratios, *(["bare loop", "here to it"] if "bare" in names else [])]


def promises(systems: Sequence[System]) -> Iterator[list[str]]:
    """What each one promises, in the version that was measured."""
    for system in systems:
        if system.name != "bare":
            found = system.version()
            yield [f"{system.product} {found}", system.acknowledged(found), system.delivered]


BOUND_S: Final = 220.0  # of the rounds: one that would end later is not begun
PROMISES: Final = ["broker", "a message that is acknowledged", "is delivered"]


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rest = "---" if head is PROMISES else "---:"
    lines = [head, ["---"] + [rest] * (len(head) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def pretty(head: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> Table:
    """A table for a terminal."""
    columns = head if head is PROMISES else [head[0], *(f"#{name}" for name in head[1:])]
    return text_table(title, columns, [[cell.replace("`", "") for cell in row] for row in rows])


def judged(counted: dict[str, Counter[str]]) -> str:
    """What the readers counted, in one sentence for each broker."""
    lines = []
    for name, count in counted.items():
        wrong = [f"{count[what]:,} {what}" for what in ("lost", "doubled") if count[what]]
        said = ", ".join(wrong) if wrong else "each exactly once"
        lines.append(f"{name}: {count['sent']:,} messages, {said}.")
    return "\n".join(lines)


def chosen(only: str | None) -> list[System]:
    """The systems to measure; those that are missing are named on standard error.

    Raises:
        UsageError: there is no system of that name, or none is installed.
    """
    names = list(SYSTEMS) if only is None else only.split(",")
    if unknown := sorted(set(names) - SYSTEMS.keys()):
        raise click.UsageError(f"no broker {unknown[0]!r}; there are {', '.join(SYSTEMS)}")
    systems = [system for name, system in SYSTEMS.items() if name in names]
    for system in systems:
        if how := system.missing():
            click.echo(f"{system.title} is not measured: {how}", err=True)
    if not (there := [system for system in systems if not system.missing()]):
        raise click.UsageError("there is nothing to measure")
    return there


@click.command()
@click.option("--seconds", default=1.0, show_default=True, type=click.FloatRange(0.01, 60))
@click.option("--rounds", default=3, show_default=True, type=click.IntRange(1, 100))
@click.option("--clients", default=64, show_default=True, type=click.IntRange(2, 1000))
@click.option("--only", metavar="NAMES", help=f"Of {','.join(SYSTEMS)}; default: all.")
@click.option("--markdown", "as_markdown", is_flag=True, help="Tables for docs/concepts/speed.md.")
def peers(seconds: float, rounds: int, clients: int, only: str | None, as_markdown: bool) -> None:
    """Beside Redis Streams, NATS JetStream, Mosquitto, RabbitMQ and bare loops; below 4 minutes.

    Each figure is the median of the ROUNDS, each measured for SECONDS; brokers take turns, and a
    ratio is taken within a round: above 1, ours is better. Each broker is started here, on free
    ports, as durable as it can be made, and needs its package of Debian; one that is not installed
    is left out. Exit code 1 if our broker lost or doubled a message, or a goal is missed.
    """
    systems = chosen(only)
    todo = works(clients)
    names = [system.name for system in systems]
    stations = [*names, *((PUSHED, STREAMED) if "ours" in names else ())]
    steps = len(systems) + rounds * sum(len(stations_of(work, stations)) for work in todo)
    with progress_bar(steps, 0, quiet=False) as advance:
        tick = partial(advance, 1)
        rows, counted = measure(todo, systems, seconds, rounds, tick)
    promised = list(promises(systems))
    shown = [cells(row, names) for row in rows]
    if as_markdown:
        click.echo(markdown(heads(names), shown) + "\n" + markdown(PROMISES, promised))
    else:
        console, goals = wide_console(170), []
        for row in rows:
            both = (f">= {goal:.2g}" if goal else "" for goal in (row.floor, row.floor_to_bare))
            goals.append([*cells(row, names), *both, "" if row.reached else "MISSED"])
        head = [*heads(names), "goal, Redis", "goal, bare", ""]
        console.print(pretty(head, goals, f"scripts/bench peers, {rounds} rounds"))
        console.print(pretty(PROMISES, promised, "What each one promises"))
    click.echo(judged(counted))
    ours = [count for name, count in counted.items() if name.startswith("ours")]
    is_sound = not any(count["lost"] + count["doubled"] for count in ours)
    sys.exit(0 if is_sound and all(row.reached for row in rows) else 1)
