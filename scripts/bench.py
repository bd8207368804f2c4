"""The benchmark: every figure beside another one measured in the same run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import click
import msgspec
from msgspec import Struct
from rich.console import Console

from reliable_pubsub.lab.text_table import wide_console

from .bench_levels import level_rows
from .bench_operating import operating_rows
from .bench_peers import peers
from .bench_profile import profile
from .bench_push import push_rows
from .bench_scale import scale_rows
from .bench_security import security_rows
from .measuring import Row, show


def pipeline(rounds: int) -> list[Row]:
    """The part of the pipeline; Spark is loaded only for it."""
    from .bench_pipeline import pipeline_rows

    return pipeline_rows(rounds)


def store(rounds: int) -> list[Row]:
    """The part of the stores; psycopg is loaded only for it."""
    from .bench_store import store_rows

    return store_rows(rounds, MILLION)


class Part(Struct, frozen=True):
    """A subcommand that measures rows."""

    rows: Callable[[int], list[Row]]  # takes the rounds
    help: str = ""  # of the subcommand, unless it is defined for itself


MILLION: Final = 1_000_000  # messages
PARTS: Final = {
    "scale": Part(lambda rounds: scale_rows(rounds, MILLION, MILLION, 1.0)),
    "push": Part(lambda _: push_rows(), "Bytes of a fan-out, and interest under zapping."),
    "levels": Part(
        lambda rounds: level_rows(rounds, MILLION),
        "QoS 0, 1 and 2 against each other, and replay against live.",
    ),
    "security": Part(
        security_rows,
        "A handshake, and puts of 100 bytes and 100 KB, with keys and rights against without.",
    ),
    "store": Part(
        store, "PostgreSQL beside SQLite: puts, a takeover, a restart with a million messages."
    ),
    "operating": Part(
        operating_rows,
        "Puts beside scrapes with 10,000 subscriptions, and a stop with 10,000 connections.",
    ),
    "pipeline": Part(pipeline),
}


@click.group(no_args_is_help=True)
def main() -> None:
    """Measure speed, CPU and memory.

    Rates of a shared machine vary twofold from run to run; ratios within one run do not. So each
    figure is taken beside another in the same run, in turn, and the medians are shown. Exit code 1
    if a goal is missed.

    \b
    scripts/bench profile                     what a put and a message cost in CPU; 40 s
    scripts/bench profile --against HEAD~1    the same of both versions, and what became worse
    scripts/bench peers                       beside Redis, NATS, Mosquitto and RabbitMQ; 4 minutes
    scripts/bench peers --only ours,redis --markdown
    scripts/bench scale                       costs with many topics, subscriptions, messages
    scripts/bench push | levels | security | store | operating | pipeline | all
    """


def measured(parts: Mapping[str, Callable[[], list[Row]]], *, as_json: bool) -> None:
    """Measure parts, show the table, and exit."""
    rows: list[Row] = []
    with Console(stderr=True).status("") as status:
        for name, measure in parts.items():
            status.update(f"measuring: {name}")
            rows += measure()
    if as_json:
        click.echo(msgspec.json.encode(rows).decode())
    else:
        show(rows, wide_console(150))
    sys.exit(0 if all(row.reached for row in rows) else 1)


ROUNDS = click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 100))
JSON = click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")


def add_parts(command: str, names: Sequence[str], text: str) -> None:
    """Make a subcommand that measures these parts."""

    @main.command(command, help=text)
    @ROUNDS
    @JSON
    def measure(rounds: int, as_json: bool) -> None:
        measured({name: partial(PARTS[name].rows, rounds) for name in names}, as_json=as_json)


@main.command()
@ROUNDS
@click.option("--stored", default=MILLION, show_default=True, help="Messages of the largest store.")
@click.option("--streamed", default=MILLION, show_default=True, help="Messages through stream().")
@click.option("--share", default=1.0, type=click.FloatRange(0.0001, 1), hidden=True)
@JSON
def scale(rounds: int, stored: int, streamed: int, share: float, as_json: bool) -> None:
    """What a put and a get cost with more topics, subscriptions, leases and messages; 3 minutes.

    CPU of proxy and client, beside a small proxy in turn: at most 1.3 times as much. Then memory
    while messages pass, a gibibyte of history, and a restart. The long form: --stored 30000000
    --streamed 100000000, for which 4 GiB of disk and half an hour are needed.
    """
    rows = partial(scale_rows, rounds, stored, streamed, share)
    measured({"scale": rows}, as_json=as_json)


def _counts(_context: click.Context, _option: click.Parameter, text: str) -> list[int]:
    try:
        found = sorted({int(word) for word in text.split(",") if word})
    except ValueError:
        raise click.BadParameter(f"found {text!r}, expected numbers such as 1,2") from None
    if found and found[0] < 1:
        raise click.BadParameter("a cluster has one worker at least")
    return found


@main.command("pipeline")
@ROUNDS
@click.option("--workers", default="", callback=_counts, help="A cluster with so many: 1,2.")
@click.option(
    "--messages",
    default=MILLION,
    show_default=True,
    type=click.IntRange(4),
    help="Of 100 bytes, on the cluster.",
)
@JSON
def on_spark(rounds: int, workers: list[int], messages: int, as_json: bool) -> None:
    """Archive, sink and source beside Spark's own jobs; needs Spark.

    With --workers, in place of that: load, archive, audit, replay, source and sink on a standalone
    cluster of this machine, workers of one core each, and the memory of each driver. A round takes
    3 minutes for each number of workers. The long form: --workers 1,2 --messages 20000000
    --rounds 1, for which some 20 GiB of disk are needed.
    """
    rows = partial(pipeline, rounds)
    if workers:
        from .bench_cluster import cluster_rows

        rows = partial(cluster_rows, rounds, workers, messages)
    measured({"pipeline": rows}, as_json=as_json)


main.add_command(peers)
main.add_command(profile)
for _name, _part in PARTS.items():
    if _part.help:
        add_parts(_name, [_name], _part.help)
add_parts("all", list(PARTS), "All parts that have a goal, but for peers.")

if __name__ == "__main__":
    main(prog_name="scripts/bench")
