"""An audit with journals: which parts a run has, and what their verdicts give together."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.journal import AnyLine
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.one_run import check_one_run
from reliable_pubsub.lab.core.parts import Sketch, cut, together
from reliable_pubsub.lab.core.story import Story
from reliable_pubsub.lab.core.verdict import Verdict
from reliable_pubsub.lab.reading import Files, check_files, journal_files, owners_of

from .archive_tasks import ArchivedFile
from .audit_tasks import live_ranges
from .core.evidence import Whereabouts
from .core.options import SourceOptions
from .journal_tasks import (
    NO_PART,
    AuditedFile,
    Cut,
    Evidence,
    Number,
    judged,
    read_verdict,
    survey_file,
)
from .tasks import SparkTasks, Tasks


class Surveyed(Struct, kw_only=True):
    """Journals, as far as an audit has to know them before a log is read."""

    work: Sequence[AuditedFile]
    files: Files
    sketches: Sequence[Sketch]
    shared: Sequence[tuple[Number, AnyLine]]
    owners: Mapping[int, str]  # by the place of an output in the work: its subscriber


def journal_work(folder: Path) -> list[AuditedFile]:
    """The files of a folder, as long as they are now.

    Raises:
        ConfigurationError: there is no such directory, or nothing in it.
    """
    return [
        AuditedFile(str(path.absolute()), path.relative_to(folder).as_posix(), path.stat().st_size)
        for path in journal_files(folder)
    ]


def survey(tasks: Tasks, folder: Path, work: Sequence[AuditedFile]) -> Surveyed:
    """See in tasks what the journals of a folder are.

    Raises:
        As `read_run`.
    """
    files = Files()
    telling: list[tuple[Number, AnyLine]] = []
    shared: list[tuple[Number, AnyLine]] = []
    seen = tasks.run(survey_file, work)
    for place, one in enumerate(seen):
        files.add(one.files)
        shared += [((place, number), line) for number, line in one.shared]
        telling += [((place, number), line) for number, line in one.telling]
    check_files(folder, files)
    in_order = sorted([*shared, *telling], key=lambda one: (one[1].at_ns, one[0]))
    check_one_run(str(folder), [line for _, line in in_order])
    places = {one.name: place for place, one in enumerate(work)}
    return Surveyed(
        work=work,
        files=files,
        sketches=[one.sketch for one in seen],
        shared=shared,
        owners={places[name]: who for who, name in owners_of(files).items()},
    )


def judge_journals(
    tasks: SparkTasks,
    journals: Surveyed,
    options: SourceOptions,
    now: Mapping[str, Whereabouts] | None,
    files: Sequence[ArchivedFile],
) -> tuple[Verdict, Story | None]:
    """The verdict over journals and a log, made by tasks; and the story of a violation.

    Args:
        now: topics of the proxy; None if no log is read.
        files: those of an archive that hold what is wanted.

    Raises:
        As `judge_log`, but for a file that another program has compacted.
    """
    ranges = live_ranges(options, now or {})
    logs: Counter[str] = Counter({topic: one.end - one.start for topic, one in (now or {}).items()})
    for one in files:
        logs[one.manifest.topic] += one.manifest.rows
    lines = [line for _, line in journals.shared]
    run_parts = Cut(
        work=[*journals.work, *files, *ranges],
        parts=cut(lines, journals.sketches, logs),
        shared=journals.shared,
        owners=journals.owners,
        now=now or {},
        pid=None if now is None else os.getpid(),
    )
    found = [read_verdict(row.verdict) for row in tasks.rows(judged(tasks.spark, run_parts))]
    of_all = check(run_parts.run(NO_PART, Evidence()))
    verdict = together(of_all, [one.verdict for one in found])
    first = verdict.first
    stories = (one.story for one in found if one.story and first)
    story = next((one for one in stories if first and one.message == first.message), None)
    return replace(verdict, warnings=[*journals.files.warnings, *verdict.warnings]), story
