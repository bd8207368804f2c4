"""What tasks of an audit do: read a stretch of a topic, and report its messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from msgspec import Struct

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.journal import Seen
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.schemas import json_decoder
from reliable_pubsub.subscriber.reader import LogReader

from .archive import archived_files
from .archive_files import Location
from .archive_tasks import ArchivedFile, archived_rows, rows_of
from .core.evidence import Sighting, Whereabouts
from .core.offsets import TopicOffset
from .core.options import SourceOptions
from .core.planning import MessageRange, ranges_between
from .reading import stored_range


class SightRange(Struct, frozen=True):
    """Read this range of a live topic."""

    wanted: MessageRange
    endpoint: str
    retry: RetryPolicy


def kept_files(archive: Location, options: SourceOptions) -> list[ArchivedFile]:
    """The files of an archive that hold what is wanted."""
    return [
        ArchivedFile(one, path) for one, path in archived_files(archive) if options.wants(one.topic)
    ]


def live_ranges(options: SourceOptions, now: Mapping[str, Whereabouts]) -> list[SightRange]:
    """What to read of a proxy's topics, from where they begin to where they ended."""
    ranges = ranges_between(
        {topic: TopicOffset(one.log, one.start) for topic, one in now.items()},
        {topic: TopicOffset(one.log, one.end) for topic, one in now.items()},
        rows_max=options.partition_rows_max,
        ranges_min=1,
    )
    return [SightRange(one, options.endpoint, options.retry) for one in ranges]


def sight_range(work: SightRange) -> Sighting:
    """What the proxy holds.

    Raises:
        DataLossError: it no longer holds all of it.
        ProxyUnreachableError.
    """
    wanted = work.wanted
    found: list[Seen] = []
    with LogReader(work.endpoint, retry=work.retry) as reader:
        for batch in stored_range(wanted, reader, fail_on_data_loss=True):
            header = batch.header
            for number in range(batch.skip, min(header.count, wanted.end - header.base)):
                found.append(
                    Seen(
                        header.base + number,
                        header.publisher,
                        header.first_sequence + number,
                        crc32(batch.columns.payloads[number]),
                        header.timestamp_ns,
                        qos=header.qos,
                    )
                )
    return Sighting(wanted.topic, wanted.log, wanted.first, wanted.end, found)


def sight_file(work: ArchivedFile) -> Sighting:
    """What an archived file holds.

    Raises:
        DamagedError: it is not what the table says.
    """
    one = work.manifest
    names = ("offset", "publisher", "sequence", "value", "timestamp_ns", "qos")
    found: list[Seen] = []
    for batch in archived_rows(one, work.path, names):
        columns = [batch.column(name).to_pylist() for name in names]
        for offset, publisher, sequence, value, time_ns, qos in zip(*columns, strict=True):
            found.append(Seen(offset, publisher, sequence, crc32(value), time_ns, qos=qos))
    return Sighting(one.topic, one.log, one.first, one.end, found)


_NAMES = ["topic", "offset", "value", "publisher", "sequence", "timestamp_ns", "qos"]


def rows_of_files(works: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task, for Spark's `mapInArrow`: the messages of files whose seals hold.

    Args:
        works: a column of `ArchivedFile` in JSON.
    """
    for texts in works:
        for text in texts.column(0).to_pylist():
            work = json_decoder(ArchivedFile).decode(text)
            yield from rows_of(work.manifest, work.path, _NAMES)
