"""The store: a commit is all or nothing, and what was committed is there again (P1, R15)."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import DamagedError, InUseError, StorageFailedError
from reliable_pubsub.common.core.limits import KIB
from reliable_pubsub.common.core.message_base import Durability
from reliable_pubsub.common.core.transaction_messages import TopicReceipt
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.core.records import Trimmed
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.core.storage import StorageFullError
from reliable_pubsub.proxy.core.stored import (
    StoredPublisher,
    StoredState,
    StoredSubscription,
)
from reliable_pubsub.proxy.core.subscription_records import CursorMoved, Subscribed, Unsubscribed
from reliable_pubsub.proxy.reserve import RESERVE_NAME, Reserve
from reliable_pubsub.proxy.store import MARK_NAME, WAL_BYTES, Store
from reliable_pubsub.proxy.stored_state import FILE_NAME, open_reader, read_state
from reliable_pubsub.proxy.transactions.records import TransactionCommitted
from reliable_pubsub.proxy.transactions.staging import StoredTransaction
from tests.fakes import (
    LOG,
    NONCE,
    NOW_NS,
    a_beginning,
    a_broker,
    a_stage,
    an_append,
    put_body,
)


@contextmanager
def a_store(directory: Path) -> Iterator[Store]:
    """The store of a directory, open."""
    store = Store(directory, "os")  # without fsync, which no test can tell
    try:
        yield store
    finally:
        store.close()


def stored_in(directory: Path) -> StoredState:
    """What the next proxy in this directory begins with, checked."""
    with a_store(directory) as store:
        return read_state(store.connection, check_store(store.connection).segments)


def committed(directory: Path, *commits: list[Record]) -> None:
    """Make a store with these commits in it."""
    with a_store(directory) as store:
        for records in commits:
            store.commit(records)


class TestACommit:
    def test_is_there_when_the_store_is_opened_again(self, tmp_path: Path) -> None:
        committed(tmp_path, a_beginning(), [an_append(0, count=3), an_append(3)])

        (topic,) = stored_in(tmp_path).topics

        assert (topic.topic, topic.log, topic.start, topic.end) == ("t", LOG, 0, 4)
        assert topic.timestamp_ns == NOW_NS + 3
        assert list(topic.publishers) == [StoredPublisher("p", 4, 1, 3, an_append(3).crc)]

    def test_is_there_in_the_log_before_it_is_in_the_file(self, tmp_path: Path) -> None:
        """P1: a proxy that is killed leaves its commits, though it closes nothing."""
        with a_store(tmp_path / "running") as store:
            store.commit(a_beginning())
            store.commit([an_append(0)])
            shutil.copytree(tmp_path / "running", tmp_path / "killed")

        (topic,) = stored_in(tmp_path / "killed").topics

        assert topic.end == 1

    @pytest.mark.parametrize(
        ("durability", "synchronous"), [("sync", 2), ("os", 1), ("snapshot", 1)]
    )
    def test_waits_for_the_disk_at_durability_sync_and_at_no_other(
        self, tmp_path: Path, durability: Durability, synchronous: int
    ) -> None:
        """Row 1.42. SQLite's 2 is FULL (each commit is synced), 1 is NORMAL (none is)."""
        store = Store(tmp_path, durability)
        found = store.connection.execute("PRAGMA synchronous").fetchone()
        store.close()

        assert found == (synchronous,)

    def test_is_all_or_nothing_wherever_it_is_killed(self, tmp_path: Path) -> None:
        """H14: queues, cursors and numbers are one cut; a kill between two statements shows it."""
        records: list[Record] = [
            *(an_append(base, body=b"x" * 50 * KIB) for base in range(100)),
            Subscribed(1, "s", 1, 7, 1, NONCE, 1),
        ]
        copies: list[Path] = []

        def kill_here(_statement: str) -> None:
            copies.append(tmp_path / f"killed-{len(copies)}")
            shutil.copytree(tmp_path / "running", copies[-1])

        with a_store(tmp_path / "running") as store:
            store.commit(a_beginning())
            store.connection.set_trace_callback(kill_here)
            store.commit(records)
            store.connection.set_trace_callback(None)
            kill_here("after the commit")

        states = [stored_in(copy) for copy in copies]
        assert len(states) > 5
        assert all(state == states[0] for state in states[:-1])
        assert states[0].topics[0].end == 0
        assert states[-1].topics[0].end == 100
        assert states[-1].topics[0].subscriptions == [StoredSubscription("s", 1, 7, True)]

    def test_that_stages_writes_nothing(self, tmp_path: Path) -> None:
        """What is staged is in memory: docs/decisions/0017."""
        proxy = a_broker()
        with a_store(tmp_path) as store:
            proxy.decide(a_stage(1), put_body(1))
            store.commit(proxy.uncommitted)
            before = store.connection.total_changes
            proxy.decide(a_stage(1, 1), put_body(1))
            store.commit(proxy.uncommitted[-1:])

            assert store.connection.total_changes == before

    def test_of_a_transaction_is_known_when_the_store_is_opened_again(self, tmp_path: Path) -> None:
        receipts = (TopicReceipt("t", 1, 3, 0),)
        one = TransactionCommitted("p", 7, b"content1", receipts)
        committed(tmp_path, a_beginning(), [one], [replace(one, transaction=9, digest=b"")])

        assert stored_in(tmp_path).of(StoredTransaction) == [
            StoredTransaction("p", 9, b"", receipts)
        ]

    def test_that_fails_leaves_no_trace(self, tmp_path: Path) -> None:
        """The last of fifty batches is one that stands there already."""
        committed(tmp_path, a_beginning(), [an_append(0)])
        before = stored_in(tmp_path)

        with a_store(tmp_path) as store, pytest.raises(StorageFailedError, match="commit failed"):
            store.commit([*(an_append(base) for base in range(1, 50)), an_append(0)])

        assert stored_in(tmp_path) == before

    def test_that_fails_keeps_the_log_of_no_store_that_is_closed_although_its_error_is_kept(
        self, tmp_path: Path
    ) -> None:
        """A cursor in its traceback kept it: SQLite deleted the log later, and it was missed."""
        with a_store(tmp_path) as store:
            store.commit([*a_beginning(), an_append(0)])
            with pytest.raises(StorageFailedError) as failed:
                store.commit([an_append(0)])

        assert not (tmp_path / f"{FILE_NAME}-wal").exists()
        assert failed.value is not None

    def test_takes_no_sequence_of_a_publisher_twice(self, tmp_path: Path) -> None:
        """P2: the store itself refuses a second copy, at whatever offset."""
        committed(tmp_path, a_beginning(), [an_append(0)])

        with a_store(tmp_path) as store, pytest.raises(StorageFailedError):
            store.commit([an_append(1, sequence=1)])

    def test_keeps_the_last_word_on_each_cursor_and_session(self, tmp_path: Path) -> None:
        committed(
            tmp_path,
            a_beginning(),
            [
                Subscribed(1, "s", 1, 0, 1, NONCE, 1),
                CursorMoved(1, "s", 1, 3, False),
                CursorMoved(1, "s", 1, 5, True, shown=9),
            ],
            [Unsubscribed(1, "s", 1, 5, 1, NONCE, 2)],
        )

        state = stored_in(tmp_path)

        assert state.topics[0].subscriptions == [StoredSubscription("s", 1, 5, False, shown=5)]
        assert [(s.client, s.control) for s in state.sessions] == [("p", 0), ("s", 2)]

    def test_that_trims_keeps_the_end_of_an_emptied_topic(self, tmp_path: Path) -> None:
        """H16: offsets and timestamps continue where they were, though no batch is left."""
        committed(
            tmp_path,
            a_beginning(),
            [an_append(0), an_append(1)],
            [Trimmed(1, 2, 2, NOW_NS + 1)],
        )

        (topic,) = stored_in(tmp_path).topics

        assert (topic.start, topic.end, topic.timestamp_ns) == (2, 2, NOW_NS + 1)
        assert list(topic.segments) == []


