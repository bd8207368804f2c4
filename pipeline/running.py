"""`reliable-pubsub pipeline run`: a query of SQL over topics, whose result is a topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import click
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES, asking_options
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.errors import ConfigurationError, UsageError
from reliable_pubsub.common.terminal import say

from .computing import claim, follow, job_format, run_id_of, run_once, start_stream
from .core.planning import TopicExtent, refuse_unknown
from .core.queries import OUTPUT_MODES, OutputMode, Query, parse_query
from .job import (
    Access,
    LocalPath,
    SparkWish,
    access_to,
    complain_of,
    config_option,
    running_job,
    spark_options,
    spark_tasks,
    subscriber_endpoint_option,
    topics_wanted,
)
from .numbered import numbered_publisher
from .proxy_topics import ProxyTopics
from .tasks import GONE, SparkTasks


@click.command(context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@config_option()
@click.argument("query", type=LocalPath(exists=True, dir_okay=False))
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    help="Topics, separated by commas; each is a view of its name. May be given several times.",
)
@click.option("--to", "target", required=True, help="The topic that gets the result.")
@click.option(
    "--json",
    multiple=True,
    metavar="TOPIC=FIELDS",
    help="The values of a topic are JSON with these fields, as in a CREATE TABLE: the column value "
    "is a struct of them, value.customer. May be given for several topics.",
)
@click.option(
    "--watermark",
    default="",
    metavar="'COLUMN DELAY'",
    help="How late a message may come, by timestamp or event_time: 'timestamp 1 minute'. Later "
    "ones are left out of windows that are over.",
)
@click.option(
    "--checkpoint",
    type=LocalPath(file_okay=False),
    help="Keep places and state in this folder, and go on from there: what came since the last "
    "run. On a cluster all machines must see it.",
)
@click.option("--continuous", is_flag=True, help="Go on until a signal; needs --checkpoint.")
@click.option(
    "--every",
    type=click.FloatRange(0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two batches, with --continuous.",
)
@click.option(
    "--output-mode",
    type=click.Choice(OUTPUT_MODES),
    default="append",
    show_default=True,
    help="With --checkpoint: append puts a result when it is final, update at each change of it.",
)
@click.option(
    "--starting",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where a new checkpoint begins.",
)
@click.option(
    "--subscriber", default="", help="Id under which the proxy knows the query: lag, retention."
)
@click.option(
    "--run-id",
    help="Without --checkpoint: under this id the result is put once.  [default: of query, logs, "
    "ranges and target]",
)
@spark_options()
@subscriber_endpoint_option()
@asking_options("publisher")
def main(
    query: Path,
    sources: tuple[str, ...],
    target: str,
    json: tuple[str, ...],
    watermark: str,
    checkpoint: Path | None,
    continuous: bool,
    every: float,
    output_mode: OutputMode,
    starting: str,
    subscriber: str,
    run_id: str | None,
    spark: SparkWish,
    subscriber_endpoint: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Compute a topic from others by a QUERY in SQL, each result once.

    A view has topic, offset, timestamp (when the proxy took the message), event_time (what the
    publisher said, else timestamp), key, value (text), headers, publisher, sequence. Of the result
    key, value and headers become the message; without a column value all others are a JSON object.

    Kill it and run it again: it goes on, and no result is put twice.

    \b
      echo "SELECT key, count(*) AS orders FROM orders GROUP BY key" > orders.sql
      reliable-pubsub pipeline run orders.sql --from orders --to orders-by-customer

    Per minute, live, with late messages of up to 10 seconds:

    \b
      echo "SELECT window.start AS minute, key, count(*) AS orders FROM orders
            GROUP BY window(timestamp, '1 minute'), key" > minutes.sql
      reliable-pubsub pipeline run minutes.sql --from orders --to orders-by-minute
          --watermark 'timestamp 10 seconds' --continuous --checkpoint run/minutes
    """
    with running_job(is_endless=continuous):
        _check_options(checkpoint, continuous, output_mode, subscriber, run_id)
        wanted = parse_query(
            _sql(query), sources, names.exact(target), json, watermark, output_mode
        )
        access = access_to(subscriber_endpoint, **asked)
        extents = _extents(wanted, access, may_lack=checkpoint is not None)
        if checkpoint is None:
            client = names.client_id(f"run.{run_id or run_id_of(wanted, extents)}")
            _once(wanted, extents, client, access, spark)
            return
        claim(checkpoint, wanted)
        source = {"startingOffsets": starting}
        if subscriber:
            source["subscriber"] = subscriber
        say_batch = (lambda text: None) if quiet else say
        with _tasks(access, spark) as tasks:

            def stream() -> int:
                pause_s = every if continuous else None
                query = start_stream(tasks.spark, wanted, checkpoint.absolute(), pause_s, source)
                say(f"ready: run {checkpoint.absolute()} endpoint={access.read_at}")
                return follow(query, wanted, say_batch)

            try:
                rows = tasks.carry_out(stream)
            finally:
                with suppress(*GONE, PySparkException):  # a stop is no failure of the query
                    for one in tasks.spark.streams.active:
                        one.stop()
        say(f"done: {rows} messages read, their results are on {target}")


def _check_options(
    checkpoint: Path | None,
    continuous: bool,
    output_mode: OutputMode,
    subscriber: str,
    run_id: str | None,
) -> None:
    """Refuse options that do not go together."""
    if continuous and checkpoint is None:
        raise UsageError("--continuous keeps its places and state: give --checkpoint DIR")
    if checkpoint is None and (output_mode != "append" or subscriber):
        raise UsageError("--output-mode and --subscriber are of a run with --checkpoint DIR")
    if checkpoint is not None and run_id:
        raise UsageError("--run-id names a run without --checkpoint; give one of the two")


def _sql(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from error


def _extents(query: Query, access: Access, *, may_lack: bool) -> Mapping[str, TopicExtent]:
    """Where the topics are now; an unreachable proxy is reported before Spark is started."""
    options = topics_wanted(query.topics, "", endpoint=access.read_at, retry=access.retry)
    with closing(ProxyTopics(options)) as topics:
        extents = topics.extents()
    if not may_lack:
        refuse_unknown(options, extents)
    for topic in query.topics:
        if topic not in extents:
            complain_of(f"the proxy has no topic {topic!r} yet; it is read when it appears")
    return extents


@contextmanager
def _tasks(access: Access, wish: SparkWish) -> Iterator[SparkTasks]:
    with spark_tasks("run", wish) as tasks:
        # PySpark writes what it raises to stderr, too, with a hundred lines of Java.
        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).disabled = True
        tasks.spark.dataSource.register(job_format(access))
        yield tasks


def _once(
    query: Query,
    extents: Mapping[str, TopicExtent],
    client: str,
    access: Access,
    wish: SparkWish,
) -> None:
    before = _stored(client, query.target, access)
    with _tasks(access, wish) as tasks:
        tasks.carry_out(lambda: run_once(tasks.spark, query, extents, client))
    put = _stored(client, query.target, access) - before
    say(f"done: {put} messages put on {query.target}, {before} were there")


def _stored(client: str, topic: str, access: Access) -> int:
    """How many messages of a writer the proxy has taken."""
    with numbered_publisher(client, access.put_at, access.retry) as publisher:
        return publisher.ready_for(topic) - 1
