"""An archive without Spark, over a proxy in memory: every moment at which it may die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import ConfigurationError, DamagedError, InUseError
from reliable_pubsub.pipeline import files
from reliable_pubsub.pipeline.archive import MESSAGES, Archive, archived_files, read_manifests
from reliable_pubsub.pipeline.archive_tasks import (
    StageRange,
    archived_rows,
    stage_range,
    write_range,
)
from reliable_pubsub.pipeline.archiving import Archiving
from reliable_pubsub.pipeline.core.loss import DataLossError
from reliable_pubsub.pipeline.core.manifest import Manifest, file_name, in_order, merges
from reliable_pubsub.pipeline.core.options import SourceOptions
from reliable_pubsub.pipeline.job import topics_wanted
from tests.fakes import PATIENT, Link, MemoryProxy, a_broker

from .test_stream import KEEP_NOTHING, Job, a_log, put

W = TypeVar("W")
R = TypeVar("R")
EFFECTS = ("write_whole", "move", "link", "point", "sync")
VISIBLE = (files.move, files.link, files.point)  # to those who list the folder


@pytest.fixture(autouse=True)
def lazy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What dies here is a process, not the power: nothing waits for the disk."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


class Died(Exception):
    """The process is gone."""


class Here:
    """Tasks in this process, over the same link."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def run(self, act: Callable[[W], R], work: Sequence[W]) -> list[R]:
        """See `tasks.Tasks`."""
        return [self._act(act, one) for one in work]

    def _act(self, act: Callable[[W], R], one: Any) -> Any:
        if act is stage_range:
            assert isinstance(one, StageRange)
            return write_range(one, self.job.reader())
        return act(one)


def options(**more: Any) -> SourceOptions:
    return topics_wanted((), ".*", endpoint="tcp://127.0.0.1:1", retry=PATIENT, **more)


def catch_up(proxy: MemoryProxy, folder: Path, *, merge: bool = False, **more: Any) -> int:
    """One run of the job, with two files at a time of three messages each, at most."""
    job = Job(Link(proxy))
    with Archive(folder) as archive:
        archiving = Archiving(
            archive=archive,
            options=options(**{"partition_rows_max": 3, **more}),
            view=job.view,
            tasks=Here(job),
            files_at_a_time=2,
        )
        rows = archiving.catch_up()
        if merge:
            archiving.merge(rows_max=8)
        return rows


def rows_seen(folder: Path) -> list[tuple[str, int, bytes]]:
    """What a stranger reads who lists the folder now: topic, offset, value."""
    seen: list[tuple[str, int, bytes]] = []
    for path in (folder / MESSAGES).glob("*.parquet"):
        table = pq.read_table(path, columns=["topic", "offset", "value"])
        seen += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(seen)


def assert_whole_and_once(folder: Path) -> None:
    """Each topic from its beginning, without a gap, each message once."""
    if not (folder / MESSAGES).exists():
        return
    seen = rows_seen(folder)
    for topic in {topic for topic, _, _ in seen}:
        offsets = [offset for name, offset, _ in seen if name == topic]
        assert offsets == list(range(len(offsets)))


def everything(*counts: tuple[str, int]) -> list[tuple[str, int, bytes]]:
    return [(topic, n, b"m%d" % (n + 1)) for topic, count in counts for n in range(count)]


def two_topics() -> MemoryProxy:
    proxy = a_log(4, 1, 5)
    put(proxy, 2, 2, topic="u")
    return proxy


