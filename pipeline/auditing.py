"""`reliable-pubsub pipeline audit`: hold topics, archives and journals against the lab's rules."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace
from pyspark.sql import DataFrame
from rich.console import Console

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, RenamedOption, asking_options
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.wording import did_you_mean
from reliable_pubsub.common.progress import progress_bar
from reliable_pubsub.lab.__main__ import EXIT_CODES, VIOLATED
from reliable_pubsub.lab.core.checker import check
from reliable_pubsub.lab.core.run import LabRun
from reliable_pubsub.lab.core.story import Story, first_story
from reliable_pubsub.lab.core.verdict import Verdict
from reliable_pubsub.lab.reading import read_run, without_collection
from reliable_pubsub.lab.report import report_option, write_report
from reliable_pubsub.lab.verdict_text import show_verdict

from .archive_tasks import ArchivedFile, seal_holds
from .audit_tasks import kept_files, live_ranges, sight_file, sight_range
from .core.evidence import Sighting, Whereabouts, extents, of_one_log, with_log
from .core.log_verdict import log_verdict
from .core.manifest import Manifest
from .core.options import SourceOptions
from .core.tables import TABLES
from .data_source import journal_deliveries
from .job import (
    ArchivePath,
    LocalPath,
    SparkWish,
    config_option,
    proxy_endpoint,
    running_job,
    spark_options,
    spark_tasks,
    topics_wanted,
)
from .journal_audit import journal_work, judge_journals, survey
from .log_rules import archived_messages, live_rows, look_at
from .proxy_topics import status_of
from .tasks import SparkTasks, Tasks, unshown

W = TypeVar("W")
OnSighting = Callable[[Sighting], None]

STRETCHES_AT_A_TIME: Final = 16  # read before the next ones are asked for
ROWS_AT_A_TIME: Final = 65_536  # of a table that is written
_KINDS: Final = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64()}


def whereabouts(options: SourceOptions) -> dict[str, Whereabouts]:
    """What the proxy says of each topic that is wanted.

    Raises:
        ProxyUnreachableError.
    """
    return {
        one.topic: Whereabouts(
            one.log, one.start, one.end, {s.subscriber: s.cursor for s in one.subscriptions}
        )
        for one in status_of(options.endpoint, options.retry).topics
        if options.wants(one.topic)
    }


def refuse_unread(options: SourceOptions, found: Collection[str]) -> None:
    """See that each topic that is named is in what is read.

    Raises:
        UsageError: one is not, so a verdict would say nothing of it.
    """
    for topic in options.topics:
        if topic not in found:
            raise UsageError(
                f"topic {topic!r} is neither at the proxy (--live) nor in the archive (--archive) "
                f"that is read{did_you_mean(topic, found)}"
            )


def read_live(
    options: SourceOptions,
    now: dict[str, Whereabouts],
    tasks: Tasks,
    on_sighting: OnSighting = unshown,
) -> list[Sighting]:
    """Read the topics of a proxy from where they begin to where they ended when it was asked."""
    return _by_and_by(tasks, sight_range, live_ranges(options, now), on_sighting)


def read_archive(
    files: Sequence[ArchivedFile], tasks: Tasks, on_sighting: OnSighting = unshown
) -> list[Sighting]:
    """Read files of an archive, every one held against the table."""
    return _by_and_by(tasks, sight_file, files, on_sighting)


def judge_log(
    tasks: SparkTasks,
    options: SourceOptions,
    now: Mapping[str, Whereabouts],
    files: Sequence[ArchivedFile],
    advance: Callable[[int, str], None] = lambda messages, what: None,
) -> tuple[LabRun, Verdict]:
    """The verdict over a log alone, made by Spark; and a run with the messages that it names.

    Args:
        now: topics of the proxy; none if it is not asked.
        files: those of an archive that hold what is wanted.
        advance: called with the number of messages that are through.

    Raises:
        DamagedError: an archived file is not what the table says.
        DataLossError: the proxy no longer holds all that it held.
        ProxyUnreachableError.
    """
    by_manifest = {one.manifest: one for one in files}
    manifests, strange = of_one_log(list(by_manifest), now)
    files = [by_manifest[one] for one in manifests]
    refuse_unsealed(manifests)
    tasks.run(seal_holds, files)
    frames = [archived_messages(tasks.spark, files)] if files else []
    frames += [live_rows(tasks.spark, options, now)] if now else []
    known = extents(manifests, now)
    sights, faults = look_at(tasks, reduce(DataFrame.union, frames), known) if frames else ([], [])
    for one in sights:
        advance(one.entries, one.topic)
    run, verdict = log_verdict(known, sights, faults, pid=os.getpid())
    return run, replace(verdict, warnings=[*strange, *verdict.warnings])


def refuse_unsealed(manifests: Sequence[Manifest]) -> None:
    """See that an archive job has written each file.

    Raises:
        UsageError: another program has, so there is no checksum to hold it against.
    """
    for one in manifests:
        if not one.sha256:
            raise UsageError(
                f"{one.path}: was compacted by another program, so this audit has no checksum of "
                f"it; its offsets are {one.first} to {one.end - 1} of {one.topic!r}. Give "
                "--journal too, which compares what it holds; and compact by `pipeline archive "
                "--merge`"
            )


def _by_and_by(
    tasks: Tasks, act: Callable[[W], Sighting], work: Sequence[W], on_sighting: OnSighting
) -> list[Sighting]:
    found: list[Sighting] = []
    for first in range(0, len(work), STRETCHES_AT_A_TIME):
        some = tasks.run(act, work[first : first + STRETCHES_AT_A_TIME])
        for one in some:
            on_sighting(one)
        found += some
    return found


def write_tables(folder: Path, verdict: Verdict) -> None:
    """The verdict as Parquet: rules, violations."""
    folder.mkdir(parents=True, exist_ok=True)
    rules = [
        {
            "rule": one.rule,
            "title": one.title,
            "checked": one.checked,
            "violations": len(one.violations),
            "not_judged": one.reason,
        }
        for one in verdict.rules
    ]
    violations = [
        {
            "rule": rule.rule,
            "text": one.text,
            "topic": one.message.topic if one.message else None,
            "publisher": one.message.publisher if one.message else None,
            "sequence": one.message.sequence if one.message else None,
        }
        for rule in verdict.rules
        for one in rule.violations
    ]
    named = pa.schema(
        [(name, pa.string()) for name in ("rule", "text", "topic", "publisher")]
        + [("sequence", pa.int64())]
    )
    pq.write_table(pa.Table.from_pylist(rules), folder / "rules.parquet")
    pq.write_table(pa.Table.from_pylist(violations, named), folder / "violations.parquet")


def write_deliveries(folder: Path, journals: Path | None) -> None:
    """What the verdict rests on, as Parquet, file by file."""
    names = TABLES["deliveries"]
    schema = pa.schema([(name, _KINDS[kind]) for name, kind in names.items()])
    rows = journal_deliveries(journals, lambda topic: True) if journals else iter(())
    with pq.ParquetWriter(folder / "deliveries.parquet", schema) as file:
        while some := list(islice(rows, ROWS_AT_A_TIME)):
            columns = zip(*some, strict=True)
            arrays = [pa.array(one, kind.type) for one, kind in zip(columns, schema, strict=True)]
            file.write_table(pa.Table.from_arrays(arrays, schema=schema))


@click.command(context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@config_option()
@click.option("--topic", multiple=True, help="Read only this one; may be given several times.")
@click.option("--live", is_flag=True, help="Read the topics of the proxy.")
@click.option(
    "--archive", type=ArchivePath(), help="Read this archive, a folder or s3://BUCKET/PREFIX."
)
@click.option(
    "--journal",
    "--history",  # its name until that word had two meanings
    cls=RenamedOption,
    type=LocalPath(file_okay=False),
    help="A folder of journals and outputs: who put and who got what.",
)
@click.option(
    "--tables",
    type=LocalPath(file_okay=False),
    help="Write rules, violations and deliveries as Parquet into this folder.",
)
@report_option()
@spark_options()
@asking_options("subscriber")
def main(
    topic: tuple[str, ...],
    live: bool,
    archive: str | None,
    journal: Path | None,
    tables: Path | None,
    report: Path | None,
    spark: SparkWish,
    quiet: bool,
    **asked: Any,
) -> None:
    """Was every put stored once, and every message delivered once, in order?

    The rules are those of `lab check`, and over journals alone so is the verdict. --live and
    --archive add what the log holds: where both are given, what the proxy has removed meanwhile is
    judged by the archive, and what is in both must be the same.

    \b
      reliable-pubsub pipeline audit --live --journal journals --report audit.html
      reliable-pubsub pipeline audit --archive archive --journal journals --tables verdict
    """
    with running_job():
        if not (live or archive or journal):
            raise UsageError("name what to audit: --live, --archive DIR, --journal DIR")
        where, retry = proxy_endpoint("subscriber", **asked)
        wanted = topics_wanted(topic, "" if topic else ".*", endpoint=where, retry=retry)
        source = Sources(journal, archive, wanted, live=live, has_page=report is not None)
        audited = source.audited(spark, quiet=quiet)
        verdict = audited.verdict
        show_verdict(Console(), verdict, audited.story, journal or Path(), audited.torn)
        if tables:
            write_tables(tables, verdict)
            write_deliveries(tables, journal)
        if report:
            about = _about(live, archive, journal)
            write_report(
                report,
                audited.run,
                verdict,
                title="Audit",
                about=about,
                eyebrow="Report of an audit",
            )
        if not verdict.holds:
            sys.exit(VIOLATED)


class Audited(Struct, frozen=True, kw_only=True):
    """What an audit found."""

    verdict: Verdict
    story: Story | None
    torn: Mapping[str, int]
    run: LabRun  # of a page; without one, the messages of violations


class Sources(Struct, frozen=True):
    """What is audited."""

    journal: Path | None
    archive: str | None
    wanted: SourceOptions
    live: bool
    has_page: bool  # it shows every line, so they are all read here

    def audited(self, spark: SparkWish, *, quiet: bool) -> Audited:
        """The verdict: here over journals alone, and where a page is made of them; else by tasks.

        Raises:
            As `judge_log`, `judge_journals`, `read_run`.
        """
        has_log = self.live or self.archive is not None
        is_here = self.journal is not None and (
            self.has_page or not (has_log or spark != SparkWish())
        )
        # Journals first: what they tell must be in a log that is read later.
        run = read_run(self.journal) if self.journal and is_here else LabRun(lines=[], outputs={})
        if is_here and not has_log:
            return _judged_here(run)
        work = journal_work(self.journal) if self.journal and not is_here else []
        now = whereabouts(self.wanted) if self.live else {}
        files = kept_files(self.archive, self.wanted) if self.archive else []
        if has_log:
            refuse_unread(self.wanted, {*now, *(one.manifest.topic for one in files)})
        total = sum(one.end - one.start for one in now.values())
        total += sum(one.manifest.rows for one in files)
        reached = (self.wanted.endpoint,) if self.live else ()
        with (
            spark_tasks("audit", spark, *reached) as tasks,
            progress_bar(total, 0, quiet=quiet) as advance,
        ):
            if self.journal is None:
                run, verdict = judge_log(tasks, self.wanted, now, files, advance)
                return _of(run, verdict)
            if is_here:

                def on_sighting(one: Sighting) -> None:
                    advance(len(one.messages), one.topic)

                archived = read_archive(files, tasks, on_sighting)
                lived = read_live(self.wanted, now, tasks, on_sighting)
                return _judged_here(with_log(run, archived, lived, now, pid=os.getpid()))
            journals = survey(tasks, self.journal, work)
            log = now if has_log else None
            verdict, story = judge_journals(tasks, journals, self.wanted, log, files)
            advance(total, "journals")
        return Audited(verdict=verdict, story=story, torn=journals.files.torn, run=run)


def _judged_here(run: LabRun) -> Audited:
    with without_collection():
        return _of(run, check(run))


def _of(run: LabRun, verdict: Verdict) -> Audited:
    return Audited(verdict=verdict, story=first_story(run, verdict), torn=run.torn, run=run)


def _about(live: bool, archive: str | None, journal: Path | None) -> str:
    read = ["the topics of the proxy"] * live
    read += [
        f"{what} {path}" for what, path in (("archive", archive), ("journals", journal)) if path
    ]
    return f"Read: {', '.join(read)}."
