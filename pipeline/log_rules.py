"""The rules over a log as joins and aggregates of Spark, so that a driver sees faults only.

A log is cut into stretches of offsets, which are looked at side by side; what a stretch has to know
of those before it is a few numbers (`_before`). Nothing is sorted beyond a stretch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

from reliable_pubsub.common.core.journal import Seen
from reliable_pubsub.common.core.places import is_in_objects
from reliable_pubsub.common.core.schemas import json_decoder

from .archive_tasks import rows_of
from .computing import job_format, stored_messages
from .core.log_verdict import FaultKind, LogFault, TopicSight
from .core.manifest import ArchivedFile
from .core.options import SourceOptions
from .core.planning import TopicExtent
from .job import Access
from .tasks import SparkTasks

STRETCH: Final = 4_096  # what a window of Spark holds as rows, without a sorter of its own
ROWS_PER_TASK: Final = 64 * STRETCH  # about; they are sorted in the memory of one core
ARCHIVED: Final = 0  # of `source`: the archive comes before the proxy
LIVE: Final = 1

SCHEMA: Final = (
    "topic string, offset bigint, value binary, publisher string, sequence bigint, "
    "timestamp_ns bigint, qos tinyint"
)
_FIELDS: Final = ("offset", "publisher", "sequence", "crc", "timestamp_ns", "qos")
_SEEN_KIND: Final = (
    "struct<offset: bigint, publisher: string, sequence: bigint, crc: bigint, "
    "timestamp_ns: bigint, qos: tinyint>"
)
_NAMES: Final = ("topic", "offset", "value", "publisher", "sequence", "timestamp_ns", "qos")
_BY_OFFSET: Final = (Window.unboundedPreceding, -1)  # what is before a row


def archived_messages(spark: SparkSession, files: Sequence[ArchivedFile]) -> DataFrame:
    """Return the messages of archived files.

    Tasks read by Arrow what Spark cannot read itself: objects without a jar of Hadoop, and files
    that another program has compacted, which lack the column topic.
    """
    by_spark = [one for one in files if one.manifest.sha256 and not is_in_objects(one.path)]
    works = [(msgspec.json.encode(one).decode(),) for one in files if one not in by_spark]
    rows = spark.createDataFrame(works, "work string").mapInArrow(_rows_of_files, SCHEMA)
    if by_spark:
        native = spark.read.schema(SCHEMA).parquet(*(one.path for one in by_spark))
        rows = native.union(rows) if works else native
    return _seen(rows, ARCHIVED)


def _rows_of_files(works: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task, for Spark's `mapInArrow`: return the messages of checked files.

    Args:
        works: a column of `ArchivedFile` in JSON.
    """
    for texts in works:
        for text in texts.column(0).to_pylist():
            work = json_decoder(ArchivedFile).decode(text)
            yield from rows_of(work.manifest, work.path, _NAMES)


def live_rows(
    spark: SparkSession, options: SourceOptions, now: Mapping[str, TopicExtent]
) -> DataFrame:
    """The messages of a proxy's topics, from where they begin to where they ended."""
    spark.dataSource.register(job_format(Access(options.endpoint, "", options.retry)))
    return _seen(stored_messages(spark, now, SCHEMA), LIVE)


def _seen(messages: DataFrame, source: int) -> DataFrame:
    columns = {"crc": f.crc32("value"), "source": f.lit(source)}
    return messages.withColumns(columns).select("topic", *_FIELDS, "source")


