"""`reliable-pubsub pipeline replay`: the past of topics, or of an archive, to other topics.

One publisher puts a topic, in order. Several topics are tasks of Spark; one topic needs none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import click
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES, asking_options
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import ConfigurationError, UsageError
from reliable_pubsub.common.progress import progress_bar
from reliable_pubsub.subscriber.reader import LogReader

from .archive import archived_files
from .archive_files import Location, place_of
from .archive_tasks import archived_rows
from .auditing import whereabouts
from .core.loss import DataLossError
from .core.manifest import newest_logs
from .core.planning import MessageRange
from .job import (
    Access,
    ArchivePath,
    SparkWish,
    access_to,
    config_option,
    running_job,
    spark_options,
    spark_tasks,
    subscriber_endpoint_option,
    topics_wanted,
)
from .numbered import (
    BATCH_RECORDS,
    Outcome,
    cut_again,
    numbered_publisher,
    part_of,
    put_numbered,
)
from .reading import stored_range
from .tasks import unheard

_NAME: Final = "{topic}"  # in a target: the topic that is read
_COLUMNS = ("offset", "value", "key", "headers", "event_time_ns")


class Past(Struct, frozen=True):
    """What is replayed."""

    wanted: MessageRange
    batches: Callable[[], Iterator[Batch]]


def archived_past(archive: Location, topic: str, first: int | None, end: int | None) -> Past:
    """A range of an archive; None is its edge.

    Raises:
        ConfigurationError: the archive does not have the topic.
        DataLossError: it does not have all of the range.
    """
    places = dict(archived_files(archive))
    files = newest_logs(places).get(topic)
    if not files:
        raise ConfigurationError(f"{archive}: has nothing of topic {topic!r}")
    begin = files[0].first if first is None else first
    stop = files[-1].end if end is None else end
    expected = begin
    for one in (one for one in files if one.end > begin and one.first < stop):
        if one.first > expected or one.rows < one.end - one.first:
            break
        expected = one.end
    if expected < stop:
        why = "the archive does not have them"
        raise DataLossError(topic=topic, first=expected, end=stop, why=why)

    def batches() -> Iterator[Batch]:
        for one in files:
            if one.end > begin and one.first < stop:
                for rows in archived_rows(one, places[one], _COLUMNS):
                    offsets = rows.column("offset")
                    is_wanted = pc.and_(pc.greater_equal(offsets, begin), pc.less(offsets, stop))
                    yield _batch(rows.filter(is_wanted))

    return Past(MessageRange(topic, files[0].log, begin, stop), batches)


def _batch(rows: pa.RecordBatch) -> Batch:
    """Rows of an archive; a column that none of them uses is left out."""
    keys, headers, times_ns = (
        None if one.null_count == len(one) else one.to_pylist()
        for one in (rows.column(name) for name in ("key", "headers", "event_time_ns"))
    )
    named = headers and [None if one is None else dict(one) for one in headers]
    return Batch(rows.column("value").to_pylist(), keys, named, times_ns)


def stored_past(reader: LogReader, wanted: MessageRange) -> Past:
    """A range of a topic."""

    def batches() -> Iterator[Batch]:
        for batch in stored_range(wanted, reader, fail_on_data_loss=True):
            end = min(batch.header.count, wanted.end - batch.header.base)
            yield part_of(batch.columns, batch.skip, end)

    return Past(wanted, batches)


class Pace:
    """So many messages a second, at most."""

    def __init__(
        self, rate: float | None, *, now_s: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        """`rate` None: as fast as it goes."""
        self._rate = rate
        self._now_s = now_s
        self._sleep = sleep
        self._due_s = now_s()

    def batch(self, records_max: int) -> int:
        """How many to put at a time: what a second has, so that none gets many more."""
        return records_max if self._rate is None else max(1, min(int(self._rate), records_max))

    def wait(self, count: int) -> None:
        """Before so many go: until those before them had their time."""
        if self._rate is None:
            return
        now_s = self._now_s()
        if now_s < self._due_s:
            self._sleep(self._due_s - now_s)
        self._due_s = max(self._due_s, now_s) + count / self._rate


class ReplayTopic(Struct, frozen=True, kw_only=True):
    """Put this range on another topic, in its order."""

    wanted: MessageRange
    archive: str  # its address; "": from the proxy
    target: str
    client: str  # the publisher: the n-th message of the range is its message n
    access: Access
    rate: float | None = None  # messages a second; None: as fast as it goes


def replay_topic(work: ReplayTopic, on_put: Callable[[int], None] = unheard) -> Outcome:
    """In a task: put what of a range is not stored yet.

    Args:
        on_put: told how many messages go next.

    Raises:
        As `archived_past` and `put_numbered`.
    """
    wanted, access = work.wanted, work.access
    pace = Pace(work.rate, now_s=time.monotonic, sleep=time.sleep)

    def before_put(count: int) -> None:
        pace.wait(count)
        on_put(count)

    with (
        LogReader(access.read_at, retry=access.retry) as reader,
        numbered_publisher(work.client, access.put_at, access.retry) as publisher,
    ):
        if work.archive:
            past = archived_past(work.archive, wanted.topic, wanted.first, wanted.end)
        else:
            past = stored_past(reader, wanted)
        return put_numbered(
            publisher,
            reader,
            work.target,
            cut_again(past.batches(), pace.batch(BATCH_RECORDS)),
            source=f"replay {work.client} of {wanted.topic!r}",
            before_put=before_put,
        )


def targets_of(topics: Sequence[str], target: str) -> Mapping[str, str]:
    """The target of each topic.

    Raises:
        UsageError: two have the same, or one is read itself.
    """
    if len(topics) > 1 and _NAME not in target:
        raise UsageError(f"--to {target}: several topics need one each, such as '{_NAME}-again'")
    found = {topic: names.exact(target.replace(_NAME, topic)) for topic in topics}
    for one in found.values():
        if one in topics:
            raise UsageError(f"--to is the topic itself ({one}): it would be read while it grows")
    return found


def _ranges(
    topics: Sequence[str],
    archive: str | None,
    first: int | None,
    end: int | None,
    access: Access,
) -> list[MessageRange]:
    """What is replayed of each topic."""
    if archive:
        return [archived_past(archive, topic, first, end).wanted for topic in topics]
    now = whereabouts(topics_wanted(topics, "", endpoint=access.read_at, retry=access.retry))
    found = []
    for topic in topics:
        if topic not in now:
            raise ConfigurationError(f"the proxy has no topic {topic!r}")
        edge = now[topic]
        begin = edge.start if first is None else first
        stop = edge.end if end is None else min(end, edge.end)
        found.append(MessageRange(topic, edge.log, begin, stop))
    return found


@click.command(context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@config_option()
@click.option(
    "--topic", "topics", multiple=True, required=True, help="Whose messages; several are tasks."
)
@click.option(
    "--to",
    "target",
    required=True,
    help=f"The topic that gets them; {_NAME} stands for the name of the topic that is read.",
)
@click.option(
    "--archive",
    type=ArchivePath(),
    help="Read them there, a folder or s3://BUCKET/PREFIX.  [default: from the proxy]",
)
@click.option("--from-offset", "first", type=click.IntRange(0), help="The first one.")
@click.option("--to-offset", "end", type=click.IntRange(0), help="The first that is left out.")
@click.option(
    "--replay-id",
    help="Under this id each message is put once.  [default: of log, range and target]",
)
@click.option(
    "--rate", type=click.FloatRange(0.001), help="Messages a second of each topic, at most."
)
@spark_options()
@subscriber_endpoint_option()
@asking_options("publisher")
def main(
    topics: tuple[str, ...],
    target: str,
    archive: str | None,
    first: int | None,
    end: int | None,
    replay_id: str | None,
    rate: float | None,
    spark: SparkWish,
    subscriber_endpoint: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Put the past of topics on others, each in its order, each message once.

    Kill it and run it again: it goes on. Run it once more when it is done: nothing is put. Several
    topics are put side by side, by tasks of Spark.

    \b
      reliable-pubsub pipeline replay --topic news --to news-again --archive archive --rate 500
      reliable-pubsub pipeline replay --topic news --topic sport --to '{topic}-again'
    """
    with running_job():
        topics = tuple(dict.fromkeys(topics))
        targets = targets_of(topics, target)
        if len(topics) > 1 and (first is not None or end is not None):
            raise UsageError("--from-offset and --to-offset are of one topic")
        access = access_to(subscriber_endpoint, **asked)
        work = [
            ReplayTopic(
                wanted=one,
                archive=place_of(archive).address if archive else "",
                target=targets[one.topic],
                client=replay_client(one, targets[one.topic], replay_id, of_many=len(topics) > 1),
                access=access,
                rate=rate,
            )
            for one in _ranges(topics, archive, first, end, access)
        ]
        outcomes = _replayed(work, spark, quiet=quiet)
        put = sum(one.put for one in outcomes)
        before = sum(one.stored_before for one in outcomes)
        click.echo(
            f"done: {put} messages put on {', '.join(targets.values())}, {before} were there"
        )