class TestAnArchive:
    def test_has_each_message_once_with_all_that_it_had(self, tmp_path: Path) -> None:
        assert catch_up(two_topics(), tmp_path) == 14

        assert rows_seen(tmp_path) == everything(("t", 10), ("u", 4))
        (first, *_) = (
            row
            for manifest, path in archived_files(tmp_path)
            for batch in archived_rows(manifest, path, ["publisher", "sequence", "timestamp_ns"])
            for row in batch.to_pylist()
        )
        assert (first["publisher"], first["sequence"]) == ("p", 1)
        assert first["timestamp_ns"] > 0

    def test_goes_on_where_it_ends(self, tmp_path: Path) -> None:
        proxy = two_topics()
        catch_up(proxy, tmp_path)
        put(proxy, 5)

        assert catch_up(proxy, tmp_path) == 5
        assert catch_up(proxy, tmp_path) == 0
        assert rows_seen(tmp_path) == everything(("t", 15), ("u", 4))

    def test_says_of_each_file_what_it_holds(self, tmp_path: Path) -> None:
        proxy = a_log(4)
        catch_up(proxy, tmp_path)

        first, second = read_manifests(tmp_path)

        assert (first.topic, first.first, first.end, first.rows) == ("t", 0, 2, 2)
        assert (second.topic, second.first, second.end, second.rows) == ("t", 2, 4, 2)
        assert first.log == proxy.state.topics["t"].log

    def test_is_the_same_files_if_it_is_made_again(self, tmp_path: Path) -> None:
        proxy = two_topics()
        catch_up(proxy, tmp_path / "a")
        catch_up(proxy, tmp_path / "b")

        made = [
            {(one.name, one.sha256) for one in read_manifests(tmp_path / name)} for name in "ab"
        ]

        assert made[0] == made[1]

    def test_has_the_same_rows_in_fewer_files_when_they_are_merged(self, tmp_path: Path) -> None:
        catch_up(two_topics(), tmp_path, merge=True)

        assert rows_seen(tmp_path) == everything(("t", 10), ("u", 4))
        extents = [(one.topic, one.first, one.end) for one in read_manifests(tmp_path)]
        assert extents == [("t", 0, 7), ("t", 7, 10), ("u", 0, 4)]

    def test_keeps_the_files_before_a_merge_for_those_who_read_them(self, tmp_path: Path) -> None:
        proxy = a_log(9)
        catch_up(proxy, tmp_path)
        before = sorted((tmp_path / MESSAGES).resolve().glob("*.parquet"))
        catch_up(proxy, tmp_path, merge=True)

        assert all(path.is_file() for path in before)
        catch_up(proxy, tmp_path)
        assert all(path.is_file() for path in before)
        put(proxy, 3)
        catch_up(proxy, tmp_path, merge=True)
        catch_up(proxy, tmp_path)
        assert not any(path.exists() for path in before)

    def test_belongs_to_one_process(self, tmp_path: Path) -> None:
        with Archive(tmp_path), pytest.raises(InUseError, match="the archive"):
            Archive(tmp_path)

    def test_is_not_made_in_a_folder_that_holds_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").touch()

        with pytest.raises(ConfigurationError, match=r"holds 'thesis\.tex'"):
            Archive(tmp_path)

    def test_is_told_from_a_folder_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="is no archive"):
            read_manifests(tmp_path)


class TestWhatIsGone:
    def test_from_the_proxy_stops_the_archive(self, tmp_path: Path) -> None:
        proxy = a_broker(settings=KEEP_NOTHING)
        put(proxy, 3)
        catch_up(proxy, tmp_path)
        put(proxy, 3, 3)
        proxy.tick()
        start = proxy.state.topics["t"].start
        assert start > 3

        with pytest.raises(DataLossError, match=f"the first that is left is {start}"):
            catch_up(proxy, tmp_path)
        assert catch_up(proxy, tmp_path, fail_on_data_loss=False) == 9 - start

    def test_with_another_log_under_the_same_name_stops_the_archive(self, tmp_path: Path) -> None:
        catch_up(a_log(3), tmp_path)
        other = a_log(5)
        other.state.topics["t"].log = "0000000000000000.1"

        with pytest.raises(DataLossError, match="another topic"):
            catch_up(other, tmp_path)

    def test_from_the_folder_is_told_and_not_written_again(self, tmp_path: Path) -> None:
        proxy = a_log(3)
        catch_up(proxy, tmp_path)
        (path,) = (tmp_path / MESSAGES).glob("*.parquet")
        path.unlink()

        for look in (lambda: catch_up(proxy, tmp_path), lambda: read_manifests(tmp_path)):
            with pytest.raises(DamagedError, match="offsets 0 to 2 of 't'"):
                look()

    def test_of_a_file_is_told_when_it_is_read(self, tmp_path: Path) -> None:
        catch_up(a_log(3), tmp_path)
        ((manifest, path),) = archived_files(tmp_path)
        content = bytearray(path.read_bytes())
        content[10] ^= 1
        path.write_bytes(content)

        with pytest.raises(DamagedError, match="the file was changed"):
            list(archived_rows(manifest, path, ["offset"]))


