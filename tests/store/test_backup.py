"""`reliable-pubsub backup`: one moment of a store, whole, checked, while its proxy works."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from reliable_pubsub.common.core.errors import ConfigurationError, DamagedError
from reliable_pubsub.proxy import backup, backup_command
from reliable_pubsub.proxy import store as store_module
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.core.storage import StorageFullError
from reliable_pubsub.proxy.core.stored import StoredState
from reliable_pubsub.proxy.store import WAL_BYTES, Store
from reliable_pubsub.proxy.stored_state import FILE_NAME, read_state
from tests.fakes import a_beginning, an_append

BODY = b"x" * 50_000


def filled(directory: Path, messages: int = 40) -> Store:
    """A store that is open, as that of a proxy that runs."""
    store = Store(directory, "sync")
    store.commit([*a_beginning(), *(an_append(n, body=BODY) for n in range(messages))])
    return store


def read(directory: Path) -> StoredState:
    """The state with which a proxy starts there."""
    with closing(Store(directory, "sync")) as store:
        return read_state(store.connection, check_store(store.connection).segments)


def left_beside(target: Path) -> list[str]:
    return sorted(path.name for path in target.parent.iterdir() if path.name.startswith("."))


class TestACopy:
    def test_of_a_store_in_use_is_one_moment_and_commits_continue(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backup, "STEP_PAGES", 100)
        store = filled(tmp_path / "data")
        steps: list[int] = []

        def commit(done: int, _pages: int) -> None:
            steps.append(done)
            store.commit([an_append(39 + len(steps), body=BODY)])

        found = backup.back_up(tmp_path / "data", tmp_path / "copy", copied=commit)
        store.close()

        assert len(steps) > 4
        assert found.topics == {"t": (0, 40)}
        assert read(tmp_path / "copy").topics[0].end == 40
        assert read(tmp_path / "data").topics[0].end == 40 + len(steps)

    @pytest.mark.parametrize("ended", ["cleanly", "killed"])
    def test_of_a_store_whose_proxy_has_ended_is_the_same_store(
        self, tmp_path: Path, ended: str
    ) -> None:
        store = filled(tmp_path / "running")
        if ended == "killed":  # its log is left, and holds everything
            shutil.copytree(tmp_path / "running", tmp_path / "data")
            store.close()
        else:
            store.close()
            (tmp_path / "running").rename(tmp_path / "data")

        found = backup.back_up(tmp_path / "data", tmp_path / "copy")

        assert found.messages == 40
        assert read(tmp_path / "copy") == read(tmp_path / "data")

    def test_has_the_mark_of_a_store_that_was_made(self, tmp_path: Path) -> None:
        """Then a copy whose file is lost later is not taken for a new directory."""
        filled(tmp_path / "data").close()
        backup.back_up(tmp_path / "data", tmp_path / "copy")

        (tmp_path / "copy" / FILE_NAME).unlink()

        with pytest.raises(DamagedError):
            Store(tmp_path / "copy", "sync")

    @pytest.mark.parametrize("made", [False, True])
    def test_goes_into_a_directory_that_is_new_or_empty(self, tmp_path: Path, made: bool) -> None:
        filled(tmp_path / "data").close()
        if made:
            (tmp_path / "copy").mkdir()

        backup.back_up(tmp_path / "data", tmp_path / "copy")

        assert read(tmp_path / "copy").topics[0].end == 40
        assert left_beside(tmp_path / "copy") == []

    def test_writes_over_nothing(self, tmp_path: Path) -> None:
        filled(tmp_path / "data").close()
        (tmp_path / "copy").mkdir()
        (tmp_path / "copy" / "mine").write_text("x")

        with pytest.raises(ConfigurationError, match="is not empty"):
            backup.back_up(tmp_path / "data", tmp_path / "copy")

        assert [path.name for path in (tmp_path / "copy").iterdir()] == ["mine"]

    def test_removes_what_a_killed_one_has_left_and_no_other(self, tmp_path: Path) -> None:
        filled(tmp_path / "data").close()
        no_process = 2**30  # above what a system numbers
        left = [f".copy.partial-{one}" for one in (no_process, os.getppid(), "x")]
        for name in left:
            (tmp_path / name).mkdir()

        backup.back_up(tmp_path / "data", tmp_path / "copy")

        assert [(tmp_path / name).exists() for name in left] == [False, True, True]

    def test_is_no_file(self, tmp_path: Path) -> None:
        filled(tmp_path / "data").close()
        (tmp_path / "copy").touch()

        with pytest.raises(ConfigurationError, match="is no directory"):
            backup.back_up(tmp_path / "data", tmp_path / "copy")

    def test_of_no_store_is_refused_and_makes_none(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="holds no store"):
            backup.back_up(tmp_path / "data", tmp_path / "copy")

        assert list(tmp_path.iterdir()) == []

    def test_of_a_damaged_store_is_refused_and_leaves_nothing(self, tmp_path: Path) -> None:
        filled(tmp_path / "data").close()
        with closing(sqlite3.connect(tmp_path / "data" / FILE_NAME)) as connection, connection:
            connection.execute("UPDATE batch SET body = ? WHERE base = 7", (b"other",))

        with pytest.raises(DamagedError, match="offsets 7 to 7"):
            backup.back_up(tmp_path / "data", tmp_path / "copy")

        assert not (tmp_path / "copy").exists()
        assert left_beside(tmp_path / "copy") == []

    def test_says_in_one_line_what_it_holds(self, tmp_path: Path) -> None:
        filled(tmp_path / "data").close()

        done = CliRunner().invoke(
            backup_command.main, [str(tmp_path / "copy"), "--data-dir", str(tmp_path / "data")]
        )

        assert done.exit_code == 0, done.output
        line = done.stdout.splitlines()[-1]
        assert line.startswith(f"backed up: {tmp_path / 'copy'} store=")
        assert "topics=1 messages=40" in line
        assert line.endswith("offsets: t=0..40")


@pytest.mark.parametrize(
    "statements",
    [
        ["ANALYZE"],
        ["PRAGMA optimize"],
        ["VACUUM"],
        ["PRAGMA journal_mode = DELETE"],
        ["PRAGMA journal_mode = DELETE", "PRAGMA page_size = 16384", "VACUUM", "ANALYZE"],
        ["PRAGMA auto_vacuum = NONE", "VACUUM"],
    ],
    ids=" ".join,
)
def test_what_a_shell_does_without_harm_to_a_stopped_store_is_no_damage(
    tmp_path: Path, statements: list[str]
) -> None:
    filled(tmp_path).close()
    before = read(tmp_path)

    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as shell:
        for statement in statements:
            shell.execute(statement).fetchall()

    assert read(tmp_path) == before
    with closing(Store(tmp_path, "sync")) as store:
        store.commit([an_append(40, body=BODY)])
    assert read(tmp_path).topics[0].end == 41


def test_a_table_that_is_not_ours_is_damage_and_the_error_names_the_command(
    tmp_path: Path,
) -> None:
    filled(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as shell:
        shell.execute("CREATE TABLE other (a)")

    with pytest.raises(DamagedError, match="reliable-pubsub backup"):
        Store(tmp_path, "sync")


def test_a_copy_that_cp_made_while_commits_continued_is_refused_with_the_command(
    tmp_path: Path,
) -> None:
    store = filled(tmp_path / "data")
    (tmp_path / "copy").mkdir()
    shutil.copy(tmp_path / "data" / FILE_NAME, tmp_path / "copy")
    for offset in range(40, 240):  # the log is started again in between
        store.commit([an_append(offset, body=BODY)])
    for path in (tmp_path / "data").iterdir():
        if path.name != FILE_NAME:
            shutil.copy(path, tmp_path / "copy")

    with pytest.raises(DamagedError, match="reliable-pubsub backup"):
        read(tmp_path / "copy")
    store.close()


class TestALogThatAnotherProgramHolds:
    @pytest.fixture(autouse=True)
    def short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Everything is a hundredth of what it is."""
        monkeypatch.setattr(store_module, "CHECKPOINT_PAGES", 20)
        monkeypatch.setattr(store_module, "LONG_WAL_BYTES", 8 * 20 * 4096)

    def held(self, directory: Path) -> tuple[Store, sqlite3.Connection]:
        store = Store(directory, "sync", wal_bytes_max=40 * 20 * 4096)
        store.commit(a_beginning())
        shell = sqlite3.connect(directory / FILE_NAME, isolation_level=None)
        shell.execute("BEGIN")
        shell.execute("SELECT count(*) FROM batch").fetchone()
        return store, shell

    def fill(self, store: Store, offset: int = 0) -> int:
        """Commit until it is refused; return the next offset."""
        why = "never"
        try:
            for _ in range(200):
                store.commit([an_append(offset, body=BODY)])
                offset += 1
        except StorageFullError as refused:
            why = refused.why
        assert "another program reads the store" in why
        return offset

    def test_grows_to_its_bound_and_then_commits_are_refused_by_name(self, tmp_path: Path) -> None:
        store, shell = self.held(tmp_path)

        offset = self.fill(store)

        assert offset > 40
        assert store.wal_held_bytes >= 40 * 20 * 4096
        assert Path(f"{store.path}-wal").stat().st_size < WAL_BYTES + 80 * 20 * 4096
        shell.close()
        store.close()
        assert read(tmp_path).topics[0].end == offset

    def test_is_seen_long_before_its_bound(self, tmp_path: Path) -> None:
        store, shell = self.held(tmp_path)

        for offset in range(25):
            store.commit([an_append(offset, body=BODY)])

        assert store.wal_held_bytes > 0
        shell.close()
        store.close()

    def test_begins_again_when_that_program_has_ended(self, tmp_path: Path) -> None:
        store, shell = self.held(tmp_path)
        offset = self.fill(store)

        shell.close()
        store.commit([an_append(offset, body=BODY)])

        assert store.wal_held_bytes == 0
        assert Path(f"{store.path}-wal").stat().st_size <= WAL_BYTES + 64 * 1024
        store.close()

    def test_of_a_store_without_such_a_program_is_never_long(self, tmp_path: Path) -> None:
        with closing(Store(tmp_path, "sync")) as store:
            store.commit(a_beginning())
            for offset in range(200):
                store.commit([an_append(offset, body=BODY)])

                assert store.wal_held_bytes == 0


def test_a_program_that_writes_in_the_store_stops_puts_and_not_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "BUSY_MS", 0)
    store = filled(tmp_path)
    store.connection.execute("PRAGMA busy_timeout = 0")
    shell = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    shell.execute("BEGIN IMMEDIATE")

    with pytest.raises(StorageFullError) as refused:
        store.commit([an_append(40, body=BODY)])
    shell.execute("ROLLBACK")
    shell.close()
    store.commit([an_append(40, body=BODY)])
    store.close()

    assert "another program writes" in refused.value.why
    assert read(tmp_path).topics[0].end == 41
