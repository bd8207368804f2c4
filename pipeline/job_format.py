"""The format `reliable_pubsub` at the endpoints of a job, whose keys are no option of Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from .core.options import SourceOptions
from .core.planning import TopicExtent
from .core.sink_options import SinkOptions
from .data_source import FORMAT, ReliablePubSubSource
from .job import Access

JOB_FORMAT: Final = f"{FORMAT}_job"


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
