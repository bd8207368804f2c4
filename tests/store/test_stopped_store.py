"""Commands over a store whose proxy does not run: check, restore, compact."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from click.testing import CliRunner, Result

from reliable_pubsub.__main__ import main
from reliable_pubsub.common.core.errors import DamagedError, StorageFailedError
from reliable_pubsub.proxy import compact as compact_module
from reliable_pubsub.proxy.check import check_store
from reliable_pubsub.proxy.compact import compact
from reliable_pubsub.proxy.contents import Contents, read_contents
from reliable_pubsub.proxy.core.records import Trimmed
from reliable_pubsub.proxy.core.stored import StoredState
from reliable_pubsub.proxy.store import Store
from reliable_pubsub.proxy.stored_state import FILE_NAME, read_state
from tests.fakes import a_beginning, an_append

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")
STRANGER = 65_534
BODY = b"x" * 50_000


def filled(directory: Path, messages: int = 40) -> Store:
    store = Store(directory, "sync")
    store.commit([*a_beginning(), *(an_append(n, body=BODY) for n in range(messages))])
    return store


def thinned(directory: Path) -> Path:
    """A stopped store that has removed most of what it held."""
    with closing(filled(directory)) as store:
        newest_ns = read(store).topics[0].timestamp_ns
        store.commit([Trimmed(1, 35, 40, newest_ns)])
    return directory


def read(store: Store) -> StoredState:
    return read_state(store.connection, check_store(store.connection).segments)


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, words)), env={"COLUMNS": "140"})


def as_stranger(work: Callable[[], Result]) -> str:
    """What a command prints that another user runs, in a process of its own."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(STRANGER)
            os.setuid(STRANGER)
            os.write(write_end, work().output.encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, encoding="utf-8") as output:
        text = output.read()
    os.waitpid(child, 0)
    return text


def facts(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in directory.iterdir()}


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != "lock"}


class TestCheck:
    def test_says_what_a_sound_store_holds(self, tmp_path: Path) -> None:
        filled(tmp_path / "data").close()

        result = run("check", tmp_path / "data")

        assert result.exit_code == 0, result.output
        assert result.output.startswith(f"sound: {tmp_path / 'data'}\n")
        assert f"topics=1 messages=40 clients=2 body-bytes={40 * len(BODY)} " in result.output
        assert [row.split()[:4] for row in result.output.splitlines() if " t " in f" {row} "] == [
            ["t", "0", "40", "2,000,000"]
        ]

    def test_names_damage_and_changes_nothing(self, tmp_path: Path) -> None:
        filled(tmp_path / "data").close()
        with closing(sqlite3.connect(tmp_path / "data" / FILE_NAME)) as connection:
            connection.execute("UPDATE batch SET body = zeroblob(9) WHERE base = 7")
            connection.commit()
        before = content(tmp_path / "data")[FILE_NAME]

        result = run("check", tmp_path / "data")

        assert result.exit_code == 5
        assert "topic 't' offsets 7 to 7" in " ".join(result.output.split())
        assert content(tmp_path / "data")[FILE_NAME] == before

    def test_refuses_a_store_in_use_and_a_directory_without_one(self, tmp_path: Path) -> None:
        with closing(filled(tmp_path / "data")):
            result = run("check", tmp_path / "data")
        assert (result.exit_code, "IN_USE" in result.output) == (4, True)

        result = run("check", tmp_path / "nothing")
        assert (result.exit_code, "holds no store" in " ".join(result.output.split())) == (2, True)
        assert not (tmp_path / "nothing").exists()

    def test_changes_nothing_in_a_backup(self, tmp_path: Path) -> None:
        filled(tmp_path / "data").close()
        assert run("backup", tmp_path / "backup", "--data-dir", tmp_path / "data").exit_code == 0
        before = facts(tmp_path / "backup")

        checked = run("check", tmp_path / "backup")
        restored = run("restore", tmp_path / "backup", tmp_path / "restored")

        assert (checked.exit_code, restored.exit_code) == (0, 0), (checked.output, restored.output)
        assert facts(tmp_path / "backup") == before
        assert run("check", tmp_path / "restored").exit_code == 0

    @AS_ROOT
    @pytest.mark.parametrize("is_killed", [False, True])
    def test_reads_what_another_user_may_only_read(self, is_killed: bool) -> None:
        with TemporaryDirectory(dir="/tmp") as folder:
            data = Path(folder) / "data"
            store = filled(data)
            if is_killed:
                shutil.copytree(data, data.with_name("killed"))
                store.close()
                data = data.with_name("killed")
            else:
                store.close()
            for path in (Path(folder), data, *data.iterdir()):
                path.chmod(0o555 if path.is_dir() else 0o444)

            result = as_stranger(lambda: run("check", data))

            assert "messages=40" in result

    @AS_ROOT
    @pytest.mark.parametrize("mode", [0o755, 0o711, 0o700])
    @pytest.mark.parametrize("command", ["check", "compact", "backup", "restore"])
    def test_names_the_owner_of_what_it_may_not_read(self, command: str, mode: int) -> None:
        with TemporaryDirectory(dir="/tmp") as folder:
            Path(folder).chmod(0o755)
            data, new = Path(folder) / "data", Path(folder) / "new"
            filled(data).close()
            data.chmod(mode)
            words: tuple[str | Path, ...] = {
                "backup": ("backup", new, "--data-dir", data),
                "restore": ("restore", data, new),
            }.get(command, (command, data))

            result = as_stranger(lambda: run(*words))

            assert "belongs to root (uid 0)" in " ".join(result.split())

    @AS_ROOT
    @pytest.mark.parametrize("place", ["closed", "closed/new", "new"])
    @pytest.mark.parametrize("command", ["backup", "restore"])
    def test_names_the_owner_of_where_it_may_not_write(self, command: str, place: str) -> None:
        with TemporaryDirectory(dir="/tmp") as folder:
            data, new = Path(folder) / "data", Path(folder) / place
            filled(data).close()
            for path in (data, *data.iterdir()):
                os.chown(path, STRANGER, STRANGER)
            (Path(folder) / "closed").mkdir(mode=0o700)
            Path(folder).chmod(0o755)
            words: tuple[str | Path, ...] = ("restore", data, new)
            if command == "backup":
                words = ("backup", new, "--data-dir", data)

            result = as_stranger(lambda: run(*words))

            assert "belongs to root (uid 0)" in " ".join(result.split())


