"""A store of an older version is upgraded when it is opened, and a copy of it is kept."""

from __future__ import annotations

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from reliable_pubsub.common.core.actions import Pause
from reliable_pubsub.common.core.errors import DamagedError, StorageFailedError
from reliable_pubsub.proxy import upgrade
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.core.schema import SCHEMA_VERSION
from reliable_pubsub.proxy.core.stored import StoredState
from reliable_pubsub.proxy.store import Store
from reliable_pubsub.proxy.stored_state import open_reader, read_state
from tests.fakes import MemoryLog, MemoryProxy, an_action

# Made by the program of version 3: publisher p has put three messages to t, subscriber s has
# acknowledged two, r has unsubscribed.
VERSION_3 = gzip.decompress((Path(__file__).parent / "version_3.sqlite3.gz").read_bytes())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory as version 3 left it."""
    (tmp_path / "proxy.sqlite3").write_bytes(VERSION_3)
    return tmp_path


def version_of(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def state_of(store: Store) -> StoredState:
    return read_state(store.connection, check_store(store.connection).segments)


def test_it_holds_what_it_held_and_takes_the_new_records(directory: Path) -> None:
    with closing(Store(directory, "sync")) as store:
        state = state_of(store)
        (topic,) = state.topics
        proxy = MemoryProxy(state, log=MemoryLog())
        proxy.decide(an_action(Pause(reason="disk"), number=1))
        store.commit(proxy.uncommitted)
        paused = state_of(store).paused

    assert (topic.topic, topic.start, topic.end) == ("t", 0, 3)
    cursors = {one.subscriber: (one.cursor, one.active) for one in topic.subscriptions}
    assert cursors == {"s": (2, True), "r": (0, False)}
    assert (state.actions, state.paused, paused) == ([], None, "disk")
    assert version_of(directory / "proxy.sqlite3") == SCHEMA_VERSION


def test_a_copy_of_the_old_one_is_kept_beside_it(directory: Path) -> None:
    Store(directory, "sync").close()

    copy = directory / "proxy.sqlite3.version-3"
    assert version_of(copy) == 3
    with closing(open_reader(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM batch").fetchone() == (3,)


def test_it_is_upgraded_once(directory: Path) -> None:
    Store(directory, "sync").close()
    made = (directory / "proxy.sqlite3.version-3").stat().st_mtime_ns

    Store(directory, "sync").close()

    assert (directory / "proxy.sqlite3.version-3").stat().st_mtime_ns == made


def test_one_whose_tables_were_changed_is_refused_and_left_as_it_is(directory: Path) -> None:
    file = directory / "proxy.sqlite3"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE mine (x)")

    with pytest.raises(DamagedError, match="not as version 3 made them"):
        Store(directory, "sync")

    assert version_of(file) == 3


def test_where_the_copy_cannot_be_written_nothing_is_changed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(upgrade, "sync_file", fails)

    with pytest.raises(StorageFailedError, match="No space left"):
        Store(directory, "sync")

    assert version_of(directory / "proxy.sqlite3") == 3
    assert not (directory / "proxy.sqlite3.version-3").exists()


def test_one_of_a_version_that_is_not_known_is_refused(directory: Path) -> None:
    with closing(sqlite3.connect(directory / "proxy.sqlite3")) as connection:
        connection.execute("PRAGMA user_version = 2")

    with pytest.raises(DamagedError, match="schema version 2"):
        Store(directory, "sync")
