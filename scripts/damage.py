"""The damage sweep: every byte of every file of a store changed, one at a time, and opened.

Either everything that was committed is there, or the start is refused by an error that names the
file or the range. The store is opened by the same functions as in the proxy, in this process; a
sample goes through the real command.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType

import click
from msgspec import Struct
from rich import box
from rich.console import Console
from rich.table import Table

from reliable_pubsub.common.core.errors import DamagedError
from reliable_pubsub.common.progress import progress_bar
from reliable_pubsub.lab.rig.child_process import ChildProcess, NotReadyError, proxy_command
from reliable_pubsub.lab.text_table import text_table, wide_console
from reliable_pubsub.proxy import store as store_module
from reliable_pubsub.proxy.store import MARK_NAME
from reliable_pubsub.proxy.stored_state import FILE_NAME

from .small_store import WAL_BYTES, Files, Subject, build, contents, put_files
from .worker_pool import worker_pool

ROOT = Path(__file__).resolve().parent.parent
HANG_S = 30.0

THERE, REFUSED, SILENT, BROKEN = "everything there", "refused", "SILENT", "BROKEN"


class Case(Struct, frozen=True):
    """One thing done to one file of one state of the store."""

    state: str  # killed | stopped
    file: str
    change: str  # lowest | all (of the bits of a byte), cut, gone, older
    place: int = 0  # of the byte, or the length that is left

    def __str__(self) -> str:
        return f"{self.state}:{self.file}:{self.change}:{self.place}"


class Outcome(Struct, frozen=True):
    """What opening it came to."""

    case: Case
    verdict: str
    text: str = ""


# The cases.


def cases_of(subject: Subject, every: int) -> Iterator[Case]:
    """Each byte of each file by two patterns, each length, and whole files."""
    for name, content in subject.files.items():
        for place in range(0, len(content), every):
            yield Case(subject.state, name, "lowest", place)
            yield Case(subject.state, name, "all", place)
        for length in range(0, len(content), max(every * 16, 61)):
            yield Case(subject.state, name, "cut", length)
        yield Case(subject.state, name, "gone")
        # An older copy of the whole store is sound, and LOG_CHANGED to every client that is ahead.
        if name != FILE_NAME and subject.older.get(name, content) != content:
            yield Case(subject.state, name, "older")


def spoiled(case: Case, subject: Subject) -> Files:
    """The files of the store after the change."""
    files = dict(subject.files)
    content = files.pop(case.file)
    if case.change == "gone":
        return files
    if case.change == "older":
        return files | {case.file: subject.older[case.file]}
    if case.change == "cut":
        return files | {case.file: content[: case.place]}
    mask = 1 if case.change == "lowest" else 0xFF
    changed = bytes([content[case.place] ^ mask])
    return files | {case.file: content[: case.place] + changed + content[case.place + 1 :]}


def _hung(_number: int, _frame: FrameType | None) -> None:
    raise TimeoutError(f"it was not open after {HANG_S:g} s")


def judge(case: Case, subject: Subject, directory: Path) -> Outcome:
    put_files(directory, spoiled(case, subject))
    signal.signal(signal.SIGALRM, _hung)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        found = contents(directory)
    except DamagedError as error:
        names = any(word in str(error) for word in (FILE_NAME, MARK_NAME, "topic", "table"))
        return Outcome(case, REFUSED if names else BROKEN, str(error))
    except Exception as error:  # whatever it is, an operator would see a traceback
        return Outcome(case, BROKEN, f"{type(error).__name__}: {error}")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if found == subject.contents:
        return Outcome(case, THERE)
    for mine, its in zip(subject.contents, found, strict=True):
        if mine != its:
            return Outcome(case, SILENT, f"{mine!r:.2000}\n    became\n{its!r:.2000}")
    raise AssertionError("two values differ and have no part that differs")


def judge_all(cases: Sequence[Case], subject: Subject) -> list[Outcome]:
    """Judge in a directory of this process's own."""
    setattr(store_module, "WAL_BYTES", WAL_BYTES)  # noqa: B010
    with tempfile.TemporaryDirectory(dir=_memory()) as scratch:
        return [judge(case, subject, Path(scratch) / "data") for case in cases]


def judge_command(case: Case, subject: Subject, scratch: Path) -> Outcome:
    """The same through the real command: ready, or exit code 5 and no traceback."""
    put_files(scratch / "data", spoiled(case, subject))
    with ChildProcess(proxy_command(scratch / "data"), scratch / "words", cwd=ROOT) as process:
        ready = True
        try:
            process.ready(HANG_S)
        except NotReadyError:
            ready = False
        code = process.end()
        text = process.said()
    if "Traceback" in text or code != (0 if ready else 5):
        return Outcome(case, BROKEN, f"exit code {code}\n{text}")
    return Outcome(case, THERE if ready else REFUSED, text)


