"""Grades one submission: builds it, runs the stages, shortens the first run that fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.yaml_file import load_yaml

from .core.page import page_of
from .core.plan import Plan, faults_in, puts_in
from .core.results import Grade, StageResult
from .core.shrinking import shrink
from .core.stages import STAGES, GradeStage, plan_of
from .core.submission import FILE, Commands, commands_in
from .core.telling import lines_of
from .run import RunEnded, RunOutcome, play

BUILD_S_MAX: Final = 120.0
SHRINK_S_MAX: Final = 25.0
RESUME_S: Final = 20.0
BREACHES_SHOWN: Final = 3
OUTPUT_BYTES_SHOWN: Final = 2_000


class GradeOptions(Struct, frozen=True, kw_only=True):
    """How a submission is graded."""

    stages: tuple[int, ...] = ()  # (): all
    seed: int = 1
    seeds: int = 1  # for each stage
    resume_s: float = RESUME_S
    shrink_s: float = SHRINK_S_MAX
    takes_all: bool = False  # runs every seed once, and shortens none


def submission_in(folder: Path) -> Commands:
    """Read the `pubsub.yaml` of a submission.

    Raises:
        ConfigurationError: it is missing, or cannot be read.
    """
    if not (folder / FILE).is_file():
        raise ConfigurationError(
            f"{folder}: has no {FILE}, which says how the broker and the client are started; "
            "see the task sheet"
        )
    return commands_in(load_yaml(folder / FILE).data)


class Grading:
    """A submission under judgement, in a folder of its own that is removed."""

    def __init__(
        self,
        source: Path,
        work: Path,
        options: GradeOptions,
        *,
        check: Callable[[], None] = lambda: None,
        clean: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy the submission.

        Args:
            check: raises RunEnded if the submission is beyond its limits.
            clean: ends all processes that it has left.
        """
        self._name, self._work, self._options = source.name, work, options
        self._check, self._clean = check, clean
        self._commands = submission_in(source)
        self._source = work / "submission"
        shutil.copytree(source, self._source, symlinks=True)
        (work / "tmp").mkdir()
        self._runs = 0

    def grade(self) -> Grade:
        """Build it, and run all stages that are chosen."""
        began_s = time.monotonic()
        problem = self._build()
        stages = tuple(self._stages()) if problem is None else ()
        if problem is not None:
            stages = tuple(not_run(one, "not run: the build failed") for one in self._chosen())
        seconds = time.monotonic() - began_s
        return Grade(name=self._name, stages=stages, seconds=seconds, lines=problem or ())

    def _chosen(self) -> list[GradeStage]:
        options = self._options.stages
        return [one for one in STAGES if not options or one.number in options]

    def _build(self) -> tuple[str, ...] | None:
        """Run the build once; return what is wrong."""
        if not self._commands.build:
            return None
        log = self._work / "build.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                ["sh", "-c", self._commands.build],
                cwd=self._source,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
            try:
                code = process.wait(BUILD_S_MAX)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()
                return (f"the build took longer than {BUILD_S_MAX:g} s: {self._commands.build}",)
            finally:
                self._clean()
        try:
            self._check()
        except RunEnded as ended:
            return (ended.breach.text,)
        if code == 0:
            return None
        said = log.read_bytes()[-OUTPUT_BYTES_SHOWN:].decode(errors="replace").splitlines()
        return (f"the build ended with exit code {code}: {self._commands.build}", *said)

    def _stages(self) -> Iterator[StageResult]:
        blocked = ""
        for stage in self._chosen():
            try:
                self._check()
            except RunEnded as ended:
                blocked = blocked or f"not run: {ended.breach.text}"
            if blocked:
                yield not_run(stage, blocked)
                continue
            result = self._stage(stage)
            yield result
            if stage.number == 1 and not result.is_passed:
                blocked = "not run: without stage 1 nothing else can be judged"

    def _stage(self, stage: GradeStage) -> StageResult:
        """Run the seeds of a stage until one fails."""
        began_s = time.monotonic()
        first = self._options.seed
        lines: list[str] = []
        missed: list[str] = []
        differs: list[str] = []
        page = ""
        runs = failed = 0
        for seed in range(first, first + self._options.seeds):
            plan = plan_of(stage, Random(f"{stage.number}/{seed}"))
            outcome = self._play(plan)
            runs += 1
            missed += [f"seed {seed}: {one}" for one in outcome.missed]
            if not outcome.breaches:
                continue
            rule = outcome.breaches[0].rule
            if self._options.takes_all or rule == "the submission stays within its limits":
                failed += 1
                lines.append(f"seed {seed}: {outcome.breaches[0].text}")
                continue
            repeated_s = time.monotonic()
            if not self._play(plan).breaches:
                differs.append(f"seed {seed}: {rule}: broken, then not")
                if rule == "the service resumes after the last fault":
                    continue  # so does a slow machine
            failed += 1
            run_s = time.monotonic() - repeated_s
            more, page = self._explain(stage, seed, plan, outcome, run_s)
            lines += more
            break
        return StageResult(
            number=stage.number,
            name=stage.name,
            points=stage.points,
            score=0 if failed else stage.points,
            runs=runs,
            failed=failed,
            seconds=time.monotonic() - began_s,
            lines=tuple(lines),
            differs=tuple(differs),
            missed=tuple(missed),
            page=page,
        )

    def _explain(
        self, stage: GradeStage, seed: int, plan: Plan, outcome: RunOutcome, run_s: float
    ) -> tuple[list[str], str]:
        """Say what is broken, with the shortest run that was found; and draw that run."""
        breach = outcome.breaches[0]
        best = {plan: outcome}
        deadline_s = time.monotonic() + self._options.shrink_s

        def breaks(smaller: Plan) -> bool | None:
            if time.monotonic() + run_s > deadline_s:
                return None
            found = self._play(smaller)
            if breach.rule not in [one.rule for one in found.breaches]:
                return False
            best[smaller] = found
            return True

        shortest = shrink(plan, breach, breaks)
        shown = best[shortest]
        (wrong, *_) = (one for one in shown.breaches if one.rule == breach.rule)
        others = {one.rule: None for one in outcome.breaches if one.rule != breach.rule}
        puts, faults = puts_in(shortest), faults_in(shortest)
        broken = [
            f"seed {seed}: broken: {breach.rule}",
            wrong.text,
            *(f"also broken: {rule}" for rule in list(others)[:BREACHES_SHOWN]),
            f"shortest run found, with {puts} put(s) and {faults} fault(s):",
        ]
        again = f"again: reliable-pubsub grade {self._name} --stage {stage.number} --seed {seed}"
        told = [f"  {line}" for line in lines_of(shown.events)]
        page = page_of(f"Stage {stage.number}: {stage.name}", [*broken, again], shown.events)
        return [*broken, *told, again], page

    def _play(self, plan: Plan) -> RunOutcome:
        """Run a plan in a new folder."""
        self._runs += 1
        folder = self._work / f"run-{self._runs}"
        try:
            return play(
                plan,
                self._commands,
                self._source,
                folder,
                resume_s=self._options.resume_s,
                check=self._check,
                clean=self._clean,
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def not_run(stage: GradeStage, why: str) -> StageResult:
    return StageResult(
        number=stage.number,
        name=stage.name,
        points=stage.points,
        score=0,
        runs=0,
        failed=0,
        seconds=0.0,
        lines=(why,),
    )
