"""An archive without Spark, over a proxy in memory: every moment at which it may die."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import (
    ConfigurationError,
    DamagedError,
    StorageFailedError,
)
from reliable_pubsub.pipeline import archive as disk
from reliable_pubsub.pipeline.archive import Archive, archived_files, read_manifests
from reliable_pubsub.pipeline.archive_files import LOG, ArchivePlace, Location
from reliable_pubsub.pipeline.archive_tasks import (
    StageRange,
    check_file,
    rows_of,
    stage_range,
    write_range,
)
from reliable_pubsub.pipeline.archiving import Archiving
from reliable_pubsub.pipeline.auditing import unsealed, whereabouts
from reliable_pubsub.pipeline.core.loss import DataLossError
from reliable_pubsub.pipeline.core.manifest import ArchivedFile, Manifest, folder_name, in_order
from reliable_pubsub.pipeline.core.options import SourceOptions
from reliable_pubsub.pipeline.core.planning import MessageRange
from reliable_pubsub.pipeline.job import Access, topics_wanted
from reliable_pubsub.pipeline.replay import ReplayTopic
from reliable_pubsub.pipeline.tasks import SparkTasks
from tests.fakes import PATIENT, Link, MemoryProxy, a_broker

from .test_stream import KEEP_NOTHING, Job, a_log, put

W = TypeVar("W")
R = TypeVar("R")
EFFECTS = ("make_table", "commit")  # of the driver, which others see
DAY_NS = 86_400 * 10**9


@pytest.fixture(autouse=True)
def lazy_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes die here, the power does not fail: nothing waits for the disk."""
    monkeypatch.setattr("os.fsync", lambda descriptor: None)


class Died(Exception):
    """The process is gone."""


