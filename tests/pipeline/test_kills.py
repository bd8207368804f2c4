"""kill -9 at every party of a job: the end is that of a run that nothing disturbed.

The moments are made, not met: a link stops to pass answers, so that a task stands in the middle of
its work until the test has done its own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import defaultdict
from itertools import count
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from reliable_pubsub.common.core.transaction_messages import CommitAck, StageAck
from reliable_pubsub.lab.rig.link import LinkTo
from reliable_pubsub.pipeline.archive import archived_files, read_manifests
from reliable_pubsub.pipeline.archive_tasks import check_file
from reliable_pubsub.pipeline.numbered import BATCH_RECORDS
from tests.integration.harness import Process, Service, eventually, losing_link

from .jobs import BUSY_S, Jobs, end_of, java_of, kill_with_its_java, run_here, stopped_when
from .test_sink import staged
from .test_spark_source import put
from .writing import copy_rows, write_parts

ROWS_PER_FILE = 250


@pytest.fixture
def jobs(service: Service, monkeypatch: pytest.MonkeyPatch) -> Jobs:
    """Jobs against a running proxy."""
    service.start_proxy()
    return Jobs(service, monkeypatch)


def stalled(link: LinkTo, process: Process) -> None:
    """Wait until a job has asked for an answer that it does not get."""

    def look() -> bool:
        assert process.exit_code is None, process.stderr
        return link.is_losing

    eventually(look, f"end of the answers for {process}", timeout_s=BUSY_S)


class Archive:
    """`pipeline archive` of topic t, run again and again."""

    def __init__(self, service: Service, jobs: Jobs) -> None:
        self._jobs = jobs
        self.folder = service.directory / "archive"
        self.words = (
            *("archive", "--topic", "t", "--folder", str(self.folder)),
            *("--rows-per-file", str(ROWS_PER_FILE)),
        )

    @property
    def committed(self) -> int:
        """How many files are there for readers."""
        return len(read_manifests(self.folder))

    @property
    def staged(self) -> int:
        """How many files tasks have written that are not, or not yet, part of the table."""
        return len(list(self.folder.rglob("*.parquet"))) - self.committed

    def values(self) -> list[int]:
        """What a reader of the table sees."""
        table = DeltaTable(self.folder).to_pyarrow_dataset().to_table(columns=["value"])
        return sorted(int(value) for value in table.column(0).to_pylist())


@pytest.mark.long
@pytest.mark.usefixtures("jobs_in_this_spark")
def test_an_archive_whose_driver_java_and_proxy_are_killed_is_that_of_a_calm_run(
    service: Service, jobs: Jobs
) -> None:
    rows = 30 * ROWS_PER_FILE
    put(service, "t", rows, batch=ROWS_PER_FILE)
    archive = Archive(service, jobs)

    # Two answers to the driver, then one to each task: the fourth round has written one file.
    with losing_link(service.subscriber_endpoint, answers=9) as link:
        jobs.endpoints(subscriber=link.endpoint)
        driver = jobs.start(*archive.words, "--master", "local[1]", "--available-now")
        stalled(link, driver)
        assert archive.staged > 0
        before = archive.committed
        # The proxy: the job continues.
        service.restart_proxy()
        link.lose_answers(8)
        eventually(lambda: archive.committed > before, "a commit after that", timeout_s=BUSY_S)
        stalled(link, driver)
        kill_with_its_java(driver)
    archived = len(archive.values())
    assert archive.values() == list(range(archived))
    assert archived < rows

    jobs.endpoints()
    news: list[int] = []

    def has_a_second_round() -> bool:
        count = len(archive.values())
        if count == rows and not news:
            put(service, "t", 100)
            news.append(100)
        return count > rows

    with stopped_when(has_a_second_round, "second round"):
        said = run_here(service, *archive.words, "--every", "0.1")
    assert f"done: archived {rows - archived} messages in" in said
    assert said.endswith("\narchived 100 messages\n")
    assert archive.values() == list(range(rows + 100))
    assert all(map(check_file, archived_files(archive.folder)))


@pytest.mark.long
@pytest.mark.usefixtures("jobs_in_this_spark")
def test_a_load_whose_java_is_killed_has_put_each_line_once_and_in_order(
    service: Service, jobs: Jobs
) -> None:
    files = {name: lines(service.directory / f"{name}.txt", 8 * BATCH_RECORDS) for name in "ab"}
    words = ("load", "--topic", "t", *(f"--file={name}.txt" for name in files))

    # Two answers greet the publisher of each file, so both have batches that are stored, and one
    # that is unknown.
    with losing_link(service.publisher_endpoint, answers=8) as link:
        jobs.endpoints(publisher=link.endpoint)
        driver = jobs.start(*words, "--master", "local[2]")
        stalled(link, driver)
        os.kill(java_of(driver), signal.SIGKILL)
        assert end_of(driver) == 3
        assert "error [SPARK_GONE]: " in driver.stderr
        link.heal()  # a task that has outlived its driver may continue

        jobs.endpoints()
        said = run_here(service, *words)

    put_now, before = (int(word) for word in said.split() if word.isdigit())
    assert before >= BATCH_RECORDS
    assert put_now > 0
    assert put_now + before == sum(map(len, files.values()))
    assert payloads_by_publisher(service, "t") == sorted(files.values())


def lines(path: Path, number: int) -> list[bytes]:
    content = [b"%s %d" % (path.stem.encode(), n) for n in range(number)]
    path.write_bytes(b"\n".join(content))
    return content


def payloads_by_publisher(service: Service, topic: str) -> list[list[bytes]]:
    """The content of a topic, in order, by publisher."""
    found: defaultdict[str, list[bytes]] = defaultdict(list)
    with service.open_subscriber("reader") as reader:
        for first in count(0, 1000):
            messages = reader.history(topic, first, max_messages=1000)
            if not messages:
                return sorted(found.values())
            for one in messages:
                found[one.publisher].append(one.payload)
    raise AssertionError


def test_a_replay_that_is_killed_puts_each_message_once(service: Service, jobs: Jobs) -> None:
    rows = 4 * BATCH_RECORDS
    put(service, "t", rows, batch=BATCH_RECORDS)
    words = ("replay", "--topic", "t", "--to", "u")

    with losing_link(service.publisher_endpoint, answers=4) as link:
        jobs.endpoints(publisher=link.endpoint)
        process = jobs.start(*words)
        stalled(link, process)
        process.kill()
    jobs.endpoints()
    done = jobs.run(*words)

    assert f"done: {rows} messages" not in done.stdout
    assert service.payloads("u") == [b"%d" % n for n in range(rows)]


class Copy:
    """A query from topic `t` to topic `u`, in batches of 200 rows, run again and again."""

    def __init__(self, service: Service, folder: Path) -> None:
        self._service = service
        self._checkpoint = folder / "checkpoint"

    def start(self, sink: str, *, partitions: int) -> Process:
        """Start the query in a process, with the endpoint of its sink, and continue."""
        words = (self._service.subscriber_endpoint, sink, str(self._checkpoint), str(partitions))
        command = [sys.executable, "-m", "tests.pipeline.writing", "copy_rows", *words]
        return self._service.run_command("query", command)

    def run(self, spark: SparkSession, *, partitions: int) -> None:
        """Run the query here, to its end."""
        service = self._service
        source, sink = str(service.subscriber_endpoint), str(service.publisher_endpoint)
        copy_rows(spark, source, sink, str(self._checkpoint), str(partitions))

    @property
    def rows(self) -> list[int]:
        """What topic `u` holds."""
        return [int(text) for text in self._service.payloads("u")]

    @property
    def noted(self) -> int:
        """How many batches have their entry in Spark's log of commits."""
        return len(list((self._checkpoint / "commits").glob("[0-9]*")))


