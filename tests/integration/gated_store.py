"""A store whose commits wait for the test: a disk that hangs, or is full."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.core.storage import StorageFullError
from reliable_pubsub.proxy.store import Store

from .harness import PATIENCE_S


class GatedStore:
    """Commits of the store wait at a gate, and may find the disk full after it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.reached = threading.Event()
        self.is_full = False
        self.warnings: list[str] = []  # of the proxy
        commit = Store.commit

        def gated(store: Store, records: Sequence[Record]) -> None:
            self.reached.set()
            self.gate.wait(PATIENCE_S)
            if self.is_full:
                raise StorageFullError("no space")
            commit(store, records)

        monkeypatch.setattr(Store, "commit", gated)

    def hang(self) -> None:
        """From here on no commit ends, until the gate is set."""
        self.gate.clear()
        self.reached.clear()

    def reach(self) -> None:
        """Wait until a commit waits."""
        assert self.reached.wait(PATIENCE_S)
