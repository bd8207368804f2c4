"""`reliable-pubsub pipeline audit`: check topics and archives against the lab's rules for a log."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import reduce
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace
from pyspark.sql import DataFrame
from rich.console import Console

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, asking_options
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.terminal import say
from reliable_pubsub.lab.__main__ import EXIT_CODES, VIOLATED
from reliable_pubsub.lab.core.verdict import Verdict
from reliable_pubsub.lab.verdict_text import show_verdict

from .archive import archived_files
from .archive_files import Location
from .archive_tasks import check_file
from .core.log_verdict import TopicSight, extents, log_verdict, of_one_log
from .core.manifest import ArchivedFile, Manifest
from .core.options import SourceOptions
from .core.planning import TopicExtent, refuse_unknown
from .data_source import topics_of
from .job import (
    SparkWish,
    archive_path,
    config_option,
    reading_endpoint,
    running_job,
    spark_options,
    spark_tasks,
    topics_wanted,
)
from .log_rules import archived_messages, live_rows, look_at
from .tasks import SparkTasks


def whereabouts(options: SourceOptions) -> dict[str, TopicExtent]:
    """Return what the proxy, or the archive, has of each wanted topic.

    Raises:
        ProxyUnreachableError, ConfigurationError.
    """
    with closing(topics_of(options)) as topics:
        return topics.extents()


def kept_files(archive: Location, options: SourceOptions) -> list[ArchivedFile]:
    """Return the files of an archive that hold wanted topics."""
    return [one for one in archived_files(archive) if options.wants(one.manifest.topic)]


def judge_log(
    tasks: SparkTasks,
    options: SourceOptions,
    now: Mapping[str, TopicExtent],
    files: Sequence[ArchivedFile],
) -> tuple[list[TopicSight], Verdict]:
    """Judge a log by Spark's tasks; return what was read of each topic, and the verdict.

    Args:
        now: topics of the proxy; empty to leave the proxy out.
        files: files of an archive that hold wanted topics.

    Raises:
        DamagedError: an archived file differs from the table's entry.
        DataLossError: the proxy no longer has messages that it had at the start.
        ProxyUnreachableError.
    """
    by_manifest = {one.manifest: one for one in files}
    manifests, strange = of_one_log(list(by_manifest), now)
    files = [by_manifest[one] for one in manifests]
    tasks.run(check_file, files)
    frames = [archived_messages(tasks.spark, files)] if files else []
    frames += [live_rows(tasks.spark, options, now)] if now else []
    known = extents(manifests, now)
    sights, faults = look_at(tasks, reduce(DataFrame.union, frames), known) if frames else ([], [])
    verdict = log_verdict(known, sights, faults, pid=os.getpid())
    warnings = [*strange, *unsealed(manifests), *verdict.warnings]
    return sorted(sights, key=lambda sight: sight.topic), replace(verdict, warnings=warnings)


def unsealed(manifests: Sequence[Manifest]) -> list[str]:
    """Warn about files that another program has compacted: they have no checksum."""
    foreign = [one for one in manifests if not one.sha256]
    if not foreign:
        return []
    return [
        f"{len(foreign)} of {len(manifests)} files are not sealed (the first is "
        f"{foreign[0].path}): another program compacted them, so there is no checksum to compare; "
        "their messages were judged"
    ]


@click.command(context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@config_option()
@click.option("--topic", multiple=True, help="Read only this topic; repeatable.")
@click.option("--live", is_flag=True, help="Read the proxy's topics.")
@click.option(
    "--archive", type=archive_path(), help="Read this archive, a folder or s3://BUCKET/PREFIX."
)
@spark_options()
@asking_options("subscriber")
def main(
    topic: tuple[str, ...],
    live: bool,
    archive: str | None,
    spark: SparkWish,
    quiet: bool,
    **asked: Any,
) -> None:
    """Check that every put was stored once and in order.

    The rules are those that `lab check` applies to a log. With both --live and --archive, the
    archive stands for messages that the proxy has removed, and messages in both must be equal. To
    judge what clients recorded with --journal, use `reliable-pubsub lab check`.

    \b
      reliable-pubsub pipeline audit --live
      reliable-pubsub pipeline audit --live --archive archive --topic orders
    """
    with running_job():
        if not (live or archive):
            raise UsageError("name what to audit: --live, --archive DIR, or both")
        where, retry = reading_endpoint(**asked)
        wanted = topics_wanted(topic, "" if topic else ".*", endpoint=where, retry=retry)
        now = whereabouts(wanted) if live else {}
        files = kept_files(archive, wanted) if archive else []
        archived = extents([one.manifest for one in files], {})
        refuse_unknown(wanted, {**archived, **now})
        with spark_tasks("audit", spark, quiet=quiet) as tasks:
            sights, verdict = judge_log(tasks, wanted, now, files)
        for one in sights:
            say(one.summary)
        show_verdict(Console(), verdict, None, Path(), {})
        if not verdict.holds:
            sys.exit(VIOLATED)
