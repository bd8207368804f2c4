"""`reliable-pubsub pipeline replay`: the past of a topic, or of an archive, to another topic.

One publisher puts it in order, so it needs no Spark.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from reliable_pubsub.common.command_line import CONTEXT_SETTINGS, EXIT_CODES, asking_options
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.errors import ConfigurationError, UsageError
from reliable_pubsub.common.plan_view import progress_bar
from reliable_pubsub.subscriber.reader import LogReader

from .archive import archived_files
from .archive_tasks import archived_rows
from .auditing import whereabouts
from .core.loss import DataLossError
from .core.manifest import newest_logs
from .core.planning import MessageRange
from .job import (
    config_option,
    proxy_endpoint,
    running_job,
    subscriber_endpoint_option,
    topics_wanted,
)
from .numbered import Record, numbered_publisher, put_numbered
from .reading import stored_range

_COLUMNS = ("offset", "value", "key", "headers", "event_time_ns")


class Past(Struct, frozen=True):
    """What is replayed."""

    wanted: MessageRange
    records: Callable[[], Iterator[Record]]

    def replay_id(self, target: str) -> str:
        """The id of a replay that has no other: the same for the same messages and target."""
        one = self.wanted
        text = f"{one.log}\n{one.topic}\n{one.first}\n{one.end}\n{target}"
        return sha256(text.encode()).hexdigest()[:24]


def archived_past(folder: Path, topic: str, first: int | None, end: int | None) -> Past:
    """A range of an archive; None is its edge.

    Raises:
        ConfigurationError: the archive does not have the topic.
        DataLossError: it does not have all of the range.
    """
    places = dict(archived_files(folder))
    files = newest_logs(places).get(topic)
    if not files:
        raise ConfigurationError(f"{folder}: has nothing of topic {topic!r}")
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

    def records() -> Iterator[Record]:
        for one in files:
            if one.end > begin and one.first < stop:
                for batch in archived_rows(one, places[one], _COLUMNS):
                    for row in batch.to_pylist():
                        if begin <= row["offset"] < stop:
                            headers = None if row["headers"] is None else dict(row["headers"])
                            yield Record(row["value"], row["key"], headers, row["event_time_ns"])

    return Past(MessageRange(topic, files[0].log, begin, stop), records)


def stored_past(reader: LogReader, wanted: MessageRange) -> Past:
    """A range of a topic."""

    def records() -> Iterator[Record]:
        for batch in stored_range(wanted, reader, fail_on_data_loss=True):
            columns = batch.columns
            for n in range(batch.skip, min(batch.header.count, wanted.end - batch.header.base)):
                yield Record(
                    columns.payloads[n],
                    columns.keys[n] if columns.keys else None,
                    columns.headers[n] if columns.headers else None,
                    columns.event_times_ns[n] if columns.event_times_ns else None,
                )

    return Past(wanted, records)


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

    def wait(self, count: int) -> None:
        """Before so many go: until those before them had their time."""
        if self._rate is None:
            return
        now_s = self._now_s()
        if now_s < self._due_s:
            self._sleep(self._due_s - now_s)
        self._due_s = max(self._due_s, now_s) + count / self._rate


@click.command(context_settings=CONTEXT_SETTINGS, epilog=EXIT_CODES)
@config_option()
@click.option("--topic", required=True, help="Whose messages.")
@click.option("--to", "target", required=True, help="The topic that gets them.")
@click.option(
    "--archive",
    type=click.Path(path_type=Path, file_okay=False),
    help="Read them there.  [default: from the proxy]",
)
@click.option("--from-offset", "first", type=click.IntRange(0), help="The first one.")
@click.option("--to-offset", "end", type=click.IntRange(0), help="The first that is left out.")
@click.option(
    "--replay-id",
    help="Under this id each message is put once.  [default: of log, range and target]",
)
@click.option("--rate", type=click.FloatRange(0.001), help="Messages a second, at most.")
@subscriber_endpoint_option()
@asking_options("publisher")
def main(
    topic: str,
    target: str,
    archive: Path | None,
    first: int | None,
    end: int | None,
    replay_id: str | None,
    rate: float | None,
    subscriber_endpoint: str | None,
    quiet: bool,
    **asked: Any,
) -> None:
    """Put the past of a topic on another one, in its order, each message once.

    Kill it and run it again: it goes on. Run it once more when it is done: nothing is put.

    \b
      reliable-pubsub pipeline replay --topic news --to news-again --archive archive --rate 500
    """
    with running_job():
        if target == topic:
            raise UsageError("--to is the topic itself: it would be read while it grows")
        put_at, retry = proxy_endpoint("publisher", **asked)
        read_at, _ = proxy_endpoint("subscriber", **{**asked, "endpoint": subscriber_endpoint})
        with LogReader(read_at, retry=retry) as reader:
            if archive:
                past = archived_past(archive, topic, first, end)
            else:
                now = whereabouts(topics_wanted([topic], "", endpoint=read_at, retry=retry))
                if topic not in now:
                    raise ConfigurationError(f"the proxy has no topic {topic!r}")
                edge = now[topic]
                begin = edge.start if first is None else first
                stop = edge.end if end is None else min(end, edge.end)
                past = stored_past(reader, MessageRange(topic, edge.log, begin, stop))
            client = names.client_id(f"replay.{replay_id or past.replay_id(target)}")
            pace = Pace(rate, now_s=time.monotonic, sleep=time.sleep)
            with (
                numbered_publisher(client, put_at, retry) as publisher,
                progress_bar(past.wanted.count, 0, quiet=quiet) as advance,
            ):

                def before_put(count: int) -> None:
                    pace.wait(count)
                    advance(count, target)

                outcome = put_numbered(
                    publisher,
                    reader,
                    names.exact(target),
                    past.records(),
                    source=f"replay {client} of {topic!r}",
                    before_put=before_put,
                )
        click.echo(
            f"done: {outcome.put} messages put on {target}, {outcome.stored_before} were there"
        )
