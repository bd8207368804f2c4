"""Kills real processes, round by round, up to a given number; each round has its verdict.

A round is a scenario of the crash lab (scripts/torture.yaml) with a seed of its own. What it shows
is in docs/internals/runs.md.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import click
from msgspec import Struct
from rich.console import Console

from reliable_pubsub.common.core.journal import Event, Ok
from reliable_pubsub.common.progress import progress_bar
from reliable_pubsub.lab.reading import read_run
from reliable_pubsub.lab.text_table import text_table

ROOT = Path(__file__).resolve().parent.parent
SCENARIOS = {
    "sqlite": ROOT / "scripts" / "torture.yaml",
    "postgres": ROOT / "scripts" / "torture-postgres.yaml",
}
RUNS = ROOT / "run" / "torture"
ROUND_S_MAX = 300.0


class Round(Struct, frozen=True):
    """What one round was, and how it ended."""

    seed: int
    exit_code: int
    events: Counter[str]  # what was done, how often
    puts: int  # messages acknowledged
    deliveries: int  # messages in the output files
    words: str  # of the lab, where it failed

    @property
    def kills(self) -> int:
        """Processes that died by SIGKILL."""
        return self.events["kill"]


def play(store: str, seed: int) -> Round:
    """One round; its files stay only if it failed."""
    directory = RUNS / f"{store}-seed-{seed}"
    shutil.rmtree(directory, ignore_errors=True)
    command = [sys.executable, "-m", "reliable_pubsub", "lab", "run"]
    ended = subprocess.run(
        [*command, str(SCENARIOS[store]), "--quiet", "--seed", str(seed), "--dir", str(directory)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=ROUND_S_MAX,
        check=False,
    )
    run = read_run(directory)
    result = Round(
        seed,
        ended.returncode,
        Counter(line.what for line in run.lines if isinstance(line, Event)),
        sum(line.count for line in run.lines if isinstance(line, Ok) and line.op == "put"),
        sum(map(len, run.outputs.values())),
        "" if ended.returncode == 0 else ended.stdout + ended.stderr,
    )
    if ended.returncode == 0:
        shutil.rmtree(directory)
    return result


def rounds(store: str, first_seed: int, kills_wanted: int, jobs: int) -> Iterator[Round]:
    """Play rounds, several at once, until a given number of processes was killed."""
    kills, seed = 0, first_seed
    with ThreadPoolExecutor(jobs) as pool:
        running: set[Future[Round]] = set()
        while kills < kills_wanted or running:
            while len(running) < jobs and kills < kills_wanted:
                running.add(pool.submit(play, store, seed))
                seed += 1
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for one in ended:
                result = one.result()
                kills += result.kills
                yield result


@click.command()
@click.option("--kills", default=200, show_default=True, type=click.IntRange(min=1))
@click.option("--start", default=0, show_default=True, help="Seed of the first round.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1))
@click.option("--store", default="sqlite", show_default=True, type=click.Choice(list(SCENARIOS)))
def main(kills: int, start: int, jobs: int, store: str) -> None:
    """Kill a given number of real processes; exit 1 if a rule was broken.

    \b
    Each round is a run of the crash lab: a proxy, three publishers, three subscribers; every
    0.12 s a random one is killed, stopped, or has its link cut. With `--store postgres` two proxies
    share a database, which is killed, too. A failed round leaves its files in
    run/torture/STORE-seed-N, and is played again with: scripts/torture --kills 1 --start N
    """
    begin_s = time.monotonic()
    console = Console(stderr=True)
    played: list[Round] = []
    with progress_bar(kills, 0, quiet=False) as advance:
        for one in rounds(store, start, kills, jobs):
            played.append(one)
            advance(one.kills, "kills")
            if one.exit_code:
                console.print(one.words, markup=False, highlight=False)
    show(played, time.monotonic() - begin_s)
    failed = [one.seed for one in played if one.exit_code]
    for seed in failed:
        again = f"scripts/torture --store {store} --kills 1 --start {seed}"
        click.echo(f"round {seed} failed: {again}")
    sys.exit(1 if failed else 0)


def show(played: list[Round], seconds: float) -> None:
    """What was done, and what came of it."""
    events = sum((one.events for one in played), Counter[str]())
    rows = [(what, f"{times:,}") for what, times in sorted(events.items())]
    Console().print(text_table("", ("done to them", "#times"), rows))
    click.echo(
        f"{events['kill']:,} kills in {len(played):,} rounds over {seconds:,.0f} s: "
        f"{sum(one.puts for one in played):,} messages acknowledged, "
        f"{sum(one.deliveries for one in played):,} delivered, "
        f"{sum(one.exit_code != 0 for one in played):,} rounds failed"
    )


if __name__ == "__main__":
    main(prog_name="scripts/torture")
