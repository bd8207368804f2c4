"""How the tests run: in any order and number of processes, however busy the machine is, and
whatever the person who runs them has set.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from reliable_pubsub.common.settings import ENVIRONMENT_PREFIX

for name in [name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX)]:
    del os.environ[name]

# More examples than these have found nothing for long; `--hypothesis-profile long` looks again.
settings.register_profile("house", deadline=None, max_examples=40)
settings.register_profile("quick", deadline=None, max_examples=15)
settings.register_profile("long", deadline=None, max_examples=1000)
settings.load_profile("house")

# What waits longest begins first; the rest fills the gaps.
_FIRST = ("tests/pipeline/test_kills", "tests/pipeline", "tests/integration", "tests/simulation")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order tests by how long they wait, and tell xdist which belong together."""
    items.sort(key=_rank)
    if config.pluginmanager.hasplugin("xdist"):
        for number, item in enumerate(items):
            if group := _group(item, number):
                item.add_marker(pytest.mark.xdist_group(group))


def _rank(item: pytest.Item) -> int:
    return next((n for n, place in enumerate(_FIRST) if item.nodeid.startswith(place)), len(_FIRST))


def _group(item: pytest.Item, number: int) -> str | None:
    """Tests that must not run in two processes: they share what is made once, or cost too much."""
    fixtures = getattr(item, "fixturenames", ())
    if "spark" in fixtures:
        return "spark"
    if "jobs" in fixtures:  # each starts one Java after another, and waits for them
        return f"java-{number % 2}"
    if "_in_a_browser" in item.nodeid:
        return "browser"
    definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    of_a_module = any(one.scope == "module" for found in definitions.values() for one in found)
    return item.nodeid.split("::")[0] if of_a_module else None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Name a failed test at once: the rest may take minutes."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\nFAILED {report.nodeid}", flush=True)  # noqa: T201
