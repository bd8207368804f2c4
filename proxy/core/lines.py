"""What a record writes to the proxy's journal."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.journal import Seen
from reliable_pubsub.common.core.wire import decode_batch

from .batches import LogBatch


class Lines(Struct, frozen=True):
    """Where lines are written, and the names of the topics."""

    line: Callable[..., None]  # the type of the line, and its fields
    topics: dict[int, str]


def seen_in(batch: LogBatch) -> tuple[Seen, ...]:
    """The messages of a batch; those of one that a foreign publisher encoded wrongly have CRC 0."""
    try:
        crcs = [crc32(payload) for payload in decode_batch(batch.body, batch.count).payloads]
    except MalformedError:
        crcs = [0] * batch.count
    return tuple(
        Seen(
            batch.base + index,
            batch.publisher,
            batch.first_sequence + index,
            crc,
            batch.timestamp_ns,
            qos=batch.qos,
        )
        for index, crc in enumerate(crcs)
    )
