"""What spark-submit runs on a cluster for `test_cluster`; it writes what it saw to `seen.json`.

    spark-submit ... --py-files PACKAGE.zip on_cluster.py DIRECTORY PUBLISHERS SUBSCRIBERS

Its Python has what the package needs, and not the package: that comes with `--py-files`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reliable_pubsub
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.pipeline import session
from reliable_pubsub.pipeline.job import Access
from reliable_pubsub.pipeline.loading import FilesToLoad, put_split, rows_to_put
from reliable_pubsub.pipeline.numbered import SourceOutcome
from reliable_pubsub.pipeline.tasks import SparkTasks


def put_split_or_die(work: FilesToLoad, rows: Iterator[Any]) -> SourceOutcome:
    """As `put_split`; the first task that has put the second split kills its executor (kill -9)."""
    (path,) = work.files.values()
    outcome = put_split(work, rows)
    mark = Path(path).with_suffix(".died")
    if "from byte" in outcome.source and not mark.exists():
        mark.touch()
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
        os.kill(int(daemon[1]), signal.SIGKILL)
    return outcome


def main(directory: Path, publishers: str, subscribers: str) -> dict[str, Any]:
    """Load in splits, read as a batch, read as a stream."""
    spark = session()
    seen: dict[str, Any] = {
        "package": reliable_pubsub.__file__,
        "master": spark.sparkContext.master,
        "name": spark.sparkContext.appName,
        "shuffle": spark.conf.get("spark.sql.shuffle.partitions"),
    }
    rows = directory / "rows.txt"
    if rows.exists():
        work = FilesToLoad(
            files={"rows.txt": str(rows)},
            topic="t",
            form="text",
            access=Access(subscribers, publishers, RetryPolicy()),
            split_bytes=rows.stat().st_size // 3 + 1,
        )
        outcomes = SparkTasks(spark).run_over(
            lambda: rows_to_put(spark, work),
            lambda batches: put_split_or_die(work, batches),
            SourceOutcome,
        )
        seen["parts"] = sorted((one.put, one.stored_before) for one in outcomes)

    options = {"endpoint": subscribers, "subscribe": "t"}
    tasks = SparkTasks(spark)  # again, where a busy machine has not started a Python in time
    batch = spark.read.format("reliable_pubsub").options(**options)
    seen["batch"] = tasks.carry_out(lambda: batch.load().count())

    def streamed() -> int:
        stream = spark.readStream.format("reliable_pubsub").options(**options).load().writeStream
        stream = stream.option("checkpointLocation", str(directory / "checkpoint"))
        query = stream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        progress = query.lastProgress
        assert progress is not None
        return int(progress["numInputRows"])

    seen["stream"] = tasks.carry_out(streamed)
    spark.stop()
    return seen


if __name__ == "__main__":
    saw = main(Path(sys.argv[1]), *sys.argv[2:])
    Path(sys.argv[1], "seen.json").write_text(json.dumps(saw))
