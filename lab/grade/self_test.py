"""The trials of the judge: a right service, our own, and wrong ones, as submissions."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.examples import shipped

from .core.results import Grade
from .core.submission import FILE
from .grading import GradeOptions

RIGHT: Final = {"reference": "graded_service.py", "own-service": "graded_library.py"}
# The faults of `examples/wrong_services.py`, each with the stage that must find it.
WRONG: Final = {
    "one-set-of-ids": 1,
    "compares-texts": 1,
    "one-queue": 1,
    "newest-first": 1,
    "never-unsubscribes": 2,
    "resubscribe-drops": 2,
    "stores-twice": 3,
    "removes-as-it-sends": 3,
    "acknowledges-by-count": 3,
    "remembers-the-last-id": 4,
    "forgets-ids": 5,
    "answers-first": 5,
    "forgets-subscriptions": 5,
    "forgets-acks": 5,
    "numbers-by-run": 6,
    "acknowledges-on-return": 7,
    "acknowledges-after-restart": 7,
    "gives-up": 8,
}
ENDS: Final = "gives-up"  # the only one that may end by itself: any other would be no trial
RIGHT_S, WRONG_S = 60.0, 20.0  # of silence


class Trial(Struct, frozen=True):
    """A service, and the stages in which it is judged."""

    name: str
    options: GradeOptions
    is_right: bool


def submissions(folder: Path) -> dict[str, Path]:
    """Write a folder for each service, with its `pubsub.yaml`; return them by name."""
    shutil.rmtree(folder, ignore_errors=True)
    programs = RIGHT | {name: f"wrong_services.py {name}" for name in WRONG}
    for name, program in programs.items():
        (folder / name).mkdir(parents=True)
        file, *words = program.split()
        run = " ".join(
            [*map(shlex.quote, (sys.executable, str(shipped("examples") / file))), *words]
        )
        (folder / name / FILE).write_text(
            f"broker: {run} broker --port {{port}} --data {{data}}\n"
            f"client: {run} client --broker {{broker}} --id {{id}} --state {{state}}\n"
        )
    return {name: folder / name for name in programs}


def trials(seeds: int) -> list[Trial]:
    """Return what is judged: right services in all stages, each wrong one in its own."""
    right = GradeOptions(seeds=seeds, resume_s=RIGHT_S, takes_all=True)
    found = [Trial(name, right, is_right=True) for name in RIGHT]
    for name, stage in WRONG.items():
        wrong = GradeOptions(stages=(stage,), seeds=seeds, resume_s=WRONG_S, takes_all=True)
        found.append(Trial(name, wrong, is_right=False))
    return found


def verdict_of(trial: Trial, grade: Grade) -> tuple[str, bool]:
    """Return a line about a service, and whether the judge was right with every seed."""
    runs = sum(one.runs for one in grade.stages)
    failed = sum(one.failed for one in grade.stages)
    lines = [line for one in grade.stages for line in one.lines]
    is_right = runs > 0 and failed == (0 if trial.is_right else runs)
    if not trial.is_right and trial.name != ENDS:
        is_right &= not any("ended by itself" in line for line in lines)
    stages = "all stages" if trial.is_right else f"stage {trial.options.stages[0]}"
    found = f"passed {runs - failed} of" if trial.is_right else f"found in {failed} of"
    why = "" if is_right else "\n  " + "\n  ".join([*grade.lines, *lines])
    return f"{trial.name:<28} {stages:<10} {found} {runs} runs{why}", is_right
