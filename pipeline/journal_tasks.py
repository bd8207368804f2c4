"""Journals and a log, cut by topics and judged by tasks: the driver gets verdicts.

A file is read twice: to see how the run can be cut (`survey_file`), and to hand each line to its
part (`evidence`). A part is judged by the lab's checker, in one task.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from msgspec import Struct, field
from pyspark.sql import DataFrame, SparkSession

from reliable_pubsub.common.core.journal import AnyLine
from reliable_pubsub.common.core.schemas import msgpack_decoder
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.parts import Sketch, says_which_run, topic_of_line
from reliable_pubsub.lab.core.run import LabRun, OutputLine
from reliable_pubsub.lab.core.story import Story, first_story
from reliable_pubsub.lab.core.verdict import Verdict
from reliable_pubsub.lab.reading import Files, read_file, without_collection

from .archive_tasks import ArchivedFile
from .audit_tasks import SightRange, sight_file, sight_range
from .core.evidence import Sighting, Whereabouts, with_log

NO_PART: Final = -1  # what all parts have, and nothing else
CHUNK_FACTS: Final = 1_000  # lines and messages of a row
ROWS: Final = "part int, file int, kind string, content binary"
JUDGED: Final = "verdict binary"

Number = tuple[int, int]  # which file, which line of it: the order of lines of one time


class AuditedFile(Struct, frozen=True):
    """A file that may hold a journal or an output."""

    path: str
    name: str  # in warnings
    end: int  # so many bytes are read: what was there when the audit began


class SeenFile(Struct, frozen=True, kw_only=True):
    """What a file says of itself, and how it can be cut."""

    sketch: Sketch
    shared: list[tuple[int, AnyLine]]  # that each part has, with their numbers
    telling: list[tuple[int, AnyLine]]  # others that tell one run from another
    files: Files


def survey_file(work: AuditedFile) -> SeenFile:
    """In a task: see what a file is.

    Raises:
        ConfigurationError: it cannot be read.
    """
    files, sketch = Files(), Sketch()
    shared: list[tuple[int, AnyLine]] = []
    telling: list[tuple[int, AnyLine]] = []
    last: dict[tuple[str, int], tuple[int, AnyLine]] = {}
    written: dict[str, int] = {}
    path = Path(work.path)
    for number, line in enumerate(read_file(path, work.name, files, end=work.end)):
        if isinstance(line, OutputLine):
            written[line.topic] = written.get(line.topic, 0) + 1
            continue
        last[line.process, line.pid] = (number, line)
        if not sketch.take(line):
            shared.append((number, line))
        elif says_which_run(line):
            telling.append((number, line))
    telling += [(number, line) for number, line in last.values() if topic_of_line(line)]
    sketch.take_output(work.name, written)
    return SeenFile(sketch=sketch, shared=shared, telling=telling, files=files)


class Cut(Struct, frozen=True, kw_only=True):
    """A run as its parts are judged."""

    work: Sequence[AuditedFile | ArchivedFile | SightRange]
    parts: Mapping[str, int]  # by topic
    shared: Sequence[tuple[Number, AnyLine]]
    owners: Mapping[int, str]  # outputs: the subscriber, by the place of the file in the work
    now: Mapping[str, Whereabouts]
    pid: int | None  # of the auditor; None: no log was read

    def run(self, part: int, evidence: Evidence) -> LabRun:
        """The lines of a part, and the log of its topics."""
        lines = sorted([*self.shared, *evidence.lines], key=lambda one: (one[1].at_ns, one[0]))
        outputs: dict[str, list[OutputLine]] = {who: [] for who in self.owners.values()}
        for (file, _), line in sorted(evidence.outputs, key=lambda one: one[0]):
            if file in self.owners:
                outputs[self.owners[file]].append(line)
        run = LabRun(lines=[line for _, line in lines], outputs=outputs)
        if self.pid is None:
            return run
        now = {topic: one for topic, one in self.now.items() if self.parts[topic] == part}
        archived, live = (
            [sighting for _, sighting in sorted(some, key=lambda one: one[0])]
            for some in (evidence.archived, evidence.live)
        )
        return with_log(run, archived, live, now, pid=self.pid)


class Evidence(Struct):
    """What tasks have read for a part, in any order."""

    lines: list[tuple[Number, AnyLine]] = field(default_factory=list)
    outputs: list[tuple[Number, OutputLine]] = field(default_factory=list)
    archived: list[tuple[int, Sighting]] = field(default_factory=list)  # by place of the file
    live: list[tuple[int, Sighting]] = field(default_factory=list)

    def add(self, kind: str, file: int, content: bytes) -> None:
        """Take a row."""
        match kind:
            case "lines":
                self.lines += [((file, number), line) for number, line in _lines(content)]
            case "output":
                self.outputs += [((file, number), line) for number, line in _outputs(content)]
            case "archived" | "live":
                some = self.archived if kind == "archived" else self.live
                some.append((file, _sighting(content)))


class PartVerdict(Struct, frozen=True):
    """What a task found."""

    verdict: Verdict
    story: Story | None  # of the first message that a violation names


_pack = msgspec.msgpack.Encoder().encode
_lines = msgpack_decoder(list[tuple[int, AnyLine]]).decode
_outputs = msgpack_decoder(list[tuple[int, OutputLine]]).decode
_sighting = msgpack_decoder(Sighting).decode
read_verdict = msgpack_decoder(PartVerdict).decode


def judged(spark: SparkSession, cut: Cut) -> DataFrame:
    """A row for each part: a `PartVerdict`."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column("id").to_pylist():
                yield from _rows(cut, place)

    def judge(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"verdict": [_judged(cut, batches)]})

    count = len(cut.work) + 1
    rows = spark.range(0, count, 1, count).mapInArrow(read, ROWS)
    return rows.groupBy("part").applyInArrow(judge, JUDGED)