def look_at(
    tasks: SparkTasks,
    rows: DataFrame,
    extents: Mapping[str, TopicExtent],
    *,
    stretch: int = STRETCH,
) -> tuple[list[TopicSight], list[LogFault]]:
    """Look at all messages of some logs.

    Args:
        rows: topic, offset, publisher, sequence, crc, timestamp_ns, qos, source.
        extents: by topic, of all topics in `rows`.
        stretch: offsets of a topic that are looked at in one piece.
    """
    count = sum(one.end - one.start for one in extents.values())
    pieces = max(tasks.round_size(), count // ROWS_PER_TASK)
    in_stretches = rows.withColumn("stretch", f.floor(f.col("offset") / stretch)).repartition(
        pieces, "topic", "stretch"
    )
    looked = _neighbours(in_stretches).persist(StorageLevel.DISK_ONLY)  # a proxy is read once
    try:
        sights = [_sight(row) for row in tasks.carry_out(_by_topic(looked).collect)]
        first = {one.topic: one.first for one in sights}
        places = [
            (topic, one.start, one.end, min(one.start, first.get(topic, one.start)) == 0)
            for topic, one in extents.items()
        ]
        kinds = "topic string, start bigint, end bigint, whole boolean"
        known = f.broadcast(tasks.spark.createDataFrame(places, kinds))
        entries = looked.where("is_entry").join(known, "topic")
        found = _twofold(looked).union(_density(entries)).union(_numbers(entries))
        faults = [_fault(row) for row in tasks.carry_out(found.collect)]
        late = {(one.topic, one.seen.publisher, one.seen.sequence) for one in faults if one.is_late}
        if late:
            keys = tasks.spark.createDataFrame(
                sorted(late), "topic string, publisher string, sequence bigint"
            )
            faults += [_fault(row) for row in tasks.carry_out(_copies(entries, keys).collect)]
        return sights, faults
    finally:
        looked.unpersist()


def _neighbours(rows: DataFrame) -> DataFrame:
    """Each sighting beside those of the same offset.

    `is_entry`: the log has it, as what was read last. `is_news`: it is not what the one before it
    says. `is_again`: its source has the offset before. `entry`: what the log has, if that differs.
    """
    by_offset = Window.partitionBy("topic", "stretch").orderBy("offset", "source")
    same = (
        "(after.publisher, after.sequence, after.crc) = (publisher, sequence, crc) AND "
        "(after.timestamp_ns = timestamp_ns OR after.timestamp_ns = 0 OR timestamp_ns = 0)"
    )
    said = {
        "is_entry": "after IS NULL OR after.offset != offset",
        "is_news": "before IS NULL OR before != here OR source_before = source",
        "is_again": "coalesce(before.offset = offset AND source_before = source, false)",
        "entry": f"CASE WHEN after.offset = offset AND NOT ({same}) THEN after END",
    }
    return (
        rows.withColumn("here", f.struct(*_FIELDS))
        .withColumns(
            {
                "before": f.lag("here").over(by_offset),
                "source_before": f.lag("source").over(by_offset),
                "after": f.lead("here").over(by_offset),
            }
        )
        .select(*rows.columns, *(f.expr(text).alias(name) for name, text in said.items()))
    )


def _by_topic(looked: DataFrame) -> DataFrame:
    """What the verdict says of each topic as a whole."""
    here = f"struct({', '.join(_FIELDS)})"
    return looked.groupBy("topic").agg(
        f.count_if("is_news").alias("sightings"),
        f.count_if("is_entry").alias("entries"),
        f.min("offset").alias("first"),
        f.expr(f"max_by({here}, offset) FILTER (WHERE is_entry)").alias("last"),
        f.expr(f"max(offset) FILTER (WHERE source = {ARCHIVED})").alias("archived_to"),
        f.expr(f"min_by({here}, offset) FILTER (WHERE source = {LIVE} AND is_news)").alias("news"),
        f.expr("collect_set(publisher) FILTER (WHERE is_entry)").alias("publishers"),
    )


def _before(rows: DataFrame, by: Sequence[str], maxima: Mapping[str, Column]) -> DataFrame:
    """The greatest values before each row, in the order of offsets.

    Within a stretch they are looked up; what earlier stretches had is added to that.

    Args:
        by: columns that name what is in order.
        maxima: by the name of the new column, what it is the greatest of.
    """
    named = {f"_{name}": value for name, value in maxima.items()}
    rows = rows.withColumns(named)
    of_stretch = rows.groupBy(*by, "stretch").agg(*(f.max(name).alias(name) for name in named))
    stretches = Window.partitionBy(*by).orderBy("stretch").rowsBetween(*_BY_OFFSET)
    earlier = of_stretch.select(
        *by, "stretch", *(f.max(f"_{name}").over(stretches).alias(f"_of_{name}") for name in maxima)
    )
    within = Window.partitionBy(*by, "stretch").orderBy("offset").rowsBetween(*_BY_OFFSET)
    both = {
        name: f.greatest(f.max(f"_{name}").over(within), f.col(f"_of_{name}")) for name in maxima
    }
    return rows.join(earlier, [*by, "stretch"]).withColumns(both)


def _faults(
    rows: DataFrame, found: Mapping[FaultKind, tuple[str, str]], *, other: str = "NULL"
) -> DataFrame:
    """As `LogFault` has them.

    Args:
        found: by kind, the condition and the number.
        other: the other message.
    """
    seen = f"struct({', '.join(_FIELDS)})"
    each = [
        f"if({condition}, named_struct('kind', '{kind}', 'number', bigint({number})), NULL)"
        for kind, (condition, number) in found.items()
    ]
    return (
        rows.where(" OR ".join(f"({condition})" for condition, _ in found.values()))
        .selectExpr(
            "topic",
            f"{seen} AS here",
            f"{other} AS other",
            f"explode(array_compact(array({', '.join(each)}))) AS fault",
        )
        .select("topic", "here", f.col("other").cast(_SEEN_KIND).alias("other"), "fault.*")
    )


def _twofold(looked: DataFrame) -> DataFrame:
    """Offsets that were seen twice: with two contents, or twice in one place."""
    found: dict[FaultKind, tuple[str, str]] = {
        "differs": ("entry IS NOT NULL", "NULL"),
        "again": ("is_again", "offset"),
    }
    return _faults(looked, found, other="entry")


def _density(entries: DataFrame) -> DataFrame:
    """Holes, and times that go back."""
    place = f.struct(*_FIELDS)
    looked = _before(
        entries, ["topic"], {"last": place, "highest_ns": f.col("timestamp_ns")}
    ).withColumn("expected", f.expr("greatest(last.offset + 1, start)"))
    found: dict[FaultKind, tuple[str, str]] = {
        "old": ("timestamp_ns != 0 AND timestamp_ns < highest_ns", "highest_ns"),
        "hole": ("offset > expected", "expected"),
    }
    return _faults(looked, found, other="CASE WHEN last.offset >= start THEN last END")


def _numbers(entries: DataFrame) -> DataFrame:
    """Each publisher's numbers that are not one more than the highest before."""
    numbered = entries.where("qos = 2")
    looked = _before(numbered, ["topic", "publisher"], {"highest": f.col("sequence")}).withColumn(
        "highest", f.expr("coalesce(highest, if(whole, 0, sequence - 1))")
    )
    wrong = "sequence <= highest OR sequence > highest + 1"
    return _faults(looked, {"number": (wrong, "highest")})


def _copies(entries: DataFrame, keys: DataFrame) -> DataFrame:
    """Messages of these numbers that are not the first ones of them."""
    names = ["topic", "publisher", "sequence"]
    same = entries.where("qos = 2").join(f.broadcast(keys), names)
    firsts = same.withColumn("first", f.min("offset").over(Window.partitionBy(*names)))
    return _faults(firsts, {"copy": ("offset != first", "first")})


def _sight(row: Row) -> TopicSight:
    found = row.asDict()
    last, news = _message(found.pop("last")), _message(found.pop("news"))
    assert last is not None
    return TopicSight(**found, last=last, news=news)


def _fault(row: Row) -> LogFault:
    seen = _message(row.here)
    assert seen is not None
    return LogFault(row.kind, row.topic, seen, row.number, _message(row.other))


def _message(found: Any) -> Seen | None:
    if found is None:
        return None
    place = (found.offset, found.publisher, found.sequence, found.crc, found.timestamp_ns)
    return Seen(*place, qos=found.qos)
