"""What every part of the benchmark uses: rows, the table, a proxy and processes of its own."""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec import Struct
from rich.console import Console

from reliable_pubsub import Publisher
from reliable_pubsub.lab.rig.child_process import ChildProcess, proxy_command
from reliable_pubsub.lab.text_table import text_table

from .watched_proxy import ANSWERS, COUNTS, count_calls

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "run"
# Of the lab: by which the scripts count and start. They come with the scripts to another version.
BROUGHT = (
    *(f"lab/rig/{name}.py" for name in ("__init__", "child_process", "link", "reaper")),
    *("lab/text_table.py", "common/terminal.py", "common/core/visible.py"),
)
PAYLOAD = b"x" * 100
ANSWER_S = 120.0  # longer than any single piece of work takes on a busy machine
# Forked from a process that has imported everything and made no client.
forked = multiprocessing.get_context("forkserver")
forked.set_forkserver_preload(
    [
        f"scripts.bench_{part}"
        for part in ("levels", "operating", "peers", "profile", "push", "scale")
    ]
)


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
        command = proxy_command(directory, *options, module="scripts.watched_proxy")
        log = directory.with_name(f"{directory.name}.log")
        begin_s = time.perf_counter()
        self.process = ChildProcess(command, log, errors=log.with_suffix(".errors"), talks=True)
        self.endpoints = endpoints = self.process.endpoints()
        self.ready_s = time.perf_counter() - begin_s
        self.publishers, self.subscribers = endpoints["publishers"], endpoints["subscribers"]
        self.pid = self.process.pid

    def thread_names(self) -> dict[int, str]:
        """Its Python threads, by the number that /proc shows."""
        return {
            **msgspec.json.decode(self.process.ask("names"), type=dict[int, str]),
            self.pid: "loop",
        }

    def thread_calls(self) -> dict[int, int]:
        """How many functions they called, if that is counted."""
        return msgspec.json.decode(self.process.ask("calls"), type=dict[int, int])

    def functions_called(self) -> list[tuple[str, str]]:
        """Which they called since this was asked last, if they are named."""
        return msgspec.json.decode(self.process.ask("functions"), type=list[tuple[str, str]])

    def resident_mib(self, field: str = "VmRSS") -> float:
        """Resident memory now (VmRSS) or at its highest (VmHWM)."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{field}:\s+(\d+) kB", text)
        assert found is not None
        return int(found.group(1)) / 1024

    def close(self) -> None:
        """End it cleanly."""
        self.process.end(60)


@contextmanager
def folder() -> Iterator[Path]:
    """A directory for what is measured, removed at the end."""
    WORK.mkdir(exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix="bench-", dir=WORK))
    try:
        yield path
    finally:
        shutil.rmtree(path)


@contextmanager
def proxy(settings: str = "") -> Iterator[Proxy]:
    """A fresh proxy with a data directory of its own.

    Args:
        settings: in YAML, where they are not the default.
    """
    with folder() as directory:
        file = directory / "settings.yaml"
        file.write_text(settings)
        running = Proxy(directory / "data", *(("-f", str(file)) if settings else ()))
        try:
            yield running
        finally:
            running.close()


def fill(running: Proxy, messages: int, batch: int, topic: str = "bench") -> None:
    """Put a number of messages on a topic."""
    with Publisher("bench-fill", endpoint=running.publishers) as publisher:
        for base in range(0, messages, batch):
            publisher.put_many(topic, [PAYLOAD] * min(batch, messages - base))


@contextmanager
def child(target: Callable[..., None], *arguments: Any) -> Iterator[Any]:
    """A process that first sends one value through a pipe."""
    mine, its = forked.Pipe()
    process = forked.Process(target=target, args=(its, *arguments), daemon=True)
    process.start()
    try:
        yield mine.recv()
    finally:
        process.kill()
        process.join()


class Worker:
    """A process with one object, whose methods are called through a pipe.

    It ends with the block, or when this process ends.
    """

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        """Start the process; `make(*arguments)` is called there, and closed at the end."""
        self._pipe, its = forked.Pipe()
        counts = bool(os.environ.get(COUNTS))  # of this process; the forking one began before
        self._process = forked.Process(target=_work, args=(its, make, arguments, counts))
        self._process.start()
        its.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def begin(self, method: str, *arguments: Any) -> None:
        """Call a method; `result` waits for it."""
        self._pipe.send((method, arguments))

    def result(self, timeout_s: float = ANSWER_S) -> Any:
        """What the method that was called returned."""
        try:
            if self._pipe.poll(timeout_s):
                failed, value = self._pipe.recv()
                if not failed:
                    return value
                raise click.ClickException(f"a process of the benchmark failed: {value}")
        except EOFError:
            raise click.ClickException("a process of the benchmark has died") from None
        raise click.ClickException(f"a process of the benchmark gave no answer in {timeout_s:g} s")

    def is_done(self) -> bool:
        """Whether the method that was called has returned."""
        return bool(self._pipe.poll())

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method, and wait for what it returns."""
        self.begin(method, *arguments)
        return self.result()

    def thread_names(self) -> dict[int, str]:
        """Its Python threads, by the number that /proc shows."""
        return {**self.call("names"), self.pid: "main"}

    def thread_calls(self) -> dict[int, int]:
        """How many functions they called, if that is counted."""
        found: dict[int, int] = self.call("calls")
        return found

    def __enter__(self) -> Worker:
        self.result()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._pipe.send(None)
            self._process.join(ANSWER_S)
        self._process.kill()
        self._process.join()
        self._pipe.close()


