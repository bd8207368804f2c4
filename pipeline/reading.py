"""What a task does: read a range of offsets, all of it, and return it as Arrow batches.

Stateless: a retry, a speculative copy or a replay reads the same messages again, and no one is
disturbed. A range that is not complete is never silent.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from functools import cache

import pyarrow as pa
from msgspec.structs import replace

from reliable_pubsub.common.core.batch import StoredBatch, fits_event_time
from reliable_pubsub.common.core.errors import LogChangedError, LostError, TruncatedError
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.subscriber.reader import LogReader

from .core.columns import MessageColumns
from .core.loss import DataLossError
from .core.planning import MessageRange

_log = logging.getLogger("reliable_pubsub.pipeline")


@cache
def leave_out_of_collections() -> None:
    """Once in a worker of Spark: let it not look for garbage in what is loaded now.

    Its daemon collects after each task of a worker that it uses again, and so looked at every
    object of every module then: 50 ms of CPU a task. What is used no more is still given back.
    """
    gc.freeze()


def arrow_batches(
    wanted: MessageRange, reader: LogReader, schema: pa.Schema, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """The messages of a range in Arrow.

    Args:
        schema: the columns that are asked for, by their names.

    Raises:
        DataLossError: not all of it is there.
        ProxyUnreachableError: no answer within the retries of the reader.
    """
    columns = MessageColumns(wanted.topic, schema)
    for batch in stored_range(wanted, reader, fail_on_data_loss=fail_on_data_loss):
        columns.add(batch, end=wanted.end)
        if columns.full:
            yield columns.take()
    if columns.count:
        yield columns.take()


def stored_range(
    wanted: MessageRange, reader: LogReader, *, fail_on_data_loss: bool
) -> Iterator[StoredBatch]:
    """The batches that hold a range, each the direct follower of the one before.

    Raises:
        As `arrow_batches`.
    """
    offset = wanted.first
    witness_ns = wanted.witness_ns if fail_on_data_loss else None  # of what is before the range
    while offset < wanted.end:
        try:
            batches = reader.read(
                wanted.topic,
                offset,
                log=wanted.log,
                witness_ns=witness_ns if offset == wanted.first else None,
                messages_max=min(wanted.end - offset, BATCH_MESSAGES_MAX),
            )
            # Between planning and now the end of a log can only fall if it was set back.
            gone_end, why = wanted.end, "the log ends here: the proxy was set back"
        except TruncatedError as error:
            batches, gone_end, why = [], error.start, f"the first that is left is {error.start}"
        except LostError as error:
            batches, gone_end, why = [], error.end, "an operator gave them up (--accept-loss)"
        except LogChangedError as error:
            batches, gone_end, why = [], wanted.end, str(error)
        for batch in batches:
            yield _within_64_bits(batch, wanted.topic)
            offset = batch.end
        if not batches:
            gone_end = min(gone_end, wanted.end)
            loss = DataLossError(topic=wanted.topic, first=offset, end=gone_end, why=why)
            loss.raise_or_tell(fail_on_data_loss, _log.warning)
            offset = gone_end


def _within_64_bits(batch: StoredBatch, topic: str) -> StoredBatch:
    """The batch without event times that no column can hold; each one is logged.

    Our library refuses to put one, but the proxy does not look into what other clients put.
    """
    times = batch.columns.event_times_ns or ()
    wrong = {n for n, one in enumerate(times) if one is not None and not fits_event_time(one)}
    if not wrong:
        return batch
    for place in sorted(wrong):
        _log.warning(
            "topic %r, offset %d: its event time %d is beyond 64 bits and is left out; the client "
            "%r that put it is to be mended",
            topic,
            batch.header.base + place,
            times[place],
            batch.header.publisher,
        )
    kept = [None if place in wrong else one for place, one in enumerate(times)]
    return replace(batch, columns=replace(batch.columns, event_times_ns=kept))
