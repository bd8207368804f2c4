"""The gate. Quick checks first; then types, tests and simulated seeds, side by side.

Many tests wait for processes, so there are more workers than cores; those of `--quick` do not wait,
and each worker more would only collect once more. What needs only CPU is niced and takes what they
leave. Every line of the tests is shown as it comes, anything else when it ends.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

ROOT: Final = Path(__file__).resolve().parent.parent
WORKERS_PER_CORE: Final = 2
ALL_SEEDS: Final = 3000
SEEDS: Final = 300  # the first of `ALL_SEEDS`
QUICK_SEEDS: Final = 200
NICE: Final = 10
BOUND_S: Final = 360.0  # a gate that takes longer says so
STEP_S_MAX: Final = 4500.0  # a step that takes longer hangs, and is ended
FILES_SHOWN: Final = 10  # of the tests, by their cost
# Where the tests have their files, if there is room: in memory. What they show needs no disk (those
# of a full disk mount their own), and a disk that other work keeps busy fails them without reason.
MEMORY: Final = Path("/dev/shm")
MEMORY_BYTES_MIN: Final = 2 * 1024**3
# Compiled modules are kept, whatever the caller's environment says: without them every process that
# a test starts compiles the whole package first, three times the CPU of its start.
ENVIRONMENT: Final = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN:
    ENVIRONMENT.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
ALL_TESTS: Final = ("-m", "not campaign")
TESTS: Final = ("-m", "not long and not campaign")
# Without real processes, browsers and Spark.
QUICK_TESTS: Final = (
    *(
        "tests/core",
        "tests/wire",
        "tests/store",
        "tests/relay",
        "tests/lab",
        "tests/fuzz",
        "tests/console",
    ),
    *("tests/simulation", "tests/test_architecture.py"),
    *("tests/test_docs.py", "tests/test_journal_page.py", "tests/test_workflows.py"),
    "tests/test_workers.py",
    *(
        "-k",
        "not _in_a_browser",
        "-m",
        "not slow and not long and not campaign",
        "--hypothesis-profile",
        "quick",
    ),
)
# `--quick` sets up no Spark, and without it nothing says what the types of its parts are.
WITHOUT_SPARK: Final = (
    *("--exclude", r"(^|/)pipeline/|bench_pipeline|_cluster\.py|pyspark_reliable_pubsub"),
    *("--follow-imports", "silent"),
)


class Extent(Struct, frozen=True):
    """How much is tried."""

    tests: Sequence[str]  # arguments of pytest
    seeds: int
    workers_per_core: int = WORKERS_PER_CORE
    bound_s: float = inf


QUICK: Final = Extent(QUICK_TESTS, QUICK_SEEDS, workers_per_core=1)
GATE: Final = Extent(TESTS, SEEDS, bound_s=BOUND_S)
ALL: Final = Extent(ALL_TESTS, ALL_SEEDS)


class Step(Struct, frozen=True):
    """One command of the gate."""

    name: str
    command: Sequence[str]
    is_live: bool = False  # each line is shown as it comes
    nice: int = 0


class Ended(Struct, frozen=True):
    """How a step ended."""

    step: Step
    exit_code: int
    seconds: float

    @property
    def line(self) -> str:
        """What the table says of it."""
        word = "ok" if self.exit_code == 0 else f"FAILED, exit code {self.exit_code}"
        return f"{self.step.name:<12} {self.seconds:6.1f} s  {word}"


def quick_checks() -> list[Step]:
    """What takes a second: nothing else begins before these hold."""
    return [
        Step("format", ["ruff", "format", "--check", "."]),
        Step("lint", ["ruff", "check", "."]),
    ]


def long_checks(extent: Extent, *, workers: int, has_spark: bool) -> list[Step]:
    """What runs side by side."""
    simulate = [sys.executable, "-m", "scripts.simulator", "--seeds", str(extent.seeds)]
    tests = [
        "pytest",
        *("-n", str(workers)),
        # xdist would wait forever for the tests of a worker that died when the others had ended.
        *("--max-worker-restart", "0"),
        "--costs",
        str(FILES_SHOWN),
        *extent.tests,
    ]
    return [
        Step("tests", tests, is_live=True),
        Step("types", ["mypy", *(() if has_spark else WITHOUT_SPARK)], nice=NICE),
        Step("simulation", [*simulate, "--jobs", str(os.cpu_count() or 2)], nice=NICE),
    ]


class Gate:
    """Steps, and their outcomes."""

    def __init__(self) -> None:
        self.ended: list[Ended] = []
        self._printing = threading.Lock()

    def run(self, steps: Sequence[Step]) -> bool:
        """Run steps side by side; return whether all of them hold."""
        threads = [threading.Thread(target=self._run, args=(step,)) for step in steps]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return all(one.exit_code == 0 for one in self.ended)

    def _run(self, step: Step) -> None:
        begin_s = time.monotonic()
        kept: list[str] = []
        with subprocess.Popen(
            ["nice", "-n", str(step.nice), *step.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            cwd=ROOT,
            env=ENVIRONMENT,
        ) as child:
            assert child.stdout is not None
            deadline = threading.Timer(STEP_S_MAX, self._hangs, (step, child))
            deadline.daemon = True
            deadline.start()
            for line in child.stdout:
                if step.is_live:
                    self._say(line)
                else:
                    kept.append(line)
            deadline.cancel()
        ended = Ended(step, child.returncode, time.monotonic() - begin_s)
        if ended.exit_code and kept:
            self._say(f"== {step.name}: {' '.join(step.command)}\n", *kept)
        self._say(f"== {ended.line}\n")
        self.ended.append(ended)

    def _hangs(self, step: Step, child: subprocess.Popen[str]) -> None:
        """End at once: what the step started may hold its output open."""
        child.kill()
        self._say(f"== {step.name}: not done after {STEP_S_MAX:.0f} s, FAILED\n")
        os._exit(1)

    def _say(self, *lines: str) -> None:
        with self._printing:
            print(*lines, sep="", end="", flush=True)  # noqa: T201


@click.command()
@click.option("--quick", is_flag=True, help="No real processes, browsers or Spark; fewer seeds.")
@click.option("--all", "everything", is_flag=True, help="Long tests too, and 3,000 seeds; for CI.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Processes that run tests.  [default: two for each core; with --quick, one]",
)
def main(quick: bool, everything: bool, workers: int | None) -> None:
    """Format, lint, types, tests and simulated seeds; exit code 0 only if all of it holds.

    On 2 cores the gate is meant to take at most 6 minutes, --quick at most 90 s; at its end are
    the test files that cost most CPU. What is longer still:

    \b
    scripts/check --all                       what CI runs: long tests, and 3,000 seeds
    python -m scripts.simulator.planted        seeds of the planted faults that went stale
    pytest tests/wire tests/fuzz --hypothesis-profile long
    scripts/torture, inject, damage, fuzz     real processes, killed and attacked
    """
    if quick and everything:
        raise click.UsageError("--quick is less than the gate, and --all is more: choose one")
    begin_s = time.monotonic()
    extent = QUICK if quick else ALL if everything else GATE
    workers = workers or extent.workers_per_core * (os.cpu_count() or 2)
    gate = Gate()
    holds = gate.run(quick_checks())
    if holds:
        has_spark = find_spec("pyspark") is not None
        holds = gate.run(long_checks(extent, workers=workers, has_spark=has_spark))
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    bad = ", ".join(one.step.name for one in gate.ended if one.exit_code)
    took_s = time.monotonic() - begin_s
    print(  # noqa: T201
        f"== {f'FAILED: {bad}' if bad else 'everything holds'}, after "
        f"{took_s:.0f} s and {used.ru_utime + used.ru_stime:.0f} s of CPU"
    )
    if took_s > extent.bound_s:
        print(f"== longer than {extent.bound_s:.0f} s: see which test files cost most")  # noqa: T201
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main(prog_name="scripts/check")
