"""`reliable-pubsub pipeline archive`: topics to Parquet, round by round."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct, structs

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES, asking_options
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.plan_view import progress_bar

from .archive import MESSAGES, Archive
from .archive_tasks import MergeFiles, StageRange, merge_files, stage_range
from .core.manifest import Manifest, archived_to, merges
from .core.options import SourceOptions
from .core.planning import admitted, ending_offsets, ranges_between, resumed_offsets
from .job import (
    config_option,
    proxy_endpoint,
    running_job,
    spark_option,
    spark_tasks,
    topic_options,
    topics_wanted,
)
from .proxy_view import ProxyView
from .tasks import Tasks

ROWS_PER_FILE: Final = 250_000
ROWS_PER_MERGED_FILE: Final = 2_000_000
ROUND_S: Final = 10.0  # without --available-now: how often there are new files

_log = logging.getLogger("reliable_pubsub.pipeline")


class Archiving(Struct, frozen=True, kw_only=True):
    """One run of the job: an archive, the topics, and what runs its tasks."""

    archive: Archive
    options: SourceOptions
    view: ProxyView
    tasks: Tasks
    files_at_a_time: int
    on_files: Callable[[Sequence[Manifest]], None] = lambda manifests: None

    def backlog(self) -> int:
        """Messages that are stored and not archived."""
        reached = archived_to(self.archive.manifests)
        return sum(
            max(extent.end - (reached[topic].offset if topic in reached else extent.start), 0)
            for topic, extent in self.view.extents().items()
        )

    def catch_up(self) -> int:
        """Archive what is stored now.

        Returns:
            How many messages.

        Raises:
            DataLossError: the next messages were removed, or the topic is another one.
            ProxyUnreachableError: what was archived so far stays.
        """
        reached = archived_to(self.archive.manifests)
        extents = self.view.extents()
        resumed = resumed_offsets(reached, extents, self.options, _log.warning)
        self.view.tell_places(resumed)  # from here on retention waits for us
        ends = ending_offsets(None, extents, self.view.find_time)
        planned = ranges_between(
            reached,
            admitted(reached, resumed, ends, None),
            rows_max=self.options.partition_rows_max,
            ranges_min=1,
        )
        rows = 0
        for first in range(0, len(planned), self.files_at_a_time):
            some = planned[first : first + self.files_at_a_time]
            staged = self.tasks.run(
                stage_range,
                [
                    StageRange(
                        wanted=one,
                        folder=str(self.archive.folder),
                        run=self.archive.run,
                        endpoint=self.options.endpoint,
                        retry=self.options.retry,
                        fail_on_data_loss=self.options.fail_on_data_loss,
                    )
                    for one in some
                ],
            )
            self.archive.add(staged)
            self.view.tell_places(archived_to(self.archive.manifests))
            self.on_files(staged)
            rows += sum(one.rows for one in staged)
        return rows

    def merge(self, rows_max: int) -> int:
        """Make one file of neighbours.

        Returns:
            How many files there are less.
        """
        groups = merges(self.archive.manifests, rows_max)
        merged = self.tasks.run(
            merge_files,
            [
                MergeFiles(
                    manifests=tuple(group),
                    folder=str(self.archive.folder),
                    generation=str(self.archive.generation),
                    run=self.archive.run,
                )
                for group in groups
            ],
        )
        if groups:
            self.archive.replace(dict(zip(merged, groups, strict=True)))
        return sum(len(group) - 1 for group in groups)


@click.command(context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@config_option()
@topic_options()
@click.option(
    "--folder",
    required=True,
    type=click.Path(path_type=Path, file_okay=False),
    help=f"The archive; readers read FOLDER/{MESSAGES}. On a cluster all machines must see it.",
)
@click.option(
    "--available-now", is_flag=True, help="End when what is stored now is archived; else go on."
)
@click.option(
    "--rows-per-file",
    type=click.IntRange(1),
    default=ROWS_PER_FILE,
    show_default=True,
    help="Messages of one file, at most.",
)
@click.option(
    "--every",
    type=click.FloatRange(0.1),
    default=ROUND_S,
    show_default=True,
    help="Seconds between two rounds, without --available-now.",
)
@click.option("--merge", is_flag=True, help="At the end make large files of small neighbours.")
@click.option(
    "--rows-per-merged-file",
    type=click.IntRange(2),
    default=ROWS_PER_MERGED_FILE,
    show_default=True,
    help="Messages of one merged file, at most.",
)
@click.option(
    "--subscriber", default="", help="Id under which the proxy knows the archive: lag, retention."
)
@click.option("--accept-loss", is_flag=True, help="Continue after messages that were removed.")
@spark_option()
@asking_options("subscriber")
def main(
    topic: tuple[str, ...],
    pattern: str,
    folder: Path,
    available_now: bool,
    rows_per_file: int,
    every: float,
    merge: bool,
    rows_per_merged_file: int,
    subscriber: str,
    accept_loss: bool,
    master: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Copy topics into a folder of Parquet files, each message once.

    Kill it at any moment and run it again: it goes on where the folder ends. Others may read the
    folder meanwhile; they see whole files, each message once.

    \b
      reliable-pubsub pipeline archive --topic news --folder archive --available-now
      python -c "import pyarrow.parquet as p; print(p.read_table('archive/messages'))"
    """
    with running_job():
        if merge and not available_now:
            raise UsageError("--merge is done at the end of a run: give --available-now with it")
        where, retry = proxy_endpoint("subscriber", **asked)
        options = topics_wanted(
            topic,
            pattern,
            endpoint=where,
            retry=retry,
            partition_rows_max=rows_per_file,
            fail_on_data_loss=not accept_loss,
            subscriber=subscriber,
        )
        view = ProxyView(options)
        view.extents()  # report an unreachable proxy before Spark is started
        with Archive(folder) as archive, spark_tasks("archive", master) as tasks:
            job = Archiving(
                archive=archive,
                options=options,
                view=view,
                tasks=tasks,
                files_at_a_time=2 * tasks.parallel,
            )
            click.echo(f"ready: archive {folder} endpoint={where}")
            _run(job, quiet=quiet, every_s=None if available_now else every)
            if merge:
                click.echo(f"merged: {job.merge(rows_per_merged_file)} files less")
        view.close()


def _run(job: Archiving, *, quiet: bool, every_s: float | None) -> None:
    """One round, or round after round."""
    total = job.backlog()
    rows = 0
    with progress_bar(total, 0, quiet=quiet or every_s is not None) as advance:
        job = structs.replace(
            job, on_files=lambda files: advance(sum(one.rows for one in files), files[-1].topic)
        )
        rows = job.catch_up()
    click.echo(f"done: archived {rows} messages in {job.archive.folder}")
    while every_s is not None:
        time.sleep(every_s)
        rows = job.catch_up()
        if rows:
            click.echo(f"archived {rows} messages")
