"""What tasks have read of a log, as the lines of a journal, for the lab's checker.

The checker's verdict over these lines is the reference for the one that Spark makes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.journal import AnyLine, Begin, End, Found, FoundEnd, Seen
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.pipeline.archive_tasks import rows_of
from reliable_pubsub.pipeline.core.log_verdict import AUDITOR, extents, of_one_log
from reliable_pubsub.pipeline.core.manifest import ArchivedFile
from reliable_pubsub.pipeline.core.planning import MessageRange, TopicExtent
from reliable_pubsub.pipeline.reading import stored_range
from reliable_pubsub.subscriber.reader import LogReader


class Sighting(MessageRange, frozen=True, kw_only=True):
    """A stretch of a topic, as it was read."""

    messages: Sequence[Seen]


def sight_range(wanted: MessageRange, endpoint: str) -> Sighting:
    """Read a range from the proxy."""
    found: list[Seen] = []
    with LogReader(endpoint) as reader:
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
    return Sighting(wanted.topic, wanted.log, wanted.first, wanted.end, messages=found)


def sight_file(work: ArchivedFile) -> Sighting:
    """Read an archived file."""
    one = work.manifest
    names = ("offset", "publisher", "sequence", "value", "timestamp_ns", "qos")
    found: list[Seen] = []
    for batch in rows_of(one, work.path, names):
        columns = [batch.column(name).to_pylist() for name in names]
        for offset, publisher, sequence, value, time_ns, qos in zip(*columns, strict=True):
            found.append(Seen(offset, publisher, sequence, crc32(value), time_ns, qos=qos))
    return Sighting(one.topic, one.log, one.first, one.end, messages=found)


def with_log(
    run: LabRun,
    archived: Sequence[Sighting],
    live: Sequence[Sighting],
    now: Mapping[str, TopicExtent],
    *,
    pid: int,
) -> LabRun:
    """The run, with an auditor at its end who has read the log.

    Args:
        archived, live: by topic and offset.
        now: by topic; empty if no proxy was asked.
        pid: of the auditor's process.
    """
    archived, strange = of_one_log(archived, now)
    sightings = [*archived, *_news(archived, live)]
    known = {line.topic: line.positions for line in run.lines if isinstance(line, FoundEnd)}
    lines = list(_lines(sightings, now, known, _after(run.lines), pid))
    return replace(run, lines=[*run.lines, *lines], warnings=[*run.warnings, *strange])


def _news(archived: Sequence[Sighting], live: Sequence[Sighting]) -> Iterator[Sighting]:
    """What the live topics say besides the archive; an auditor reports each offset once."""
    known = {(one.topic, seen.offset): seen for one in archived for seen in one.messages}
    for one in live:
        news = [seen for seen in one.messages if known.get((one.topic, seen.offset)) != seen]
        yield replace(one, messages=news)


def _after(lines: Sequence[AnyLine]) -> int:
    return lines[-1].at_ns + 1 if lines else 0


def _lines(
    sightings: Sequence[Sighting],
    now: Mapping[str, TopicExtent],
    known: Mapping[str, Mapping[str, int]],
    at_ns: int,
    pid: int,
) -> Iterator[AnyLine]:
    yield Begin(at_ns=at_ns, process=AUDITOR, pid=pid, role="auditor", wall_ns=0)
    for one in sightings:
        yield Found(
            at_ns=at_ns, process=AUDITOR, pid=pid, topic=one.topic, messages=tuple(one.messages)
        )
    for topic, extent in extents(sightings, now).items():
        yield FoundEnd(
            at_ns=at_ns,
            process=AUDITOR,
            pid=pid,
            topic=topic,
            start=extent.start,
            end=extent.end,
            positions=dict(known.get(topic, {})),
        )
    yield End(at_ns=at_ns, process=AUDITOR, pid=pid)
