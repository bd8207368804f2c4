"""`reliable-pubsub pipeline archive`: topics to a Delta table, round by round."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from typing import Any, Final

import click
from msgspec import Struct

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES, asking_options
from reliable_pubsub.common.terminal import say

from .archive import Archive
from .archive_tasks import StageRange, stage_range
from .core.options import SourceOptions
from .core.planning import (
    MessageRange,
    admitted,
    ending_offsets,
    ranges_between,
    refuse_unknown,
    resumed_offsets,
)
from .job import (
    SparkWish,
    archive_path,
    config_option,
    reading_endpoint,
    running_job,
    spark_options,
    spark_tasks,
    topic_options,
    topics_wanted,
)
from .proxy_topics import ProxyTopics
from .tasks import SparkTasks

ROWS_PER_FILE: Final = 250_000
ROUND_S: Final = 10.0  # without --available-now: how often there are new files

_log = logging.getLogger("reliable_pubsub.pipeline")


class Archiving(Struct, frozen=True, kw_only=True):
    """One run of the job: an archive, the topics, and what runs its tasks."""

    archive: Archive
    options: SourceOptions
    topics: ProxyTopics
    tasks: SparkTasks

    def catch_up(self) -> int:
        """Archive what is stored now; return the number of messages.

        Raises:
            DataLossError: the next messages were removed, or the topic is another one.
            ProxyUnreachableError: what was archived so far stays.
            StorageFailedError: the same.
        """
        rows = 0
        planned = self._planned()
        while planned:
            size = self.tasks.round_size()  # Spark may have more cores than a round ago
            some, planned = planned[:size], planned[size:]
            work = [StageRange(one, self.archive.place.address, self.options) for one in some]
            staged = [file for files in self.tasks.run(stage_range, work) for file in files]
            if not self.archive.add(staged, {(one.topic, one.log): one.end for one in some}):
                planned = self._planned()  # another driver was there first
                continue
            self.topics.tell_places(self.archive.reached())
            rows += sum(one.rows for one in staged)
        return rows

    def _planned(self) -> list[MessageRange]:
        """What is to be archived, from where the archive ends now."""
        self.archive.refresh()
        extents = self.topics.extents(0)  # not older: another driver may have archived to a new end
        reached = self.archive.reached([(topic, one.log) for topic, one in extents.items()])
        resumed = resumed_offsets(
            reached, extents, self.options, lambda loss: _log.warning("%s", loss.skipped)
        )
        for topic, place in resumed.items():
            if topic not in reached and place.offset > 0:
                _log.warning(
                    "topic %r: the archive begins at offset %d; the messages before it were "
                    "removed from the topic and are in no file",
                    topic,
                    place.offset,
                )
        self.topics.tell_places(resumed)  # from here on retention waits for us
        ends = ending_offsets(None, extents, self.topics.find_time)
        return ranges_between(
            reached,
            admitted(reached, resumed, ends, None),
            rows_max=self.options.partition_rows_max,
            ranges_min=1,
        )


@click.command(context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@config_option()
@topic_options()
@click.option(
    "--folder",
    required=True,
    type=archive_path(),
    help="The archive, a Delta table: a folder that all machines see, or s3://BUCKET/PREFIX.",
)
@click.option(
    "--available-now", is_flag=True, help="End when what is stored now is archived; else continue."
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
@click.option(
    "--subscriber", default="", help="Id under which the proxy knows the archive: lag, retention."
)
@click.option("--accept-loss", is_flag=True, help="Continue after messages that were removed.")
@spark_options()
@asking_options("subscriber")
def main(
    topic: tuple[str, ...],
    pattern: str,
    folder: str,
    available_now: bool,
    rows_per_file: int,
    every: float,
    subscriber: str,
    accept_loss: bool,
    spark: SparkWish,
    quiet: bool,
    **asked: Any,
) -> None:
    """Copy topics into a Delta table, each message once.

    Kill it at any moment and run it again: it goes on where the table ends. Others may read the
    table meanwhile; they see whole commits, each message once.

    \b
      reliable-pubsub pipeline archive --topic news --folder archive --available-now
      python -c "import deltalake; print(deltalake.DeltaTable('archive').to_pandas())"
    """
    with running_job(is_endless=not available_now):
        where, retry = reading_endpoint(**asked)
        options = topics_wanted(
            topic,
            pattern,
            endpoint=where,
            retry=retry,
            partition_rows_max=rows_per_file,
            fail_on_data_loss=not accept_loss,
            subscriber=subscriber,
        )
        with closing(ProxyTopics(options)) as topics:
            extents = topics.extents()  # report an unreachable proxy before Spark is started
            if available_now:
                refuse_unknown(options, extents)
            archive = Archive(folder)
            quiet |= not available_now
            with spark_tasks("archive", spark, quiet=quiet) as tasks:
                job = Archiving(archive=archive, options=options, topics=topics, tasks=tasks)
                say(f"ready: archive {folder} endpoint={where}")
                rows = job.catch_up()
                say(f"done: archived {rows} messages in {folder}")
                while not available_now:
                    time.sleep(every)
                    rows = job.catch_up()
                    if rows:
                        say(f"archived {rows} messages")
