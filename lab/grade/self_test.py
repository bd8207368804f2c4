"""The trials of the judge: a right service, our own, and wrong ones, as submissions."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from msgspec import Struct

from .core.results import Grade
from .core.submission import FILE
from .grading import Wanted
from .wrong import WRONG

MODULES = {"reference": "reference", "own-service": "own_service"}
RESUME_S = 60.0  # the wrong service that must be found by it ends by itself


class Trial(Struct, frozen=True):
    """A service, and the stages in which it is judged."""

    name: str
    wanted: Wanted
    is_right: bool


def submissions(folder: Path) -> dict[str, Path]:
    """Write a folder for each service, with its `pubsub.yaml`; return them by name."""
    shutil.rmtree(folder, ignore_errors=True)
    modules = MODULES | {name: f"wrong {name}" for name in WRONG}
    for name, module in modules.items():
        (folder / name).mkdir(parents=True)
        run = f"{shlex.quote(sys.executable)} -m {__package__}.{module}"
        (folder / name / FILE).write_text(
            f"broker: {run} broker --port {{port}} --data {{data}}\n"
            f"client: {run} client --broker {{broker}} --id {{id}} --state {{state}}\n"
        )
    return {name: folder / name for name in modules}


def trials(seeds: int) -> list[Trial]:
    """Return what is judged: right services in all stages, each wrong one in its own."""
    every = {"seeds": seeds, "resume_s": RESUME_S, "takes_all": True}
    found = [Trial(name, Wanted(**every), is_right=True) for name in MODULES]  # type: ignore[arg-type]
    for name, (_, stage) in WRONG.items():
        found.append(Trial(name, Wanted(stages=(stage,), **every), is_right=False))  # type: ignore[arg-type]
    return found


def verdict_of(trial: Trial, grade: Grade) -> tuple[str, bool]:
    """Return a line about a service, and whether the judge was right with every seed."""
    runs, failed = (sum(getattr(s, word) for s in grade.stages) for word in ("runs", "failed"))
    is_right = runs > 0 and failed == (0 if trial.is_right else runs)
    stages = "all stages" if trial.is_right else f"stage {trial.wanted.stages[0]}"
    found = (
        f"{runs} runs, passed {runs - failed}" if trial.is_right else f"found in {failed} of {runs}"
    )
    lines = [line for one in grade.stages for line in one.lines]
    why = "" if is_right else "\n  " + "\n  ".join([*grade.lines, *lines])
    return f"{trial.name:<28} {stages:<10} {found}{why}", is_right
