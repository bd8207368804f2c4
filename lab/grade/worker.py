"""The process that grades one submission; `command.py` starts it, and reads what it leaves."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.schemas import json_decoder

from .core.limits import Limits
from .core.results import Grade, gradescope, junit, text_of
from .core.stages import STAGES
from .grading import GradeOptions, Grading, not_run
from .watch import LimitWatch, begin, disk_bytes, join_groups, not_enforced

NICE: Final = 19
GRADE: Final = "grade.json"
# What a submission sees of the environment: no tokens, no settings of this product.
ENVIRONMENT: Final = frozenset(
    {"HOME", "LANG", "LC_ALL", "PATH", "PYTHONPATH", "TZ", "JAVA_HOME", "NODE_PATH"}
    | {"CARGO_HOME", "RUSTUP_HOME", "GOPATH", "GOCACHE", "GOROOT"}
)


class GradeOrder(Struct, frozen=True, kw_only=True):
    """What is graded, and where its files go."""

    source: str
    out: str
    work: str
    options: GradeOptions
    limits: Limits


def graded(order: GradeOrder) -> Grade:
    """Grade a submission in this process, within its limits."""
    source, work = Path(order.source), Path(order.work)
    if disk_bytes(source, order.limits.disk_bytes) > order.limits.disk_bytes:
        raise ConfigurationError(f"{source}: is larger than the limit of the disk")
    begin(order.limits)
    has_groups = join_groups(work.name)
    watch = LimitWatch(order.limits, work)
    if has_groups:  # inside the group, so that the watch comes first; it has a thread of its own
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
    try:
        grading = Grading(source, work, order.options, check=watch.check, clean=watch.clean)
        return replace(grading.grade(), notes=tuple(not_enforced(has_groups)))
    finally:
        watch.clean()


def refused(order: GradeOrder, why: str) -> Grade:
    """Return the grade of a submission that could not be run."""
    chosen = [one for one in STAGES if one.number in (order.options.stages or [one.number])]
    stages = tuple(not_run(one, "not run") for one in chosen)
    return Grade(name=Path(order.source).name, stages=stages, seconds=0.0, lines=(why,))


def write(grade: Grade, out: Path) -> None:
    """Leave a grade in all its forms; `grade.json` last, because a batch takes it for the end."""
    document = msgspec.json.format(msgspec.json.encode(gradescope(grade)))
    (out / "results.json").write_bytes(document + b"\n")
    (out / "junit.xml").write_bytes(junit(grade))
    (out / "report.txt").write_text(text_of(grade), encoding="utf-8")
    for stage in grade.stages:
        if stage.page:
            (out / f"stage-{stage.number}.html").write_text(stage.page, encoding="utf-8")
    (out / GRADE).write_bytes(msgspec.json.encode(grade))


def main() -> None:
    order = json_decoder(GradeOrder).decode(sys.argv[1])
    for name in set(os.environ) - ENVIRONMENT:
        del os.environ[name]
    os.environ["TMPDIR"] = str(Path(order.work) / "tmp")
    path = os.environ.get("PATH", os.defpath)
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{path}"
    try:
        grade = graded(order)
    except (ConfigurationError, OSError) as error:
        grade = refused(order, str(error))
    write(grade, Path(order.out))


if __name__ == "__main__":
    main()
