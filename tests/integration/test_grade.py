"""`reliable-pubsub grade`: a right service passes, each wrong one is found by its stage.

The services are real processes. Waits have a limit only where a wrong service never answers.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from reliable_pubsub.common.examples import shipped
from reliable_pubsub.lab.grade.command import main as grade
from reliable_pubsub.lab.grade.core.results import Grade, text_of
from reliable_pubsub.lab.grade.core.stages import STAGES
from reliable_pubsub.lab.grade.grading import GradeOptions, Grading
from reliable_pubsub.lab.grade.self_test import ENDS, RIGHT, WRONG, submissions

PATIENCE_S = 600.0  # a right service answers long before
SILENCE_S = 20.0  # a wrong one never does

SILENT = """\
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(3600)", sys.argv[1]]
subprocess.Popen(sleep, start_new_session=True)
time.sleep(3600)
"""
FILLS_THE_DISK = """\
import sys, time
for count in range(100):
    with open(f"{sys.argv[1]}/{count}", "wb") as file:
        file.write(bytes(200_000))
    time.sleep(0.01)
time.sleep(3600)
"""


def graded(name: str, stage: int, folder: Path, *, resume_s: float, shrink_s: float = 0) -> Grade:
    """Grade a service in one stage with one seed, in this process."""
    source = submissions(folder / "submissions")[name]
    work = folder / "work"
    work.mkdir()
    options = GradeOptions(
        stages=(stage,), resume_s=resume_s, shrink_s=shrink_s, takes_all=shrink_s == 0
    )
    return Grading(source, work, options).grade()


def submission(folder: Path, client: str) -> Path:
    """A submission whose broker is the reference, and whose client is a program."""
    folder.mkdir(parents=True)
    (folder / "client.py").write_text(client)
    run = f"{sys.executable} {shipped('examples') / 'graded_service.py'} broker"
    (folder / "pubsub.yaml").write_text(
        f"broker: {run} --port {{port}} --data {{data}}\n"
        f"client: {sys.executable} client.py {{state}} {{broker}} {{id}}\n"
    )
    return folder


@pytest.mark.parametrize("stage", [stage.number for stage in STAGES])
def test_the_reference_passes_each_stage(stage: int, tmp_path: Path) -> None:
    found = graded("reference", stage, tmp_path, resume_s=PATIENCE_S)

    assert found.score == found.points, text_of(found)
    assert [one.missed for one in found.stages] == [()]


@pytest.mark.parametrize(("name", "stage"), WRONG.items())
def test_a_wrong_service_is_found_by_its_stage(name: str, stage: int, tmp_path: Path) -> None:
    found = graded(name, stage, tmp_path, resume_s=SILENCE_S)

    assert found.score == 0, text_of(found)
    assert name == ENDS or "ended by itself" not in text_of(found)


def test_our_own_service_passes_a_stage(tmp_path: Path) -> None:
    found = graded("own-service", 7, tmp_path, resume_s=PATIENCE_S)

    assert found.score == found.points, text_of(found)


def test_a_failed_stage_shows_a_short_run_that_fails(tmp_path: Path) -> None:
    found = graded("stores-twice", 3, tmp_path, resume_s=PATIENCE_S, shrink_s=PATIENCE_S)

    lines = "\n".join(found.stages[0].lines)
    assert "seed 1: broken: nothing twice" in lines
    assert "shortest run found, with 1 put(s) and 1 fault(s)" in lines
    assert "loses the answer to p" in lines
    assert "again: reliable-pubsub grade stores-twice --stage 3 --seed 1" in lines


@pytest.mark.slow
class TestTheCommand:
    def test_writes_the_results_of_a_batch_and_resumes_it(self, tmp_path: Path) -> None:
        services = submissions(tmp_path / "all")
        batch = tmp_path / "batch"
        batch.mkdir()
        services["reference"].rename(batch / "right")
        (batch / "empty").mkdir()
        out = tmp_path / "out"
        options = ["--batch", str(batch), "--out", str(out), "--stage", "2", "--jobs", "1"]
        options += ["--limits", "time=3000", "--resume-within", str(PATIENCE_S)]

        first = CliRunner().invoke(grade, options)
        again = CliRunner().invoke(grade, options)

        assert first.exit_code == again.exit_code == 0, first.output
        assert "2 of 2 are graded already" in again.output
        assert (out / "grades.csv").read_text().splitlines() == [
            "submission,score,points,stage 2",
            "empty,0,10,0",
            "right,10,10,10",
        ]
        assert json.loads((out / "right" / "results.json").read_bytes())["score"] == 10
        assert "has no pubsub.yaml" in (out / "empty" / "report.txt").read_text()
        assert not list(out.glob("*/work-*"))

    @pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
    def test_ends_a_submission_that_fills_its_disk(self, tmp_path: Path) -> None:
        source = submission(tmp_path / "fills", FILLS_THE_DISK)

        options = ["--out", str(tmp_path / "out"), "--resume-within", str(PATIENCE_S)]

        done = CliRunner().invoke(grade, [str(source), *options, "--limits", "disk=8M,time=3000"])

        assert done.exit_code == 1
        assert "the submission fills more than 8 MiB of its folders" in done.output
        assert not list((tmp_path / "out").glob("work-*"))

    @pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
    def test_leaves_no_process_of_a_submission_that_never_answers(self, tmp_path: Path) -> None:
        source = submission(tmp_path / "silent", SILENT)
        options = ["--out", str(tmp_path / "out"), "--resume-within", "2", "--stage", "1"]

        done = CliRunner().invoke(grade, [str(source), *options, "--limits", "time=3000"])

        assert done.exit_code == 1
        assert "did not answer subscribe within 2 s" in done.output
        assert not [
            path
            for path in Path("/proc").glob("[0-9]*/cmdline")
            if str(tmp_path).encode() in _read(path)
        ]

    def test_refuses_a_folder_without_its_file(self, tmp_path: Path) -> None:
        done = CliRunner().invoke(grade, [str(tmp_path)])

        assert done.exit_code == 2
        assert "has no pubsub.yaml" in " ".join(done.output.split())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "seed"),
    [(name, seed) for name in RIGHT for seed in (range(1, 6) if name == "reference" else (1,))],
)
@pytest.mark.parametrize("stage", [stage.number for stage in STAGES])
def test_a_right_service_passes_with_several_seeds(
    name: str, seed: int, stage: int, tmp_path: Path
) -> None:
    source = submissions(tmp_path / "submissions")[name]
    (tmp_path / "work").mkdir()
    options = GradeOptions(stages=(stage,), seed=seed, resume_s=PATIENCE_S, takes_all=True)

    found = Grading(source, tmp_path / "work", options).grade()

    assert found.score == found.points, text_of(found)


@pytest.mark.long
@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_wrong_service_is_found_with_several_seeds(name: str, seed: int, tmp_path: Path) -> None:
    source = submissions(tmp_path / "submissions")[name]
    (tmp_path / "work").mkdir()
    options = GradeOptions(stages=(WRONG[name],), seed=seed, resume_s=SILENCE_S, takes_all=True)

    (found,) = Grading(source, tmp_path / "work", options).grade().stages

    assert found.failed == found.runs == 1, found.lines
