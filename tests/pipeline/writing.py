"""Queries that put rows, for tests that kill them, and run them once more.

python -m tests.pipeline.writing FUNCTION ENDPOINT...
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from pyspark.sql import SparkSession

from reliable_pubsub.pipeline import session
from reliable_pubsub.pipeline.data_source import FORMAT

PATIENT = {"timeoutMs": "2000", "retries": "300"}


def copy_rows(spark: SparkSession, source: str, sink: str, checkpoint: str, cut: str) -> None:
    """Copy topic t to topic u by a stream, in batches of 200 rows, to its end."""
    rows = spark.readStream.format(FORMAT).options(endpoint=source, subscribe="t", **PATIENT)
    rows = rows.options(maxOffsetsPerTrigger="200", minPartitions=cut)
    stream = rows.load().select("value").writeStream.format(FORMAT)
    stream = stream.options(endpoint=sink, topic="u", checkpointLocation=checkpoint, **PATIENT)
    query = stream.trigger(availableNow=True).start()
    query.awaitTermination()


def write_parts(spark: SparkSession, sink: str) -> None:
    """Write 60 rows of 100,000 bytes to topic u, in parts, by two tasks."""
    rows = spark.range(60, numPartitions=2).selectExpr("rpad(string(id), 100000, ' ') as value")
    write = rows.write.format(FORMAT).mode("append").options(endpoint=sink, topic="u", **PATIENT)
    write.options(txnAppId="nightly", txnVersion="1", atomic="false").save()


if __name__ == "__main__":
    acts: dict[str, Callable[..., None]] = {"copy_rows": copy_rows, "write_parts": write_parts}
    acts[sys.argv[1]](session(master="local[2,4]"), *sys.argv[2:])
