"""The disk space of what retention removes is freed, and what is left is whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reliable_pubsub.proxy import store as store_module
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.core.records import Trimmed
from reliable_pubsub.proxy.store import Store
from reliable_pubsub.proxy.stored_state import FILE_NAME, read_state
from tests.fakes import NOW_NS, a_beginning, an_append

MESSAGES = 20_000
SPARE_PAGES = 64


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that keeps little to spare, so that some thousand messages show it."""
    monkeypatch.setattr(store_module, "SPARE_PAGES", SPARE_PAGES)


def filled(directory: Path) -> Store:
    """A store with many small batches, all of them in its file."""
    store = Store(directory, "os")
    store.commit(a_beginning())
    for first in range(0, MESSAGES, 1000):
        store.commit([an_append(base) for base in range(first, first + 1000)])
    return store


def trim(store: Store, start: int) -> None:
    store.commit([Trimmed(1, start, MESSAGES, NOW_NS + MESSAGES)])


def pages(store: Store, what: str) -> int:
    (count,) = store.connection.execute(f"PRAGMA {what}").fetchone()
    return int(count)


def file_bytes(store: Store) -> int:
    """The size of the file alone, after the write-ahead log is moved into it."""
    store.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return store.path.stat().st_size


@pytest.mark.usefixtures("small_steps")
class TestRemovedMessages:
    def test_give_their_space_back(self, tmp_path: Path) -> None:
        store = filled(tmp_path)
        before = file_bytes(store)

        trim(store, MESSAGES)

        assert before > 300 * 4096
        assert file_bytes(store) < (SPARE_PAGES + 32) * 4096
        store.close()

    def test_leave_something_to_spare_for_the_next_ones(self, tmp_path: Path) -> None:
        store = filled(tmp_path)

        trim(store, MESSAGES)

        assert pages(store, "freelist_count") == SPARE_PAGES
        store.close()

    def test_leave_a_quarter_of_a_large_file_free_so_that_nothing_is_moved_to_and_fro(
        self, tmp_path: Path
    ) -> None:
        store = filled(tmp_path)
        before = pages(store, "page_count")

        trim(store, MESSAGES // 8)

        assert pages(store, "page_count") == before
        store.close()

    def test_leave_the_others_as_they_were(self, tmp_path: Path) -> None:
        store = filled(tmp_path)
        trim(store, MESSAGES - 500)
        store.close()

        again = Store(tmp_path, "os")
        segments = check_store(again.connection).segments
        (topic,) = read_state(again.connection, segments).topics
        again.close()

        assert (topic.start, topic.end) == (MESSAGES - 500, MESSAGES)
        assert sum(segment.batches for segment in topic.segments) == 500

    def test_of_a_store_that_was_made_without_this_are_used_again(self, tmp_path: Path) -> None:
        """Its file does not shrink, and does not grow either."""
        store = filled(tmp_path)
        store.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        store.connection.execute("PRAGMA journal_mode = DELETE").fetchall()
        store.connection.execute("PRAGMA auto_vacuum = NONE")
        store.connection.execute("VACUUM")
        store.close()

        store = Store(tmp_path, "os")
        before = file_bytes(store)
        trim(store, MESSAGES)

        assert pages(store, "freelist_count") > SPARE_PAGES
        assert file_bytes(store) == before
        store.close()

    def test_without_space_for_that_it_is_left_for_later(self, tmp_path: Path) -> None:
        """The removal itself is durable, and no commit is said to have failed."""
        store = filled(tmp_path)
        store._opened = _Refusing(store.connection)  # type: ignore[assignment]

        trim(store, MESSAGES)

        assert pages(store, "freelist_count") > SPARE_PAGES
        store._opened = store._opened.connection  # type: ignore[union-attr]
        trim(store, MESSAGES)
        assert pages(store, "freelist_count") == SPARE_PAGES
        store.close()


class _Refusing:
    """A connection for which the disk is full when pages are moved."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)

    @property
    def executescript(self) -> Callable[[str], None]:
        def refuse(_: str) -> None:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

        return refuse


def test_the_file_of_a_store_is_made_so_that_it_can_end_earlier(tmp_path: Path) -> None:
    Store(tmp_path, "os").close()

    connection = sqlite3.connect(tmp_path / FILE_NAME)
    assert connection.execute("PRAGMA auto_vacuum").fetchone() == (2,)  # incremental
    connection.close()
