"""Workers of xdist share what a fresh clone has to compile, and collect the same tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import group_of, turned

WORKERS = 3


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Test files of a fresh clone."""
    paths = [tmp_path / "a" / f"test_{number}.py" for number in range(6)]
    paths[0].parent.mkdir()
    for path in paths:
        path.touch()
    return [str(path) for path in paths]


def test_each_worker_begins_at_a_share_of_its_own_and_collects_every_file(
    files: list[str], tmp_path: Path
) -> None:
    each = [turned(["a"], tmp_path, number, WORKERS) for number in range(WORKERS)]

    assert [one[0] for one in each] == [files[0], files[2], files[4]]
    assert all(sorted(one) == files for one in each)


def test_where_files_are_compiled_already_folders_stay_folders(
    files: list[str], tmp_path: Path
) -> None:
    kept = Path(files[0]).parent / "__pycache__"
    kept.mkdir()
    for file in files:
        (kept / f"{Path(file).stem}.cpython-311-pytest-9.0.0.pyc").touch()

    assert turned(["a"], tmp_path, 1, WORKERS) == ["a"]


@pytest.mark.parametrize("args", [["a/test_0.py::test_it"], ["nowhere"], []])
def test_what_names_no_files_stays_as_it_is(
    files: list[str], tmp_path: Path, args: list[str]
) -> None:
    assert turned(args, tmp_path, 1, WORKERS) == args


def test_a_worker_that_replaces_a_dead_one_collects_the_same_files(
    files: list[str], tmp_path: Path
) -> None:
    """Its number is above the count."""
    assert sorted(turned(["a"], tmp_path, WORKERS, WORKERS)) == files


@pytest.mark.parametrize(
    ("nodeid", "group"),
    [
        ("tests/core/test_a.py::TestB::test_c[d::e]", "tests/core/test_a.py"),
        ("tests/lab/test_report.py::test_a", "report"),
        ("tests/relay/test_a.py::test_b_in_a_browser", "browser"),
        ("tests/integration/test_a.py::test_b", "tests/integration/test_a.py::test_b"),
    ],
)
def test_quick_tests_go_to_one_worker_by_their_file_and_those_that_wait_one_by_one(
    nodeid: str, group: str
) -> None:
    assert group_of(nodeid) == group
