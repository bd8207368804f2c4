"""A query of SQL on Spark: topics as views, its rows as messages, once (docs/decisions/0047)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from reliable_pubsub.common.core.errors import RefusedError, UsageError
from reliable_pubsub.common.core.schemas import json_decoder
from reliable_pubsub.common.system import write_whole

from .core.options import SourceOptions
from .core.planning import TopicExtent
from .core.progress import lag
from .core.queries import (
    READ,
    Query,
    changed_field,
    message_columns,
    query_error,
    quoted,
    view_columns,
)
from .core.sink_options import SINK_ID, SinkOptions
from .data_source import FORMAT, ReliablePubSubSource
from .job import Access
from .sink import QUERY_ID

JOB_FORMAT: Final = f"{FORMAT}_job"  # at the endpoints of a job, whose keys are no option

Options = Mapping[str, str]


def job_format(access: Access) -> type[ReliablePubSubSource]:
    """Return the format of a job; an application registers it once."""

    class JobFormat(ReliablePubSubSource):
        @classmethod
        def name(cls) -> str:
            return JOB_FORMAT

        def parsed(self) -> SourceOptions:
            return replace(super().parsed(), endpoint=access.read_at, retry=access.retry)

        def parsed_sink(self, *, streaming: bool) -> SinkOptions:
            found = super().parsed_sink(streaming=streaming)
            return replace(found, endpoint=access.put_at, retry=access.retry)

    return JobFormat


def stored_messages(
    spark: SparkSession, extents: Mapping[str, TopicExtent], schema: str
) -> DataFrame:
    """Return the messages of topics, each from where it began to where it ended."""
    starts = msgspec.json.encode({topic: one.start for topic, one in extents.items()}).decode()
    ends = msgspec.json.encode({topic: one.end for topic, one in extents.items()}).decode()
    messages = spark.read.format(JOB_FORMAT).schema(schema).option("subscribe", ",".join(extents))
    return messages.options(startingOffsets=starts, endingOffsets=ends).load()


# What is computed.


def result_of(spark: SparkSession, query: Query, read: Callable[[str], DataFrame]) -> DataFrame:
    """The messages that a query makes of its topics.

    Args:
        read: gives the messages of a topic, with the columns `READ`.

    Raises:
        UsageError: no message can be made of its rows.
        PySparkException: Spark refuses it.
    """
    for topic in query.topics:
        frame = read(topic).selectExpr(*view_columns(query.fields.get(topic, "")))
        if query.watermark:
            frame = frame.withWatermark(*query.watermark)
        frame.createOrReplaceTempView(quoted(topic))
    found = spark.sql(query.sql)
    return found.selectExpr(*message_columns(found.dtypes))


@contextmanager
def _explained(query: Query) -> Iterator[None]:
    """Raise what Spark says against a query as a PubSubError."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        analysed = isinstance(error, AnalysisException)
        refused = query_error(f"{error}", query, analysed=analysed)
        if refused is None:
            raise
        raise refused from error


# Over what is stored now.


def run_id_of(query: Query, extents: Mapping[str, TopicExtent]) -> str:
    """The id of a run that has no other: the same for the same query over the same messages."""
    places = [(topic, one.log, one.start, one.end) for topic, one in sorted(extents.items())]
    return sha256(msgspec.json.encode((query, places))).hexdigest()[:24]


def run_once(
    spark: SparkSession, query: Query, extents: Mapping[str, TopicExtent], writer: str
) -> None:
    """Put the result over these messages; under the same writer nothing a second time."""
    with _explained(query):
        messages = result_of(
            spark, query, lambda topic: stored_messages(spark, {topic: extents[topic]}, READ)
        )
        sink = messages.write.format(JOB_FORMAT).mode("append")
        sink.options(topic=query.target, txnAppId=writer, txnVersion="0").save()


# Over what comes.


def claim(checkpoint: Path, query: Query) -> None:
    """See that a checkpoint is of this query, or begin it.

    Spark keeps positions and state in it by their place in the plan: another query would go on from
    what they mean in this one.

    Raises:
        RefusedError: it is of another one.
    """
    note = checkpoint / "query.json"
    if note.exists():
        before = json_decoder(Query).decode(note.read_bytes())
        changed = changed_field(before, query)
        if changed:
            raise RefusedError(
                f"{checkpoint}: is the checkpoint of a query with another {changed}: found "
                f"{getattr(query, changed)!r:.200}, begun with {getattr(before, changed)!r:.200}. "
                "Nothing was put. Give the same again, or another --checkpoint"
            )
    elif checkpoint.exists() and any(checkpoint.iterdir()):
        raise RefusedError(
            f"{checkpoint}: is not empty, and not a checkpoint of this command: give another folder"
        )
    else:
        checkpoint.mkdir(parents=True, exist_ok=True)
        write_whole(note, msgspec.json.encode(query))


def start_stream(
    spark: SparkSession, query: Query, checkpoint: Path, every_s: float | None, source: Options
) -> StreamingQuery:
    """Start the query; it continues where its checkpoint ends.

    Args:
        every_s: between two batches; None: end with what is stored now.
        source: options of each source.

    Raises:
        UsageError: Spark refuses it, as one that goes on.
    """

    def read(topic: str) -> DataFrame:
        messages = spark.readStream.format(JOB_FORMAT).schema(READ)
        return messages.options(subscribe=topic, **source).load()

    with _explained(query):
        messages = result_of(spark, query, read)
        if not messages.isStreaming:
            views = ", ".join(map(quoted, query.topics))
            raise UsageError(f"the query reads none of the views {views}: it would give one result")
        stream = messages.writeStream.outputMode(query.output_mode).option(
            "checkpointLocation", str(checkpoint)
        )
        if every_s is None:
            stream = stream.trigger(availableNow=True)
        else:
            stream = stream.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
        if query.output_mode == "append":
            return stream.format(JOB_FORMAT).option("topic", query.target).start()
        target = query.target

        def put(changed: DataFrame, batch: int) -> None:
            # Spark has no mode update for sinks in Python. This is what a `StreamSink` does.
            query_id = changed.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
            writer = f"{SINK_ID}-{query_id}"
            sink = changed.write.format(JOB_FORMAT).mode("append")
            sink.options(topic=target, txnAppId=writer, txnVersion=batch).save()

        return stream.foreachBatch(put).start()


def follow(stream: StreamingQuery, query: Query, tell: Callable[[str], None]) -> int:
    """Until the query ends: say what each batch has read.

    Returns:
        How many messages all of them have read.

    Raises:
        UsageError: a message, or the query, cannot be.
        PySparkException: the query has failed.
    """
    rows, batch = 0, -1
    ended = False
    while not ended:
        with _explained(query):
            ended = bool(stream.awaitTermination(1))
        for progress in stream.recentProgress:
            read = progress["numInputRows"]
            if progress["batchId"] > batch and read:
                batch = progress["batchId"]
                rows += read
                left = sum(lag(progress).values())
                tell(f"batch {batch}: {read:,} messages read, {left:,} left")
    return rows
