"""Put records whose numbers are known beforehand: the n-th record is sequence n of a publisher.

So the proxy knows how far an earlier run came, nothing is kept here, and a repeat puts what is
left. That the records are still the same is seen from the last one that is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.batch import Batch, column
from reliable_pubsub.common.core.client_state import MemoryState
from reliable_pubsub.common.core.errors import ConflictError, LostError, TruncatedError
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.world import World
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.reader import LogReader

from .core.outgoing import BatchCutter

BATCH_RECORDS: Final = 2_000  # a put waits for the disk once, whatever it holds


class SourceOutcome(Struct, frozen=True):
    """The outcome for a source of records."""

    source: str
    stored_before: int
    put: int
    first: int | None = None  # offset of the first that was put; None: none was, or it is gone


def numbered_publisher(client: str, endpoint: str, retry: RetryPolicy) -> Publisher:
    """A publisher that keeps nothing, whatever state_dir the settings name."""
    return Publisher(
        client,
        endpoint=endpoint,
        retry=retry,
        allow_plaintext=True,  # or the command has refused it
        _world=World(state=MemoryState()),
    )


def put_numbered(
    publisher: Publisher,
    reader: LogReader,
    topic: str,
    batches: Iterable[Batch],
    *,
    source: str,
    before_put: Callable[[int], None] = lambda count: None,
) -> SourceOutcome:
    """Put what is not stored yet.

    Args:
        batches: of all records, from the first on, the same at every run, however they are cut;
            there may be more than last time.
        source: what they come from, for errors.
        before_put: called with the number of messages that go next; it may wait.

    Raises:
        ConflictError: the last record that is stored is another one, or is not there any more.
        InDoubtError: run it again, it resumes.
    """
    done = publisher.ready_for(topic) - 1
    read, count, first, last = 0, 0, None, None
    for batch in batches:
        read, begin = read + len(batch.payloads), read
        if begin < done <= read:
            last = part_of_batch(batch, done - begin - 1, done - begin)
            check_last(publisher, reader, topic, done, last, source)
        if read <= done:
            continue
        left = part_of_batch(batch, max(done - begin, 0), len(batch.payloads))
        before_put(len(left.payloads))
        receipt = publisher.put_batch(topic, left)
        first = receipt.offset if count == 0 else first
        count += len(left.payloads)
    if done and last is None:
        check_last(publisher, reader, topic, done, None, source)
    return SourceOutcome(source, done, count, first)


def check_last(
    publisher: Publisher,
    reader: LogReader,
    topic: str,
    done: int,
    last: Batch | None,
    source: str,
) -> None:
    """Compare the last record that was put, a batch of one, with the message stored of it."""
    offset = publisher.outbox.topics[topic].offset
    what = f"{source}: {done} records of it are in topic {topic!r} (publisher {publisher.client})"
    if last is None:
        raise ConflictError(f"{what}, and it has fewer now. It was changed; nothing was put")
    if offset is None:
        return  # the proxy has removed it, so it cannot be compared
    try:
        (stored,) = reader.read(topic, offset, messages_max=1, bytes_max=0)[:1]
    except (TruncatedError, LostError):
        return
    if part_of_batch(stored.columns, stored.skip, stored.skip + 1) != last:
        raise ConflictError(
            f"{what}, and record {done} is another one than the message at offset {offset}: the "
            "source, or what is made of it, was changed. Nothing was put; for a new source choose "
            "another name"
        )


def part_of_batch(batch: Batch, first: int, end: int) -> Batch:
    """The records [first, end) of a batch; a column that none of them uses is left out."""
    if first == 0 and end == len(batch.payloads):
        return batch
    return Batch(
        batch.payloads[first:end],
        batch.keys and column(batch.keys[first:end]),
        batch.headers and column(batch.headers[first:end]),
        batch.event_times_ns and column(batch.event_times_ns[first:end]),
    )


def cut_again(batches: Iterable[Batch], records_max: int = BATCH_RECORDS) -> Iterator[Batch]:
    """Return the same records in batches of at most this many, as large as they may be."""
    cutter = BatchCutter(records_max)
    for one in batches:
        yield from cutter.add(one)
    yield from cutter.rest()
