"""A query of SQL on Spark: topics as views, its rows as messages, once (docs/decisions/0047)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

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
from .core.sink_options import SinkOptions
from .data_source import FORMAT, ReliablePubSubSource
from .job import Access
from .sessions import is_connect
from .sink import QuerySink

JOB_FORMAT: Final = f"{FORMAT}_job"
_LOOK_S: Final = 1  # between two looks at what a stream has done
_NOTE: Final = "query.json"  # in a checkpoint: the query that began it

Options = Mapping[str, str]


def job_format(access: Access) -> type[ReliablePubSubSource]:
    """The format `reliable_pubsub` at these endpoints."""

    class JobFormat(ReliablePubSubSource):
        @classmethod
        def name(cls) -> str:
            return JOB_FORMAT

        def parsed(self) -> SourceOptions:
            found = super().parsed()
            return msgspec.structs.replace(found, endpoint=access.read_at, retry=access.retry)

        def parsed_sink(self, *, streaming: bool) -> SinkOptions:
            found = super().parsed_sink(streaming=streaming)
            return msgspec.structs.replace(found, endpoint=access.put_at, retry=access.retry)

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            sink = super().writer(schema, overwrite)
            options = self.parsed_sink(streaming=False)
            return sink if options.app_id else QuerySink(options)

    return JobFormat


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
    spark: SparkSession,
    query: Query,
    extents: Mapping[str, TopicExtent],
    writer: str,
    *,
    atomic: bool = True,
) -> None:
    """Put the result over these messages; under the same writer nothing a second time.

    Args:
        atomic: as one transaction; else of any size, in parts (docs/decisions/0017).
    """

    def read(topic: str) -> DataFrame:
        one = extents[topic]
        edges = {
            f"{edge}Offsets": msgspec.json.encode({topic: place}).decode()
            for edge, place in (("starting", one.start), ("ending", one.end))
        }
        messages = spark.read.format(JOB_FORMAT).schema(READ).options(subscribe=topic, **edges)
        return messages.load()

    with _explained(query):
        messages = result_of(spark, query, read)
        sink = messages.write.format(JOB_FORMAT).mode("append")
        sink.options(topic=query.target, txnAppId=writer, txnVersion="0", atomic=atomic).save()


# Over what comes.


class Streaming(Struct, frozen=True, kw_only=True):
    """How a query continues."""

    checkpoint: Path
    every_s: float | None  # None: end with what is stored now
    source: Options = {}  # of each source


def claim(checkpoint: Path, query: Query) -> None:
    """See that a checkpoint is of this query, or begin it.

    Spark keeps positions and state in it by their place in the plan: another query would go on from
    what they mean in this one.

    Raises:
        RefusedError: it is of another one.
    """
    note = checkpoint / _NOTE
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


def start_stream(spark: SparkSession, query: Query, how: Streaming) -> StreamingQuery:
    """Start the query; it continues where its checkpoint ends.

    Raises:
        UsageError: Spark refuses it, as one that goes on.
    """

    def read(topic: str) -> DataFrame:
        messages = spark.readStream.format(JOB_FORMAT).schema(READ)
        return messages.options(subscribe=topic, **how.source).load()

    with _explained(query):
        messages = result_of(spark, query, read)
        if not messages.isStreaming:
            views = ", ".join(map(quoted, query.topics))
            raise UsageError(f"the query reads none of the views {views}: it would give one result")
        stream = messages.writeStream.outputMode(query.output_mode).option(
            "checkpointLocation", str(how.checkpoint)
        )
        if how.every_s is None:
            stream = stream.trigger(availableNow=True)
        else:
            stream = stream.trigger(processingTime=f"{round(how.every_s * 1000)} milliseconds")
        if query.output_mode == "append":
            return stream.format(JOB_FORMAT).option("topic", query.target).start()
        if is_connect(spark):
            raise UsageError(
                "--output-mode update needs a session that is not of Spark Connect, which does not "
                "tell the tasks of foreachBatch what batch they are of: give another --master"
            )
        target = query.target

        def put(changed: DataFrame, batch: int) -> None:
            # Spark has no mode update for sinks in Python. The number is in the tasks (QuerySink).
            changed.write.format(JOB_FORMAT).mode("append").option("topic", target).save()

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
            ended = bool(stream.awaitTermination(_LOOK_S))
        for progress in stream.recentProgress:
            # Spark Connect does not say the sum of all sources.
            read = sum(source["numInputRows"] for source in progress["sources"])
            if progress["batchId"] > batch and read:
                batch = progress["batchId"]
                rows += read
                left = sum(lag(progress).values())
                tell(f"batch {batch}: {read:,} messages read, {left:,} left")
    return rows
