"""The pipeline on a standalone cluster: workers of one core each beside each other.

Jobs are the commands of docs/how-to/pipeline.md, in processes of their own; a rate is that of the
whole command, with the start of its Spark. Source and sink are measured in a warm session.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from msgspec import Struct

from reliable_pubsub.common.core.limits import GIB, MIB
from reliable_pubsub.lab.rig.child_process import ChildProcess
from reliable_pubsub.pipeline.archive import archived_files
from reliable_pubsub.pipeline.data_source import FORMAT
from reliable_pubsub.pipeline.sessions import open_session, start_java

from .bench_pipeline import SOURCE_ROWS_PER_S
from .measuring import (
    PAYLOAD,
    ROOT,
    Proxy,
    Row,
    child,
    compared,
    cpu_s,
    fill,
    folder,
    processes_below,
)
from .measuring import proxy as a_proxy
from .spark_cluster import cluster

TOPICS: Final = tuple(f"bench-{n}" for n in range(4))
PATTERN: Final = "bench-[0-3]"
BATCH: Final = 1_000
LOOK_S: Final = 0.2  # between two looks at the memory of a driver, of some milliseconds each
DRIVER_MIB_MAX: Final = 1024
ATOMIC_MAX: Final = 1_000_000  # messages of 100 bytes that fit in one transaction
SPARK: Final = {"PYTHONPATH": str(ROOT), "SPARK_LOCAL_IP": "127.0.0.1"}


class Figures(Struct, frozen=True):
    """Of one pass: by what was measured."""

    seconds: dict[str, float] = {}
    driver_mib: dict[str, float] = {}
    source_cpu_s: float = 0.0


def cluster_rows(rounds: int, workers: Sequence[int], messages: int) -> list[Row]:
    """Passes with each number of workers in turn; each more than the first beside the first."""
    passes: dict[int, list[Figures]] = defaultdict(list)
    with folder() as work:
        rows = work / "rows.txt"
        with rows.open("wb") as file:
            for _ in range(messages):
                file.write(PAYLOAD + b"\n")
        for _ in range(rounds):
            for count in workers:
                passes[count].append(one_pass(count, messages, rows))
    return [row for count in workers for row in rows_of(count, passes, messages)]


def rows_of(count: int, passes: Mapping[int, Sequence[Figures]], messages: int) -> list[Row]:
    """What is shown of one number of workers."""
    ours, first = passes[count], min(passes)
    name = f"{count} worker{'s' * (count > 1)}"
    shown = []
    for work in ours[0].seconds:
        rates = [messages / one.seconds[work] for one in ours]
        if count == first:
            row = Row(work=f"{work}, {name}", unit="messages/s", ours=statistics.median(rates))
        else:
            bare = [messages / one.seconds[work] for one in passes[first]]
            against = f"{first} worker{'s' * (first > 1)}"
            row = compared(f"{work}, {name}", "messages/s", rates, bare, against)
        shown.append(row)
    shown.append(
        Row(
            work=f"source, {name}: CPU of driver, executors and proxy",
            unit="s",
            ours=statistics.median(one.source_cpu_s for one in ours),
            at_most=2 * messages / SOURCE_ROWS_PER_S,
        )
    )
    for work in ours[0].driver_mib:
        peak_mib = max(one.driver_mib[work] for one in ours)
        memory = f"{work}, {name}: memory of the driver, Python and Java"
        shown.append(Row(work=memory, unit="MiB", ours=peak_mib, at_most=DRIVER_MIB_MAX))
    return shown


def one_pass(count: int, messages: int, rows: Path) -> Figures:
    """A fresh proxy and a fresh cluster: each job once, then source and sink."""
    # Of each topic the proxy keeps all of it.
    settings = f"history_bytes: {max(GIB, 2 * messages * len(PAYLOAD))}\n"
    with folder() as work, a_proxy(settings) as running:
        for topic in TOPICS:
            fill(running, messages // len(TOPICS), BATCH, topic)
        with cluster(work, count, environment=SPARK) as spark:
            archive = work / "archive"
            jobs = Jobs(work, running, spark.master)
            jobs.run("load", "--file", str(rows), "--topic", "loaded")
            archiving = ("--pattern", PATTERN, "--folder", str(archive), "--available-now")
            jobs.run("archive", *archiving)
            jobs.run("audit", "--archive", str(archive))
            topics = (word for topic in TOPICS for word in ("--topic", topic))
            jobs.run("replay", *topics, "--to", "{topic}-again", "--archive", str(archive))
            endpoints = running.publishers, running.subscribers
            connected = (spark.master, *endpoints, str(archive), messages, os.getpid())
            with child(connect, *connected) as seen:
                source_s, source_cpu_s, sink_s, driver_mib = seen
    return Figures(
        {**jobs.seconds, "source": source_s, "sink": sink_s},
        {**jobs.driver_mib, "source and sink": driver_mib},
        source_cpu_s,
    )


class Jobs:
    """Commands, how long each took, and the memory of each."""

    def __init__(self, work: Path, running: Proxy, master: str) -> None:
        self._log = work / "jobs.log"
        self._running = running
        self._master = master
        self.seconds: dict[str, float] = {}
        self.driver_mib: dict[str, float] = {}

    def run(self, job: str, *words: str) -> None:
        """Run a job to its end, which must be a good one."""
        puts = job in ("load", "replay")
        endpoint = self._running.publishers if puts else self._running.subscribers
        reading = ("--subscriber-endpoint", self._running.subscribers) if puts else ()
        spark = () if job == "replay" else ("--master", self._master)  # a replay needs no Spark
        words += (*spark, "--quiet", "--endpoint", endpoint, *reading)
        command = [sys.executable, "-m", "reliable_pubsub", "pipeline", job, *words]
        begin_s = time.perf_counter()
        with ChildProcess(command, self._log, environment=SPARK) as process:
            with Memory(process.pid) as memory:
                code = process.wait()
            self.seconds[job] = time.perf_counter() - begin_s
            self.driver_mib[job] = memory.peak_mib
            assert code == 0, process.said()


class Memory:
    """The most resident memory that a process and all below it had together, by many looks."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = Event()
        self._thread = Thread(target=self._look, daemon=True)
        self.peak_mib = 0.0

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while True:
            memory = sum(map(memory_bytes, processes_below(self._pid)))
            self.peak_mib = max(self.peak_mib, memory / MIB)
            if self._over.wait(LOOK_S):
                return


