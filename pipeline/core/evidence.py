"""What Spark has read of a log, as the lines of a journal, so that the lab's checker can judge it.

Pure. An archive and the live topic are two sightings of one log: both are told, and where they say
two things of one offset, rule V3 finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.journal import AnyLine, Begin, End, Found, FoundEnd, Seen
from reliable_pubsub.lab.core.run import LabRun

AUDITOR = "auditor"


class TopicRange(Protocol):
    """A stretch of a topic, read or to be read."""

    @property
    def topic(self) -> str: ...

    @property
    def log(self) -> str: ...

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...


A = TypeVar("A", bound=TopicRange)


class Extent(Struct, frozen=True):
    """Where a log was said to begin and to end."""

    start: int
    end: int


class Sighting(Struct, frozen=True):
    """A stretch of a topic, as it was read."""

    topic: str
    log: str  # log id
    first: int
    end: int
    messages: Sequence[Seen]


class Whereabouts(Struct, frozen=True):
    """What the proxy says of a topic now."""

    log: str
    start: int
    end: int
    positions: Mapping[str, int]  # cursor of each subscription


def with_log(
    run: LabRun,
    archived: Sequence[Sighting],
    live: Sequence[Sighting],
    now: Mapping[str, Whereabouts],
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


def of_one_log(archived: Sequence[A], now: Mapping[str, Whereabouts]) -> tuple[list[A], list[str]]:
    """What is archived of the log that a topic has now, or had last; and warnings of the rest."""
    logs = {one.topic: one.log for one in archived} | {t: one.log for t, one in now.items()}
    strange = sorted({one.topic for one in archived if one.log != logs[one.topic]})
    warnings = [
        f"{topic!r}: the archive has another log of that name than the proxy; it was left out"
        for topic in strange
    ]
    return [one for one in archived if one.log == logs[one.topic]], warnings


def extents(archived: Sequence[TopicRange], now: Mapping[str, Whereabouts]) -> dict[str, Extent]:
    """From where to where each topic is known, by its archive, the proxy, or both."""
    borders: dict[str, list[tuple[int, int]]] = {}
    for one in archived:
        borders.setdefault(one.topic, []).append((one.first, one.end))
    for topic, where in now.items():
        borders.setdefault(topic, []).append((where.start, where.end))
    return {
        topic: Extent(min(first for first, _ in all_), max(end for _, end in all_))
        for topic, all_ in sorted(borders.items())
    }


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
    now: Mapping[str, Whereabouts],
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
        positions = now[topic].positions if topic in now else known.get(topic, {})
        yield FoundEnd(
            at_ns=at_ns,
            process=AUDITOR,
            pid=pid,
            topic=topic,
            start=extent.start,
            end=extent.end,
            positions=dict(positions),
        )
    yield End(at_ns=at_ns, process=AUDITOR, pid=pid)
