"""The driver of a test in `test_cluster`: writes in parts on a cluster, parts of which are killed.

python -m tests.pipeline.parts_on_cluster MASTER DIRECTORY PUBLISHERS SUBSCRIBERS
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.pipeline.data_source import FORMAT
from reliable_pubsub.pipeline.sessions import open_session
from tests.integration.harness import eventually

from .jobs import BUSY_S
from .quick_java import java_options

TASKS = 4
ROWS = 12_000  # of 1,000 bytes: each task has some three parts
TOPIC = "t"


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Kill:
    """Ends the executor and the worker that run the first task, once a part of it is stored."""

    def __init__(self, directory: Path, subscribers: str) -> None:
        self._mark = directory / "died"
        self._subscribers = subscribers

    def __call__(self, value: str) -> str:
        """In the task: pass a row on; before the last one of the task, kill."""
        if int(value) == ROWS // TASKS - 1 and not self._mark.exists():
            status = StatusClient(self._subscribers, RetryPolicy())
            eventually(lambda: self._stored(status), "part that is stored", timeout_s=BUSY_S)
            self._mark.touch()
            executor = parent(os.getppid())
            for pid in (parent(executor), executor):
                os.kill(pid, signal.SIGKILL)
        return value

    def _stored(self, status: StatusClient) -> bool:
        return any(
            one.publisher == f"{TOPIC}-part-0" and one.last_sequence > 0
            for topic in status.ask().topics
            for one in topic.publishers
        )


def rows(spark: SparkSession) -> DataFrame:
    frame = spark.range(ROWS, numPartitions=TASKS)
    return frame.selectExpr("lpad(cast(id as string), 1000, '0') as value")


def main(master: str, directory: Path, publishers: str, subscribers: str) -> None:
    """Write a topic while a worker is killed, and then once more."""
    settings = {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
        "spark.ui.enabled": "false",
        "spark.executor.extraJavaOptions": java_options(),
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
    }
    spark = open_session("parts", master=master, conf=settings)
    kill = udf(Kill(directory, subscribers), "string", useArrow=False)
    named = {"topic": TOPIC, "txnAppId": TOPIC, "txnVersion": "0", "atomic": "false"}
    for frame in (rows(spark).select(kill("value").alias("value")), rows(spark)):
        write = frame.write.format(FORMAT).options(endpoint=publishers, **named)
        write.mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
