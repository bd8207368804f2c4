"""Put a range of a topic, or of an archive, on another topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.subscriber.reader import LogReader

from .archive import archived_files
from .archive_files import Location
from .archive_tasks import ArchivedFile, check_file, rows_of
from .core.loss import DataLossError
from .core.manifest import newest_logs
from .core.planning import MessageRange
from .job import Access
from .numbered import (
    BATCH_RECORDS,
    SourceOutcome,
    batch_of_rows,
    cut_again,
    numbered_publisher,
    part_of_batch,
    put_numbered,
)
from .reading import stored_range
from .tasks import unshown

_COLUMNS: Final = ("offset", "value", "key", "headers", "event_time_ns")


class ReplayTopic(Struct, frozen=True, kw_only=True):
    """Put this range on another topic, in its order."""

    wanted: MessageRange
    files: tuple[ArchivedFile, ...] | None = None  # that hold it; None: the proxy does
    target: str
    client: str  # the publisher: the n-th message of the range is its message n
    access: Access
    rate: float | None = None  # messages a second; None: as fast as it goes

    @property
    def source(self) -> str:
        """Return its description for errors."""
        return f"replay {self.client} of {self.wanted.topic!r}"

    def batches(self, reader: LogReader) -> Iterator[Batch]:
        """Return its messages.

        Raises:
            DataLossError: the proxy no longer holds all of them.
            DamagedError: a file differs from the table's entry.
        """
        if self.files is not None:
            yield from archived_batches(self.wanted, self.files)
            return
        for batch in stored_range(self.wanted, reader, fail_on_data_loss=True):
            end = min(batch.header.count, self.wanted.end - batch.header.base)
            yield part_of_batch(batch.columns, batch.skip, end)


def archived_past(
    archive: Location, topic: str, first: int | None, end: int | None
) -> tuple[MessageRange, tuple[ArchivedFile, ...]]:
    """Return a range of an archive, and its files; None is an edge of the archive.

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
    wanted = MessageRange(topic, files[0].log, begin, stop)
    held = tuple(
        ArchivedFile(one, places[one])
        for one in files
        if one.end > wanted.first and one.first < wanted.end
    )
    expected = begin
    for one in (file.manifest for file in held):
        if one.first > expected or one.rows < one.end - one.first:
            break
        expected = one.end
    if expected < stop:
        why = "the archive does not have them"
        raise DataLossError(topic=topic, first=expected, end=stop, why=why)
    return wanted, held


def archived_batches(wanted: MessageRange, files: Iterable[ArchivedFile]) -> Iterator[Batch]:
    """Return the messages of a range, from files that hold all of it; see `ReplayTopic.batches`."""
    for one in files:
        check_file(one.manifest, one.path)
        yield from map(batch_of_rows, rows_of(one.manifest, one.path, _COLUMNS, wanted))


class RateLimiter:
    """Limits the messages per second."""

    def __init__(
        self, rate: float | None, *, now_s: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        """Create it; `rate` None sets no limit."""
        self._rate = rate
        self._now_s = now_s
        self._sleep = sleep
        self._due_s = now_s()

    def batch(self, records_max: int) -> int:
        """Return the size of a batch: at most the messages of one second."""
        return records_max if self._rate is None else max(1, min(int(self._rate), records_max))

    def wait(self, count: int) -> None:
        """Wait before this many messages, until the earlier ones had their time."""
        if self._rate is None:
            return
        now_s = self._now_s()
        if now_s < self._due_s:
            self._sleep(self._due_s - now_s)
        self._due_s = max(self._due_s, now_s) + count / self._rate


def replay_topic(work: ReplayTopic, on_put: Callable[[int], None] = unshown) -> SourceOutcome:
    """Put the messages of a range that are not stored yet.

    Args:
        on_put: called with the number of messages of the next batch.

    Raises:
        As `ReplayTopic.batches` and `put_numbered`.
    """
    pace = RateLimiter(work.rate, now_s=time.monotonic, sleep=time.sleep)

    def before_put(count: int) -> None:
        pace.wait(count)
        on_put(count)

    access = work.access
    with (
        LogReader(access.read_at, retry=access.retry) as reader,
        numbered_publisher(work.client, access.put_at, access.retry) as publisher,
    ):
        return put_numbered(
            publisher,
            reader,
            work.target,
            cut_again(work.batches(reader), pace.batch(BATCH_RECORDS)),
            source=work.source,
            before_put=before_put,
        )
