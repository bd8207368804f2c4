"""The committer: makes records durable, all that are waiting in one transaction.

The running fsync is the only batching window (group commit). Where commits are fast the loop
thread commits itself, because handing over and waking cost more than the commit. A second thread
commits instead while commits are slow; and it runs the loop when a commit of the loop thread does
not end, so that a disk that hangs stops no GET (docs/decisions/0041). It decides nothing: failures
are reported to the loop, which owns the state.
Source: "group commit", Gray and Reuter (1992), 10.3; leader/followers, Schmidt, POSA 2 (2000).
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Final

from msgspec import Struct

from .core.outputs import Work
from .core.state import Record
from .core.storage import Storage

FEW_RECORDS: Final = 8  # with more, many clients put: the loop goes on while they are written
FAST_S: Final = 0.003  # after a commit that took longer the second thread commits
STALLS_S: Final = 0.05  # a commit of the loop that takes longer gives the loop to the second thread
WATCH_S: Final = 0.04  # between two checks whether one does
QUIET_LOOKS: Final = 25  # without a commit, then no more looks until the next one
# A commit takes 0.1 ms on a good SSD and some 10 ms on a magnetic disk; after 1 s waiting
# requests get BUSY (`EngineTiming.disk_patience_s`).
COMMIT_BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0),
)


class Committed(Struct, frozen=True, gc=False):
    """Everything up to `lsn` is durable."""

    lsn: int
    is_full: bool = False  # and no message can be stored


class CommitFailed(Struct, frozen=True):
    """A commit failed; nothing after it is written, until `restart`."""

    error: Exception


class _Restart(Struct, frozen=True):
    """Records after this one are based on the durable state again."""


class _Watch(Struct, frozen=True):
    """The loop has begun a commit of its own."""


class _Stop(Struct, frozen=True):
    """No more work."""


class Committer:
    """Owns the writing connection; used by the loop thread and the thread that calls `serve`."""

    def __init__(
        self, store: Storage, *, wake: Callable[[], None], interval_s: float = 0.0
    ) -> None:
        """Create a committer without work.

        Args:
            wake: called when an outcome is available that the loop does not know of.
            interval_s: pause between commits (durability `snapshot`), which are then never the
                loop's; 0: none.
        """
        self._store = store
        self._wake = wake
        self._interval_s = interval_s
        self.submitted: list[Work] = []  # of the loop: `commit` or `hand_over` makes it durable
        self._queue: SimpleQueue[Work | _Restart | _Watch | _Stop] = SimpleQueue()
        self._handed_over = self._done = 0  # items for the second thread
        self._failed = False
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self.outcomes: deque[Committed | CommitFailed] = deque()
        self.commits = 0
        self.records = 0
        self.last_commit_s = 0.0
        # Commits by what they took, each up to one of COMMIT_BOUNDS_S; the last: above all.
        self.by_duration = [0] * (len(COMMIT_BOUNDS_S) + 1)
        self.commits_s = 0.0  # duration of all of them
        # The loop's own commit, and who looks whether it ends.
        self._lock = threading.Lock()  # of the next two, at the end of that commit
        self._begun_s: float | None = None
        self._is_replaced = False
        self._begun_count = self._seen_count = self._quiet_looks = 0
        self._is_watched = False

    # The loop's side.

    def commit(self) -> bool:
        """Make durable what was submitted, here or by the second thread.

        Returns:
            False: it took so long that the second thread runs the loop now; call `serve`.
        """
        # Handing over costs more than it gains where there is little to do, and nothing waits.
        is_fast = not self._interval_s and self.last_commit_s <= FAST_S
        is_little = sum([len(work.records) for work in self.submitted]) <= FEW_RECORDS
        if not (is_fast and is_little and self._handed_over == self._done):
            self.hand_over()
            return True
        work, self.submitted = self.submitted, []
        self._begun_s = time.monotonic()
        self._begun_count += 1  # before the next line: see `_stalls`
        if not self._is_watched:
            self._is_watched = True
            self._queue.put(_Watch())
        self._carry_out(work)
        with self._lock:
            self._begun_s = None
            is_replaced, self._is_replaced = self._is_replaced, False
        if is_replaced:
            self._done += 1
            self._wake()
        return not is_replaced

    def hand_over(self) -> None:
        """Let the second thread commit what was submitted."""
        for work in self.submitted:
            self._handed_over += 1
            self._queue.put(work)
        self.submitted = []

    def restart(self) -> None:
        """Continue after `CommitFailed`: records from now on are based on what the store holds."""
        self.submitted = []
        self._handed_over += 1
        self._queue.put(_Restart())

    def close(self) -> None:
        """Write what was submitted, and end `serve`."""
        self.hand_over()
        self.stop()
        self._ended.wait()

    def stop(self) -> None:
        """End `serve` when it has written what it was handed over, without waiting for that."""
        self._stopping.set()
        self._queue.put(_Stop())

    # The second thread's side.

    def serve(self) -> bool:
        """Commit what is handed over.

        Returns:
            True: run the loop, whose thread is in a commit that does not end. False: the end.
        """
        while True:
            items = self._take()
            if not items:
                if self._stalls():
                    return True
                continue
            self._carry_out(items)
            done = sum(isinstance(item, Work | _Restart) for item in items)
            if done:
                self._done += done
                self._wake()
            if isinstance(items[-1], _Stop):
                self._ended.set()
                return False
            if self._interval_s:
                self._stopping.wait(self._interval_s)

    def _take(self) -> list[Work | _Restart | _Watch | _Stop]:
        """Wait for work and take all of it; nothing: it is time for a look."""
        try:
            items = [self._queue.get(timeout=WATCH_S if self._is_watched else None)]
        except Empty:
            return []
        while not isinstance(items[-1], _Stop) and not self._queue.empty():
            items.append(self._queue.get())  # no other thread takes, so this does not block
        return items

    def _stalls(self) -> bool:
        """Whether the loop's commit does not end; from then on the loop is the caller's."""
        with self._lock:
            if self._begun_s is not None and time.monotonic() - self._begun_s > STALLS_S:
                self._begun_s, self._is_replaced = None, True
                self._handed_over += 1  # that commit is now one of the second thread
                return True
        self._quiet_looks = self._quiet_looks + 1 if self._begun_count == self._seen_count else 0
        self._seen_count = self._begun_count
        if self._quiet_looks >= QUIET_LOOKS:
            self._is_watched = False
            # The loop counts, then asks whether it is watched: one of us two sees the other.
            self._is_watched = self._begun_count != self._seen_count
        return False

    # Both.

    def _carry_out(self, items: Sequence[Work | _Restart | _Watch | _Stop]) -> None:
        """One transaction for all; after a failure nothing, until a restart."""
        records: list[Record] = []
        lsn: int | None = None
        for item in items:
            if isinstance(item, _Restart):
                self._failed = False
                records, lsn = [], None
            elif isinstance(item, Work) and not self._failed:
                records.extend(item.records)
                lsn = item.lsn
        if lsn is None:
            return
        begin_s = time.perf_counter()
        try:
            self._store.commit(records)
        except Exception as error:  # passed to the loop, which decides
            self._failed = True
            self.outcomes.append(CommitFailed(error))
            return
        self.last_commit_s = time.perf_counter() - begin_s
        self.by_duration[bisect_left(COMMIT_BOUNDS_S, self.last_commit_s)] += 1
        self.commits_s += self.last_commit_s
        self.commits += 1
        self.records += len(records)
        self.outcomes.append(Committed(lsn, self._store.is_full))
