"""A batch of any size, as numbered transactions of each task (docs/decisions/0017).

A task is a writer of its own. Its transactions of one version are a mark at the beginning, one for
each part of its rows, and its last part. Each bears a digest of everything before it, so a repeat
with the same rows stores what is missing, and one with others is refused before it stores.

Spark ends the rows of a task that fails in the same way as those of one that is complete. So the
last part is only staged by the task; the driver commits it when Spark says that all are complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

from reliable_pubsub.common.core.errors import ConflictError, LimitError, StageLostError
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.transaction_messages import CommitAck, Part
from reliable_pubsub.publisher.core.outbox import Encoded
from reliable_pubsub.publisher.writer import TransactionWriter

from .core.sink_options import PARTS_MAX

PART_BYTES: Final = MIB  # last parts of all tasks are staged together, and a proxy stages 256 MiB


@dataclass(frozen=True)
class LastPart(WriterCommitMessage):
    """What a task has staged and not committed, for the driver."""

    writer: str
    transaction: int
    attempt: bytes
    chunks: int
    digest: bytes  # of all rows of the task
    later_is_stored: bool  # a transaction after the one before this

    def commit(self, writer: TransactionWriter) -> CommitAck:
        """Commit it, or see that this content is stored.

        Where a later number is known to be stored, it names a batch that is not staged: then
        only a number that is stored is acknowledged.

        Raises:
            ConflictError: an earlier try has stored other rows.
            As `TransactionWriter.commit`.
        """
        named = 1 if self.later_is_stored else self.chunks
        parts = [Part(0, self.attempt, named)] if named else []
        try:
            return writer.commit(self.transaction, parts, digest=self.digest)
        except (ConflictError, StageLostError) as error:
            if isinstance(error, StageLostError) and not self.later_is_stored:
                raise
            raise ConflictError(
                f"{self.writer!r}: an earlier try of this write has stored other rows than this "
                "one gives; nothing more of this task was stored. A repeat needs the same rows in "
                "the same tasks and order: write what is stored in files, or use "
                "sortWithinPartitions; for other rows take another txnVersion"
            ) from error


class PartWriter:
    """Stores the rows of a task, from where an earlier try of the same version stopped."""

    def __init__(self, writer: TransactionWriter, *, version: int, attempt: bytes) -> None:
        """Begin the version.

        Args:
            writer: of this task, the same at every try.
            version: of the batch, from 0.
            attempt: of this try alone.
        """
        self._writer = writer
        self._base = version * PARTS_MAX + 1  # transactions are numbered from 1
        self._attempt = attempt
        self._digest = blake2b(digest_size=16)
        self._later_is_stored = False  # than the number that was asked last
        self._parts = 0
        self._commit(self._base, 0)

    def write(
        self, full: Iterable[Encoded], rest: Iterable[Encoded], *, part_bytes: int = PART_BYTES
    ) -> LastPart:
        """In a task: store its rows but for the last part, which is staged.

        Args:
            full: batches that are the same wherever the rows end.
            rest: those that are not; asked for after `full`.

        Raises:
            ConflictError: an earlier try of this version has stored other rows.
            LimitError: the task has more rows than PARTS_MAX parts hold.
            As `TransactionWriter.stage` and `commit`.
        """
        part: list[Encoded] = []
        held_bytes = 0
        for batch in full:
            if part and held_bytes + len(batch.body) > part_bytes:
                self._store(part)
                part, held_bytes = [], 0
            part.append(batch)
            held_bytes += len(batch.body)
        number = self._base + PARTS_MAX - 1
        return self._place(number, self._stage(number, [*part, *rest]))

    def _store(self, part: Sequence[Encoded]) -> None:
        self._parts += 1
        if self._parts == PARTS_MAX - 1:
            raise LimitError(
                f"task {self._writer.client!r} has more than {PARTS_MAX - 2:,} parts; "
                "repartition the frame into more tasks"
            )
        number = self._base + self._parts
        self._commit(number, self._stage(number, part))

    def _stage(self, number: int, part: Sequence[Encoded]) -> int:
        """Give how many batches are staged: none of a number that is stored."""
        for batch in part:
            self._digest.update(f"{number} {batch.topic} {batch.count} ".encode() + batch.body)
        if self._later_is_stored:
            return 0
        for chunk, batch in enumerate(part):
            if not self._writer.stage(number, 0, self._attempt, chunk, batch):
                return chunk
        return len(part)

    def _commit(self, number: int, chunks: int) -> None:
        reply = self._place(number, chunks).commit(self._writer)
        self._later_is_stored = reply.already and reply.receipts is None

    def _place(self, number: int, chunks: int) -> LastPart:
        digest = self._digest.digest()
        return LastPart(
            self._writer.client, number, self._attempt, chunks, digest, self._later_is_stored
        )
