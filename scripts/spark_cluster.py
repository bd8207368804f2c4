"""A standalone cluster of Spark on this machine: a master and workers, each a Java of its own.

The benchmark measures on it, and `tests/pipeline/test_cluster.py` kills parts of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pyspark

from reliable_pubsub.lab.rig.child_process import READY_S_MAX, ChildProcess
from reliable_pubsub.pipeline.java import java_home

SPARK: Final = Path(pyspark.__file__).parent
_LOOPBACK: Final = "127.0.0.1"
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER: Final = re.compile(r"(Successfully registered with master)")


class Daemon(ChildProcess):
    """A master or a worker."""

    def says(self, pattern: re.Pattern[str], within_s: float = READY_S_MAX) -> str:
        """Wait for a line of its log; return the first group."""
        return self._awaited(lambda: (found := pattern.search(self.said())) and found[1], within_s)


class Cluster:
    """One that runs, with one core for each worker."""

    def __init__(self, master: str, workers: Sequence[Daemon]) -> None:
        """Take what was started."""
        self.master = master
        self.workers = workers


@contextmanager
def cluster(
    folder: Path,
    workers: int,
    *,
    environment: Mapping[str, str] | None = None,
    java_options: str = "",
    memory: str = "1g",
) -> Iterator[Cluster]:
    """Start a cluster, which ends with the block.

    Args:
        folder: for its logs, and what its executors write.
        environment: of its processes and so of its executors, added to ours.
        java_options: of master and workers. Those of executors are the application's.
        memory: that a worker has for executors.
    """
    home = java_home(os.environ)
    surroundings = {
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": _LOOPBACK,
        # The REST server has a fixed port, and no use here.
        "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=false {java_options}".strip(),
        "SPARK_DAEMON_MEMORY": "256m",
        **({"JAVA_HOME": str(home)} if home else {}),
        **(environment or {}),
    }
    with ExitStack() as stack:

        def start(kind: str, name: str, *words: str) -> Daemon:
            place = ("--host", _LOOPBACK, "--webui-port", "0")
            main = f"org.apache.spark.deploy.{kind}"
            command = [str(SPARK / "bin" / "spark-class"), main, *place, *words]
            log = folder / f"{name}.log"
            return stack.enter_context(Daemon(command, log, environment=surroundings))

        address = start("master.Master", "master", "--port", "0").says(_MASTER)
        size = ("--cores", "1", "--memory", memory)
        found = [
            start("worker.Worker", name, *size, "--work-dir", str(folder / name), address)
            for name in (f"worker-{number}" for number in range(workers))
        ]
        for one in found:
            one.says(_WORKER)
        yield Cluster(address, found)
