"""What a request of a group reads of its topic: batches for the reply, and keys of messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.limits import BODY_BYTES_MAX, REPLY_BATCHES_MAX
from reliable_pubsub.common.core.wire import decode_batch

from ..core.batches import BatchReader, LogBatch
from ..core.topic_log import TopicLog


class GroupReading:
    """The durable batches of one topic, as far as one request reads them."""

    def __init__(
        self, reader: BatchReader, log: TopicLog, known: Mapping[int, bytes | None]
    ) -> None:
        """Nothing was read.

        Args:
            known: keys of messages that were read before, by offset.
        """
        self._reader = reader
        self._log = log
        self._known = known
        self.bytes_left = BODY_BYTES_MAX
        self.batches: list[LogBatch] = []  # of the reply
        self.holes: list[tuple[int, int]] = []
        self.keys: dict[int, bytes | None] = {}  # read for this request

    @property
    def body(self) -> bytes | None:
        """The body frame of the reply."""
        return b"".join([batch.body for batch in self.batches]) or None

    def read(self, first: int, end: int) -> int:
        """Add the batches of some messages to the reply; return how far there was room."""
        log, at = self._log, first
        while at < end:
            last = self.batches[-1] if self.batches else None
            if last is not None and last.base <= at < last.end:
                at = last.end
                continue
            if self.bytes_left <= 0 or len(self.batches) >= REPLY_BATCHES_MAX:
                break
            found = [
                batch
                for batch in self._reader.read(
                    log.topic_id, at, messages_max=end - at, bytes_max=self.bytes_left
                )
                if batch.end <= log.durable_end
            ]
            if not found or found[0].base > at:  # a loss that an operator has accepted
                self.holes.append((at, min(found[0].base, end) if found else end))
                break
            for batch in found:
                is_full = len(self.batches) >= REPLY_BATCHES_MAX
                if self.batches and (is_full or len(batch.body) > self.bytes_left):
                    return min(at, end)
                self.batches.append(batch)
                self.bytes_left -= len(batch.body)
                at = batch.end
        return min(at, end)

    def whole(self, first: int, end: int, wanted: int) -> int:
        """End a large grant with a whole batch; the rest would be sent again with the next grant.

        Args:
            end: how far messages were read.
        """
        last = self.batches[-1] if self.batches else None
        if last is None or end >= last.end or 2 * (last.base - first) < wanted:
            return end
        self.batches.pop()
        self.bytes_left += len(last.body)
        return last.base

    def key(self, offset: int, limit: int) -> bytes | None:
        """The key of a message; it is read with those after it, up to the end of the window."""
        if offset in self._known:
            return self._known[offset]
        if offset not in self.keys:
            self.keys[offset] = None  # of a hole
            for batch in self._reader.read(
                self._log.topic_id, offset, messages_max=limit - offset, bytes_max=BODY_BYTES_MAX
            ):
                keys = _keys_in(batch)
                for index in range(max(offset - batch.base, 0), batch.count):
                    if batch.base + index < limit:
                        self.keys[batch.base + index] = keys[index] if keys else None
        return self.keys[offset]


def _keys_in(batch: LogBatch) -> Sequence[bytes | None] | None:
    try:
        return decode_batch(batch.body, batch.count).keys
    except MalformedError:
        return None