class TestAFullDisk:
    def test_is_reported_and_leaves_no_trace(self, tmp_path: Path) -> None:
        """P6: a commit that finds no space is no commit."""
        committed(tmp_path, a_beginning(), [an_append(0)])
        before = stored_in(tmp_path)

        with a_store(tmp_path) as store:
            (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
            store.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
            with pytest.raises(StorageFullError):
                store.commit([an_append(1), an_append(2, body=b"x" * 100 * KIB)])
            after = read_state(store.connection, check_store(store.connection).segments)

        assert after == before == stored_in(tmp_path)

    def test_is_over_when_there_is_space_again(self, tmp_path: Path) -> None:
        committed(tmp_path, a_beginning())
        big = an_append(0, body=b"x" * 100 * KIB)

        with a_store(tmp_path) as store:
            (pages,) = store.connection.execute("PRAGMA page_count").fetchone()
            store.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
            with pytest.raises(StorageFullError):
                store.commit([big])
            store.connection.execute("PRAGMA max_page_count = 1000000")
            assert store.is_full
            store.commit([])  # look again
            store.commit([big])
            assert not store.is_full

        assert stored_in(tmp_path).topics[0].end == 1

    def test_lasts_while_no_descriptor_is_free_for_the_reserve(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_descriptor(*_: object) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        with a_store(tmp_path), monkeypatch.context() as out_of_descriptors:
            (tmp_path / RESERVE_NAME).unlink()
            out_of_descriptors.setattr("os.open", no_descriptor)

            assert not Reserve(tmp_path).make()


class TestADirectory:
    def test_belongs_to_one_proxy_at_a_time(self, tmp_path: Path) -> None:
        with a_store(tmp_path), pytest.raises(InUseError) as caught:
            Store(tmp_path, "os")

        assert caught.value.path == str(tmp_path)

    def test_is_free_again_after_its_proxy(self, tmp_path: Path) -> None:
        committed(tmp_path, a_beginning())

        assert len(stored_in(tmp_path).topics) == 1

    def test_is_free_again_after_a_proxy_that_refused_it(self, tmp_path: Path) -> None:
        (tmp_path / MARK_NAME).touch()
        with pytest.raises(DamagedError):
            Store(tmp_path, "os")
        (tmp_path / MARK_NAME).unlink()

        assert stored_in(tmp_path).topics == []

    def test_can_be_read_by_its_owner_only(self, tmp_path: Path) -> None:
        with a_store(tmp_path / "new"):
            directory = stat.S_IMODE((tmp_path / "new").stat().st_mode)
            file = stat.S_IMODE((tmp_path / "new" / FILE_NAME).stat().st_mode)

        assert (directory, file) == (0o700, 0o600)

    def test_gives_every_store_an_identity_of_its_own(self, tmp_path: Path) -> None:
        """R14: a log id begins with it, so another data directory shows."""
        first, second = stored_in(tmp_path / "a"), stored_in(tmp_path / "b")

        assert first.store_id != second.store_id
        assert stored_in(tmp_path / "a").store_id == first.store_id


class TestAStoreThatIsNotWhole:
    def test_is_refused_if_the_file_is_gone(self, tmp_path: Path) -> None:
        """H13: a proxy does not begin again where it had a store before."""
        committed(tmp_path, a_beginning())
        (tmp_path / FILE_NAME).unlink()

        with pytest.raises(DamagedError, match="is missing"):
            Store(tmp_path, "os")

    def test_is_refused_if_the_file_is_empty(self, tmp_path: Path) -> None:
        """H15: an empty file after a power loss is damage, not a new store."""
        committed(tmp_path, a_beginning())
        (tmp_path / FILE_NAME).write_bytes(b"")

        with pytest.raises(DamagedError):
            Store(tmp_path, "os").close()

    @pytest.mark.parametrize("content", [b"x" * 5000, b"SQLite format 3\x00" + b"\xff" * 5000])
    def test_is_refused_if_the_file_is_something_else(self, tmp_path: Path, content: bytes) -> None:
        """H15: whatever stands there is never executed and never written over."""
        (tmp_path / FILE_NAME).write_bytes(content)

        with pytest.raises(DamagedError):
            Store(tmp_path, "os")

        assert (tmp_path / FILE_NAME).read_bytes() == content

    def test_is_refused_if_it_was_cut_short(self, tmp_path: Path) -> None:
        """H15: a file that lost its tail."""
        committed(tmp_path, a_beginning(), [an_append(0, body=b"x" * 100 * KIB)])
        file = tmp_path / FILE_NAME
        file.write_bytes(file.read_bytes()[: 40 * KIB])

        with pytest.raises(DamagedError):
            stored_in(tmp_path)


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    with a_store(tmp_path) as store:
        reader = open_reader(store.path)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader.execute("DELETE FROM meta")
        reader.close()


# The same state, on disk and in memory.


def test_the_log_is_moved_into_the_file_again_and_again(tmp_path: Path) -> None:
    """The store does it itself, because SQLite keeps an error of its own checkpoint to itself."""
    body = b"x" * 900 * KIB
    with a_store(tmp_path) as store:
        store.commit(a_beginning())
        before = store.path.stat().st_size
        for offset in range(24):
            store.commit([an_append(offset, body=body)])
        moved = store.path.stat().st_size - before
        log = Path(f"{store.path}-wal").stat().st_size

    assert moved > 10 * len(body)
    assert log < 2 * WAL_BYTES
