"""Fixtures of the tests with real processes."""

from __future__ import annotations

import os
import random
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from .harness import Service

SEED_VARIABLE = "TEST_SEED"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service in an empty directory; nothing runs yet, and nothing will be left."""
    service = Service(tmp_path)
    try:
        yield service
    finally:
        service.close()
    service.check_no_traceback()


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Chance with a seed that a failing test shows, and that can be given again."""
    seed = int(os.environ.get(SEED_VARIABLE) or secrets.randbits(32))
    request.node.add_report_section("call", "seed", f"the same moments: {SEED_VARIABLE}={seed}")
    return random.Random(seed)
