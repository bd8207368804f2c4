"""The pipeline's part of the benchmark: beside Spark's own job on the same rows, in one session."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from reliable_pubsub import RetryPolicy
from reliable_pubsub.common.core.limits import GIB
from reliable_pubsub.pipeline.archive import Archive, archived_files
from reliable_pubsub.pipeline.archiving import ROWS_PER_FILE, Archiving
from reliable_pubsub.pipeline.data_source import FORMAT
from reliable_pubsub.pipeline.job import topics_wanted
from reliable_pubsub.pipeline.proxy_topics import ProxyTopics
from reliable_pubsub.pipeline.sessions import open_session, start_java
from reliable_pubsub.pipeline.tasks import SparkTasks

from .measuring import (
    PAYLOAD,
    Proxy,
    Putting,
    Row,
    Worker,
    compared,
    cpu_s,
    fill,
    folder,
    percentiles,
    proxy,
)

ROWS = 1_000_000
BATCH = 1_000
SOURCE_ROWS_PER_S = 500_000  # goal on two cores, so a million may cost 4 s of CPU
PUTS = 400  # timed, one every `PAUSE_S`
PAUSE_S = 0.005


def pipeline_rows(rounds: int) -> list[Row]:
    """All of it: a topic of a million messages, and one Spark."""
    with (
        proxy(f"history_bytes: {3 * GIB}\n") as running,
        spark_session() as spark,
        folder() as work,
    ):
        fill(running, ROWS, BATCH)
        jobs = Jobs(spark, running, work)
        jobs.archive(work / "first")  # warm, each once; the copy is made of its files
        jobs.copy("*")
        jobs.read()
        jobs.write()
        archived, copied, read, written, copied_values = [], [], [], [], []
        for _ in range(rounds):
            copied.append(ROWS / seconds_of(lambda: jobs.copy("*")))
            archived.append(ROWS / seconds_of(jobs.archive))
            read.append(ROWS / seconds_of(jobs.read))
            copied_values.append(ROWS / seconds_of(lambda: jobs.copy("value")))
            written.append(ROWS / seconds_of(jobs.write))
        return [
            compared(
                f"archive of {ROWS:,} messages of {len(PAYLOAD)} bytes",
                "messages/s",
                archived,
                copied,
                "Spark copies the same rows from Parquet to Parquet",
                0.5,
            ),
            compared(
                "sink: the same messages from Parquet to a topic, one transaction",
                "messages/s",
                written,
                copied_values,
                "Spark copies their values from Parquet to Parquet",
                0.3,
            ),
            Row(
                work="source: read, and written to nothing",
                ours=statistics.median(read),
                unit="messages/s",
            ),
            cpu_of_a_read(jobs),
            put_beside(running, jobs),
        ]


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """On two cores, as the goals are."""
    start_java("local[2]", None, quiet=True)
    spark = open_session("bench", master="local[2]")
    try:
        yield spark
    finally:
        spark.stop()


def seconds_of(act: Callable[[], None]) -> float:
    """How long it takes."""
    begin_s = time.perf_counter()
    act()
    return time.perf_counter() - begin_s


class Jobs:
    """What is measured."""

    def __init__(self, spark: SparkSession, running: Proxy, work: Path) -> None:
        self._spark = spark
        self._endpoint = running.subscribers
        self._publishers = running.publishers
        self._work = work

    def archive(self, where: Path | None = None) -> None:
        """As `pipeline archive --available-now` does it."""
        options = topics_wanted(
            ["bench"],
            "",
            endpoint=self._endpoint,
            retry=RetryPolicy(),
            partition_rows_max=ROWS_PER_FILE,
        )
        path = where or self._work / "again"
        topics, tasks = ProxyTopics(options), SparkTasks(self._spark)
        rows = Archiving(
            archive=Archive(path),
            options=options,
            topics=topics,
            tasks=tasks,
        ).catch_up()
        topics.close()
        assert rows == ROWS
        if where is None:
            shutil.rmtree(path)

    def _archived(self, column: str) -> DataFrame:
        paths = [path for _, path in archived_files(self._work / "first")]
        return self._spark.read.parquet(*paths).select(column)

    def copy(self, column: str) -> None:
        """Spark's own: the files of the first archive, all columns of them or one."""
        self._archived(column).write.mode("overwrite").parquet(str(self._work / "copy"))

    def write(self) -> None:
        """The values of the first archive, to a topic."""
        writer = self._archived("value").write.format(FORMAT).option("topic", "written")
        writer.option("endpoint", self._publishers).mode("append").save()

    def read(self) -> None:
        """All columns of the source, to a sink that takes everything."""
        source = self._spark.read.format(FORMAT).option("endpoint", self._endpoint)
        frame = source.option("subscribe", "bench").load()
        frame.write.format("noop").mode("overwrite").save()


def cpu_of_a_read(jobs: Jobs) -> Row:
    """What a read costs, whatever else the machine does."""
    before_s = cpu_s(os.getpid())
    jobs.read()
    return Row(
        work="the same, CPU of driver, Java, tasks and proxy together",
        unit="s",
        ours=cpu_s(os.getpid()) - before_s,
        at_most=2 * ROWS / SOURCE_ROWS_PER_S,
    )


def put_beside(running: Proxy, jobs: Jobs) -> Row:
    """Single puts of another client: alone, and while archives are made one after another."""
    with Worker(Putting, "bench-beside", running.publishers, "beside") as putting:
        _, idle_s = percentiles(putting.call("put", PUTS, PAUSE_S))
        putting.begin("put", PUTS, PAUSE_S)
        while not putting.is_done():
            jobs.archive()
        _, busy_s = percentiles(putting.result())
    return Row(
        work="one message per put while an archive is made, p99",
        unit="ms",
        ours=busy_s * 1e3,
        bare=idle_s * 1e3,
        against="the same client alone",
        ratio=busy_s / idle_s,
        at_most=5,
    )
