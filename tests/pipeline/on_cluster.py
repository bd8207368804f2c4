"""What spark-submit runs on a cluster for `test_cluster`; it writes what it saw to `seen.json`.

    spark-submit ... --py-files PACKAGE.zip on_cluster.py DIRECTORY PUBLISHERS SUBSCRIBERS

Its Python has what the package needs, and not the package: that comes with `--py-files`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import reliable_pubsub
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.pipeline import session
from reliable_pubsub.pipeline.job import Access
from reliable_pubsub.pipeline.loading import LoadFile, load_file, other_parts, places
from reliable_pubsub.pipeline.numbered import SourceOutcome
from reliable_pubsub.pipeline.records import Columns
from reliable_pubsub.pipeline.tasks import SparkTasks


def put_part_or_die(work: LoadFile) -> SourceOutcome:
    """As `load_file`; the first task that has put part 1 kills its executor (kill -9)."""
    outcome = load_file(work)
    mark = Path(work.path).with_suffix(".died")
    if work.part == 1 and not mark.exists():
        mark.touch()
        daemon = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()
        os.kill(int(daemon[1]), signal.SIGKILL)
    return outcome


def main(directory: Path, publishers: str, subscribers: str) -> dict[str, Any]:
    """Load in parts, read as a batch, read as a stream."""
    spark = session()
    seen: dict[str, Any] = {
        "package": reliable_pubsub.__file__,
        "master": spark.sparkContext.master,
        "name": spark.sparkContext.appName,
        "shuffle": spark.conf.get("spark.sql.shuffle.partitions"),
    }
    rows = directory / "rows.txt"
    whole = LoadFile(
        path=str(rows),
        name="rows.txt",
        topic="t",
        form="text",
        columns=Columns(),
        access=Access(subscribers, publishers, RetryPolicy()),
        rows_per_part=1_000,
    )
    if rows.exists():
        tasks = SparkTasks(spark)
        first = [replace(whole, part=0)]
        others = other_parts(first, tasks.run(places, [whole]))
        outcomes = [*tasks.run(put_part_or_die, first), *tasks.run(put_part_or_die, others)]
        seen["parts"] = [(one.put, one.stored_before) for one in outcomes]

    options = {"endpoint": subscribers, "subscribe": "t"}
    seen["batch"] = spark.read.format("reliable_pubsub").options(**options).load().count()
    stream = spark.readStream.format("reliable_pubsub").options(**options).load().writeStream
    stream = stream.option("checkpointLocation", str(directory / "checkpoint"))
    query = stream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.lastProgress
    assert progress is not None
    seen["stream"] = progress["numInputRows"]
    spark.stop()
    return seen


if __name__ == "__main__":
    saw = main(Path(sys.argv[1]), *sys.argv[2:])
    Path(sys.argv[1], "seen.json").write_text(json.dumps(saw))
