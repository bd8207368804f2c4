"""What every part of the benchmark uses: rows, the table, a proxy and processes of its own."""

from __future__ import annotations

import multiprocessing
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from rich.console import Console
from rich.table import Table

PAYLOAD = b"x" * 100
spawn = multiprocessing.get_context("spawn")


class Row(Struct, frozen=True, kw_only=True):
    """One measured line."""

    work: str
    ours: float
    unit: str
    bare: float | None = None
    against: str = ""
    ratio: float | None = None  # median over rounds
    at_least: float | None = None
    at_most: float | None = None

    @property
    def reached(self) -> bool:
        """Whether the goal, if there is one, is reached."""
        value = self.ours if self.ratio is None else self.ratio
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)


class Proxy:
    """A real proxy process on ports of its own."""

    def __init__(self, directory: Path, *options: str) -> None:
        """Start it; measure how long it takes to be ready."""
        begin_s = time.perf_counter()
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "reliable_pubsub", "proxy", "--data-dir", str(directory)),
                *("--publisher-endpoint", "tcp://127.0.0.1:*"),
                *("--subscriber-endpoint", "tcp://127.0.0.1:*"),
                *("--push-endpoint", "tcp://127.0.0.1:*"),
                *("--ingress-endpoint", "tcp://127.0.0.1:*", *options),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.ready_s = time.perf_counter() - begin_s
        found = re.search(r"publishers=(\S+) subscribers=(\S+)", line)
        if found is None:
            raise click.ClickException(f"the proxy did not start: {line}")
        self.publishers, self.subscribers = found.groups()

    def resident_mib(self, field: str = "VmRSS") -> float:
        """Resident memory now (VmRSS) or at its highest (VmHWM)."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+) kB", text)
        assert found is not None
        return int(found.group(1)) / 1024

    def close(self) -> None:
        """End it cleanly."""
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def proxy(*options: str) -> Iterator[Proxy]:
    """A fresh proxy with a data directory of its own."""
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=WORK))
    running = Proxy(directory, *options)
    try:
        yield running
    finally:
        running.close()
        shutil.rmtree(directory)


WORK = Path(__file__).resolve().parent.parent / "run"


@contextmanager
def child(target: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """A process that first sends one value through a pipe."""
    mine, its = spawn.Pipe()
    process = spawn.Process(target=target, args=(its, *arguments), daemon=True)
    process.start()
    try:
        yield mine.recv()
    finally:
        process.kill()
        process.join()


@contextmanager
def sending(target: Callable[..., None], endpoint: str = "") -> Iterator[Any]:
    """A process with a pipe."""
    mine, its = spawn.Pipe()
    process = spawn.Process(target=target, args=(its, endpoint), daemon=True)
    process.start()
    try:
        yield mine
    finally:
        process.kill()
        process.join()


def percentiles(ages: Sequence[float]) -> list[float]:
    """p50 and p99."""
    parts = statistics.quantiles(ages, n=100)
    return [parts[49], parts[98]]


def compared(
    work: str,
    unit: str,
    ours: Sequence[float],
    bare: Sequence[float],
    against: str,
    at_least: float | None = None,
) -> Row:
    """A row of medians; the ratio is taken within each round."""
    return Row(
        work=work,
        unit=unit,
        ours=statistics.median(ours),
        bare=statistics.median(bare),
        against=against,
        ratio=statistics.median(a / b for a, b in zip(ours, bare, strict=True)),
        at_least=at_least,
    )


def show(rows: Sequence[Row], console: Console) -> None:
    """The table."""
    table = Table(title="scripts/bench", title_justify="left")
    for column in ("work", "ours", "against", "bare", "ratio", "goal", ""):
        table.add_column(column, justify="left" if column in ("work", "against") else "right")
    for row in rows:
        digits = 2 if row.ours < 10 else 0
        goal = f">= {row.at_least}" if row.at_least is not None else ""
        goal = f"<= {row.at_most}" if row.at_most is not None else goal
        table.add_row(
            row.work,
            f"{row.ours:,.{digits}f} {row.unit}",
            row.against,
            "" if row.bare is None else f"{row.bare:,.0f}",
            "" if row.ratio is None else f"{row.ratio:.2f}",
            goal,
            "ok" if row.reached else "MISSED",
        )
    console.print(table)