class Putting:
    """What puts in a process of its own; parts add what else it does."""

    def __init__(self, client: str, endpoint: str, topic: str) -> None:
        """Make the publisher, and have it connected."""
        self.publisher = Publisher(client, endpoint=endpoint)
        self.close = self.publisher.close
        self.topic = topic
        self.publisher.ready_for(topic)

    def put(self, count: int, pause_s: float = 0.0) -> list[float]:
        """Put one after another, with pauses; seconds of each."""
        taken_s = []
        for _ in range(count):
            time.sleep(pause_s)
            begun_s = time.perf_counter()
            self.publisher.put(self.topic, PAYLOAD)
            taken_s.append(time.perf_counter() - begun_s)
        return taken_s


def _work(pipe: Any, make: Callable[..., Any], arguments: Sequence[Any], counts: bool) -> None:
    if counts:
        count_calls()
    try:
        with closing(make(*arguments)) as made:
            pipe.send((False, None))
            while (called := pipe.recv()) is not None:
                method, given = called
                act = ANSWERS.get(method) or getattr(made, method)
                pipe.send((False, act(*given)))
    except EOFError:
        pass  # the process that started this one has ended
    except Exception as error:  # for the process that waits; it is the one to report it
        pipe.send((True, f"{type(error).__name__}: {error}"))


def version() -> str:
    """The commit of this checkout, and whether it was changed."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=7"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A commit in a directory of its own, with the scripts of this one."""
    with folder() as path:
        tree = path / "tree"
        command = ["git", "worktree", "add", "--quiet", "--detach", str(tree), commit]
        made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if made.returncode:
            raise click.UsageError(f"{commit!r} is neither a file nor a commit: {made.stderr}")
        try:
            shutil.rmtree(tree / "scripts")
            shutil.copytree(ROOT / "scripts", tree / "scripts")
            for name in BROUGHT:
                (tree / name).parent.mkdir(exist_ok=True)
                shutil.copy(ROOT / name, tree / name)
            yield tree
        finally:
            command = ["git", "worktree", "remove", "--force", str(tree)]
            subprocess.run(command, cwd=ROOT, check=True)


def processes_below(pid: int) -> dict[int, list[str]]:
    """A process and all below it: what /proc/PID/stat says of each after its name."""
    stats = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            stats[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
    found = {pid}
    while below := {one for one, stat in stats.items() if int(stat[1]) in found} - found:
        found |= below
    return {one: stats[one] for one in found if one in stats}


def cpu_s(pid: int) -> float:
    """Seconds of CPU so far, of a process and all below it."""
    used = sum(int(text) for stat in processes_below(pid).values() for text in stat[11:15])
    return used / os.sysconf("SC_CLK_TCK")


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
    at_most: float | None = None,
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
        at_most=at_most,
    )


def show(rows: Sequence[Row], console: Console) -> None:
    shown = []
    for row in rows:
        digits = 2 if row.ours < 10 else 0
        goal = f">= {row.at_least}" if row.at_least is not None else ""
        goal = f"<= {row.at_most}" if row.at_most is not None else goal
        shown.append(
            (
                row.work,
                f"{row.ours:,.{digits}f} {row.unit}",
                row.against,
                "" if row.bare is None else f"{row.bare:,.0f}",
                "" if row.ratio is None else f"{row.ratio:.2f}",
                goal,
                "ok" if row.reached else "MISSED",
            )
        )
    columns = ("work", "#ours", "against", "#bare", "#ratio", "#goal", "#")
    console.print(text_table("scripts/bench", columns, shown))
