"""The committer: the background thread that makes records durable.

It takes every record that arrived during the last commit and writes them in one transaction.
The running fsync is the only batching window (group commit). It decides nothing: failures are
reported to the loop thread, which owns the state.
Source: "group commit", Gray and Reuter (1992), 10.3.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from msgspec import Struct

from .core.engine import Work
from .core.records import Record
from .store import Store


class Committed(Struct, frozen=True, gc=False):
    """Everything up to `lsn` is durable."""

    lsn: int


class Failed(Struct, frozen=True):
    """A commit failed; nothing after it is written, until `restart`."""

    error: Exception


class _Restart(Struct, frozen=True):
    """Records after this one are based on the durable state again."""


class _Stop(Struct, frozen=True):
    """No more work."""


class Committer:
    """Owns the writing connection from `start` to `close`."""

    def __init__(self, store: Store, *, wake: Callable[[], None], interval_s: float = 0.0) -> None:
        """Create a committer; `start` starts its thread.

        Args:
            wake: called from the thread when an outcome is available.
            interval_s: pause between commits (durability `snapshot`); 0: none.
        """
        self._store = store
        self._wake = wake
        self._interval_s = interval_s
        self._queue: SimpleQueue[Work | _Restart | _Stop] = SimpleQueue()
        self._stopping = threading.Event()
        self.outcomes: deque[Committed | Failed] = deque()
        self.commits = 0
        self.records = 0
        self.last_commit_s = 0.0
        self._thread = threading.Thread(target=self._run, name="committer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    # The loop thread's side.

    def submit(self, work: Work) -> None:
        """Queue records for the thread."""
        self._queue.put(work)

    def restart(self) -> None:
        """Continue after `Failed`: records from now on are based on what the store holds."""
        self._queue.put(_Restart())

    def close(self) -> None:
        """Write what is queued, end the thread."""
        self._stopping.set()
        self._queue.put(_Stop())
        if self._thread.is_alive():
            self._thread.join()

    # The thread's side.

    def _run(self) -> None:
        failed = False
        while True:
            work = self._take()
            records: list[Record] = []
            lsn = 0
            for item in work:
                if isinstance(item, _Restart):
                    failed = False
                    records = []
                elif isinstance(item, Work) and not failed:
                    records.extend(item.records)
                    lsn = item.lsn
            if records:
                failed = not self._commit(records, lsn)
            if isinstance(work[-1], _Stop):
                return
            if self._interval_s:
                self._stopping.wait(self._interval_s)

    def _take(self) -> list[Work | _Restart | _Stop]:
        """Wait for work; take all of it."""
        work = [self._queue.get()]
        while not isinstance(work[-1], _Stop) and not self._queue.empty():
            work.append(self._queue.get())  # no other thread takes, so this does not block
        return work

    def _commit(self, records: Sequence[Record], lsn: int) -> bool:
        begin_s = time.perf_counter()
        try:
            self._store.commit(records)
        except Exception as error:  # passed to the loop thread, which decides
            self.outcomes.append(Failed(error))
            self._wake()
            return False
        self.last_commit_s = time.perf_counter() - begin_s
        self.commits += 1
        self.records += len(records)
        self.outcomes.append(Committed(lsn))
        self._wake()
        return True
