"""The log of a topic as it is at the end, by an auditor or else by the proxy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from reliable_pubsub.common.core.journal import (
    CreatedLine,
    Found,
    FoundEnd,
    Seen,
    StoredLine,
    TrimmedLine,
)


@dataclass(slots=True)
class FinalLog:
    """The message at each offset.

    An auditor sees what is left; what was removed before is here too, as far as the proxy wrote
    of it. Where no auditor came to the end, the proxy's word counts for all of it.
    """

    topic: str
    audited: bool  # an auditor has read it to its end
    entries: dict[int, Seen] = field(default_factory=dict)  # ascending
    start: int = 0
    end: int = 0
    trimmed: int = 0  # the proxy said that it begins here
    unlogged: int = 0  # messages known from other processes only
    by_publisher: dict[str, list[Seen]] = field(default_factory=dict)  # ascending by offset
    _places: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)

    @property
    def first(self) -> int:
        """The first offset of which anything is known."""
        return min(next(iter(self.entries), self.start), self.start)

    @property
    def is_whole(self) -> bool:
        """Whether everything that ever stood here is known."""
        return len(self.entries) == self.end

    def place_of(self, publisher: str, sequence: int, crc: int) -> int | None:
        """The first offset of a message."""
        places = self._places.get(publisher)
        return places.get((sequence, crc)) if places else None

    def arrange(self) -> None:
        """All entries are there."""
        self.entries = dict(sorted(self.entries.items()))
        for entry in self.entries.values():
            self.by_publisher.setdefault(entry.publisher, []).append(entry)
        for publisher, entries in self.by_publisher.items():
            self._places[publisher] = {
                (entry.sequence, entry.crc): entry.offset for entry in reversed(entries)
            }


def final_logs(
    found: Iterable[Found],
    found_ends: Mapping[str, FoundEnd],
    stored: Iterable[StoredLine],
    trimmed: Iterable[TrimmedLine],
    unlogged: Iterable[tuple[str, Seen]] = (),
) -> dict[str, FinalLog]:
    """The logs by topic. What an auditor read who came to the end counts, and of two lines for one
    offset the last; rule V3 compares them all.

    Args:
        unlogged: of what the proxy may have stored without a line; used where the log has none.
    """
    logs = _audited(found, found_ends)
    for batch in stored:
        log = logs.get(batch.topic)
        if log is None:
            log = logs[batch.topic] = FinalLog(batch.topic, audited=False)
        for entry in batch.messages:
            if not log.audited or entry.offset < log.start:
                log.entries[entry.offset] = entry
    for topic, entry in unlogged:
        log = logs.setdefault(topic, FinalLog(topic, audited=False))
        if not log.audited and entry.offset not in log.entries:
            log.entries[entry.offset] = entry
            log.unlogged += 1
    for cut in trimmed:
        if cut.topic in logs:
            logs[cut.topic].trimmed = max(logs[cut.topic].trimmed, cut.start)
    for log in logs.values():
        log.arrange()
        if not log.audited:
            log.start = min(log.entries, default=0)
            log.end = max(log.entries, default=-1) + 1
    return logs


def _audited(found: Iterable[Found], found_ends: Mapping[str, FoundEnd]) -> dict[str, FinalLog]:
    logs: dict[str, FinalLog] = {}
    for topic in dict.fromkeys([line.topic for line in found] + list(found_ends)):
        logs[topic] = FinalLog(topic, audited=topic in found_ends)
    for line in found:
        end = found_ends.get(line.topic)
        if end is None or (line.process, line.pid) == (end.process, end.pid):
            log = logs[line.topic]
            log.entries.update((entry.offset, entry) for entry in line.messages)
    for topic, end_line in found_ends.items():
        logs[topic].start, logs[topic].end = end_line.start, end_line.end
    return logs


@dataclass(slots=True)
class TopicStart:
    """Where a topic begins from here on, by the word of one life of the proxy."""

    at_ns: int
    pid: int
    offset: int


def starts_of(
    created: Iterable[CreatedLine], trimmed: Iterable[TrimmedLine]
) -> Mapping[str, Sequence[TopicStart]]:
    """Where each topic began, one after another, as the proxy wrote it."""
    starts: dict[str, list[TopicStart]] = {}
    for line in created:
        starts.setdefault(line.topic, []).append(TopicStart(line.at_ns, line.pid, 0))
    for cut in trimmed:
        starts.setdefault(cut.topic, []).append(TopicStart(cut.at_ns, cut.pid, cut.start))
    for of_topic in starts.values():
        of_topic.sort(key=attrgetter("offset"))
    return starts
