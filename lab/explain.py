"""`reliable-pubsub explain qos`: what the levels of service cost and keep, measured now."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
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
from reliable_pubsub.common.signals import stop_on_signals

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
    return [
        text_table(title, ("", *columns), [(label, *values) for label, values in rows])
        for title, rows in of_title.items()
    ]


@click.group(cls=CommandGroup, context_settings=CONTEXT_SETTINGS)
def main() -> None:
    """Show what a choice costs and what it keeps, by measurement."""


@main.command(epilog=EXIT_CODES, context_settings=CONTEXT_SETTINGS)
@click.option("--messages", type=click.IntRange(1, 100_000), default=100, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
def qos(messages: int, as_json: bool) -> None:
    """Levels of service: frames, bytes, round trips, fsyncs, and what survives what.

    Starts a proxy of its own on loopback, in a temporary directory, puts and gets at each level,
    and kills, loses and leaves as the table says. Nothing else is touched. Takes some seconds.
    """
    with (
        readable_errors(),
        stop_on_signals("stopped: nothing was measured to its end"),
        tempfile.TemporaryDirectory(prefix="explain-") as directory,
    ):
        with Console(stderr=True).status("starting a proxy") as shown:
            measured = measure(Path(directory), messages, shown.update)
        if as_json:
            click.echo(msgspec.json.encode({"measured": measured}).decode())
            return
        console = Console()
        for table in tables(measured):
            console.print(table)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub explain")
