"""`reliable-pubsub grade`: points for a whole service, in any language."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec import Struct

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.schemas import json_decoder
from reliable_pubsub.common.signals import stop_on_signals

from ..rig.child_process import ChildProcess
from ..tool_errors import TOOL_FAILED, judge_errors
from .core.limits import Limits, limits_in
from .core.results import Grade, differing, grades_csv, text_of
from .core.stages import STAGES
from .core.submission import FILE
from .grading import RESUME_S, GradeOptions, submission_in
from .self_test import Trial, submissions, trials, verdict_of
from .watch import isolation, remove_groups
from .worker import GRADE, GradeOrder, refused, write

RUNS: Final = Path("run") / "grade"
GRACE_S: Final = 120.0  # after the limit of time, for what the judge itself does
LOOK_AGAIN_S: Final = 0.05
SELF_TEST_S: Final = 24 * 3600
NOT_FULL: Final = 1  # exit code


class NotGradedError(click.ClickException):
    """The process that graded a submission ended by itself: no verdict."""

    exit_code = TOOL_FAILED


class RunningGrade(Struct):
    """A submission that is graded now."""

    order: GradeOrder
    process: ChildProcess
    deadline_s: float

    def end(self) -> None:
        """End it, and remove its files."""
        self.process.kill_group()
        remove_groups(Path(self.order.work).name)
        shutil.rmtree(self.order.work, ignore_errors=True)

    def result(self) -> Grade:
        """Return what it left when it ended.

        Raises:
            NotGradedError: it left nothing, although its time was not up.
        """
        out = Path(self.order.out)
        try:
            return json_decoder(Grade).decode((out / GRADE).read_bytes())
        except (OSError, msgspec.MsgspecError) as error:
            (out / GRADE).unlink(missing_ok=True)
            log = (out / "worker.log").read_text(errors="replace").strip()[-500:]
            if time.monotonic() < self.deadline_s:
                code = self.process.exit_code
                raise NotGradedError(
                    f"{out.name}: not graded, because the judge's process ended with exit code "
                    f"{code}{f' ({log.splitlines()[-1]})' if log else ''}; run it again"
                ) from error
            why = f"the grading ended early: {log or 'its time was up'}"
            write(grade := refused(self.order, why), out)
            return grade


def started(source: Path, out: Path, options: GradeOptions, limits: Limits) -> RunningGrade:
    """Start grading a submission in a process of its own."""
    out.mkdir(parents=True, exist_ok=True)
    (out / GRADE).unlink(missing_ok=True)
    (out / "worker.log").unlink(missing_ok=True)
    work = tempfile.mkdtemp(prefix="work-", dir=out.resolve())
    order = GradeOrder(
        source=str(source.resolve()),
        out=str(out.resolve()),
        work=work,
        options=options,
        limits=limits,
    )
    command = [*isolation(), sys.executable, "-m", "reliable_pubsub.lab.grade.worker"]
    process = ChildProcess([*command, msgspec.json.encode(order).decode()], out / "worker.log")
    return RunningGrade(order, process, time.monotonic() + limits.time_s + GRACE_S)


def grade_all(
    waiting: Sequence[Callable[[], RunningGrade]], jobs: int, done: Callable[[Grade], object]
) -> None:
    """Grade several submissions, a number of them at a time.

    Raises:
        NotGradedError: some were not graded; the others are done.
    """
    left = list(reversed(waiting))
    running: list[RunningGrade] = []
    problems: list[str] = []
    with ExitStack() as stack, stop_on_signals("stopped: run it again to continue"):
        stack.callback(lambda: list(map(RunningGrade.end, running)))
        while left or running:
            while left and len(running) < jobs:
                running.append(left.pop()())
            for one in list(running):
                if not one.process.runs or time.monotonic() > one.deadline_s:
                    one.end()
                    running.remove(one)
                    try:
                        done(one.result())
                    except NotGradedError as error:
                        problems.append(error.message)
            time.sleep(LOOK_AGAIN_S)
    if problems:
        raise NotGradedError("\n".join(problems))


def grade_one(source: Path, out: Path, options: GradeOptions, limits: Limits) -> bool:
    """Grade a submission, print its report; return whether it has full marks."""
    submission_in(source)
    grades: list[Grade] = []
    grade_all([lambda: started(source, out, options, limits)], 1, grades.append)
    (grade,) = grades
    click.echo(text_of(grade), nl=False)
    for note in grade.notes:
        click.echo(f"note: {note}", err=True)
    click.echo(f"files: {out}", err=True)
    return grade.score == grade.points


def grade_batch(folder: Path, out: Path, options: GradeOptions, limits: Limits, jobs: int) -> bool:
    """Grade each folder of a folder; take those that are done from an earlier batch."""
    sources = sorted(one for one in folder.iterdir() if one.is_dir() and one.name[0] != ".")
    if not sources:
        raise ConfigurationError(f"{folder}: has no folder; each submission is one, with a {FILE}")
    out.mkdir(parents=True, exist_ok=True)
    settings = msgspec.json.encode((options, limits))
    kept = out / "settings.json"
    if kept.exists() and kept.read_bytes() != settings:
        raise ConfigurationError(f"{out}: has grades with other options; choose another --out")
    kept.write_bytes(settings)
    grades: dict[str, Grade] = {}
    for one in sources:
        if (out / one.name / GRADE).exists():
            grades[one.name] = json_decoder(Grade).decode((out / one.name / GRADE).read_bytes())
    if grades:
        click.echo(f"{len(grades)} of {len(sources)} are graded already", err=True)

    def done(grade: Grade) -> None:
        grades[grade.name] = grade
        _write_batch(list(grades.values()), out)
        count = f"{len(grades)} of {len(sources)}"
        click.echo(f"{count}: {grade.name} {grade.score}/{grade.points}, {grade.seconds:.0f} s")

    left = [one for one in sources if one.name not in grades]
    grade_all(
        [lambda one=one: started(one, out / one.name, options, limits) for one in left],  # type: ignore[misc]
        jobs,
        done,
    )
    _write_batch(list(grades.values()), out)
    click.echo(f"grades: {out / 'grades.csv'}")
    return True


def _write_batch(grades: list[Grade], out: Path) -> None:
    grades.sort(key=lambda grade: grade.name)
    (out / "grades.csv").write_text(grades_csv(grades), encoding="utf-8")
    (out / "differed.txt").write_text(differing(grades), encoding="utf-8")


def run_self_test(out: Path, seeds: int, jobs: int) -> bool:
    """Judge the reference and each wrong service; return whether the judge is right."""
    limits = Limits(cpu_s=SELF_TEST_S, time_s=SELF_TEST_S)
    folders = submissions(out / "submissions")
    chosen = trials(seeds)
    by_name: dict[str, Trial] = {one.name: one for one in chosen}
    wrong: list[str] = []

    def done(grade: Grade) -> None:
        text, is_right = verdict_of(by_name[grade.name], grade)
        click.echo(text)
        if not is_right:
            wrong.append(grade.name)

    grade_all(
        [
            lambda one=one: started(folders[one.name], out / one.name, one.options, limits)  # type: ignore[misc]
            for one in chosen
        ],
        jobs,
        done,
    )
    click.echo(f"the judge is wrong about: {', '.join(wrong)}" if wrong else "the judge is right")
    return not wrong


@click.command(context_settings=CONTEXT_SETTINGS)
@click.argument("submission", required=False, type=click.Path(path_type=Path))
@click.option(
    "--stage",
    "stages",
    multiple=True,
    type=click.IntRange(1, len(STAGES)),
    help="Only this stage; may be repeated.",
)
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Of the runs.")
@click.option(
    "--seeds",
    type=click.IntRange(1),
    help="Runs of each stage, with SEED and those after it.  [default: 1; --self-test: 20]",
)
@click.option(
    "--batch",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="Grade each folder in FOLDER; run it again to resume.",
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    default=2 * (os.cpu_count() or 1),
    help="Submissions at a time: they mostly wait.  [default: 2 for each core]",
)
@click.option(
    "--limits",
    "limits_text",
    default="",
    metavar="cpu=,mem=,disk=,time=",
    help="Of one submission.  [default: cpu=300s,mem=2G,disk=256M,time=240s]",
)
@click.option(
    "--resume-within",
    "resume_s",
    type=click.FloatRange(1),
    default=RESUME_S,
    show_default=True,
    help="Seconds after the last fault in which the service must answer.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the results go.  [default: run/grade/NAME]",
)
@click.option(
    "--self-test", "is_self_test", is_flag=True, help="Judge the judge, as described above."
)
def main(
    submission: Path | None,
    stages: tuple[int, ...],
    seed: int,
    seeds: int | None,
    batch: Path | None,
    jobs: int,
    limits_text: str,
    resume_s: float,
    out: Path | None,
    is_self_test: bool,
) -> None:
    """Grade a publish/subscribe service: broker and clients, in any language.

    SUBMISSION is a folder with a pubsub.yaml; the task sheet describes it (docs/teach/grading.md).
    Its broker and clients meet through a faulty link, are killed with kill -9, and are judged by
    what the clients read and write. A failed stage shows the shortest run that fails.

    \b
      reliable-pubsub grade my-service --stage 3
      reliable-pubsub grade --batch submissions --out results --limits cpu=120s,mem=1G
      reliable-pubsub grade --self-test --seeds 3

    Each submission gets results.json (Gradescope), junit.xml and report.txt; a batch also
    grades.csv and differed.txt, the verdicts that differed with the same seed. --self-test grades
    a right service and wrong ones: the stage named for each must find it with every seed.

    \b
    Exit codes: 0 full marks, a batch that is done, or a right judge
                1 a stage failed, or the judge is wrong
                2 usage, or no readable pubsub.yaml
                70 the judge failed: no verdict
    """
    if (submission is not None) + (batch is not None) + is_self_test != 1:
        raise click.UsageError("name one SUBMISSION, or --batch FOLDER, or --self-test")
    with judge_errors():
        limits = limits_in(limits_text)
        options = GradeOptions(
            stages=tuple(sorted(set(stages))), seed=seed, seeds=seeds or 1, resume_s=resume_s
        )
        if is_self_test:
            is_full = run_self_test(out or RUNS / "self-test", seeds or 20, jobs)
        elif batch is not None:
            is_full = grade_batch(batch, out or RUNS / batch.resolve().name, options, limits, jobs)
        else:
            assert submission is not None
            name = submission.resolve().name
            is_full = grade_one(submission, out or RUNS / name, options, limits)
    sys.exit(0 if is_full else NOT_FULL)


if __name__ == "__main__":
    main(prog_name="reliable-pubsub grade")
