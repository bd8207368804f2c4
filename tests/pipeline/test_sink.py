"""The sink on a real Spark and a real proxy: each row once, also when one of them dies."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.cloudpickle import dumps, loads
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.status import StagingStatus
from reliable_pubsub.pipeline.core.sink_options import SinkOptions
from reliable_pubsub.pipeline.data_source import FORMAT
from reliable_pubsub.pipeline.sink import BatchSink, StreamSink
from reliable_pubsub.publisher.core.outbox import Encoded
from reliable_pubsub.publisher.writer import TransactionWriter
from tests.integration.harness import LOOK_AGAIN_S, NOWHERE, Service, eventually

from .test_spark_source import patiently, put

STUBBORN = {"timeoutMs": "300", "retries": "1000"}
Change = Callable[[bytes], bytes]  # of a value; the tests make it fail, or wait


@pytest.fixture(autouse=True)
def small_steps(spark: SparkSession) -> Iterator[None]:
    """Rows reach the sink in small portions, so that something is staged while a task runs."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = spark.conf.get(name)
    spark.conf.set(name, "100")
    yield
    spark.conf.set(name, str(before))


def changed(frame: DataFrame, change: Change) -> DataFrame:
    return frame.select(udf(change, BinaryType(), useArrow=False)("value").alias("value"))


def long_numbers(spark: SparkSession, count: int) -> DataFrame:
    """Two tasks of rows that are many batches."""
    text = "cast(lpad(value, 1000, '0') as binary) as value"
    return numbers(spark, count).selectExpr(text)


def write(frame: DataFrame, service: Service, **options: str) -> None:
    given = {"endpoint": service.publisher_endpoint, **STUBBORN, **options}
    frame.write.format(FORMAT).options(**given).mode("append").save()


def staged(service: Service) -> int:
    """Batches that wait for a commit."""
    staging = service.status().staging
    return staging.batches if isinstance(staging, StagingStatus) else 0


def numbers(spark: SparkSession, count: int, *, tasks: int = 2) -> DataFrame:
    return spark.range(count, numPartitions=tasks).selectExpr("cast(id as string) as value")


def tasks_that_ended(spark: SparkSession) -> int:
    """The number of ended tasks in the stages that are running."""
    tracker = spark.sparkContext.statusTracker()
    stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


class Hold:
    """Keeps a task at the first of some rows until `let_go`."""

    def __init__(self, folder: Path, *values: int) -> None:
        self._values = values
        self._waiting = folder / "waiting"
        self._go = folder / "go"

    def __call__(self, value: bytes) -> bytes:
        """In the task: pass a value on, perhaps later."""
        if int(value) in self._values:
            self._waiting.touch()
            while not self._go.exists():
                time.sleep(LOOK_AGAIN_S)
        return value

    def wait_for_task(self) -> None:
        """Wait until one is kept."""
        eventually(self._waiting.exists, "task that waits")

    def let_go(self) -> None:
        """From now on no task is kept."""
        self._go.touch()


def sorted_numbers(service: Service, topic: str = "u") -> list[int]:
    return sorted(map(int, service.payloads(topic)))


class Copy:
    """A query from topic `t` to topic `u`, with its checkpoint."""

    def __init__(self, spark: SparkSession, service: Service, folder: Path) -> None:
        self._spark = spark
        self._service = service
        self.checkpoint = folder / "checkpoint"

    def start(self, change: Change | None = None, **options: str) -> StreamingQuery:
        read = {"endpoint": self._service.subscriber_endpoint, "subscribe": "t", **STUBBORN}
        frame = self._spark.readStream.format(FORMAT).options(**read, **options).load()
        frame = frame.select("value")
        if change is not None:
            frame = changed(frame, change)
        return (
            frame.writeStream.format(FORMAT)
            .options(endpoint=self._service.publisher_endpoint, topic="u", **STUBBORN)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )

    def run(self, **options: str) -> None:
        def act() -> None:
            self.start(None, **options).awaitTermination()

        patiently(act)

    def forget_last_commit(self) -> int:
        """As if the JVM had died between the commit of the sink and its own; returns the batch."""
        logs = [
            int(one.name) for one in (self.checkpoint / "commits").iterdir() if one.name.isdigit()
        ]
        for one in (self.checkpoint / "commits").glob(f"*{max(logs)}*"):
            one.unlink()
        return max(logs)


@pytest.fixture
def copy(spark: SparkSession, service: Service, tmp_path: Path) -> Copy:
    return Copy(spark, service, tmp_path)