class Here(SparkTasks):
    """Tasks in this process, over the same link."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._cores = cycle((2, 3, 1))

    def run(self, act: Callable[[W], R], work: Sequence[W]) -> list[R]:
        """Do it here, without Spark."""
        return [self._act(act, one) for one in work]

    def round_size(self) -> int:
        """Another number at each look, as on a cluster whose workers come and go."""
        return next(self._cores)

    def _act(self, act: Callable[[W], R], one: Any) -> Any:
        if act is stage_range:
            assert isinstance(one, StageRange)
            return write_range(one, self.job.reader())
        return act(one)


def options(**more: Any) -> SourceOptions:
    return topics_wanted((), ".*", endpoint="tcp://127.0.0.1:1", retry=PATIENT, **more)


def catch_up(proxy: MemoryProxy, folder: Location, **more: Any) -> int:
    """One run of the job, with two files at a time of three messages each, at most."""
    job = Job(Link(proxy))
    archiving = Archiving(
        archive=Archive(folder),
        options=options(**{"partition_rows_max": 3, **more}),
        topics=job.topics,
        tasks=Here(job),
    )
    return archiving.catch_up()


def archived_payloads(
    folder: Location, topic: str, first: int | None = None, end: int | None = None
) -> list[bytes]:
    """What a replay of a range of an archive puts."""
    one = whereabouts(options(archive=str(folder)))[topic]
    edges = (one.start if first is None else first, one.end if end is None else end)
    work = ReplayTopic(
        wanted=MessageRange(topic, one.log, *edges),
        archive=str(folder),
        target="again",
        client="replay",
        access=Access("", "", PATIENT),
    )
    reader: Any = None
    return [payload for batch in work.batches(reader) for payload in batch.payloads]


def compact(folder: Location) -> None:
    """Make large files of small ones, as any program that knows Delta may."""
    place = ArchivePlace(folder)
    DeltaTable(place.address, storage_options=place.options).optimize.compact()


def rows_seen(folder: Path) -> list[tuple[str, int, bytes]]:
    """What any reader of Delta sees now: topic, offset, value."""
    names = ["topic", "offset", "value"]
    table = DeltaTable(folder).to_pyarrow_dataset().to_table(columns=names)
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def assert_whole_and_once(folder: Path) -> None:
    """Each topic from its beginning, without a gap, each message once."""
    if not DeltaTable.is_deltatable(str(folder)):
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
            for batch in rows_of(manifest, path, ["publisher", "sequence", "timestamp_ns"])
            for row in batch.to_pylist()
        )
        assert (first["publisher"], first["sequence"]) == ("p", 1)
        assert first["timestamp_ns"] > 0

    def test_continues_where_it_ends(self, tmp_path: Path) -> None:
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
        assert (first.day, len(first.sha256)) == ("2023-11-14", 64)

    def test_has_a_file_for_each_day(self, tmp_path: Path) -> None:
        proxy = a_log(2)
        proxy.now_ns += DAY_NS
        put(proxy, 3)

        catch_up(proxy, tmp_path, partition_rows_max=9)

        days = [(one.day, one.first, one.end) for one in read_manifests(tmp_path)]
        assert days == [("2023-11-14", 0, 2), ("2023-11-15", 2, 5)]

    def test_knows_its_ends_also_from_a_checkpoint_of_delta(self, tmp_path: Path) -> None:
        proxy = a_log(3)
        catch_up(proxy, tmp_path)
        table = DeltaTable(tmp_path)
        table.create_checkpoint()
        *before, _ = sorted((tmp_path / LOG).glob("*.json"))
        for path in before:
            path.unlink()

        assert catch_up(proxy, tmp_path) == 0
        put(proxy, 1)
        assert catch_up(proxy, tmp_path) == 1
        assert rows_seen(tmp_path) == everything(("t", 4))

    def test_is_read_also_when_another_program_has_compacted_it(self, tmp_path: Path) -> None:
        proxy = a_log(3, 4)
        catch_up(proxy, tmp_path)
        compact(tmp_path)

        ((one, path),) = archived_files(tmp_path)
        assert check_file(ArchivedFile(one, path))
        offsets = [row["offset"] for b in rows_of(one, path, ["offset"]) for row in b.to_pylist()]
        assert offsets == [*range(7)]
        (warning,) = unsealed([one])
        assert "1 of 1 files are not sealed" in warning
        put(proxy, 1)

        assert catch_up(proxy, tmp_path) == 1
        assert rows_seen(tmp_path) == everything(("t", 8))
        files = [(file.first, file.end) for file in read_manifests(tmp_path)]
        assert files == [(0, 7), (7, 8)]

    def test_is_not_made_of_another_table(self, tmp_path: Path) -> None:
        DeltaTable.create(tmp_path, disk._SCHEMA)

        with pytest.raises(ConfigurationError, match="not partitioned by topic, log, day"):
            Archive(tmp_path)

    def test_is_not_made_in_a_folder_that_holds_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "thesis.tex").touch()

        with pytest.raises(ConfigurationError, match=r"holds 'thesis\.tex'"):
            Archive(tmp_path)

    def test_is_distinguished_from_a_folder_that_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="is not an archive"):
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

    def test_before_the_archive_begins_is_said_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        proxy = a_broker(settings=KEEP_NOTHING)
        put(proxy, 3)
        proxy.tick()
        put(proxy, 3)

        catch_up(proxy, tmp_path)
        put(proxy, 1)
        catch_up(proxy, tmp_path)

        assert [record.getMessage() for record in caplog.records] == [
            "topic 't': the archive begins at offset 3; the messages before it were removed from "
            "the topic and are in no file"
        ]

    def test_with_another_log_under_the_same_name_stops_the_archive(self, tmp_path: Path) -> None:
        catch_up(a_log(3), tmp_path)
        other = a_log(5)
        other.state.topics["t"].log = "0000000000000000.1"

        with pytest.raises(DataLossError, match="another topic"):
            catch_up(other, tmp_path)

    def test_from_the_folder_is_reported_and_not_written_again(self, tmp_path: Path) -> None:
        proxy = a_log(3)
        catch_up(proxy, tmp_path)
        ((_, path),) = archived_files(tmp_path)
        Path(path).unlink()

        for look in (lambda: catch_up(proxy, tmp_path), lambda: read_manifests(tmp_path)):
            with pytest.raises(DamagedError, match="offsets 0 to 2 of 't'"):
                look()

    def test_of_a_file_is_reported_when_it_is_read(self, tmp_path: Path) -> None:
        catch_up(a_log(3), tmp_path)
        ((manifest, path),) = archived_files(tmp_path)
        content = bytearray(Path(path).read_bytes())
        content[10] ^= 1
        Path(path).write_bytes(content)

        with pytest.raises(DamagedError, match="the file was changed"):
            check_file(ArchivedFile(manifest, path))


class Mortal:
    """The commits of drivers, counted; before or after one of them its process dies."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, last: int | None) -> None:
        self.folder = folder
        self.last = last
        self.moments = 0
        for name in EFFECTS:
            monkeypatch.setattr(disk, name, self._counted(getattr(disk, name)))

    def _counted(self, effect: Callable[..., None]) -> Callable[..., None]:
        def act(*arguments: Any) -> None:
            self._live()
            effect(*arguments)
            assert_whole_and_once(self.folder)
            self._live()

        return act

    def _live(self) -> None:
        self.moments += 1
        if self.moments == self.last:
            raise Died


def lives(proxy: MemoryProxy) -> Iterator[None]:
    """The messages at the proxy, which grow from run to run."""
    put(proxy, 4, 3)
    put(proxy, 2, topic="u")
    yield
    put(proxy, 4)
    yield


def test_whenever_it_dies_readers_see_whole_commits_once_and_the_end_is_the_same(
    tmp_path: Path,
) -> None:
    """Dies before and after each commit, one after another; readers are asked each time."""
    moments = live_and_die(tmp_path / "to the end", last=None)
    assert moments >= 8
    for last in range(1, moments + 1):
        live_and_die(tmp_path / str(last), last=last)


