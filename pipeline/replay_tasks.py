"""What tasks of a replay do: put a range of a topic on another one, or stage a part of it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.limits import STAGED_BATCH_BYTES
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.core.outbox import encoded_batch
from reliable_pubsub.publisher.writer import TransactionWriter
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
    check_last,
    cut_again,
    numbered_publisher,
    part_of_batch,
    put_numbered,
    record_at,
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
        """What it is, for errors."""
        return f"replay {self.client} of {self.wanted.topic!r}"

    def part(self, first: int, end: int) -> ReplayTopic:
        """The messages [first, end) of it, counted from 0."""
        wanted = replace(self.wanted, first=self.wanted.first + first, end=self.wanted.first + end)
        return replace(self, wanted=wanted, files=self.files and holding(self.files, wanted))

    def batches(self, reader: LogReader, *, checked: bool = False) -> Iterator[Batch]:
        """Its messages.

        Args:
            checked: files were held against the archive's table before.

        Raises:
            DataLossError: the proxy no longer holds all of them.
            DamagedError: a file is not what the table says.
        """
        if self.files is not None:
            yield from archived_batches(self.wanted, self.files, checked=checked)
            return
        for batch in stored_range(self.wanted, reader, fail_on_data_loss=True):
            end = min(batch.header.count, self.wanted.end - batch.header.base)
            yield part_of_batch(batch.columns, batch.skip, end)


def archived_past(
    archive: Location, topic: str, first: int | None, end: int | None
) -> tuple[MessageRange, tuple[ArchivedFile, ...]]:
    """A range of an archive, and the files that hold it; None is an edge of the archive.

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
    held = holding([ArchivedFile(one, places[one]) for one in files], wanted)
    expected = begin
    for one in (file.manifest for file in held):
        if one.first > expected or one.rows < one.end - one.first:
            break
        expected = one.end
    if expected < stop:
        why = "the archive does not have them"
        raise DataLossError(topic=topic, first=expected, end=stop, why=why)
    return wanted, held


def holding(files: Iterable[ArchivedFile], wanted: MessageRange) -> tuple[ArchivedFile, ...]:
    """Those of the files that have messages of a range."""
    return tuple(
        one for one in files if one.manifest.end > wanted.first and one.manifest.first < wanted.end
    )


def archived_batches(
    wanted: MessageRange, files: Iterable[ArchivedFile], *, checked: bool = False
) -> Iterator[Batch]:
    """The messages of a range, from files that hold all of it; see `ReplayTopic.batches`."""
    for one in files:
        if not checked:
            check_file(one.manifest, one.path)
        for rows in rows_of(one.manifest, one.path, _COLUMNS, wanted):
            offsets = rows.column("offset")
            is_wanted = pc.and_(
                pc.greater_equal(offsets, wanted.first), pc.less(offsets, wanted.end)
            )
            yield _batch(rows.filter(is_wanted))


def _batch(rows: pa.RecordBatch) -> Batch:
    """Rows of an archive; a column that none of them uses is left out."""
    keys, headers, times_ns = (
        None if one.null_count == len(one) else one.to_pylist()
        for one in (rows.column(name) for name in ("key", "headers", "event_time_ns"))
    )
    named = headers and [None if one is None else dict(one) for one in headers]
    return Batch(rows.column("value").to_pylist(), keys, named, times_ns)


class RateLimiter:
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


@contextmanager
def _opened(one: ReplayTopic) -> Iterator[tuple[LogReader, Publisher]]:
    access = one.access
    with (
        LogReader(access.read_at, retry=access.retry) as reader,
        numbered_publisher(one.client, access.put_at, access.retry) as publisher,
    ):
        yield reader, publisher


def replay_topic(work: ReplayTopic, on_put: Callable[[int], None] = unshown) -> SourceOutcome:
    """In a task: put what of a range is not stored yet.

    Args:
        on_put: called with the number of messages that go next.

    Raises:
        As `ReplayTopic.batches` and `put_numbered`.
    """
    pace = RateLimiter(work.rate, now_s=time.monotonic, sleep=time.sleep)

    def before_put(count: int) -> None:
        pace.wait(count)
        on_put(count)

    with _opened(work) as (reader, publisher):
        return put_numbered(
            publisher,
            reader,
            work.target,
            cut_again(work.batches(reader), pace.batch(BATCH_RECORDS)),
            source=work.source,
            before_put=before_put,
        )


def stored_of(work: ReplayTopic) -> int:
    """How many messages of a range are stored, whichever way they came.

    Raises:
        ConflictError: the last of them is another one than the range has there.
        As `ReplayTopic.batches`.
    """
    with _opened(work) as (reader, publisher):
        done = publisher.ready_for(work.target) - 1
        if done:
            last = None
            if done <= work.wanted.count:
                batches = work.part(done - 1, done).batches(reader, checked=True)
                last = record_at(next(batches), 0)
            check_last(publisher, reader, work.target, done, last, work.source)
        return done


class StagePart(Struct, frozen=True, kw_only=True):
    """Stage this part of a replay, for the COMMIT of the driver."""

    part: ReplayTopic
    first_sequence: int
    transaction: int
    task: int
    bytes_max: int


class StagedPart(Struct, frozen=True):
    """What one try of a task has staged, from the beginning of its part."""

    attempt: bytes
    chunks: int = 0
    count: int = 0  # messages; fewer than the part has: `bytes_max` was reached
    held_bytes: int = 0


def stage_part(work: StagePart) -> StagedPart:
    """In a task: stage messages, and stop at the bound or if the transaction is committed.

    Raises:
        As `ReplayTopic.batches` and `TransactionWriter.stage`.
    """
    part, access = work.part, work.part.access
    staged = StagedPart(secrets.token_bytes(16))
    with (
        LogReader(access.read_at, retry=access.retry) as reader,
        TransactionWriter(part.client, endpoint=access.put_at, retry=access.retry) as writer,
    ):
        for batch in cut_again(part.batches(reader, checked=True)):
            body = encoded_batch(part.target, batch)
            size = staged.held_bytes + len(body.body) + STAGED_BATCH_BYTES
            if staged.chunks and size > work.bytes_max:
                break
            sequence = work.first_sequence + staged.count
            place = (work.transaction, work.task, staged.attempt, staged.chunks)
            if not writer.stage(*place, body, first_sequence=sequence):
                break
            staged = StagedPart(staged.attempt, staged.chunks + 1, staged.count + body.count, size)
    return staged
