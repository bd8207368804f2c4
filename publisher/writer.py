"""`TransactionWriter`: a writer whose messages come from many tasks, and are committed by one.

It is stateless: the caller, which runs the tasks, identifies a transaction (writer, number,
attempts of tasks) and makes the messages again if needed. Used by the Spark sink.
"""

from __future__ import annotations

from collections.abc import Sequence

from reliable_pubsub.common.asking import Asker, BlockingSession
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.settings import PUBLISHER_ENDPOINT
from reliable_pubsub.common.core.transaction_messages import (
    Abort,
    AbortAck,
    Commit,
    CommitAck,
    Part,
    Stage,
    StageAck,
)
from reliable_pubsub.common.world import REAL, World

from .core.outbox import Encoded


class TransactionWriter:
    """Stages, commits and aborts transactions of one writer. One thread at a time."""

    def __init__(
        self,
        client: str,
        *,
        endpoint: str = PUBLISHER_ENDPOINT,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  (frozen)
        _world: World = REAL,
    ) -> None:
        """Create a writer; the first call sends the first request.

        Args:
            client: the publisher of the messages.
            _world: private.

        Raises:
            InvalidNameError.
        """
        self.client = names.client_id(client)
        asker = Asker(self.client, endpoint, retry=retry, role="publisher", world=_world)
        self._session = BlockingSession(asker, "publisher")

    def __enter__(self) -> TransactionWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket. Staged batches stay until they are committed, aborted or idle."""
        self._session.asker.close()

    def stage(
        self,
        transaction: int,
        task: int,
        attempt: bytes,
        chunk: int,
        batch: Encoded,
    ) -> bool:
        """Stage a batch at the proxy, for `commit`; a second copy changes nothing.

        If the writer has no session, this begins one; a process that has one keeps it.

        Returns:
            False if the transaction is committed already: there is nothing left to stage.

        Raises:
            InDoubtError: no answer in time, no room, or earlier staged batches were lost.
            LimitError: the transaction is too large, or there are too many client ids.
        """
        session = self._session
        reply = session.ask_as_joined(
            lambda: session.ask(
                Stage(
                    **session.head(),
                    transaction=transaction,
                    task=task,
                    attempt=attempt,
                    chunk=chunk,
                    topic=batch.topic,
                    count=batch.count,
                    crc=batch.crc,
                ),
                batch.body,
            )
        )
        if isinstance(reply, StageAck | CommitAck):
            return isinstance(reply, StageAck)
        session.refused(reply)

    def commit(
        self, transaction: int, parts: Sequence[Part], *, digest: bytes | None = None
    ) -> CommitAck:
        """Make the staged batches of these attempts visible, once, however often it is called.

        Args:
            digest: of the content, to be compared if this is the writer's last transaction.

        Raises:
            ConflictError: the transaction is committed with another digest.
            StageLostError: staged batches were lost; all tasks must stage again.
            InDoubtError: no answer in time; ask again, it is stored at most once.
            FencedError: a newer process of this writer has taken over.
        """
        session = self._session
        reply = session.ask_as_known(
            lambda: session.ask(
                Commit(
                    **session.head(),
                    transaction=transaction,
                    parts=tuple(parts),
                    digest=digest,
                )
            )
        )
        if isinstance(reply, CommitAck):
            return reply
        session.refused(reply)

    def abort(self, transaction: int) -> int:
        """Drop a staged transaction; a committed one stays. Return the number of dropped batches.

        Raises:
            InDoubtError: no answer in time; the proxy drops it when it has been idle for long.
        """
        session = self._session
        reply = session.ask_as_known(
            lambda: session.ask(Abort(**session.head(), transaction=transaction))
        )
        if isinstance(reply, AbortAck | CommitAck):
            return reply.dropped if isinstance(reply, AbortAck) else 0
        session.refused(reply)