def replay_client(
    wanted: MessageRange, target: str, replay_id: str | None = None, *, of_many: bool = False
) -> str:
    """The id under which a range is put: one for each topic, or they would fence each other."""
    if replay_id is None:
        # The same for the same messages and target.
        text = f"{wanted.log}\n{wanted.topic}\n{wanted.first}\n{wanted.end}\n{target}"
        return names.client_id(f"replay.{sha256(text.encode()).hexdigest()[:24]}")
    suffix = f".{sha256(wanted.topic.encode()).hexdigest()[:12]}" * of_many
    return names.client_id(f"replay.{replay_id}{suffix}")


def _replayed(work: Sequence[ReplayTopic], spark: SparkWish, *, quiet: bool) -> list[Outcome]:
    """Here, if it is one topic and no Spark is named; else in tasks, a topic each."""
    if len(work) == 1 and spark == SparkWish():
        (one,) = work
        with progress_bar(one.wanted.count, 0, quiet=quiet) as advance:
            return [replay_topic(one, lambda count: advance(count, one.target))]
    access = work[0].access
    with (
        spark_tasks("replay", spark, access.put_at, access.read_at) as tasks,
        progress_bar(len(work), 0, quiet=quiet) as advance,
    ):
        return tasks.run(replay_topic, work, lambda more: advance(more, "topics"))
