"""Backups in an object store: read back after they were written, rotated, restored."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from reliable_pubsub.__main__ import main
from reliable_pubsub.proxy import backup_places
from tests.store.test_backup import filled, read

from .object_store import ObjectStore


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "data").close()
    return tmp_path / "data"


def test_a_bucket_holds_a_series_that_is_rotated_and_restored(
    data: Path, bucket: str, object_store: ObjectStore, tmp_path: Path
) -> None:
    for keep in ([], [], ["--keep", "1d"]):
        done = run("backup", bucket, "--data-dir", data, *keep)
        assert done.exit_code == 0, done.output

    (name,) = object_store.keys(bucket)
    newest = run("restore", bucket, tmp_path / "newest")
    named = run("restore", f"s3://{name}", tmp_path / "named")

    assert f"backed up: s3://{name} " in done.stdout
    assert done.stdout.count("removed: ") == 2
    for result, directory in ((newest, "newest"), (named, "named")):
        assert result.exit_code == 0, result.output
        assert read(tmp_path / directory) == read(data)


def test_an_object_that_comes_back_changed_is_removed_and_reported(
    data: Path, bucket: str, object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Losing(backup_places._Hashed):
        def write(self, chunk: bytes) -> int:
            self.hash.update(b"and more")
            return super().write(chunk)

    monkeypatch.setattr(backup_places, "_Hashed", Losing)

    done = run("backup", bucket, "--data-dir", data)

    assert done.exit_code == 5
    assert "other bytes" in done.stderr
    assert object_store.keys(bucket) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("restore", "s3://bucket/nothing", "new"), "holds no backup"),
        (("restore", "s3://nowhere/backups", "new"), "holds no backup"),
        (("restore", "s3://bucket/2026-11-27T030000.000Z.tar", "new"), "cannot be read"),
        (("backup", "s3://nowhere/backups"), "no such bucket"),
        (("backup", "gs://bucket/backups"), "only archives and backups can be in an object store"),
    ],
)
def test_a_place_without_a_backup_is_an_error_with_what_to_do(
    data: Path, bucket: str, tmp_path: Path, words: tuple[str, ...], reason: str
) -> None:
    command, *places = words
    new = [tmp_path / one if one == "new" else one for one in places]

    done = run(command, *new, *(("--data-dir", data) if command == "backup" else ()))

    assert done.exit_code in (2, 5), done.output
    assert reason in " ".join(done.stderr.split())
    assert not (tmp_path / "new").exists()