def live_and_die(folder: Path, *, last: int | None) -> int:
    """Two runs, the proxy gets more in between; then one more run that nothing disturbs.

    Returns:
        At how many moments the first two might have died.
    """
    proxy = a_broker()
    with pytest.MonkeyPatch.context() as patch:
        mortal = Mortal(folder, patch, last)
        died = False
        for _ in lives(proxy):
            try:
                catch_up(proxy, folder)
            except Died:
                died = True
                assert_whole_and_once(folder)
        assert died == (last is not None)
    put(proxy, 1)
    catch_up(proxy, folder)
    assert rows_seen(folder) == everything(("t", 12), ("u", 2))
    return mortal.moments


class TestTwoDrivers:
    def test_that_continue_from_the_same_end_archive_each_message_once(
        self, tmp_path: Path
    ) -> None:
        """The second one does a whole round between any two steps of the first one."""
        proxy = a_log(4, 1, 5)

        of_the_other: list[int] = []

        class Racing(Here):
            def run(self, act: Callable[[W], R], work: Sequence[W]) -> list[R]:
                done = super().run(act, work)
                put(proxy, 1)
                of_the_other.append(catch_up(proxy, tmp_path))
                return done

        job = Job(Link(proxy))
        first = Archiving(
            archive=Archive(tmp_path),
            options=options(partition_rows_max=3),
            topics=job.topics,
            tasks=Racing(job),
        )

        rows = first.catch_up()

        assert rows == 0
        assert sum(of_the_other) == 11
        assert rows_seen(tmp_path) == everything(("t", 11))

    def test_are_kept_apart_by_delta_where_both_have_looked_before(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The commit of the other one comes after the last look, just before the own."""
        proxy = a_log(4)
        commit, others = disk.commit, [1]

        def late(*arguments: Any) -> None:
            if others.pop():
                others.append(0)
                catch_up(proxy, tmp_path)
            commit(*arguments)

        monkeypatch.setattr(disk, "commit", late)

        assert catch_up(proxy, tmp_path) == 0
        assert rows_seen(tmp_path) == everything(("t", 4))

    def test_with_different_topics_do_not_hinder_each_other(self, tmp_path: Path) -> None:
        proxy = two_topics()
        first, second = Archive(tmp_path), Archive(tmp_path)
        job = Job(Link(proxy))

        for topic, archive in (("t", first), ("u", second)):
            wanted = topics_wanted((topic,), "", endpoint="tcp://127.0.0.1:1", retry=PATIENT)
            Archiving(
                archive=archive, options=wanted, topics=job.topics, tasks=Here(job)
            ).catch_up()

        assert rows_seen(tmp_path) == everything(("t", 10), ("u", 4))

    def test_may_both_make_the_archive(self, tmp_path: Path) -> None:
        (tmp_path / LOG).mkdir()  # of one that died as it began
        for _ in range(2):
            disk.make_table(ArchivePlace(tmp_path))

        assert read_manifests(tmp_path) == []


class TestACommitInDoubt:
    def test_that_has_happened_is_not_done_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = a_log(4, 1, 5)
        commit = disk.commit

        def unheard_of(*arguments: Any) -> None:
            commit(*arguments)
            raise CommitFailedError("no answer")

        monkeypatch.setattr(disk, "commit", unheard_of)

        assert catch_up(proxy, tmp_path) == 10
        assert rows_seen(tmp_path) == everything(("t", 10))

    def test_that_has_not_happened_is_an_error_and_the_next_run_does_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        proxy = a_log(4)
        with monkeypatch.context() as patch:

            def full(*arguments: Any) -> None:
                raise OSError(28, "No space left on device")

            patch.setattr(disk, "commit", full)
            with pytest.raises(StorageFailedError, match="No space left"):
                catch_up(proxy, tmp_path)

        assert rows_seen(tmp_path) == []
        assert catch_up(proxy, tmp_path) == 4


def test_its_folders_have_names_that_every_file_system_takes() -> None:
    assert folder_name("_a/ü b:1", "log", "2026-11-23").startswith("a---b-1.")
    assert folder_name("...", "log", "2026-11-23").startswith("topic.")
    assert folder_name("a/b", "log", "d") != folder_name("a-b", "log", "d")
    assert folder_name("a", "log", "d") != folder_name("a", "other", "d")
    assert len(folder_name("x" * 255, "log", "2026-11-23")) < 140


def a_file(first: int, end: int, topic: str = "t") -> Manifest:
    return Manifest(
        path=f"{topic}/{first}",
        topic=topic,
        log="x",
        day="2026-11-23",
        first=first,
        end=end,
        rows=end - first,
        first_ns=1,
        last_ns=1,
        bytes=0,
    )


def test_the_first_messages_of_logs_give_their_order() -> None:
    older, newer = replace(a_file(5, 9), first_ns=1), replace(a_file(0, 2), log="a", first_ns=2)

    assert in_order([newer, older]) == [older, newer]