class TestABatch:
    def test_becomes_messages_of_several_topics_in_one_transaction(
        self, spark: SparkSession, service: Service
    ) -> None:
        service.start_proxy()
        frame = spark.sql(
            "select 'a' as topic, 'k' as key, '1' as value, map('h', 'v') as headers "
            "union all select 'b', null, '2', null"
        )

        patiently(lambda: write(frame, service, sinkId="job"))

        with service.open_subscriber("s") as reader:
            (one,), (two,) = reader.history("a", 0), reader.history("b", 0)
        assert (one.payload, one.key, one.headers) == (b"1", b"k", {"h": "v"})
        assert (two.payload, two.key, two.headers) == (b"2", None, None)
        assert one.publisher == two.publisher
        assert one.publisher.startswith("job-")

    def test_with_a_version_is_stored_once_however_often_it_is_written(
        self, spark: SparkSession, service: Service
    ) -> None:
        service.start_proxy()
        for version in ("0", "0", "1", "0"):
            frame = numbers(spark, 100, tasks=1 + int(version))
            named = {"txnAppId": "nightly", "txnVersion": version}
            patiently(lambda f=frame, n=named: write(f, service, topic="u", **n))  # type: ignore[misc]

        assert sorted_numbers(service) == sorted([*range(100)] * 2)
        assert staged(service) == 0

    def test_with_a_task_that_is_tried_again_is_stored_once(
        self, spark: SparkSession, service: Service
    ) -> None:
        """The first try dies after rows that it has staged."""
        service.start_proxy()

        def dies_once(value: bytes) -> bytes:
            context = TaskContext.get()
            assert context is not None
            if int(value) % 2_000 == 1_999 and context.attemptNumber() == 0:
                raise RuntimeError("the first try ends here")
            return value

        frame = changed(long_numbers(spark, 4_000), dies_once)
        patiently(lambda: write(frame, service, topic="u"))

        assert sorted_numbers(service) == [*range(4_000)]
        assert staged(service) == 0

    def test_above_what_a_proxy_stages_is_stored_as_several_transactions_once(
        self, spark: SparkSession, service: Service
    ) -> None:
        (service.directory / "proxy").mkdir()
        service.file("proxy/settings.json", json.dumps({"staged_bytes_max": 4 * MIB}))
        service.start_proxy()
        frame = numbers(spark, 8).selectExpr("rpad(value, 900000, ' ') as value")
        named = {"topic": "u", "txnAppId": "nightly", "txnVersion": "7"}

        # One task: another would stage on for a moment after the driver has dropped its rows.
        with pytest.raises(PySparkException, match="option atomic=false"):
            patiently(lambda: write(frame.coalesce(1), service, **named))
        assert service.status().topics == ()
        patiently(lambda: write(frame, service, atomic="false", **named))

        topic = service.topic("u")
        assert topic.end == 8
        assert {one.publisher: one.last_sequence for one in topic.publishers} == {
            "nightly-part-0": 4,
            "nightly-part-1": 4,
        }
        assert staged(service) == 0

    def test_of_parts_continues_where_it_failed_and_stores_each_row_once_in_its_order(
        self, spark: SparkSession, service: Service
    ) -> None:
        """Every try of one task dies in the middle; the same write is done again."""
        service.start_proxy()

        def dies(value: bytes) -> bytes:
            if int(value) == 5_999:
                raise RuntimeError("every try ends here")
            return value

        frame = long_numbers(spark, 6_000)
        named = {"topic": "u", "txnAppId": "nightly", "txnVersion": "0", "atomic": "false"}
        with pytest.raises(PySparkException, match="every try ends here"):
            patiently(lambda: write(changed(frame, dies), service, **named))
        before = service.topic("u").end
        patiently(lambda: write(frame, service, **named))

        assert 0 < before < 6_000
        assert sorted_numbers(service) == [*range(6_000)]
        stored = [int(text) for text in service.payloads("u")]
        assert [n for n in stored if n >= 3_000] == [*range(3_000, 6_000)]

    def test_that_fails_leaves_nothing(self, spark: SparkSession, service: Service) -> None:
        service.start_proxy()

        def dies(value: bytes) -> bytes:
            if int(value) == 3_999:
                raise RuntimeError("every try ends here")
            return value

        frame = changed(long_numbers(spark, 4_000), dies)
        with pytest.raises(PySparkException, match="every try ends here"):
            write(frame, service, topic="u")

        assert service.status().topics == ()
        assert eventually(lambda: staged(service) == 0, "end of the abort")

    def test_that_fails_ends_a_task_that_is_still_at_work(self, service: Service) -> None:
        """Spark aborts without waiting for every task; what they stage then would stay."""
        service.start_proxy()
        sink = BatchSink(SinkOptions(endpoint=service.publisher_endpoint))
        batch = Encoded("u", 1, crc32(b"one"), b"one")

        with TransactionWriter(sink.writer, endpoint=service.publisher_endpoint) as task:
            assert task.stage(sink.transaction, 0, b"a" * 16, 0, batch)
            sink.abort([])
            assert not task.stage(sink.transaction, 0, b"b" * 16, 0, batch)

        assert staged(service) == 0

    def test_that_cannot_be_written_says_why(self, spark: SparkSession, service: Service) -> None:
        with pytest.raises(PySparkException, match="did you mean 'topic'"):
            patiently(lambda: write(numbers(spark, 10), service, topik="u"))

    def test_does_not_replace_a_topic(self, spark: SparkSession, service: Service) -> None:
        writer = numbers(spark, 10).write.format(FORMAT).option("topic", "u").mode("overwrite")
        with pytest.raises(PySparkException, match="a topic only grows"):
            patiently(writer.save)

    def test_saved_as_a_table_is_stored_once_and_the_table_says_how_to_read_it(
        self, spark: SparkSession, service: Service
    ) -> None:
        """Spark makes such a table without a question to the source, which cannot refuse it."""
        service.start_proxy()
        writer = numbers(spark, 10).write.format(FORMAT).mode("append")
        given = {"endpoint": service.publisher_endpoint, "topic": "u", **STUBBORN}
        writer.options(**given).saveAsTable("made")
        try:
            with pytest.raises(PySparkException, match="DROP TABLE removes it"):
                spark.table("made").count()
        finally:
            spark.sql("DROP TABLE made")

        assert sorted(map(int, service.payloads("u"))) == [*range(10)]


