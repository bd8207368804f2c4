"""The verdict over a log of which Spark has found the faults: the checker's, word for word. Pure.

Where no process wrote a journal, three of the checker's rules have something to judge: V2, V3 and
V4. The others are asked of the checker itself, over a run in which the log is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.journal import AnyLine, Begin, End, Found, FoundEnd, Seen
from reliable_pubsub.lab.core import log_faults
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.lab.core.verdict import RuleVerdict, Verdict, Violation

from .planning import MessageRange, TopicExtent

AUDITOR: Final = "auditor"
A = TypeVar("A", bound=MessageRange)
FaultKind = Literal["differs", "again", "old", "hole", "number", "copy"]


def of_one_log(archived: Sequence[A], now: Mapping[str, TopicExtent]) -> tuple[list[A], list[str]]:
    """What is archived of the log that a topic has now, or had last; and warnings of the rest."""
    logs = {one.topic: one.log for one in archived} | {t: one.log for t, one in now.items()}
    strange = sorted({one.topic for one in archived if one.log != logs[one.topic]})
    warnings = [
        f"{topic!r}: the archive has another log of that name than the proxy; it was left out"
        for topic in strange
    ]
    return [one for one in archived if one.log == logs[one.topic]], warnings


def extents(
    archived: Sequence[MessageRange], now: Mapping[str, TopicExtent]
) -> dict[str, TopicExtent]:
    """From where to where each topic is known, by its archive, the proxy, or both."""
    known = [(one.topic, TopicExtent(one.log, one.first, one.end)) for one in archived]
    found: dict[str, TopicExtent] = {}
    for topic, one in sorted([*known, *now.items()], key=itemgetter(0)):
        before = found.get(topic, one)
        edges = min(before.start, one.start), max(before.end, one.end)
        found[topic] = TopicExtent(one.log, *edges)
    return found


class LogFault(Struct, frozen=True):
    """A message at which a log is not as it should be."""

    kind: FaultKind
    topic: str
    seen: Seen
    # again: this offset. old: the highest time before, ns. hole: its first offset. number: the
    # highest sequence before. copy: offset of the first one.
    number: int | None = None
    other: Seen | None = None  # differs: what the log has. hole: the message before it

    @property
    def is_late(self) -> bool:
        """Whether there may be an earlier message of that number."""
        return self.kind == "number" and self.seen.sequence <= (self.number or 0)


class TopicSight(Struct, frozen=True):
    """A topic's messages, as the audit read them."""

    topic: str
    sightings: int  # that are not the same twice
    entries: int  # offsets
    first: int
    last: Seen
    publishers: Sequence[str]
    archived_to: int | None = None  # its highest offset in an archive
    news: Seen | None = None  # the first live one that the archive does not have so

    @property
    def summary(self) -> str:
        """Return one line for a person."""
        return (
            f"{self.topic}: {self.entries:,} messages, offsets {self.first:,} to "
            f"{self.last.offset:,}, {len(self.publishers):,} publishers"
        )


def log_verdict(
    extents: Mapping[str, TopicExtent],
    sights: Sequence[TopicSight],
    faults: Sequence[LogFault],
    *,
    pid: int,
) -> Verdict:
    """Return the verdict that the checker would give.

    Args:
        extents: of all topics.
        sights: of those with messages.
        pid: of the auditor's process.
    """
    faults = sorted(faults, key=lambda one: (one.topic, one.seen.offset))
    seen = {one.topic: one for one in sights}
    judged = check(LabRun(lines=_empty_logs(extents, pid), outputs={}))
    entries = sum(one.entries for one in sights)
    sightings = sum(one.sightings for one in sights)
    found = {
        "V2": (entries, [*_copies(faults)]),
        "V3": (sightings, [*_values(faults, extents), *_edges(extents, seen)]),
        "V4": (entries, [*_order(faults)]),
    }
    rules = [_with(rule, *found.get(rule.rule, (0, []))) for rule in judged.rules]
    return replace(judged, rules=rules)


def _with(rule: RuleVerdict, checked: int, violations: Sequence[Violation]) -> RuleVerdict:
    if not checked and not violations:
        return rule
    return replace(rule, checked=checked, violations=violations, reason="")


def _copies(faults: Sequence[LogFault]) -> Iterator[Violation]:
    for one in faults:
        if one.kind == "copy":
            yield log_faults.stored_twice(one.topic, one.seen, one.number or 0)


def _values(faults: Sequence[LogFault], extents: Mapping[str, TopicExtent]) -> Iterator[Violation]:
    for one in faults:
        number, end = one.number or 0, min(one.seen.offset, extents[one.topic].end)
        match one.kind:
            case "differs":
                assert one.other is not None
                log, auditor = ("the log", one.other), ("the auditor", one.seen)
                yield log_faults.differs(one.topic, log, auditor)
            case "again":
                yield log_faults.found_after(one.topic, one.seen, number)
            case "old":
                yield log_faults.time_goes_back(one.topic, one.seen, number)
            case "hole" if number < end:
                yield log_faults.hole(one.topic, number, end, one.other)


def _edges(
    extents: Mapping[str, TopicExtent], seen: Mapping[str, TopicSight]
) -> Iterator[Violation]:
    """What is wrong where a log ends, or where the archive and the proxy meet."""
    for topic, extent in extents.items():
        one = seen.get(topic)
        expected = extent.start if one is None else max(one.last.offset + 1, extent.start)
        last = one.last if one is not None and one.last.offset >= extent.start else None
        if expected < extent.end:
            yield log_faults.hole(topic, expected, extent.end, last)
        elif expected > extent.end:
            yield log_faults.beyond_the_end(topic, expected - 1, extent.end, last)
        if one is None or one.news is None or one.archived_to is None:
            continue
        if one.news.offset <= one.archived_to:
            yield log_faults.found_after(topic, one.news, one.archived_to)


def _order(faults: Sequence[LogFault]) -> Iterator[Violation]:
    for one in faults:
        if one.kind != "number" or one.seen.sequence == one.number:
            continue
        wrong = log_faults.out_of_order if one.is_late else log_faults.missing_before
        yield wrong(one.topic, one.seen, one.number or 0)


def _empty_logs(extents: Mapping[str, TopicExtent], pid: int) -> list[AnyLine]:
    """Return the lines of an auditor who reports that each log ends where it begins."""
    lines: list[AnyLine] = [Begin(at_ns=0, process=AUDITOR, pid=pid, role="auditor", wall_ns=0)]
    for topic, extent in extents.items():
        lines.append(Found(at_ns=0, process=AUDITOR, pid=pid, topic=topic, messages=()))
        lines.append(
            FoundEnd(
                at_ns=0,
                process=AUDITOR,
                pid=pid,
                topic=topic,
                start=extent.start,
                end=extent.start,
                positions={},
            )
        )
    return [*lines, End(at_ns=0, process=AUDITOR, pid=pid)]