class Mortal:
    """The changes of the file system, counted; one of them is the last of its process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.count = 0
        self.last: int | None = None
        for name in EFFECTS:
            monkeypatch.setattr(files, name, self._counted(getattr(files, name)))

    def _counted(self, effect: Callable[..., None]) -> Callable[..., None]:
        def act(*arguments: Any) -> None:
            self.count += 1
            if self.count == self.last:
                raise Died
            effect(*arguments)
            if effect in VISIBLE:
                assert_whole_and_once(self.folder)

        return act


def lives(proxy: MemoryProxy) -> Iterator[None]:
    """What goes on at the proxy from run to run."""
    put(proxy, 4, 1, 5)
    put(proxy, 2, 2, topic="u")
    yield
    put(proxy, 4)
    yield


def test_whenever_it_dies_readers_see_whole_files_once_and_the_end_is_the_same(
    tmp_path: Path,
) -> None:
    """Dies before each change of the file system, one after another; what readers see is judged
    behind each."""
    steps = live_and_die(tmp_path / "to the end", last=None)
    assert steps > 40
    for last in range(1, steps + 1):
        live_and_die(tmp_path / str(last), last=last)


def live_and_die(folder: Path, *, last: int | None) -> int:
    """Two runs, the proxy gets more in between; then one more run that nothing disturbs.

    Returns:
        How many changes the first two made.
    """
    proxy = a_broker()
    with pytest.MonkeyPatch.context() as patch:
        mortal = Mortal(folder, patch)
        mortal.last = last
        died = False
        for _ in lives(proxy):
            try:
                catch_up(proxy, folder, merge=True)
            except Died:
                died = True
                assert_whole_and_once(folder)
        assert died == (last is not None)
    put(proxy, 1)
    catch_up(proxy, folder)
    assert rows_seen(folder) == everything(("t", 15), ("u", 4))
    named = {path.name for path in (folder / MESSAGES).glob("*.parquet")}
    assert named == {one.name for one in read_manifests(folder)}
    return mortal.count


def test_its_files_have_names_that_no_reader_leaves_out() -> None:
    assert file_name("_a/ü b:1", "log", 3, 20).startswith("a---b-1.")
    assert file_name("...", "log", 0, 1).startswith("topic.")
    assert file_name("a/b", "log", 0, 1) != file_name("a-b", "log", 0, 1)
    assert file_name("a", "log", 0, 1) != file_name("a", "other", 0, 1)
    assert len(file_name("x" * 255, "log", 0, 1)) < 140


def a_file(first: int, end: int, topic: str = "t") -> Manifest:
    return Manifest(
        topic=topic,
        log="x",
        first=first,
        end=end,
        rows=end - first,
        first_ns=1,
        witness_ns=None,
        bytes=0,
        sha256="",
        staged="",
    )


class TestMerging:
    @given(st.lists(st.integers(1, 9), max_size=12), st.integers(1, 20))
    def test_takes_neighbours_up_to_a_size_and_loses_none(
        self, sizes: list[int], rows_max: int
    ) -> None:
        ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
        all_files = [a_file(end - size, end) for size, end in zip(sizes, ends, strict=True)]

        groups = merges(reversed(all_files), rows_max)

        merged = [one for group in groups for one in group]
        assert merged == [one for one in all_files if one in merged]
        for group in groups:
            assert len(group) > 1
            assert sum(one.rows for one in group) <= rows_max
            assert all(a.end == b.first for a, b in pairwise(group))

    def test_goes_over_no_gap_and_mixes_no_topics(self) -> None:
        gap = [a_file(0, 2), a_file(3, 4)]
        mixed = [a_file(0, 2), a_file(2, 4, topic="u")]
        of_two_logs = [a_file(0, 2), replace(a_file(2, 4), log="y")]

        assert merges([*gap], 9) == merges(mixed, 9) == merges(of_two_logs, 9) == []

    def test_knows_the_order_of_logs_by_their_first_message(self) -> None:
        older, newer = replace(a_file(5, 9), first_ns=1), replace(a_file(0, 2), log="a", first_ns=2)

        assert in_order([newer, older]) == [older, newer]
