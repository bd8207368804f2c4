"""Finds the batches that follow a cursor without a gap, and their messages. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from reliable_pubsub.common.core.batch import Batch, Message, crc32, messages_of
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.wire import decode_batch


class StoredBatch(Struct, frozen=True):
    """A batch that follows a cursor directly, without its first `skip` messages."""

    header: BatchHeader
    columns: Batch
    skip: int  # messages at its beginning that are below the cursor

    @property
    def offset(self) -> int:
        """The offset of the first message after the skipped ones."""
        return self.header.base + self.skip

    @property
    def end(self) -> int:
        """The offset after its last message."""
        return self.header.base + self.header.count

    @property
    def count(self) -> int:
        """The number of messages without the skipped ones."""
        return self.header.count - self.skip

    def messages(self, topic: str, *, qos: int = 2, is_stored: bool = True) -> list[Message]:
        """Its messages, without the skipped ones.

        Args:
            qos: of the subscription; a message has the lower of it and its publisher's.
            is_stored: else they have no offset (QoS 0).
        """
        header = self.header
        return messages_of(
            self.columns,
            topic=topic,
            base=header.base if is_stored else None,
            publisher=header.publisher,
            first_sequence=header.first_sequence,
            timestamp_ns=header.timestamp_ns,
            qos=min(header.qos, qos),
            skip=self.skip,
        )


def direct_batches(
    topic: str, cursor: int, batches: Sequence[BatchHeader], body: bytes
) -> list[StoredBatch]:
    """Take the batches that follow a cursor directly; older ones are dropped (rule R8).

    Raises:
        MalformedError: there is a gap before or between the batches, or a body is not what its
            publisher encoded. Nothing was taken.
    """
    found: list[StoredBatch] = []
    expected = cursor
    place = 0
    view = memoryview(body)
    for header in batches:
        part = view[place : place + header.body_bytes]
        place += header.body_bytes
        if header.base + header.count <= expected:
            continue
        if header.base > expected:
            raise MalformedError(
                f"topic {topic!r}: expected offset {expected}, the proxy sent {header.base}"
            )
        if crc32(part) != header.crc:
            raise MalformedError(
                f"topic {topic!r}: the batch at offset {header.base} does not have its CRC-32"
            )
        columns = decode_batch(part, header.count)
        found.append(StoredBatch(header, columns, expected - header.base))
        expected = header.base + header.count
    return found


def messages_in(topic: str, batches: Sequence[StoredBatch]) -> list[Message]:
    """The messages of batches, one by one."""
    return [message for batch in batches for message in batch.messages(topic)]