def _memory() -> str | None:
    """A directory in memory, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


# The sweep.


class Tally:
    """Outcomes by state and file."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str], Counter[str]] = {}
        self.bad: list[Outcome] = []

    def add(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            key = (outcome.case.state, outcome.case.file)
            self.counts.setdefault(key, Counter())[outcome.verdict] += 1
            if outcome.verdict in (SILENT, BROKEN):
                self.bad.append(outcome)

    def table(self, subjects: Sequence[Subject]) -> Table:
        """One row for each file."""
        verdicts, rows = (THERE, REFUSED, SILENT, BROKEN), []
        for subject in subjects:
            for name, content in subject.files.items():
                count = self.counts.get((subject.state, name), Counter())
                numbers = [len(content), count.total(), *(count[verdict] for verdict in verdicts)]
                rows.append((subject.state, name, *(f"{number:,}" for number in numbers)))
        columns = ("state", "file", "#bytes", "#runs", *(f"#{verdict}" for verdict in verdicts))
        return text_table("every byte changed, one at a time", columns, rows, box=box.SIMPLE)


def sweep(
    subjects: Sequence[Subject],
    every: int,
    jobs: int,
) -> Tally:
    tally, size = Tally(), 200
    parts: list[tuple[list[Case], Subject]] = []
    for subject in subjects:
        cases = list(cases_of(subject, every))
        parts += [(cases[first : first + size], subject) for first in range(0, len(cases), size)]
    total = sum(len(cases) for cases, _ in parts)
    with progress_bar(total, 0, quiet=False) as advance, worker_pool(jobs) as pool:
        for outcomes in pool.map(judge_all, *zip(*parts, strict=True)):
            tally.add(outcomes)
            advance(len(outcomes), "damage")
    return tally


def sample_commands(subjects: Sequence[Subject], number: int, tally: Tally) -> int:
    """Some cases of each file through the real command; returns their number."""
    done = 0
    with tempfile.TemporaryDirectory(dir=_memory()) as scratch:
        for subject in subjects:
            for name, content in subject.files.items():
                for place in range(0, len(content), len(content) // number + 1):
                    case = Case(subject.state, name, "all", place)
                    outcome = judge_command(case, subject, Path(scratch))
                    if outcome.verdict == BROKEN:
                        tally.bad.append(outcome)
                    done += 1
    return done


def repeat(case: Case, subjects: Sequence[Subject], console: Console) -> Outcome:
    """Run one case and print everything about it."""
    subject = next(one for one in subjects if one.state == case.state)
    (outcome,) = judge_all([case], subject)
    console.print(f"{case}: {outcome.verdict}\n{outcome.text}", markup=False)
    return outcome


def parse_case(_context: click.Context, _option: click.Parameter, text: str | None) -> Case | None:
    """STATE:FILE:CHANGE:PLACE"""
    if text is None:
        return None
    try:
        state, file, change, place = text.split(":")
        return Case(state, file, change, int(place))
    except ValueError:
        raise click.BadParameter("expected STATE:FILE:CHANGE:PLACE") from None


@click.command()
@click.option("--every", default=1, type=click.IntRange(1), help="Only each so-manieth byte.")
@click.option("--jobs", default=os.cpu_count() or 1, type=click.IntRange(1), help="Processes.")
@click.option("--commands", default=8, help="So many of each file through the real command.")
@click.option("--case", callback=parse_case, help="One case: STATE:FILE:CHANGE:PLACE.")
def main(every: int, jobs: int, commands: int, case: Case | None) -> None:
    """Damage a small store in every way of one byte; exit code 1 if one is not noticed.

    Each byte of each file is changed (its lowest bit, all its bits), each file is cut, removed,
    and, but for the store itself, replaced by its copy of a moment before; in the state after
    kill -9, with commits in the log, and after a clean stop.
    """
    console = wide_console(110)
    with tempfile.TemporaryDirectory(dir=_memory()) as scratch:
        subjects = [build(Path(scratch), state) for state in ("killed", "stopped")]
        if case is not None:
            sys.exit(repeat(case, subjects, console).verdict in (SILENT, BROKEN))
        tally = sweep(subjects, every, jobs)
        sampled = sample_commands(subjects, commands, tally) if commands else 0
    console.print(tally.table(subjects))
    console.print(f"{sampled} of them through the real command: exit code 5, or ready.")
    for outcome in tally.bad[:20]:
        line = f"{outcome.verdict}: scripts/damage --case {outcome.case}  {outcome.text:.200}"
        console.print(line, markup=False)
    sys.exit(1 if tally.bad else 0)


if __name__ == "__main__":
    main()