def _judged(cut: Cut, batches: Iterator[pa.RecordBatch]) -> bytes:
    """In a task: judge a part, of which these are the rows."""
    with without_collection():
        evidence = Evidence()
        part = NO_PART
        for batch in batches:
            for row in batch.to_pylist():
                part = row["part"]
                evidence.add(row["kind"], row["file"], row["content"])
        run = cut.run(part, evidence)
        del evidence
        verdict = check(run)
        return _pack(PartVerdict(verdict, first_story(run, verdict)))


def _rows(cut: Cut, place: int) -> Iterator[pa.RecordBatch]:
    """What one piece of work holds of each part."""
    if place == len(cut.work):  # also a topic without a message has a verdict
        for part in sorted(set(cut.parts.values())):
            yield _row(part, place, "lines", [])
        return
    match cut.work[place]:
        case AuditedFile() as file:
            yield from _rows_of(cut, place, file)
        case ArchivedFile() as file:
            sighting = sight_file(file)
            yield _row(cut.parts[sighting.topic], place, "archived", sighting)
        case SightRange() as wanted:
            sighting = sight_range(wanted)
            yield _row(cut.parts[sighting.topic], place, "live", sighting)


def _rows_of(cut: Cut, place: int, work: AuditedFile) -> Iterator[pa.RecordBatch]:
    held: dict[int, list[tuple[int, AnyLine | OutputLine]]] = {}
    sizes: dict[int, int] = {}
    kind = "lines"
    lines = read_file(Path(work.path), work.name, Files(), end=work.end)
    for number, line in enumerate(lines):
        if isinstance(line, OutputLine):
            kind, topic = "output", line.topic
        else:
            topic = topic_of_line(line)
        if not topic:
            continue
        part = cut.parts[topic]
        held.setdefault(part, []).append((number, line))
        sizes[part] = sizes.get(part, 0) + 1 + len(getattr(line, "messages", ()))
        if sizes[part] >= CHUNK_FACTS:
            yield _row(part, place, kind, held.pop(part))
            sizes[part] = 0
    for part, some in held.items():
        yield _row(part, place, kind, some)


def _row(part: int, file: int, kind: str, content: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "part": pa.array([part], pa.int32()),
            "file": pa.array([file], pa.int32()),
            "kind": [kind],
            "content": pa.array([_pack(content)], pa.binary()),
        }
    )
