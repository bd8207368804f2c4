"""An archive of the form before Delta is taken over; `old_archive` was made by that program."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from reliable_pubsub.common.core.errors import ConfigurationError, DamagedError
from reliable_pubsub.pipeline import archive as disk
from reliable_pubsub.pipeline.archive import Archive, read_manifests
from reliable_pubsub.pipeline.upgrading import main, old_files, take_over

from .test_archive import Died, Mortal, catch_up, everything, rows_seen, two_topics
from .test_stream import put

OLD = Path(__file__).parent / "old_archive"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def upgraded(folder: Path, old: Path = OLD) -> int:
    return sum(one.rows for one in take_over(old, Archive(folder)))


def test_an_old_archive_is_taken_over_by_a_command_and_is_not_changed(new: Path) -> None:
    before = {path: path.read_bytes() for path in OLD.rglob("*") if path.is_file()}

    said = CliRunner().invoke(main, ["--from", str(OLD), "--folder", str(new), "--quiet"])

    assert said.output == f"done: 16 messages of 4 files are in {new}\n"
    assert rows_seen(new) == everything(("t", 12), ("u", 4))
    assert {path: path.read_bytes() for path in OLD.rglob("*") if path.is_file()} == before


def test_the_archive_job_continues_where_the_old_one_ended(new: Path) -> None:
    upgraded(new)
    proxy = two_topics()
    put(proxy, 2)  # so far the old one came
    put(proxy, 3)

    assert catch_up(proxy, new) == 3
    assert rows_seen(new) == everything(("t", 15), ("u", 4))


def test_taking_over_again_adds_nothing_and_continues_where_it_died(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for last in range(1, 11):
        folder = tmp_path / str(last)
        with monkeypatch.context() as patch:
            Mortal(folder, patch, last)
            with pytest.raises(Died):
                upgraded(folder)

        assert upgraded(folder) == upgraded(folder) == 16
        assert rows_seen(folder) == everything(("t", 12), ("u", 4))


def test_an_old_archive_that_is_given_to_a_job_is_refused_with_the_command() -> None:
    for look in (Archive, read_manifests):
        with pytest.raises(ConfigurationError, match=f"pipeline upgrade --from {OLD} --folder"):
            look(OLD)
    with pytest.raises(ConfigurationError, match="no archive of the form before Delta"):
        old_files(OLD / "_generations")


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_file_is_reported_with_its_offsets(
    tmp_path: Path, new: Path, damage: str
) -> None:
    old = tmp_path / "old"
    shutil.copytree(OLD, old, symlinks=True)
    ((_, first), *_) = old_files(old)
    content = bytearray(first.read_bytes())
    content[10] ^= 1
    first.write_bytes(content)
    if damage == "gone":
        first.unlink()

    with pytest.raises(DamagedError, match=r"offsets (are )?0 to 6 of 't'"):
        upgraded(new, old)
    assert rows_seen(new) == []


def test_an_archive_that_has_other_ranges_of_the_log_is_refused(
    new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch_up(two_topics(), new)
    ends: dict[Any, int] = Archive(new).ends([("t", "0123456789abcdef.1")])
    assert list(ends.values()) == [10]
    monkeypatch.setattr(disk.Archive, "ends", lambda self, logs: dict.fromkeys(logs, 5))

    with pytest.raises(ConfigurationError, match="archived to 5 in the new archive"):
        upgraded(new)
