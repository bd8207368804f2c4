"""Options of Java that make a Spark start with half the CPU, for tests that start a dozen of them.

Most of a short Spark's CPU goes into loading 20,000 classes. Java can keep them as it had them in
memory, in an archive (JEP 350, dynamic class-data sharing), which is made once for each
environment by a Spark of its own that does a little of everything. A Java that cannot, or jars that
have changed since, mean a slow start and nothing else.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pyspark

# Less to compile and less to collect.
SMALL: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_SILENT: Final = "-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off"
_BOUND_S: Final = 900.0


def java_options() -> str:
    """Options for a short Spark; the first call in an environment makes the archive."""
    archive = _archive()
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
    return f"{SMALL} {_SILENT} -XX:SharedArchiveFile={archive}"


def _archive() -> Path:
    """The archive of this Spark and Java."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    told = hashlib.sha256(f"{pyspark.__version__} {java}".encode()).hexdigest()
    return Path(sys.prefix) / f"spark-{told[:12]}.jsa"


def _make(archive: Path) -> None:
    """Run a Spark that leaves the archive; an empty one says that its Java cannot."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        options = f"{SMALL} {_SILENT} -XX:ArchiveClassesAtExit={made}"
        with suppress(subprocess.TimeoutExpired):  # a machine too busy for it starts slowly
            subprocess.run(
                [sys.executable, "-m", __name__, folder],
                env={**os.environ, "SPARK_SUBMIT_OPTS": options},
                capture_output=True,
                timeout=_BOUND_S,
                check=True,
            )
        archive.write_bytes(made.read_bytes() if made.exists() else b"")


def _a_little_of_everything(folder: str) -> None:
    """Load the classes that the tests need: rows, files, a stream, a source in Python."""
    from reliable_pubsub.pipeline.sessions import open_session

    spark = open_session("classes", master="local[2]")
    gateway: Any = spark.sparkContext._gateway
    spark.range(9).selectExpr("cast(id as string) as value").write.parquet(f"{folder}/rows")
    spark.read.parquet(f"{folder}/rows").groupBy("value").count().collect()
    rows = spark.readStream.format("rate").load().writeStream.format("parquet")
    query = rows.option("checkpointLocation", f"{folder}/offsets").trigger(availableNow=True)
    query.start(f"{folder}/streamed").awaitTermination()
    spark.stop()
    gateway.proc.stdin.close()  # Java ends, and writes the archive as it does
    gateway.proc.wait()


if __name__ == "__main__":
    _a_little_of_everything(sys.argv[1])