class TestAStream:
    def test_that_died_before_spark_noted_the_commit_stores_nothing_twice(
        self, copy: Copy, service: Service
    ) -> None:
        """The batch runs again, with the same number, cut into other tasks."""
        service.start_proxy()
        put(service, "t", 500)
        copy.run(maxOffsetsPerTrigger="200")

        batch = copy.forget_last_commit()
        copy.run(minPartitions="5")
        put(service, "t", 100)
        copy.run()

        assert batch == 2
        assert [int(text) for text in service.payloads("u")] == [*range(600)]
        assert staged(service) == 0
        publishers = {one.publisher for one in service.topic("u").publishers}
        query = json.loads((copy.checkpoint / "metadata").read_text())["id"]
        assert publishers == {f"spark-{query}"}

    def test_whose_proxy_dies_between_stage_and_commit_continues_with_the_same_batch(
        self, copy: Copy, spark: SparkSession, service: Service, tmp_path: Path
    ) -> None:
        """What a task staged that has ended is gone: the query says so, and its next start stages
        again.
        """
        service.start_proxy()
        put(service, "t", 400, size=2_000)
        hold = Hold(tmp_path, 399)

        query = copy.start(hold, minPartitions="2")
        hold.wait_for_task()
        eventually(lambda: tasks_that_ended(spark) == 1, "end of the other task")
        assert staged(service) > 0
        service.restart_proxy()
        hold.let_go()
        with pytest.raises(PySparkException, match="stage the transaction again"):
            query.awaitTermination()
        assert [one.topic for one in service.status().topics] == ["t"]

        copy.run()

        assert sorted_numbers(service) == [*range(400)]

    def test_whose_proxy_dies_while_its_tasks_stage_runs_these_again(
        self, copy: Copy, service: Service, tmp_path: Path
    ) -> None:
        """A task that is still at work hears it, and Spark tries it again: the query never ends."""
        service.start_proxy()
        put(service, "t", 4_000, size=1_000)
        hold = Hold(tmp_path, 1_999, 3_999)

        query = copy.start(hold, minPartitions="2")
        hold.wait_for_task()
        eventually(lambda: staged(service) > 0, "staged batches")
        service.restart_proxy()
        hold.let_go()
        query.awaitTermination()

        assert sorted_numbers(service) == [*range(4_000)]
        assert staged(service) == 0


@pytest.mark.parametrize("kind", [BatchSink, StreamSink])
def test_no_socket_travels_with_a_sink(kind: Any) -> None:
    sink = kind(SinkOptions(endpoint=NOWHERE, topic="t"))

    copied = loads(dumps(sink))  # type: ignore[no-untyped-call]

    assert copied.__dict__ == sink.__dict__
