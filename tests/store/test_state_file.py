"""A client's state: all values of a write or none, locked, and refused when it is damaged."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reliable_pubsub.common.core.client_state import MemoryState
from reliable_pubsub.common.core.errors import (
    ConfigurationError,
    DamagedError,
    InUseError,
    InvalidNameError,
    StorageFailedError,
)
from reliable_pubsub.common.state_file import StateFile, open_state


def reopened(state: StateFile) -> dict[str, bytes]:
    """What the next process with this id finds."""
    directory = state.path.parent
    state.close()
    with_next = StateFile(directory, "publisher", "p")
    values = with_next.load()
    with_next.close()
    return values


def a_state(directory: Path) -> StateFile:
    return StateFile(directory, "publisher", "p")


class TestAWrite:
    @pytest.mark.parametrize("durable", [False, True], ids=["lazy", "durable"])
    def test_is_there_for_the_next_process(self, tmp_path: Path, durable: bool) -> None:
        state = a_state(tmp_path)

        state.write({"epoch": b"\x01", "pending": b"\x02"}, durable=durable)

        assert reopened(state) == {"epoch": b"\x01", "pending": b"\x02"}

    def test_that_is_lazy_survives_the_death_of_its_process(self, tmp_path: Path) -> None:
        """R3: `kill -9` right after a write: the operating system has it."""
        state = a_state(tmp_path / "running")
        state.write({"pending": b"message"}, durable=False)
        shutil.copytree(tmp_path / "running", tmp_path / "killed")
        state.close()

        killed = a_state(tmp_path / "killed")
        values = killed.load()
        killed.close()

        assert values == {"pending": b"message"}

    @pytest.mark.parametrize(("durable", "synchronous"), [(False, 1), (True, 2)])
    def test_asks_for_as_much_of_the_disk_as_it_needs(
        self, tmp_path: Path, durable: bool, synchronous: int
    ) -> None:
        """SQLite's 1 is NORMAL (no sync of a commit), 2 is FULL (each commit is synced)."""
        state = a_state(tmp_path)
        state.write({"a": b"1"}, durable=not durable)

        state.write({"a": b"2"}, durable=durable)

        assert state._connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
        state.close()

    def test_replaces_and_removes(self, tmp_path: Path) -> None:
        state = a_state(tmp_path)
        state.write({"a": b"1", "b": b"2", "c": b"3"}, durable=False)

        state.write({"a": b"4", "b": None}, durable=False)

        assert reopened(state) == {"a": b"4", "c": b"3"}

    def test_that_fails_changes_nothing(self, tmp_path: Path) -> None:
        """H6, R16: number, message and place in the plan are there together or not at all."""
        state = a_state(tmp_path)
        state.write({"pending": b"old"}, durable=False)
        (pages,) = state._connection.execute("PRAGMA page_count").fetchone()
        state._connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()

        with pytest.raises(StorageFailedError, match="nothing is lost"):
            state.write({"epoch": b"new", "pending": b"x" * 100_000}, durable=False)

        assert reopened(state) == {"pending": b"old"}

    @pytest.mark.parametrize("name", ["", "publisher-p.sqlite3", "publisher-p.lock"])
    @pytest.mark.parametrize("way", ["removed", "replaced", "moved"])
    def test_is_refused_when_the_files_are_not_ours_any_more(
        self, tmp_path: Path, name: str, way: str
    ) -> None:
        directory = tmp_path / "state"
        state = a_state(directory)
        state.write({"a": b"1"}, durable=False)
        path = directory / name
        if way == "removed" and not name:
            shutil.rmtree(path)
        elif way == "removed":
            path.unlink()
        else:
            path.rename(tmp_path / "old")
        if way == "replaced" and not name:
            a_state(directory).close()
        elif way == "replaced":
            path.touch()

        def writes() -> None:
            for _ in range(2 if name else 1):  # each looks at one file
                state.write({"a": b"2"}, durable=False)

        with pytest.raises(StorageFailedError, match="removed or replaced"):
            writes()
        state.close()


class TestTheLock:
    def test_lets_one_process_use_an_id(self, tmp_path: Path) -> None:
        """H11: two processes with one id on one machine do not even begin."""
        state = a_state(tmp_path)
        state.may_be_taken(lambda: False)  # its client is in a call

        with pytest.raises(InUseError):
            a_state(tmp_path)

        state.close()

    def test_keeps_out_a_thread_while_another_one_makes_the_client(self, tmp_path: Path) -> None:
        state = a_state(tmp_path)

        with ThreadPoolExecutor(1) as other, pytest.raises(InUseError):
            other.submit(a_state, tmp_path).result()

        state.close()

    def test_is_free_after_its_process(self, tmp_path: Path) -> None:
        a_state(tmp_path).close()

        a_state(tmp_path).close()

    def test_is_of_one_id_and_one_role(self, tmp_path: Path) -> None:
        states = [
            StateFile(tmp_path, "publisher", "p"),
            StateFile(tmp_path, "subscriber", "p"),
            StateFile(tmp_path, "publisher", "q"),
        ]

        assert len({state.path for state in states}) == 3
        for state in states:
            state.close()

    def test_is_free_when_the_state_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "publisher-p.sqlite3").write_bytes(b"something else" * 500)
        with pytest.raises(DamagedError):
            a_state(tmp_path)
        (tmp_path / "publisher-p.sqlite3").unlink()

        a_state(tmp_path).close()


