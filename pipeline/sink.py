"""The sink: tasks stage rows at the proxy, the driver commits a batch once (docs/decisions/0017).

Spark writes a batch again when a task fails, when two tries race, and after every crash, perhaps
with other rows in other tasks. So nothing is visible that a task has sent; the number of the batch
says at the commit whether it was there before.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from reliable_pubsub.common.core.errors import ConfigurationError, LimitError, PubSubError
from reliable_pubsub.common.core.limits import MIB, TRANSACTION_BYTES_MAX
from reliable_pubsub.common.core.transaction_messages import CommitAck, Part
from reliable_pubsub.publisher.writer import TransactionWriter

from .batch_parts import LastPart, PartWriter
from .core.outgoing import OutgoingRows
from .core.sink_options import SinkOptions
from .reading import leave_out_of_collections
from .spark_errors import without_our_frames

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID: Final = "sql.streaming.queryId"  # of one checkpoint, at every start
BATCH_ID: Final = "streaming.sql.batchId"

_log = logging.getLogger("reliable_pubsub.pipeline")


@dataclass
class Written(WriterCommitMessage):
    """What one try of a task has staged."""

    writer: str
    transaction: int
    task: int
    attempt: bytes
    chunks: int


class _Sink:
    """What batch and stream share. It is pickled into tasks, so it has no socket."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def _open(self, writer: str) -> TransactionWriter:
        options = self._options
        return TransactionWriter(writer, endpoint=options.endpoint, retry=options.retry)

    def _place(self, writer: str, transaction: int) -> Written:
        """In a task: a new try of it, with nothing staged."""
        context = TaskContext.get()
        assert context is not None, "write is called in a task"
        leave_out_of_collections()
        return Written(
            writer, transaction, context.partitionId(), secrets.token_bytes(16), chunks=0
        )

    def _stage(self, rows: Iterable[pa.RecordBatch], writer: str, transaction: int) -> Written:
        """In a task: stage all rows, or hear that they are committed already.

        Raises:
            As `OutgoingRows.add` and `TransactionWriter.stage`.
        """
        place = self._place(writer, transaction)
        outgoing = OutgoingRows(self._options.topic, self._options.content_type)
        full = (batch for some in rows for batch in outgoing.add(some))
        with self._open(writer) as client:
            for batch in chain(full, outgoing.rest()):
                if not client.stage(transaction, place.task, place.attempt, place.chunks, batch):
                    break
                place.chunks += 1
        return place

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> CommitAck | None:
        """Commit what the tasks have staged; None if there was no task."""
        written = [one for one in messages if isinstance(one, Written)]
        if not written:
            return None
        written.sort(key=lambda one: one.task)
        parts = [Part(one.task, one.attempt, one.chunks) for one in written if one.chunks]
        with self._open(written[0].writer) as client:
            return client.commit(written[0].transaction, parts)

    def _abort(self, writer: str, transaction: int, *, comes_again: bool) -> None:
        """Drop what is staged. What is committed stays; the number tells.

        A task may still stage: its process lives on for a moment. If the number comes again, the
        next commit takes that along; if not, committing nothing ends the number, and such a task
        hears that it is over.
        """
        try:
            with self._open(writer) as client:
                if comes_again:
                    client.abort(transaction)
                else:
                    client.commit(transaction, ())
        except PubSubError as error:  # the query has failed already, and with its own reason
            _log.warning("what is staged is left to its age: %s", error)


@without_our_frames
class BatchSink(_Sink, DataSourceArrowWriter):
    """`df.write`: one transaction for each write, or with atomic=false many of each task."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self.writer = options.app_id or options.writer_of(str(uuid4()))
        self.transaction = options.version + 1

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written | LastPart:
        """In a task."""
        if not self._options.atomic:
            return self._write_parts(iterator)
        try:
            return self._stage(iterator, self.writer, self.transaction)
        except LimitError as error:
            raise LimitError(
                f"{error}. Of a batch above {TRANSACTION_BYTES_MAX // MIB} MiB: option "
                "atomic=false writes any size, which readers then see part by part"
            ) from error

    def _write_parts(self, rows: Iterable[pa.RecordBatch]) -> LastPart:
        options = self._options
        place = self._place(self.writer, self.transaction)
        outgoing = OutgoingRows(options.topic, options.content_type)
        full = (batch for some in rows for batch in outgoing.add(some))
        with self._open(options.writer_of_task(self.writer, place.task)) as client:
            task = PartWriter(client, version=options.version, attempt=place.attempt)
            return task.write(full, outgoing.rest())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the driver, when every task has ended well."""
        if self._options.atomic:
            self._commit(messages)
            return
        for one in messages:
            if isinstance(one, LastPart):
                with self._open(one.writer) as client:
                    one.commit(client)
        with self._open(self.writer) as client:
            client.commit(self.transaction, ())

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """In the driver, when one has not; parts that are stored stay."""
        if not self._options.atomic:
            return
        self._abort(self.writer, self.transaction, comes_again=bool(self._options.app_id))


@without_our_frames
class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """`df.writeStream`: one transaction for each batch of a query."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task. Spark tells query and batch as properties of the task, not as arguments."""
        context = TaskContext.get()
        assert context is not None, "write is called in a task"
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if not query or not batch:
            raise ConfigurationError(
                f"this Spark tells its tasks no {QUERY_ID} or no {BATCH_ID}: the batch cannot be "
                "told from a repeat. Use Spark 4.2 or 4.3"
            )
        return self._stage(iterator, self._options.writer_of(query), int(batch) + 1)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """In the driver, when every task has ended well; at a replay once more."""
        acknowledged = self._commit(messages)
        if acknowledged is not None and acknowledged.already:
            _log.info("batch %d was committed before; nothing was stored", batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """In the driver, when one has not, or when the commit has failed."""
        for one in messages:
            if isinstance(one, Written):
                self._abort(one.writer, one.transaction, comes_again=True)
                return
