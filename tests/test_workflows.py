"""The workflows and the lock fit the project. For the rest, run actionlint by hand."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg", encoding="utf-8")
LOCK = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_runs_only_scripts_that_exist(name: str) -> None:
    lines = "\n".join(step.get("run", "") for step in steps(WORKFLOWS[name]))

    scripts = re.findall(r"(?m)(?:^|\s)((?:scripts|\.ci)/\w+)", lines)

    assert [script for script in scripts if not (ROOT / script).is_file()] == []


def test_the_quick_checks_run_on_every_python_that_is_promised() -> None:
    promised = re.findall(r":: Python :: (3\.\d+)$", SETUP["metadata"]["classifiers"], re.MULTILINE)

    matrix = WORKFLOWS["checks"]["jobs"]["quick"]["strategy"]["matrix"]

    assert set(promised) <= set(matrix["python"])
    assert [one["system"] for one in matrix["include"]] == ["macos-latest"]


def test_only_the_jobs_that_publish_may_write() -> None:
    writing = {
        (name, job)
        for name, workflow in WORKFLOWS.items()
        for job, found in workflow["jobs"].items()
        if "write" in str(found.get("permissions", ""))
    }

    assert all(one["permissions"] == {"contents": "read"} for one in WORKFLOWS.values())
    assert writing == {("site", "publish"), ("release", "publish"), ("release", "announce")}


def test_the_lock_has_each_tool_with_a_hash_and_names_no_host() -> None:
    extras = SETUP["options.extras_require"]
    wanted = "\n".join((SETUP["options"]["install_requires"], extras["dev"], extras["console"]))
    names = {re.split(r"[\s\[<>=]", line)[0].lower() for line in wanted.split("\n") if line}

    locked = re.findall(r"(?m)^([\w.-]+)(?:\[\w+\])?==\S+.*\\\n    --hash=sha256:", LOCK)

    assert {name.replace("_", "-") for name in names} <= set(locked)
    assert "://" not in LOCK