def test_a_copy_whose_driver_java_and_proxy_are_killed_has_each_row_once_and_in_order(
    service: Service, jobs: Jobs, spark: SparkSession, tmp_path: Path
) -> None:
    put(service, "t", 500, batch=50)
    copy = Copy(service, tmp_path)

    # Driver and Java, while the two tasks of a batch stage it.
    with losing_link(service.publisher_endpoint, answers=1, kind=StageAck) as link:
        query = copy.start(link.endpoint, partitions=2)
        stalled(link, query)
        kill_with_its_java(query)
        assert (copy.rows, copy.noted) == ([], 0)
        assert staged(service) > 0
        link.heal()  # a task that has outlived its driver may continue

        with losing_link(service.publisher_endpoint, answers=1, kind=CommitAck) as second:
            query = copy.start(second.endpoint, partitions=5)
            stalled(second, query)
            eventually(lambda: len(copy.rows) == 400, "a second commit", timeout_s=BUSY_S)
            eventually(lambda: copy.noted == 1, "Spark's note of the first", timeout_s=BUSY_S)
            # The proxy, at a commit: the query continues.
            service.restart_proxy()
            second.lose_answers(1, CommitAck)
            eventually(lambda: len(copy.rows) == 500, "the last commit", timeout_s=BUSY_S)
            eventually(lambda: copy.noted == 2, "Spark's note of the one before", timeout_s=BUSY_S)
            # Driver and Java, between a commit and Spark's own.
            kill_with_its_java(query)
    copy.run(spark, partitions=2)

    assert copy.noted == 3
    assert copy.rows == [*range(500)]
    assert len(service.topic("u").publishers) == 1
    assert staged(service) == 0


@pytest.mark.long
def test_a_write_of_parts_whose_driver_and_java_are_killed_has_each_row_once_when_it_is_repeated(
    service: Service, jobs: Jobs, spark: SparkSession
) -> None:
    with losing_link(service.publisher_endpoint, answers=4, kind=CommitAck) as link:
        command = [sys.executable, "-m", "tests.pipeline.writing", "write_parts", link.endpoint]
        write = service.run_command("write", command)
        stalled(link, write)
        kill_with_its_java(write)
    assert 0 < service.topic("u").end < 60

    for _ in range(2):
        write_parts(spark, str(service.publisher_endpoint))

    stored = [int(text) for text in service.payloads("u")]
    assert [n for n in stored if n < 30] == [*range(30)]
    assert [n for n in stored if n >= 30] == [*range(30, 60)]
    assert staged(service) == 0
