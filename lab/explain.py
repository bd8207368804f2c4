"""`reliable-pubsub explain qos`: what the levels of service cost and keep, measured now."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.table import Table

from reliable_pubsub.common.command_line import (
    CONTEXT_SETTINGS,
    EXIT_CODES,
    CommandGroup,
    readable_errors,
)
from reliable_pubsub.common.core.profiles import PROFILES, Profile
from reliable_pubsub.common.core.step_file import parse_publisher_steps, parse_subscriber_steps
from reliable_pubsub.common.core.steps import Step
from reliable_pubsub.common.signals import stop_on_signals
from reliable_pubsub.common.yaml_file import load_yaml

from .core.advice import Advice, advise
from .levels import Cost, Level, Measured, measure
from .text_table import text_table

NAMES = {0: "at most once", 1: "at least once", 2: "exactly once"}


def cost_rows(measured: Measured) -> list[tuple[str, list[str]]]:
    """What a message costs, a column for each level."""
    rows: list[tuple[str, list[str]]] = []
    sides: list[tuple[str, Callable[[Level], Cost]]] = [
        ("put", lambda level: level.put),
        ("get", lambda level: level.get),
    ]
    for side, cost_of in sides:
        costs = [cost_of(level) for level in measured.levels]
        for field in Cost.__struct_fields__:
            label = f"{side}: {field.replace('_', ' ')}"
            values = [getattr(cost, field) / measured.messages for cost in costs]
            digits = 0 if field == "bytes" else 2
            rows.append((label, [f"{value:,.{digits}f}" for value in values]))
    return rows


def kept_rows(measured: Measured) -> list[tuple[str, list[str]]]:
    """What was handed over when something went wrong."""
    words = {
        "after_proxy_kill": f"of {measured.tried} put before a kill -9 of the proxy",
        "after_absence": f"of {measured.tried} put while the subscriber was away",
        "after_lost_answer": "copies of 1 whose answer was lost",
        "after_subscriber_death": "times 1 that was in hand, unrecorded, when its subscriber died",
        "marked_after_subscriber_death": "of them marked as redelivered",
    }
    return [
        (text, [str(getattr(level.kept, field)) for level in measured.levels])
        for field, text in words.items()
    ]


def tables(measured: Measured) -> list[Table]:
    """All of it, for a terminal."""
    columns = [f"#QoS {level.qos}, {NAMES[level.qos]}" for level in measured.levels]
    costs = (
        f"a message of {measured.payload_bytes} bytes costs (mean of {measured.messages}, "
        f"one by one, durability {measured.durability})"
    )
    of_title = {costs: cost_rows(measured), "handed over": kept_rows(measured)}
    found = [
        text_table(title, ("", *columns), [(label, *values) for label, values in rows])
        for title, rows in of_title.items()
    ]
    return [*found, profile_table()]


def profile_table() -> Table:
    rows = [
        (
            one.name,
            str(one.qos),
            one.session,
            "" if one.lease_s is None else f"{one.lease_s:g} s",
            "yes" if one.push else "no",
            one.use,
        )
        for one in PROFILES.values()
    ]
    columns = ("name", "QoS", "session", "lease", "push", "for")
    return text_table("profiles (`profile: NAME` in a step)", columns, rows)


def advice_table(path: Path, advice: Sequence[Advice]) -> Table:
    """The advice on the steps of a file."""
    rows = [
        (
            str(one.step),
            one.topic,
            str(one.qos),
            "" if one.messages is None else f"{one.messages:,}",
            "" if one.fsyncs is None else f"{one.fsyncs:,}",
            "; ".join(one.says),
        )
        for one in advice
    ]
    columns = ("step", "topic", "QoS", "messages", "fsyncs", "to be known")
    return text_table(str(path), columns, rows)


def read_steps(path: Path) -> Sequence[Step]:
    """The steps of a file of a publisher or of a subscriber.

    Raises:
        ConfigurationError: it is neither.
    """
    document = load_yaml(path)
    steps = document.data.get("steps") if isinstance(document.data, dict) else None
    first = steps[0] if isinstance(steps, list) and steps else None
    if isinstance(first, dict) and "action" in first:
        return parse_subscriber_steps(document)
    return parse_publisher_steps(document)


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """The same for programs."""

    measured: Measured
    profiles: list[Profile]


@click.group(cls=CommandGroup, context_settings=CONTEXT_SETTINGS)
def main() -> None:
    """Show what a choice costs and what it keeps, by measurement."""


@main.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.option("--messages", type=click.IntRange(1, 100_000), default=100, show_default=True)
@click.option(
    "--steps",
    "step_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A step file: say what its levels mean for it, and measure nothing.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
def qos(messages: int, step_file: Path | None, as_json: bool) -> None:
    """Levels of service: frames, bytes, round trips, fsyncs, and what survives what.

    Starts a proxy of its own on loopback, in a temporary directory, puts and gets at each level,
    and kills, loses and leaves as the table says. Nothing else is touched. Takes some seconds.
    """
    if step_file is not None:
        with readable_errors():
            advice = advise(read_steps(step_file))
            if as_json:
                click.echo(msgspec.json.encode(advice).decode())
            else:
                Console().print(advice_table(step_file, advice))
        return
    with (
        readable_errors(),
        stop_on_signals("stopped: nothing was measured to its end"),
        tempfile.TemporaryDirectory(prefix="explain-") as directory,
    ):
        with Console(stderr=True).status("starting a proxy") as shown:
            measured = measure(Path(directory), messages, shown.update)
        if as_json:
            explained = Explained(measured=measured, profiles=list(PROFILES.values()))
            click.echo(msgspec.json.encode(explained).decode())
            return
        console = Console()
        for table in tables(measured):
            console.print(table)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub explain")
