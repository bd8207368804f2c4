"""The recipes of docs/how-to/pipeline.md, run as printed, and their batches repeated."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.integration.harness import Service

from .test_documents import PAGE

FIRST, WRITING, UPDATING = re.findall(r"(?s)```python\n(.*?)```", PAGE.split("## Recipes")[0])
BLOCKS = re.findall(r"(?s)```python\n(.*?)```", PAGE.split("## Recipes")[1].split("\n## ")[0])


@pytest.fixture
def topics(spark: SparkSession, service: Service, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Topic t with twenty messages of four keys, as a stream."""
    monkeypatch.chdir(service.directory)
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        for n in range(20):
            value = msgspec.msgpack.encode({"amount": n / 2})
            publisher.put("t", value if n < 10 else b"%d" % n, key=b"k%d" % (n % 4))
    stream = spark.readStream.format("reliable_pubsub")
    return stream.options(endpoint=service.subscriber_endpoint, subscribe="t").load()


def run(block: str, topics: Any, spark: SparkSession) -> dict[str, Any]:
    """Run a recipe until everything that is stored now has passed it."""
    once = block.replace("topics.writeStream", "topics.writeStream.trigger(availableNow=True)")
    # The Java of the session has another working directory, which outlives the test.
    once = once.replace('"checkpointLocation", "', f'"checkpointLocation", "{Path.cwd()}/')
    names = {"topics": topics}
    exec(compile(once, "docs/how-to/pipeline.md", "exec"), names)
    for query in spark.streams.active:
        query.awaitTermination()
    return names


def test_a_repeated_batch_adds_nothing_to_a_delta_table(topics: Any, spark: SparkSession) -> None:
    names = run(BLOCKS[0], topics, spark)

    batch = spark.createDataFrame([("t", 1)], "topic string, offset bigint")
    names["to_delta"](batch, 0)

    assert sorted(DeltaTable("table").to_pandas()["offset"]) == [*range(20)]


def test_a_repeated_batch_does_not_set_the_newest_values_back(
    topics: Any, spark: SparkSession
) -> None:
    names = run(BLOCKS[1], topics, spark)

    names["to_sqlite"](
        spark.createDataFrame([("k3", "old", 3)], "key string, value string, offset bigint"), 0
    )

    with sqlite3.connect("newest.db") as database:
        rows = database.execute("SELECT * FROM newest ORDER BY key").fetchall()
    assert rows == [("k0", "16", 16), ("k1", "17", 17), ("k2", "18", 18), ("k3", "19", 19)]


def test_values_in_msgpack_become_columns(topics: Any, spark: SparkSession) -> None:
    names = run(BLOCKS[2], topics, spark)

    rows = names["amounts"].where("offset < 10").writeStream.format("memory").queryName("amounts")
    rows.trigger(availableNow=True).start().awaitTermination()

    found = spark.sql("SELECT amount FROM amounts ORDER BY offset").collect()
    assert [row.amount for row in found] == [n / 2 for n in range(10)]


def at_the_service(block: str, service: Service) -> str:
    """A block of the page with the endpoint of a test, until all is read, and its files here."""
    endpoint = f'.format("reliable_pubsub").option("endpoint", "{service.subscriber_endpoint}")'
    block = block.replace('.format("reliable_pubsub")', endpoint)
    if "availableNow" not in block:
        block = block.replace(".writeStream", ".writeStream.trigger(availableNow=True)")
    return re.sub(r'((?:path|checkpointLocation)"?[=,] ?")', rf"\1{Path.cwd()}/", block)


@pytest.mark.long  # test_spark_source.py has shorter ones
def test_the_first_query_of_the_page_reads_all_that_is_stored(
    topics: Any, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    with service.open_publisher("q") as publisher:
        publisher.put_many("topic1", [b"a", b"b"])

    exec(at_the_service(FIRST, service), {})

    assert capsys.readouterr().out == "{'topic1': 0}\n"


@pytest.mark.long  # test_sink.py has shorter ones
def test_the_writers_of_the_page_put_each_row(
    topics: Any, service: Service, spark: SparkSession
) -> None:
    rows = topics.selectExpr("string(key) as device", "timestamp as event_time", "offset")
    table = spark.createDataFrame([("from the table",)], "value string")
    counts = topics.groupBy("key").count().selectExpr("key", "string(count) as value")
    for block in (WRITING, UPDATING):
        exec(at_the_service(block, service), {"rows": rows, "table": table, "counts": counts})
        for query in spark.streams.active:
            query.awaitTermination()

    with service.open_subscriber("s") as subscriber:
        alerts = [message.payload for message in subscriber.history("alerts")]
        found = [message.payload for message in subscriber.history("counts")]
    assert len(alerts) == 21
    assert b"from the table" in alerts
    assert sorted(found) == [b"5"] * 4
