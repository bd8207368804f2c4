"""The committer: whatever came while a commit ran is one commit (group commit)."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from reliable_pubsub.proxy.committer import Committed, Committer
from reliable_pubsub.proxy.core.engine import Work
from reliable_pubsub.proxy.core.records import Record
from tests.fakes import an_append

PATIENCE_S = 20.0


class HeldStore:
    """A store whose first commit lasts until the test lets it end."""

    def __init__(self) -> None:
        self.commits: list[int] = []  # records of each
        self.began = threading.Event()
        self.may_end = threading.Event()

    def commit(self, records: Sequence[Record]) -> None:
        """Take the records, slowly the first time."""
        self.commits.append(len(records))
        self.began.set()
        assert self.may_end.wait(PATIENCE_S)


def test_what_came_while_a_commit_ran_is_one_commit() -> None:
    """Row 1.5: this is where the rate of many clients comes from; one fsync is for all of them."""
    store = HeldStore()
    woken = threading.Semaphore(0)
    committer = Committer(store, wake=woken.release)  # type: ignore[arg-type]
    committer.start()
    committer.submit(Work([an_append(0)], 1))
    assert store.began.wait(PATIENCE_S)

    for lsn in range(2, 42):  # forty turns of the loop, each with the put of another client
        committer.submit(Work([an_append(lsn - 1)], lsn))
    store.may_end.set()

    assert all(woken.acquire(timeout=PATIENCE_S) for _ in range(2))
    committer.close()
    assert store.commits == [1, 40]
    assert list(committer.outcomes) == [Committed(1), Committed(41)]
    assert (committer.commits, committer.records) == (2, 41)
