"""Put records whose numbers are known beforehand: the n-th record is sequence n of a publisher.

So the proxy knows how far an earlier run came, nothing is kept here, and a repeat puts what is
left. That the records are still the same is seen from the last one that is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import ConflictError, LostError, TruncatedError
from reliable_pubsub.common.core.limits import KIB
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.state_file import MemoryState
from reliable_pubsub.common.world import World
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.reader import LogReader

BATCH_RECORDS: Final = 2_000  # a put waits for the disk once, whatever it holds
BATCH_BYTES: Final = 256 * KIB
RECORD_BYTES: Final = 32  # about what a record needs besides its content


class Record(Struct, frozen=True):
    """What becomes a message."""

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, str] | None = None
    event_time_ns: int | None = None

    @property
    def content_bytes(self) -> int:
        """What it says, without what a batch adds."""
        headers = sum(len(k) + len(v) for k, v in (self.headers or {}).items())
        return len(self.value) + len(self.key or b"") + headers

    @property
    def bytes(self) -> int:
        """About its size in a batch."""
        return self.content_bytes + RECORD_BYTES


class Outcome(Struct, frozen=True):
    """What became of a source of records."""

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
    records: Iterable[Record],
    *,
    source: str,
    before_put: Callable[[int], None] = lambda count: None,
    records_max: int = BATCH_RECORDS,
) -> Outcome:
    """Put what is not stored yet.

    Args:
        records: all of them, from the first on, the same at every run; there may be more than last
            time.
        source: what they come from, for errors.
        before_put: told how many messages go next; it may wait.
        records_max: how many go at a time.

    Raises:
        ConflictError: the last record that is stored is another one, or is not there any more.
        InDoubtError: run it again, it resumes.
    """
    done = publisher.ready_for(topic) - 1
    left = iter(records)
    if done:
        last = next(islice(left, done - 1, None), None)
        _compare(publisher, reader, topic, done, last, source)
    count, first = 0, None
    for batch in _batches(left, records_max):
        before_put(len(batch))
        receipt = publisher.put_batch(topic, _columns(batch))
        first = receipt.offset if count == 0 else first
        count += len(batch)
    return Outcome(source, done, count, first)


def _compare(
    publisher: Publisher,
    reader: LogReader,
    topic: str,
    done: int,
    last: Record | None,
    source: str,
) -> None:
    """Hold the last record that was put against the message that became of it."""
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
    columns = stored.columns
    known = Record(
        columns.payloads[stored.skip],
        columns.keys[stored.skip] if columns.keys else None,
        columns.headers[stored.skip] if columns.headers else None,
        columns.event_times_ns[stored.skip] if columns.event_times_ns else None,
    )
    if known != last:
        raise ConflictError(
            f"{what}, and record {done} is another one than the message at offset {offset}: the "
            "source, or what is made of it, was changed. Nothing was put; for a new source choose "
            "another name"
        )


def _batches(records: Iterator[Record], records_max: int) -> Iterator[list[Record]]:
    batch: list[Record] = []
    size = 0
    for record in records:
        if batch and (len(batch) >= records_max or size + record.bytes > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record.bytes
    if batch:
        yield batch


def _columns(records: list[Record]) -> Batch:
    """As a batch; a column that no record uses is left out."""
    keys = [one.key for one in records]
    headers = [one.headers for one in records]
    times_ns = [one.event_time_ns for one in records]
    return Batch(
        [one.value for one in records],
        keys if any(one is not None for one in keys) else None,
        headers if any(one is not None for one in headers) else None,
        times_ns if any(one is not None for one in times_ns) else None,
    )
