"""The fixtures that pytest finds wherever this package is installed: entry point `pytest11`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # every run of pytest imports this module
    from .memory_broker import MemoryBroker
    from .process_broker import ProcessBroker


@pytest.fixture
def memory_broker() -> Iterator[MemoryBroker]:
    """Serve every client of the test from memory."""
    from .memory_broker import MemoryBroker

    with MemoryBroker() as broker, broker.serving():
        yield broker


@pytest.fixture
def process_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessBroker]:
    """Serve every client of the test from a process."""
    from .process_broker import ProcessBroker

    with ProcessBroker(tmp_path_factory.mktemp("broker")) as broker, broker.serving():
        yield broker
