"""The jobs as commands: in processes of their own, each with a Spark of its own, or here.

A start of Spark costs 15 s of CPU, so only what is killed or stopped has one of its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest
from click.testing import CliRunner

from reliable_pubsub.pipeline.__main__ import main
from tests.integration.harness import Process, Service, children, eventually

from .quick_java import java_options

BUSY_S = 900.0  # for a Spark to start and to do something, on a machine that has other work
JAVA_SAYS = "WARNING: Using incubator modules: jdk.incubator.vector\n"


class Jobs:
    """`reliable-pubsub pipeline ...` against a running proxy, in the directory of its service."""

    def __init__(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """The endpoints stand in `pipeline/settings.json`, where every job looks."""
        self._service = service
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", java_options())
        self.endpoints()

    def endpoints(self, *, publisher: str = "", subscriber: str = "") -> None:
        """Where the next jobs find the proxy; by default where it is."""
        settings = {
            "publisher_endpoint": publisher or self._service.publisher_endpoint,
            "subscriber_endpoint": subscriber or self._service.subscriber_endpoint,
            "ack_timeout": 2,
            "send_retries": 300,
        }
        path = self._service.directory / "pipeline" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(settings))

    def start(self, *words: str | Path) -> Process:
        """Start a job, and continue."""
        return self._service.run("pipeline", *words)

    def start_dying(self, place: str, call: int, *words: str | Path) -> Process:
        """Start a job that is killed before a call of one of its functions; see `dying`."""
        command = [sys.executable, "-m", "tests.pipeline.dying", place, str(call), "pipeline"]
        return self._service.run_command("dying", [*command, *map(str, words)])

    def run(self, *words: str | Path, exit_code: int = 0) -> Process:
        """Run a job to its end."""
        process = self.start(*words)
        assert end_of(process) == exit_code, process.stderr
        return process


def run_here(service: Service, *words: str | Path) -> str:
    """Run a job to its end in this process, with `jobs_in_this_spark`; return what it says."""
    with chdir(service.directory):
        done = CliRunner().invoke(main, [*map(str, words)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@contextmanager
def stopped_when(condition: Callable[[], bool], what: str) -> Iterator[None]:
    """Send SIGTERM to this process when something is so, to end the job that runs here."""
    over = Event()

    def look() -> None:
        try:
            eventually(lambda: over.is_set() or condition(), what, timeout_s=BUSY_S)
        finally:
            if not over.is_set():
                os.kill(os.getpid(), signal.SIGTERM)

    thread = Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def end_of(process: Process) -> int:
    """Wait for the end of a job; return its exit code."""
    eventually(lambda: process.exit_code is not None, f"end of {process}", timeout_s=BUSY_S)
    return process.wait()


def java_of(process: Process) -> int:
    """The Java of a job: the child of its Python."""

    def look() -> int | None:
        for child in children(process.pid):
            if "java" in Path(f"/proc/{child}/cmdline").read_text():
                return child
        return None

    return eventually(look, f"Java of {process}", timeout_s=BUSY_S)


def kill_with_its_java(process: Process) -> None:
    """kill -9 the Python of a job and its Java."""
    java = java_of(process)
    process.kill()
    os.kill(java, signal.SIGKILL)
