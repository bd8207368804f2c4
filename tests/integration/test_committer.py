"""The committer: whatever came while a commit ran is one commit (group commit)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import Mock, patch

import pytest

from reliable_pubsub.proxy import committer as committer_module
from reliable_pubsub.proxy.committer import CommitFailed, Committed, Committer
from reliable_pubsub.proxy.core.outputs import Work
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.server import Server
from reliable_pubsub.proxy.server_settings import EndpointSettings, ServerSettings
from tests.fakes import NOW_NS, a_hello, an_append

from .harness import ANY_PORT, PATIENCE_S


class HeldStore:
    """A store whose first commit lasts until the test ends it."""

    is_full = False

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
    committer = Committer(store, wake=woken.release)
    second = threading.Thread(target=committer.serve)
    second.start()
    committer.submitted.append(Work([an_append(0)], 1))
    committer.hand_over()
    assert store.began.wait(PATIENCE_S)

    for lsn in range(2, 42):  # forty turns of the loop, each with the put of another client
        committer.submitted.append(Work([an_append(lsn - 1)], lsn))
        assert committer.commit(), "the loop waits for a commit of the second thread"
    store.may_end.set()

    assert all(woken.acquire(timeout=PATIENCE_S) for _ in range(2))
    committer.close()
    second.join()
    assert store.commits == [1, 40]
    assert list(committer.outcomes) == [Committed(1), Committed(41)]
    assert (committer.commits, committer.records) == (2, 41)


def test_a_commit_of_the_loop_that_hangs_gives_the_loop_to_the_second_thread() -> None:
    store = HeldStore()
    woken = threading.Semaphore(0)
    committer = Committer(store, wake=woken.release)
    continues: list[bool] = []

    def loop() -> None:
        committer.submitted.append(Work([an_append(0)], 1))
        continues.append(committer.commit())
        continues.append(committer.serve())

    first = threading.Thread(target=loop)
    first.start()

    assert committer.serve(), "it is not the loop now"
    committer.submitted.append(Work([an_append(1)], 2))
    assert committer.commit(), "the new loop waits for the commit that hangs"
    assert list(committer.outcomes) == []
    store.may_end.set()
    committer.close()
    first.join()

    assert continues == [False, False]
    assert store.commits == [1, 1]
    assert list(committer.outcomes) == [Committed(1), Committed(2)]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, commits are fast."""
    monkeypatch.setattr(committer_module, "FAST_S", 1000.0)


@pytest.mark.usefixtures("patient")
def test_the_loop_commits_itself_while_commits_are_fast() -> None:
    store = HeldStore()
    store.may_end.set()
    committer = Committer(store, wake=lambda: None)

    for lsn in range(1, 4):
        committer.submitted.append(Work([an_append(lsn - 1)], lsn))
        assert committer.commit()
        assert committer.outcomes.pop() == Committed(lsn)

    committer.submitted += [Work([an_append(3)], 4), Work([an_append(4)], 5)]  # of one turn
    assert committer.commit()
    assert committer.outcomes.pop() == Committed(5)
    committer.last_commit_s = 2 * committer_module.FAST_S
    committer.submitted.append(Work([an_append(5)], 6))
    assert committer.commit()
    assert store.commits == [1, 1, 1, 2], "the second thread has it"


@pytest.mark.usefixtures("patient")
def test_after_a_failure_nothing_is_written_until_the_restart() -> None:
    store = Mock()
    store.commit.side_effect = OSError("the disk is broken")
    committer = Committer(store, wake=lambda: None)

    committer.submitted.append(Work([an_append(0)], 1))
    assert committer.commit()
    store.commit.side_effect = None
    committer.submitted.append(Work([an_append(1)], 2))
    assert committer.commit()
    committer.submitted.append(Work([an_append(2)], 3))
    committer.restart()
    committer.submitted.append(Work([an_append(0)], 1))
    assert committer.commit()
    committer.stop()
    assert not committer.serve()

    assert [type(one) for one in committer.outcomes] == [CommitFailed, Committed]
    assert [list(call.args[0]) for call in store.commit.call_args_list] == [
        [an_append(0)],
        [an_append(0)],
    ]


def a_server(data_dir: Path, warn: Callable[[str], None] = lambda _: None) -> Server:
    endpoint = EndpointSettings(endpoint=ANY_PORT)
    settings = ServerSettings(
        data_dir=data_dir,
        publisher_endpoint=ANY_PORT,
        subscriber_endpoint=ANY_PORT,
        push=endpoint,
        ingress=endpoint,
    )
    return Server(settings, warn=warn)


def test_the_log_says_once_each_time_that_a_program_holds_the_write_ahead_log(
    tmp_path: Path,
) -> None:
    told: list[str] = []
    server = a_server(tmp_path, told.append)

    for held_bytes in (0, 9, 9, 0, 9):
        server._store.wal_held_bytes = held_bytes
        server._look_at_wal()
    server._close()

    assert len(told) == 2
    assert "because another program reads the store" in told[0]


def test_the_log_says_once_that_a_full_disk_can_be_written_again(tmp_path: Path) -> None:
    told: list[str] = []
    server = a_server(tmp_path, told.append)
    for is_full in (True, True, False, False):
        server._committer.outcomes.append(Committed(0, is_full))
        server._take_outcomes()
    server._close()

    assert "puts are refused (STORAGE_FULL)" in told[0]
    assert told[1:] == ["the store can be written again: puts continue"]


def test_what_an_earlier_commit_made_durable_is_answered_before_a_failure_ends_the_proxy(
    tmp_path: Path,
) -> None:
    """The simulated proxy does so too: a shell carries out in the order of the engine."""
    server, client = a_server(tmp_path), Mock()
    server.endpoints.poll = Mock()
    server.engine.handle(a_hello("publisher", "p"), b"", client, now_s=0.0, now_ns=NOW_NS)
    server._committer.outcomes += [Committed(1), CommitFailed(OSError("the disk is broken"))]

    with pytest.raises(OSError, match="broken"):
        server._take_outcomes()

    client.answer.assert_called_once()
    server._close()


def test_durations_of_commits_are_counted_up_to_their_bound_inclusive() -> None:
    committer = Committer(Mock(), wake=Mock())
    for taken_s in (0.0625, 0.125, 0.5, 16.0):
        with (
            patch.object(committer_module, "COMMIT_BOUNDS_S", (0.125, 1.0)),
            patch("time.perf_counter", side_effect=(0.0, taken_s)),
        ):
            committer.submitted.append(Work([an_append(0)], 1))
            committer.last_commit_s = 0.0  # so that the loop commits
            committer.commit()

    assert committer.by_duration[:3] == [2, 1, 1]
    assert committer.commits_s == 16.6875
