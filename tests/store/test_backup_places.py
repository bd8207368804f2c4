"""Backups in a series and as a stream: whole, checked, and never written over."""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from pyarrow.fs import LocalFileSystem

from reliable_pubsub.common.core.errors import ConfigurationError, DamagedError, StorageFailedError
from reliable_pubsub.proxy import backup_places
from reliable_pubsub.proxy.backup_mark import LAST_BACKUP_NAME, mark_backup
from reliable_pubsub.proxy.backup_places import pack, place_of, unpack

from .test_backup import filled, left_beside, read

NAME = "2026-11-27T030000.000Z"


def quiet(_messages: int) -> None:
    """Take the number of messages that were read."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    filled(tmp_path / "data").close()
    return tmp_path / "data"


def a_stream(directory: Path) -> bytes:
    stream = io.BytesIO()
    pack(directory, stream)
    return stream.getvalue()


class TestASeries:
    def test_gets_a_backup_by_name_and_gives_it_back(self, data: Path, tmp_path: Path) -> None:
        place = place_of(str(tmp_path / "backups"))

        where, found = place.add(NAME, data, quiet)
        (tmp_path / "backups" / "monday").mkdir()
        place.take(NAME, tmp_path / "restored", quiet)

        assert where == str(tmp_path / "backups" / NAME)
        assert found.messages == 40
        assert place.names() == [NAME]
        assert read(tmp_path / "restored") == read(data)

    def test_that_a_killed_command_has_half_removed_is_removed_by_the_next(
        self, data: Path, tmp_path: Path
    ) -> None:
        place = place_of(str(tmp_path / "backups"))
        place.add(NAME, data, quiet)
        left = tmp_path / "backups" / ".removed-2026-11-26T030000.000Z"
        left.mkdir()

        place.remove(NAME)

        assert list((tmp_path / "backups").iterdir()) == []

    def test_is_freed_of_the_part_that_a_killed_backup_left(
        self, data: Path, tmp_path: Path
    ) -> None:
        if (ended := os.fork()) == 0:
            os._exit(0)
        os.waitpid(ended, 0)
        left = tmp_path / "backups" / f".2026-11-26T030000.000Z.partial-{ended}"
        left.mkdir(parents=True)

        place_of(str(tmp_path / "backups")).add(NAME, data, quiet)

        assert [one.name for one in (tmp_path / "backups").iterdir()] == [NAME]

    def test_whose_oldest_cannot_be_removed_has_the_new_one_and_says_so(
        self, data: Path, tmp_path: Path
    ) -> None:
        place = place_of(str(tmp_path / "backups"))
        place.add(NAME, data, quiet)

        with pytest.raises(StorageFailedError, match="new backup was made"):
            place.remove("2026-11-26T030000.000Z")

        assert place.names() == [NAME]


def test_a_bucket_without_pyarrow_is_an_error_that_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.fs", None)

    with pytest.raises(ConfigurationError, match=r"reliable-pubsub\[s3\]"):
        place_of("s3://bucket/backups").names()


def test_an_upload_that_is_interrupted_leaves_no_object(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def on_disk(address: str) -> Iterator[tuple[LocalFileSystem, str]]:
        yield LocalFileSystem(), str(tmp_path / address.removeprefix("s3://"))

    def interrupted(_copy: Path, stream: IO[bytes]) -> None:
        stream.write(b"x")
        raise KeyboardInterrupt

    (tmp_path / "bucket").mkdir()
    monkeypatch.setattr(backup_places, "file_system", on_disk)
    monkeypatch.setattr(backup_places, "pack", interrupted)

    with pytest.raises(KeyboardInterrupt):
        place_of("s3://bucket").add(NAME, data, quiet)

    assert list((tmp_path / "bucket").iterdir()) == []


def test_the_mark_of_a_backup_follows_no_link_out_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / LAST_BACKUP_NAME).symlink_to(tmp_path / "elsewhere")

    mark_backup(tmp_path / "data")

    assert not (tmp_path / "elsewhere").exists()


class TestAStream:
    def test_becomes_the_same_store(self, data: Path, tmp_path: Path) -> None:
        found = unpack(io.BytesIO(a_stream(data)), tmp_path / "restored", "a stream", quiet)

        assert found.messages == 40
        assert read(tmp_path / "restored") == read(data)
        assert (tmp_path / "restored").stat().st_mode & 0o777 == 0o700
        assert {file.stat().st_mode & 0o777 for file in (tmp_path / "restored").iterdir()} == {
            0o600
        }

    @pytest.mark.parametrize("part", [0.0, 0.1, 0.5, 0.9])
    def test_that_was_cut_makes_nothing(self, data: Path, tmp_path: Path, part: float) -> None:
        stream = a_stream(data)

        with pytest.raises(DamagedError, match="a stream"):
            unpack(
                io.BytesIO(stream[: int(len(stream) * part)]), tmp_path / "new", "a stream", quiet
            )

        assert not (tmp_path / "new").exists()
        assert left_beside(tmp_path / "new") == []

    def test_with_a_changed_byte_is_found_by_the_check(self, data: Path, tmp_path: Path) -> None:
        stream = a_stream(data)
        body = stream.rindex(b"x" * 1000)

        with pytest.raises(DamagedError, match="offset"):
            unpack(
                io.BytesIO(stream[:body] + b"y" + stream[body + 1 :]),
                tmp_path / "new",
                "a stream",
                quiet,
            )

        assert not (tmp_path / "new").exists()

    @pytest.mark.parametrize("name", ["../escaped", "other"])
    def test_with_another_file_is_refused(self, data: Path, tmp_path: Path, name: str) -> None:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w|") as tar:
            tar.add(data / "initialised", arcname=name)

        with pytest.raises(DamagedError, match="no file of a backup"):
            unpack(io.BytesIO(stream.getvalue()), tmp_path / "new", "a stream", quiet)

        assert not (tmp_path / "escaped").exists()

    def test_needs_a_place_that_exists(self, data: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="make it first"):
            unpack(io.BytesIO(a_stream(data)), tmp_path / "no" / "new", "a stream", quiet)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_that_root_restores_belongs_to_the_owner_of_its_parent(
        self, data: Path, tmp_path: Path
    ) -> None:
        parent = tmp_path / "service"
        parent.mkdir()
        os.chown(parent, 20001, 20002)

        unpack(io.BytesIO(a_stream(data)), parent / "proxy-data", "a stream", quiet)

        for path in (parent / "proxy-data", *(parent / "proxy-data").iterdir()):
            assert (path.stat().st_uid, path.stat().st_gid) == (20001, 20002)
