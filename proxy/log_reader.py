"""Reading the log: newest bodies from memory, older ones from the store, each checked."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

from reliable_pubsub.common.core.batch import ENTRY_BYTES, crc32, whole_batches
from reliable_pubsub.common.core.errors import DamagedError
from reliable_pubsub.common.core.limits import CACHE_BYTES_MAX

from .core.batches import LogBatch
from .core.records import Appended
from .core.rows import row_crc, row_key
from .stored_state import SqlConnection, reading

_COLUMNS = "topic_id, base, count, publisher, epoch, first_sequence, timestamp_ns, crc, qos, body"


class StoreReader:
    """The broker's `BatchReader`; returns durable batches only, because only those are added."""

    def __init__(
        self, connection: SqlConnection, *, cache_bytes_max: int = CACHE_BYTES_MAX
    ) -> None:
        """Create a reader with an empty cache over `connection`, which only it may use."""
        self._connection = connection
        self._cache: dict[tuple[int, int], LogBatch] = {}
        self._order: deque[tuple[int, int]] = deque()
        self._cache_bytes = 0
        self._cache_bytes_max = cache_bytes_max

    def add(self, batches: Sequence[LogBatch]) -> None:
        """Cache batches that have just become durable; the oldest are evicted."""
        for batch in batches:
            key = (batch.topic_id, batch.base)
            self._cache[key] = batch
            self._order.append(key)
            self._cache_bytes += len(batch.body) + ENTRY_BYTES
        while self._cache_bytes > self._cache_bytes_max:
            gone = self._cache.pop(self._order.popleft())
            self._cache_bytes -= len(gone.body) + ENTRY_BYTES

    def clear(self) -> None:
        """Forget the cache; the store has everything."""
        self._cache.clear()
        self._order.clear()
        self._cache_bytes = 0

    def read(
        self, topic_id: int, offset: int, *, messages_max: int, bytes_max: int
    ) -> list[LogBatch]:
        bounds = {"messages_max": messages_max, "bytes_max": bytes_max}
        cached = self._cached(topic_id, offset)
        found = [batch for batch, _ in whole_batches(cached, offset, **bounds)]
        if found:
            return found
        with reading(), closing(self._stored(topic_id, offset)) as stored:
            found = [batch for batch, _ in whole_batches(stored, offset, **bounds)]
        if found and found[0].base <= offset:
            return found
        # Durability `snapshot` serves batches that are not written yet; this is the middle of one.
        for batch in self._cache.values():
            if batch.topic_id == topic_id and batch.base <= offset < batch.end:
                return [batch]
        return found

    def _cached(self, topic_id: int, offset: int) -> Iterator[tuple[LogBatch, bytes]]:
        """The cached batches from one that begins exactly at `offset`."""
        while batch := self._cache.get((topic_id, offset)):
            yield batch, batch.body
            offset = batch.base + batch.count

    def _stored(self, topic_id: int, offset: int) -> Generator[tuple[LogBatch, bytes]]:
        """The stored batches from the one that holds `offset`, as far as there is no hole."""
        place = row_key(topic_id, offset)
        (holder,) = self._connection.execute(
            "SELECT max(place) FROM batch WHERE place >= ? AND place <= ?",
            (row_key(topic_id, 0), place),
        ).fetchone()
        cursor = self._connection.execute(
            f"SELECT {_COLUMNS}, row_crc FROM batch WHERE place >= ? AND place < ? ORDER BY place",
            (place if holder is None else holder, row_key(topic_id + 1, 0)),
        )
        # An open cursor would keep the WAL of the writer from being reused.
        with closing(cursor):
            end: int | None = None
            for row in cursor:
                batch = _checked(row)
                if batch.end <= offset:  # the one of this offset was removed; the next shows it
                    continue
                if end is not None and batch.base != end:
                    return  # after a hole that an operator accepted, the next reply is LOST
                yield batch, batch.body
                end = batch.end

    def timestamp_ns(self, topic_id: int, offset: int) -> int | None:
        cached = self._cache.get((topic_id, offset))
        if cached is not None:
            return cached.timestamp_ns
        with reading():
            row = self._connection.execute(
                "SELECT base + count, timestamp_ns FROM batch WHERE place >= ? AND place <= ?"
                " ORDER BY place DESC LIMIT 1",
                (row_key(topic_id, 0), row_key(topic_id, offset)),
            ).fetchone()
        return int(row[1]) if row is not None and offset < row[0] else None

    def first_since(self, topic_id: int, base: int, end: int, timestamp_ns: int) -> int | None:
        with reading():
            (found,) = self._connection.execute(
                "SELECT min(base) FROM batch WHERE place >= ? AND place < ? AND timestamp_ns >= ?",
                (row_key(topic_id, base), row_key(topic_id, end), timestamp_ns),
            ).fetchone()
        if found is not None:
            return int(found)
        # Durability `snapshot` serves batches that are not written yet.
        return min(
            (
                batch.base
                for batch in self._cache.values()
                if batch.topic_id == topic_id
                and base <= batch.base < end
                and batch.timestamp_ns >= timestamp_ns
            ),
            default=None,
        )

    def find(self, topic_id: int, publisher: str, sequence: int) -> LogBatch | None:
        with reading():
            row = self._connection.execute(
                f"SELECT {_COLUMNS}, row_crc FROM batch WHERE topic_id = ? AND publisher = ?"
                " AND qos = 2 AND first_sequence <= ? ORDER BY first_sequence DESC LIMIT 1",
                (topic_id, publisher, sequence),
            ).fetchone()
        if row is None:
            return None
        batch = _checked(row)
        return batch if sequence <= batch.last_sequence else None

    def close(self) -> None:
        self._connection.close()


def _checked(row: tuple[object, ...]) -> LogBatch:
    """A stored row as a batch, if it is what was written."""
    *columns, body, stored_crc = row
    *facts, qos = columns
    batch = Appended(*facts, body, qos)  # type: ignore[arg-type, call-arg]
    if row_crc(*columns) != stored_crc or crc32(batch.body) != batch.crc:  # type: ignore[arg-type]
        raise DamagedError(
            f"topic number {batch.topic_id}: the batch at offsets {batch.base} to {batch.end - 1} "
            "is damaged on disk; stop the proxy, restore a copy, or start it once with "
            "--accept-loss"
        )
    return batch