class TestFilesOfAnotherOwner:
    @AS_ROOT
    def test_are_still_theirs_after_root_has_compacted_or_copied_them(self, tmp_path: Path) -> None:
        data = thinned(tmp_path / "data")
        for path in (data, *data.iterdir()):
            os.chown(path, STRANGER, STRANGER)
        (data / FILE_NAME).chmod(0o640)

        assert run("compact", data).exit_code == 0
        assert run("backup", tmp_path / "backup", "--data-dir", data).exit_code == 0
        assert run("restore", tmp_path / "backup", tmp_path / "restored").exit_code == 0
        Store(tmp_path / "restored", "sync").close()  # as a start with --accept-loss

        assert (data / FILE_NAME).stat().st_mode & 0o777 == 0o640
        for place in (data, tmp_path / "backup", tmp_path / "restored"):
            owners = {
                (path.stat().st_uid, path.stat().st_gid) for path in (place, *place.iterdir())
            }
            assert owners == {(STRANGER, STRANGER)}


class TestCompact:
    def test_keeps_everything_and_gives_space_back(self, tmp_path: Path) -> None:
        data = thinned(tmp_path / "data")
        with closing(Store(data, "sync")) as store:
            state = read(store)
        size = (data / FILE_NAME).stat().st_size

        result = run("compact", data)

        assert result.exit_code == 0, result.output
        assert (data / FILE_NAME).stat().st_size < size // 3
        assert (data / FILE_NAME).stat().st_mode & 0o777 == 0o600
        assert sorted(path.name for path in data.iterdir()) == sorted(
            ["initialised", "lock", FILE_NAME, "reserve"]
        )
        with closing(Store(data, "sync")) as store:
            assert read(store) == state
            (vacuum,) = store.connection.execute("PRAGMA auto_vacuum").fetchone()
            assert vacuum == 2  # incremental: the proxy continues to give space back
            store.commit([an_append(40, body=BODY)])

    def test_leaves_the_store_as_it_was_if_the_second_file_differs(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        data = thinned(tmp_path / "data")
        before = content(data)[FILE_NAME]
        real = read_contents

        def other(store: Store, *more: object) -> Contents:
            found = real(store)
            is_second = store.path.parent != data
            return Contents(found.state, found.messages - is_second, found.file_bytes)

        monkeypatch.setattr(compact_module, "read_contents", other)

        with pytest.raises(DamagedError, match="differs from the store"):
            compact(data)

        assert content(data)[FILE_NAME] == before
        assert not list(data.glob(".compact-*"))

    def test_is_refused_while_another_program_reads_the_store(self, tmp_path: Path) -> None:
        data = thinned(tmp_path / "data")
        with closing(sqlite3.connect(data / FILE_NAME)) as shell:
            shell.execute("BEGIN")
            shell.execute("SELECT count(*) FROM batch").fetchone()
            with pytest.raises(StorageFailedError, match="another program reads the store"):
                compact(data)

        with closing(Store(data, "sync")) as store:
            assert read(store).topics[0].start == 35

    def test_removes_what_one_that_was_killed_has_left(self, tmp_path: Path) -> None:
        data = thinned(tmp_path / "data")
        (data / ".compact-1").mkdir()
        (data / ".compact-1" / FILE_NAME).write_bytes(os.urandom(100))

        compact(data)

        assert not list(data.glob(".compact-*"))


class TestRestore:
    def test_makes_a_sound_copy_and_says_what_clients_will_see(self, tmp_path: Path) -> None:
        filled(tmp_path / "data").close()
        assert run("backup", tmp_path / "copy", "--data-dir", tmp_path / "data").exit_code == 0
        before = content(tmp_path / "copy")[FILE_NAME]

        result = run("restore", tmp_path / "copy", tmp_path / "new")

        assert result.exit_code == 0, result.output
        assert "messages=40" in result.output
        assert "stop with LOG_CHANGED (exit code 4)" in result.output
        new, old = Store(tmp_path / "new", "sync"), Store(tmp_path / "data", "sync")
        with closing(new), closing(old):
            assert read(new) == read(old)
        assert content(tmp_path / "copy")[FILE_NAME] == before

    def test_writes_nothing_over(self, tmp_path: Path) -> None:
        for name in ("copy", "data"):
            filled(tmp_path / name).close()

        result = run("restore", tmp_path / "copy", tmp_path / "data")

        assert (result.exit_code, "is not empty" in " ".join(result.output.split())) == (2, True)
