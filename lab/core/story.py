"""The story of one message: everything that a process did with it or saw of it, in order. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from msgspec import Struct

from reliable_pubsub.common.core import journal

from .finding import as_range
from .run import LabRun
from .scenario import END_OF
from .verdict import MessageKey, Verdict


class StoryLine(Struct, frozen=True):
    """One thing that happened."""

    at_s: float | None  # since the first process began; None: it was inferred, not seen
    who: str  # process and pid; of an observed one the process alone
    what: str


class Story(Struct, frozen=True):
    """All that a run tells of one message."""

    message: MessageKey
    lines: list[StoryLine]
    outputs: Mapping[str, list[int]]  # by subscriber: the lines of its output, from 1, that hold it
    observed: Sequence[str] = ()  # processes that keep no journal


def messages_called(run: LabRun, message_id: str) -> list[MessageKey]:
    """The messages of that id, one for each topic that has one."""
    publisher, _, number = message_id.rpartition("_")
    if not number.isdecimal():
        return []
    sequence = int(number)
    topics: dict[str, None] = {}
    for line in run.lines:
        if isinstance(line, journal.Invoke):
            if line.process == publisher and _puts(line, sequence):
                topics[line.topic] = None
        elif isinstance(line, journal.StoredLine | journal.Found) and any(
            seen.publisher == publisher and seen.sequence == sequence for seen in line.messages
        ):
            topics[line.topic] = None
    for lines in run.outputs.values():
        for output in lines:
            if (output.message.publisher, output.message.sequence) == (publisher, sequence):
                topics[output.topic] = None
    return [MessageKey(topic, publisher, sequence) for topic in topics]


def _puts(line: journal.Invoke, sequence: int) -> bool:
    return line.op == "put" and line.sequence <= sequence < line.sequence + len(line.crcs)


def tell(run: LabRun, message: MessageKey) -> Story:
    """The story of a message, with the kills and starts of the processes involved."""
    observed = {
        line.process for line in run.lines if isinstance(line, journal.Begin) and line.observed
    }
    outputs = {
        subscriber: [
            number
            for number, output in enumerate(all_lines, start=1)
            if output.topic == message.topic
            and output.message.publisher == message.publisher
            and output.message.sequence == message.sequence
        ]
        for subscriber, all_lines in run.outputs.items()
        if any(output.topic == message.topic for output in all_lines)
    }
    wrong = {subscriber for subscriber, numbers in outputs.items() if len(numbers) != 1}
    teller = _Teller(message, observed, wrong)
    about = [(line, what) for line in run.lines if (what := teller.about(line))]
    lines: list[StoryLine] = []
    if about:
        begins = (line.at_ns for line in run.lines if isinstance(line, journal.Begin))
        begin_ns = next(begins, run.lines[0].at_ns)
        involved = {line.process for line, _ in about} | {"proxy"} | wrong
        seen = [line for line, _ in about if not _is_inferred(line)] or [about[0][0]]
        lines += [StoryLine(None, line.process, what) for line, what in about if _is_inferred(line)]
        first_ns, last_ns = seen[0].at_ns, seen[-1].at_ns
        what_of = {id(line): what for line, what in about}
        what_of |= {id(line): _around(line, involved) for line in _faults_at(run, first_ns)}
        for line in run.lines:
            if line.at_ns <= last_ns and not _is_inferred(line):
                is_later = line.at_ns >= first_ns
                what = what_of.get(id(line)) or (_around(line, involved) if is_later else "")
                if what:
                    is_known = line.process not in observed or isinstance(line, journal.Begin)
                    who = f"{line.process} (pid {line.pid})" if is_known else line.process
                    lines.append(StoryLine((line.at_ns - begin_ns) / 1e9, who, what))
    involved_observed = sorted(observed & ({line.who for line in lines} | outputs.keys()))
    return Story(message, lines, outputs, involved_observed)


def _faults_at(run: LabRun, at_ns: int) -> list[journal.Event]:
    """What was wrong with processes and links at a moment, and had begun before."""
    faults: dict[str, list[journal.Event]] = {}
    for line in run.lines:
        if isinstance(line, journal.Event) and line.at_ns < at_ns:
            if line.what in END_OF:
                faults.setdefault(line.target, []).append(line)
            elif line.what in END_OF.values():
                faults.pop(line.target, None)
    return [line for lines in faults.values() for line in lines]


def _is_inferred(line: journal.AnyLine) -> bool:
    return isinstance(line, journal.Invoke) and line.inferred


def first_story(run: LabRun, verdict: Verdict) -> Story | None:
    """The story of the first message that a verdict speaks of, if it speaks of one."""
    first = verdict.first
    return tell(run, first.message) if first is not None and first.message is not None else None


def _around(line: journal.AnyLine, involved: set[str]) -> str:
    """What was done to those who took part; "" if it is none of that."""
    match line:
        case journal.Event():
            if line.what == "quiet":
                return "no more faults after this"
            if line.target in involved or not line.target:
                detail = f": {line.detail}" if line.detail else ""
                return f"{line.what} {line.target}{detail}".strip()
        case journal.Begin():
            if line.process in involved:
                return f"begins as {line.role}"
        case journal.End():
            if line.process in involved:
                return f"ends with {line.code}" if line.code else "ends"
    return ""


class _Teller:
    """Says what a line has to do with a message."""

    def __init__(self, message: MessageKey, observed: Set[str], wrong: Set[str]) -> None:
        """Know nothing yet.

        Args:
            observed: processes that keep no journal.
            wrong: subscribers that do not have it once.
        """
        self._message = message
        self._observed = observed
        self._wrong = wrong
        self._cursors: dict[tuple[str, int], int] = {}  # at the proxy, by subscription
        self._calls: set[tuple[str, int, int]] = set()  # its puts: process, pid, call
        self._offsets: set[int] = set()
        self._holders: dict[str, int] = {}  # subscriber that has it in hand: offset

    def about(self, line: journal.AnyLine) -> str:
        """In words; "" if it has nothing to do with it."""
        if getattr(line, "topic", "") != self._message.topic:
            return ""
        match line:
            case journal.Invoke():
                return self._invoke(line)
            case journal.Ok():
                return self._ok(line)
            case journal.Failed() | journal.Unknown():
                return self._not_ok(line)
            case journal.StoredLine():
                return self._seen(line.messages, f"stored under epoch {line.epoch}")
            case journal.Found():
                return self._seen(line.messages, "found in the log")
            case journal.PositionLine():
                return self._moved(line)
            case journal.TrimmedLine():
                if any(offset < line.start for offset in self._offsets):
                    return f"the topic begins at {line.start} now"
            case journal.FoundEnd():
                held = f"offsets {line.start} to {line.end - 1}"
                return f"the log was read to its end: {held if line.end > line.start else 'empty'}"
        return ""

    def _moved(self, line: journal.PositionLine) -> str:
        """Say that the cursor of a subscriber which is wrong has passed it."""
        key = (line.subscriber, line.generation)
        before = self._cursors.get(key, line.cursor)
        self._cursors[key] = line.cursor
        passed = [offset for offset in self._offsets if before <= offset < line.cursor]
        if not passed or line.subscriber not in self._wrong:
            return ""
        return f"cursor of {line.subscriber}: {before} to {line.cursor}, past offset {passed[0]}"

    def _invoke(self, line: journal.Invoke) -> str:
        message = self._message
        if line.process != message.publisher or not _puts(line, message.sequence):
            return ""
        self._calls.add((line.process, line.pid, line.call))
        numbers = as_range(line.sequence, line.sequence + len(line.crcs) - 1)
        how = "invoked"
        if line.process in self._observed:
            how = "sent at an unknown time" if line.inferred else "its content first on the link"
        return f"put {line.topic} sequence {numbers}: {how}"

    def _ok(self, line: journal.Ok) -> str:
        if line.op == "put":
            key = (line.process, line.pid, line.call)
            if key not in self._calls:
                return ""
            again = ", had been stored before" if line.duplicate else ""
            if line.offset is None:
                return f"put: acknowledged, and removed since{again}"
            offset = line.offset + self._message.sequence - line.sequence
            self._offsets.add(offset)
            if line.process in self._observed:
                return f"its output says: acknowledged at offset {offset}"
            return f"put: acknowledged at offset {offset} ({line.durability or 'durable'}){again}"
        if line.op == "get":
            what = self._seen(line.messages, "get: given")
            if what:
                self._holders[line.process] = max(self._offsets)
            return what
        holds = self._holders.get(line.process)
        if holds is not None and line.cursor is not None and line.cursor > holds:
            del self._holders[line.process]
            return f"{line.op}: cursor {line.cursor}"
        return ""

    def _not_ok(self, line: journal.Failed | journal.Unknown) -> str:
        if (line.process, line.pid, line.call) in self._calls:
            fate = "failed" if isinstance(line, journal.Failed) else "unknown outcome"
            return f"put: {fate}, {line.code}"
        if not isinstance(line, journal.Failed):
            return ""
        if any(line.first <= offset < line.end for offset in self._offsets):
            return f"{line.op}: told that {as_range(line.first, line.end - 1)} are lost"
        return ""

    def _seen(self, messages: tuple[journal.Seen, ...], what: str) -> str:
        sights = []
        for seen in messages:
            if (seen.publisher, seen.sequence) == (self._message.publisher, self._message.sequence):
                self._offsets.add(seen.offset)
                count = f", delivery {seen.delivery_count}" if seen.delivery_count > 1 else ""
                sights.append(f"offset {seen.offset}, crc {seen.crc:08x}{count}")
        return f"{what}: {'; '.join(sights)}" if sights else ""


def in_one_column(story: Story) -> Iterator[str]:
    """A story as lines of text."""
    for line in story.lines:
        moment = "inferred" if line.at_s is None else f"{line.at_s:.3f} s"
        yield f"{moment:>12}  {line.who:<24}  {line.what}"
    for subscriber, numbers in story.outputs.items():
        where = ", ".join(f"line {number}" for number in numbers) or "not there"
        yield f"{'output':>12}  {subscriber:<24}  {where}"
    for process in story.observed:
        yield f"{'note':>12}  {process:<24}  keeps no journal: known from its link and output alone"
