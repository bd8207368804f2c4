"""How the tests run: in any order and number of processes, however busy the machine is, and
whatever the person who runs them has set.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from reliable_pubsub.common.core.settings import ENVIRONMENT_PREFIX
from reliable_pubsub.lab.rig.child_process import ChildProcess

from .costs import Costs
from .integration.fork_server import forking, helper

if sys.platform == "linux":
    ChildProcess.execute = forking(helper)

for name in [name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX)]:
    del os.environ[name]

# More examples than these have found nothing for long; `--hypothesis-profile long` looks again.
settings.register_profile("house", deadline=None, max_examples=25)
settings.register_profile("quick", deadline=None, max_examples=15)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.load_profile("house")

# What waits longest begins first, and what one process has to do for long; the rest fills the gaps.
_FIRST = (
    *("tests/pipeline/test_kills", "tests/pipeline", "tests/integration/test_lab"),
    *("tests/integration/test_console", "tests/core/test_every_exit"),
    *("tests/core/test_group_handlers", "tests/wire/test_fuzz", "tests/integration"),
    "tests/simulation",
)

# Thousands of tests that take milliseconds. Handed out one by one they cost the process that
# distributes them 12 s of CPU: for each, it counts all that a worker had before.
_BY_FILE = ("tests/core/", "tests/lab/", "tests/relay/", "tests/store/", "tests/wire/")

# Tests that share what is made once, or that would cost too much side by side. By node id, because
# the process that distributes tests knows nothing else of them.
_TOGETHER = (
    ("tests/pipeline/test_kills.py", "kills"),  # each starts one Java after another
    ("tests/pipeline/", "spark"),
    ("tests/lab/test_report.py", "report"),
    ("tests/store/test_damage_sweep.py", "damage"),
    ("tests/test_architecture.py", "architecture"),  # each file is parsed once
    ("tests/test_docs.py", "docs"),  # likewise
    ("tests/test_site.py", "site"),
    *(
        (f"tests/integration/test_{name}.py", name)
        for name in (
            "console",
            "containers",
            "explain",
            "hostile",
            "installing",
            "lab",
            "packaging",
            "system_calls",
        )
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option for what the files cost."""
    parser.addoption("--costs", type=int, default=0, help="show so many of the dearest test files")


def pytest_configure(config: pytest.Config) -> None:
    """Measure, if asked to and where the system can; have workers share the compiling."""
    if (shown := config.getoption("costs")) and sys.platform == "linux":
        config.pluginmanager.register(Costs(shown))
    if worker := getattr(config, "workerinput", None):
        number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
        config.args = turned(config.args, config.invocation_params.dir, number, count)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for garbage neither while tests are collected nor, later, in what was collected."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def turned(args: Sequence[str], start: Path, number: int, count: int) -> list[str]:
    """What one worker of xdist collects in a fresh clone: all test files, from another one on.

    Every worker collects every file, and compiles what was not compiled yet. In one order they
    would all compile the same file at the same time; like this each compiles its share and finds
    that of the others done.

    Args:
        args: what to collect. It stays as it is if it names single tests, or if the first file of
            the share was compiled before: many names cost a worker a second.
        start: where relative paths begin.
        number, count: which worker of how many.
    """
    places = [start / arg for arg in args]
    if not all(place.exists() for place in places):
        return list(args)
    files = [
        str(file)
        for place in places
        for file in (sorted(place.rglob("test_*.py")) if place.is_dir() else [place])
    ]
    first = len(files) * (number % count) // count  # one that replaces another has a new number
    if not files or is_compiled(Path(files[first])):
        return list(args)
    return files[first:] + files[:first]


def is_compiled(file: Path) -> bool:
    """Whether pytest has kept a compiled module of a test file."""
    return any((file.parent / "__pycache__").glob(f"{file.stem}.*-pytest-*"))


def group_of(nodeid: str) -> str:
    """What is run by one process, one test after another."""
    if "_in_a_browser" in nodeid:
        return "browser"
    alone = nodeid.partition("::")[0] if nodeid.startswith(_BY_FILE) else nodeid
    return next((group for place, group in _TOGETHER if nodeid.startswith(place)), alone)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by how long they wait, and see that what is shared is in a group.

    Files come by name, so that workers who collected them in turn agree on one order.
    """
    items.sort(key=lambda item: (_rank(item), item.nodeid.partition("::")[0]))
    for item in items:
        if _shares(item) and group_of(item.nodeid) == item.nodeid:
            raise pytest.UsageError(f"{item.nodeid} shares a fixture: name its file in _TOGETHER")


def _rank(item: pytest.Item) -> int:
    return next((n for n, place in enumerate(_FIRST) if item.nodeid.startswith(place)), len(_FIRST))


def _shares(item: pytest.Item) -> bool:
    definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    scopes = {one.scope for found in definitions.values() for one in found}
    return "module" in scopes or "spark" in getattr(item, "fixturenames", ())


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give tests to processes by their groups. `--dist loadgroup` does nothing under pytest 9.2."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # untyped
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failed test at once: the rest may take minutes."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid}", flush=True)  # noqa: T201