def memory_bytes(pid: int) -> int:
    """Resident memory of a process, what it shares in parts (PSS); 0 if it has ended."""
    with suppress(OSError):
        found = re.search(r"Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0


def connect(
    pipe: Any,
    master: str,
    publishers: str,
    subscribers: str,
    archive: str,
    messages: int,
    root: int,
) -> None:
    """In a process of its own: read all topics to nothing, then write the archive to a topic."""
    os.environ.update(SPARK)
    start_java(master, None, quiet=True)
    spark = open_session("bench", master=master)
    source = spark.read.format(FORMAT).options(endpoint=subscribers, subscribePattern=PATTERN)

    def read(**more: str) -> float:
        begin_s = time.perf_counter()
        frame = source.options(**more).load()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - begin_s

    with Memory(os.getpid()) as memory:
        read()  # warm
        before_s = cpu_s(root)
        source_s = read()
        source_cpu_s = cpu_s(root) - before_s
        values = spark.read.parquet(*(path for _, path in archived_files(archive))).select("value")
        atomic = str(messages <= ATOMIC_MAX).lower()
        options = {"endpoint": publishers, "topic": "written", "atomic": atomic}
        begin_s = time.perf_counter()
        values.write.format(FORMAT).options(**options).mode("append").save()
        sink_s = time.perf_counter() - begin_s
        spark.stop()
    pipe.send((source_s, source_cpu_s, sink_s, memory.peak_mib))
