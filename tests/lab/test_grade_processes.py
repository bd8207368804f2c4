"""The judge of `reliable-pubsub grade` survives what goes wrong, and leaves no process."""

from __future__ import annotations

import errno
import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.lab.grade import run, watch
from reliable_pubsub.lab.grade.command import NotGradedError, RunningGrade, grade_all, main
from reliable_pubsub.lab.grade.core.limits import Limits, limits_in
from reliable_pubsub.lab.grade.core.results import Grade
from reliable_pubsub.lab.grade.grading import GradeOptions
from reliable_pubsub.lab.grade.run import RunEnded
from reliable_pubsub.lab.grade.worker import GRADE, GradeOrder
from reliable_pubsub.lab.rig.child_process import ChildProcess
from reliable_pubsub.lab.rig.reaper import REAPER
from reliable_pubsub.lab.tool_errors import TOOL_FAILED


def running(folder: Path, command: list[str], *, deadline_s: float) -> RunningGrade:
    """Start a process that should grade a submission."""
    work = folder / "work"
    work.mkdir()
    order = GradeOrder(
        source=str(folder / "a"),
        out=str(folder),
        work=str(work),
        options=GradeOptions(),
        limits=Limits(),
    )
    process = ChildProcess(command, folder / "worker.log")
    return RunningGrade(order, process, deadline_s)


def test_a_worker_that_ended_by_itself_is_reported_and_gives_no_grade(tmp_path: Path) -> None:
    grades: list[Grade] = []
    fails = ["sh", "-c", "echo out of memory; exit 3"]

    with pytest.raises(NotGradedError, match=r"exit code 3 \(out of memory\)") as raised:
        grade_all(
            [lambda: running(tmp_path, fails, deadline_s=time.monotonic() + 3600)], 1, grades.append
        )

    assert raised.value.exit_code == TOOL_FAILED
    assert grades == []
    assert not (tmp_path / GRADE).exists()


def test_a_worker_whose_time_is_up_gives_no_points(tmp_path: Path) -> None:
    grades: list[Grade] = []

    grade_all([lambda: running(tmp_path, ["sleep", "600"], deadline_s=0.0)], 1, grades.append)

    assert [grade.score for grade in grades] == [0]
    assert (tmp_path / GRADE).exists()


@pytest.mark.parametrize("line", [b"[" * 200_000, b"[" * 20_000 + b"]" * 20_000])
def test_an_answer_that_is_nested_too_deeply_is_text(line: bytes) -> None:
    assert run._decoded(line + b"\n") == line.decode()


def test_a_port_is_drawn_only_once_until_its_service_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ExitStack() as stack:
        port = run._reserved_port(stack)
        monkeypatch.setattr(run, "PORTS", range(port, port + 1))

        with pytest.raises(RunEnded, match="no port is free"):
            run._reserved_port(stack)


@pytest.mark.skipif(not IS_LINUX, reason="waits without reaping")
def test_a_process_that_ended_before_it_was_told_something_can_be_awaited(tmp_path: Path) -> None:
    process = ChildProcess(["true"], tmp_path / "output", talks=True)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

    with pytest.raises(BrokenPipeError):
        process.tell("subscribe")

    assert process.wait() == 0


@pytest.mark.skipif(not IS_LINUX, reason="reads /proc")
def test_the_processes_of_a_submission_do_not_include_the_reaper(tmp_path: Path) -> None:
    with ChildProcess(["sleep", "600"], tmp_path / "output") as process:
        found = {pid for pid, _ in watch.descendants()}

        assert process.pid in found
        assert REAPER.pid is not None
        assert REAPER.pid not in found


def test_a_group_that_cannot_be_removed_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []

    def is_read_only(path: Path) -> None:
        tried.append(path)
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "rmdir", is_read_only)

    watch.remove_groups("work-1")

    assert len(tried) == len(set(tried)) > 0


def test_the_limits_named_in_the_help_are_the_defaults() -> None:
    (text,) = (one.help or "" for one in main.params if one.name == "limits_text")

    assert limits_in(text.partition("[default: ")[2].rstrip("]")) == Limits()
