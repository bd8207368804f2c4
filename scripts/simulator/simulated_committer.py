"""`committer.py` of the proxy, with time as an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from reliable_pubsub.proxy.core.outputs import Work
from reliable_pubsub.proxy.core.state import Record

if TYPE_CHECKING:
    from .simulated_proxy import SimulatedProxy


Failure = Literal["full", "error"]  # of a commit: no space, or an I/O error


class _Restart(Struct, frozen=True):
    """Records after this one build on the durable state again."""


class SimulatedCommitter:
    """Takes a random time for a commit, and writes all that came meanwhile with the next one.

    One for each life of the proxy.
    """

    def __init__(self, proxy: SimulatedProxy) -> None:
        self._proxy = proxy
        self._queue: list[Work | _Restart] = []
        self._busy = False
        self._failed = False
        self.outcomes: deque[int | Failure] = deque()  # durable record number

    def submit(self, work: Work) -> None:
        """Commit it, with what else has come by then."""
        self._queue.append(work)
        self._begin()

    def restart(self) -> None:
        """After a failed commit."""
        self._queue.append(_Restart())
        self._begin()

    def _begin(self) -> None:
        if self._busy or not self._queue:
            return
        records: list[Record] = []
        lsn: int | None = None
        for item in self._queue:
            if isinstance(item, _Restart):
                self._failed = False
                records, lsn = [], None
            elif not self._failed:
                records.extend(item.records)
                lsn = item.lsn
        self._queue.clear()
        if lsn is not None:
            self._busy = True
            self._write(records, lsn)

    def _write(self, records: Sequence[Record], lsn: int) -> None:
        """Begin a commit."""
        self._proxy.later(self._proxy.commit_s(), lambda: self._finish(records, lsn))

    def _finish(self, records: Sequence[Record], lsn: int) -> None:
        self._proxy.point("before the commit")
        self._busy = False
        if self._proxy.storage_is_full() and any(one.batch is not None for one in records):
            self._failed = True  # what stores no message has a reserve
            self.outcomes.append("full")
        elif self._proxy.disk_fails():
            self._failed = True
            if self._proxy.world.random.random() < 0.5:
                self._proxy.store.commit(records)  # how far it came is unknown
            self.outcomes.append("error")
        else:
            self._proxy.store.commit(records)
            self.outcomes.append(lsn)
        self._heard()

    def _heard(self) -> None:
        """The outcome of a commit is known."""
        self._proxy.point("after the commit")
        self._proxy.later(self._proxy.wake_s(), self._proxy.take_outcomes)
        self._begin()
