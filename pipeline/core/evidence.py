"""What Spark has read of a log, as the lines of a journal, so that the lab's checker can judge it.

Pure. An archive and the live topic are two sightings of one log: both are told, and where they say
two things of one offset, rule V3 finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.journal import AnyLine, Begin, End, Found, FoundEnd, Seen
from reliable_pubsub.lab.core.run import Run

AUDITOR = "auditor"


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
    run: Run,
    archived: Sequence[Sighting],
    live: Sequence[Sighting],
    now: Mapping[str, Whereabouts],
    *,
    pid: int,
) -> Run:
    """The run, with an auditor at its end who has read the log.

    Args:
        archived, live: by topic and offset.
        now: by topic; empty if no proxy was asked.
        pid: of the auditor's process.
    """
    logs = {one.topic: one.log for one in archived} | {t: one.log for t, one in now.items()}
    strange = sorted({one.topic for one in archived if one.log != logs[one.topic]})
    archived = [one for one in archived if one.log == logs[one.topic]]
    sightings = [*archived, *_news(archived, live)]
    known = {line.topic: line.positions for line in run.lines if isinstance(line, FoundEnd)}
    lines = list(_lines(sightings, now, known, _after(run.lines), pid))
    warnings = [
        f"{topic!r}: the archive has another log of that name than the proxy; it was left out"
        for topic in strange
    ]
    return replace(run, lines=[*run.lines, *lines], warnings=[*run.warnings, *warnings])


def _news(archived: Sequence[Sighting], live: Sequence[Sighting]) -> Iterator[Sighting]:
    """What the live topics say besides the archive; an auditor tells each offset once."""
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
    for topic in sorted({one.topic for one in sightings} | now.keys()):
        here = [one for one in sightings if one.topic == topic]
        begins = [one.first for one in here]
        ends = [one.end for one in here]
        positions = known.get(topic, {})
        if topic in now:
            begins.append(now[topic].start)
            ends.append(now[topic].end)
            positions = now[topic].positions
        yield FoundEnd(
            at_ns=at_ns,
            process=AUDITOR,
            pid=pid,
            topic=topic,
            start=min(begins),
            end=max(ends),
            positions=dict(positions),
        )
    yield End(at_ns=at_ns, process=AUDITOR, pid=pid)