class TestDamage:
    def test_of_a_value_is_found_and_named(self, tmp_path: Path) -> None:
        state = a_state(tmp_path)
        state.write({"epoch": b"\x01", "pending": b"message"}, durable=False)
        state.close()
        with sqlite3.connect(state.path) as other:
            other.execute("UPDATE state SET value = x'ff' WHERE name = 'pending'")
        other.close()

        damaged = a_state(tmp_path)
        with pytest.raises(DamagedError, match="'pending'"):
            damaged.load()
        damaged.close()

    @pytest.mark.parametrize("bytes_cut", [1, 10, 50, 200, 4096, 6000])
    def test_of_a_file_that_was_cut_off_is_reported_as_damage(
        self, tmp_path: Path, bytes_cut: int
    ) -> None:
        state = a_state(tmp_path)
        state.write({"epoch": b"\x01", "pending": b"message"}, durable=True)
        state.close()
        os.truncate(state.path, state.path.stat().st_size - bytes_cut)

        with pytest.raises(DamagedError):
            a_state(tmp_path).load()

    def test_of_a_name_is_found(self, tmp_path: Path) -> None:
        """A value under the name of another one is as wrong as a wrong value."""
        state = a_state(tmp_path)
        state.write({"topic:t": b"place"}, durable=False)
        state.close()
        with sqlite3.connect(state.path) as other:
            other.execute("UPDATE state SET name = 'topic:u'")
        other.close()

        damaged = a_state(tmp_path)
        with pytest.raises(DamagedError):
            damaged.load()
        damaged.close()

    def test_of_the_file_is_reported_as_damage(self, tmp_path: Path) -> None:
        state = a_state(tmp_path)
        state.write({f"topic:{n}": b"x" * 1000 for n in range(100)}, durable=False)
        state.close()
        content = bytearray(state.path.read_bytes())
        content[4096:] = b"\xff" * len(content[4096:])
        state.path.write_bytes(content)

        damaged = a_state(tmp_path)
        try:
            with pytest.raises(DamagedError):
                damaged.load()
        finally:
            damaged.close()

    def test_is_reported_for_a_file_that_is_no_state(self, tmp_path: Path) -> None:
        """H15: what lies there is not executed, and not written over."""
        file = tmp_path / "publisher-p.sqlite3"
        file.write_bytes(b"cos\nsystem\n" * 500)

        with pytest.raises(DamagedError, match="the client's state, cannot be opened"):
            a_state(tmp_path)

        assert file.read_bytes() == b"cos\nsystem\n" * 500

    def test_is_reported_for_another_version(self, tmp_path: Path) -> None:
        state = a_state(tmp_path)
        state._connection.execute("PRAGMA user_version = 9")
        state.close()

        with pytest.raises(DamagedError, match="state version 9"):
            a_state(tmp_path)


def test_a_directory_that_cannot_be_synced_is_reported_and_synced_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No traceback, and no name that later starts would not sync."""
    synced: list[str] = []
    outcomes = iter([OSError(errno.EIO, os.strerror(errno.EIO)), None])

    def fsync(descriptor: int) -> None:
        if error := next(outcomes):
            raise error
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StorageFailedError, match=r"Input/output error.*run the same command again"):
        a_state(tmp_path)

    a_state(tmp_path).close()

    assert synced == [str(tmp_path)]


def test_a_state_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    state = a_state(tmp_path / "new")

    assert stat.S_IMODE(state.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(state.path.parent.stat().st_mode) == 0o700
    state.close()


def test_an_id_cannot_leave_the_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidNameError):
        StateFile(tmp_path, "publisher", "../p")


def test_a_directory_that_cannot_be_made_is_a_matter_of_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="cannot make"):
        a_state(tmp_path / "file")


def test_without_a_directory_it_is_kept_as_long_as_the_client() -> None:
    state = open_state(None, "publisher", "p")

    state.write({"epoch": b"\x01", "plan": b"\x02"}, durable=True)
    state.write({"plan": None}, durable=False)

    assert isinstance(state, MemoryState)
    assert state.load() == {"epoch": b"\x01"}
    assert open_state(None, "publisher", "p").load() == {}


def test_a_write_that_was_broken_off_is_undone_by_the_next_load(tmp_path: Path) -> None:
    """R25: a signal handler that raised left it open, and every later write failed."""
    state = a_state(tmp_path)
    state.write({"epoch": b"\x01"}, durable=True)
    state._connection.execute("BEGIN IMMEDIATE")
    state._connection.execute("DELETE FROM state")

    loaded = state.load()
    state.write({"plan": b"\x02"}, durable=False)

    assert loaded == {"epoch": b"\x01"}
    assert state.load() == {"epoch": b"\x01", "plan": b"\x02"}
    state.close()


class TestAMark:
    def test_is_there_for_the_next_process_after_kill(self, tmp_path: Path) -> None:
        """The operating system has it as soon as it is set."""
        state = a_state(tmp_path / "running")
        assert state.marks[7] == 0
        state.marks[7] = 2**64 - 1
        shutil.copytree(tmp_path / "running", tmp_path / "killed")
        state.close()

        killed = a_state(tmp_path / "killed")

        assert (killed.marks[7], killed.marks[8]) == (2**64 - 1, 0)
        killed.close()

    def test_is_readable_by_its_owner_only(self, tmp_path: Path) -> None:
        state = a_state(tmp_path)
        _ = state.marks
        state.close()

        (path,) = tmp_path.glob("*.marks")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    def test_that_cannot_be_made_is_an_error_and_no_signal_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        state = a_state(tmp_path)
        monkeypatch.setattr("os.pwrite", full)

        with pytest.raises(StorageFailedError, match="No space left"):
            _ = state.marks
        state.close()
