"""How the tests run: in any order and number of processes, however busy the machine is, and
whatever the person who runs them has set.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from hypothesis import settings

from reliable_pubsub.common.core.settings import ENVIRONMENT_PREFIX

from .costs import Costs

for name in [name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX)]:
    del os.environ[name]

# More examples than these have found nothing for long; `--hypothesis-profile long` looks again.
settings.register_profile("house", deadline=None, max_examples=25)
settings.register_profile("quick", deadline=None, max_examples=15)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.load_profile("house")

# What waits longest begins first; the rest fills the gaps.
_FIRST = ("tests/pipeline/test_kills", "tests/pipeline", "tests/integration", "tests/simulation")

# Tests that share what is made once, or that would cost too much side by side. By node id, because
# the process that distributes tests knows nothing else of them.
_TOGETHER = (
    # Each starts one Java after another; in one row they would take longest of all.
    ("tests/pipeline/test_kills.py::test_a_copy", "kills of copies"),
    ("tests/pipeline/test_kills.py", "kills"),
    ("tests/pipeline/", "spark"),
    ("tests/lab/test_report.py", "report"),
    ("tests/store/test_damage_sweep.py", "damage"),
    ("tests/test_architecture.py", "architecture"),  # each file is parsed once
    ("tests/test_docs.py", "docs"),  # likewise
    *(
        (f"tests/integration/test_{name}.py", name)
        for name in ("explain", "hostile", "lab", "packaging", "system_calls")
    ),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add an option for what the files cost."""
    parser.addoption("--costs", type=int, default=0, help="show so many of the dearest test files")


def pytest_configure(config: pytest.Config) -> None:
    """Measure, if asked to and where the system tells."""
    if (shown := config.getoption("costs")) and sys.platform == "linux":
        config.pluginmanager.register(Costs(shown))


def _group(nodeid: str) -> str:
    """What is run by one process, one test after another."""
    if "_in_a_browser" in nodeid:
        return "browser"
    return next((group for place, group in _TOGETHER if nodeid.startswith(place)), nodeid)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by how long they wait, and see that what is shared is in a group."""
    items.sort(key=_rank)
    for item in items:
        if _shares(item) and _group(item.nodeid) == item.nodeid:
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
            return _group(nodeid)

    return ByGroup(config, log)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failed test at once: the rest may take minutes."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid}", flush=True)  # noqa: T201
