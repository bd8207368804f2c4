"""`TransactionWriter`: a writer whose messages come from many tasks, and are committed by one.

It keeps nothing: what identifies a transaction (writer, number, tries of tasks) comes from whoever
runs the tasks, as do the messages when they have to be made again. Used by the Spark sink.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from reliable_pubsub.common import names
from reliable_pubsub.common.messages import (
    Abort,
    AbortAck,
    AnyReply,
    Commit,
    CommitAck,
    Hello,
    Part,
    Stage,
    StageAck,
)
from reliable_pubsub.common.retry import Clock, RetryPolicy, Transport, ask
from reliable_pubsub.common.session import claim_epoch, refusal
from reliable_pubsub.common.settings import PUBLISHER_ENDPOINT
from reliable_pubsub.common.transport import ReqTransport, SystemClock

from .transaction import Encoded


class TransactionWriter:
    """Stages, commits and aborts transactions of one writer. One thread at a time."""

    def __init__(
        self,
        client: str,
        *,
        endpoint: str = PUBLISHER_ENDPOINT,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  (frozen)
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Ask nobody yet.

        Args:
            client: the publisher of the messages.
            transport, clock: the world outside, where a test brings its own.

        Raises:
            InvalidNameError.
        """
        self.client = names.client_id(client)
        self._transport = transport or ReqTransport(endpoint)
        self._clock = clock or SystemClock()
        self._retry = retry
        self._nonce = secrets.token_bytes(16)
        self._epoch = 0
        self._request = 0

    def __enter__(self) -> TransactionWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Free the socket. What is staged stays until it is committed, aborted or idle."""
        close = getattr(self._transport, "close", None)
        if close is not None:
            close()

    def stage(
        self, transaction: int, task: int, attempt: bytes, chunk: int, batch: Encoded
    ) -> bool:
        """Leave a batch with the proxy, for `commit`; a second copy changes nothing.

        Returns:
            False if the transaction is committed already: there is nothing left to stage.

        Raises:
            InDoubtError: no answer in time, no room, or what was staged before is gone.
            LimitError: the transaction is too large.
        """
        reply = self._ask(
            Stage(
                **self._facts(),
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
        if isinstance(reply, StageAck | CommitAck):
            return isinstance(reply, StageAck)
        raise refusal(reply, client=self.client, epoch=self._epoch)

    def commit(self, transaction: int, parts: Sequence[Part]) -> CommitAck:
        """Make what these tries of tasks have staged visible, once, however often it is asked.

        Raises:
            StageLostError: something of it is gone; all tasks have to stage again.
            InDoubtError: no answer in time; ask again, it is stored at most once.
            FencedError: another process of this writer has come.
        """
        self._claim()
        reply = self._ask(
            Commit(**self._facts(), transaction=transaction, parts=tuple(parts)), None
        )
        if isinstance(reply, CommitAck):
            return reply
        raise refusal(reply, client=self.client, epoch=self._epoch)

    def abort(self, transaction: int) -> int:
        """Drop what is staged; a committed transaction stays. Gives how many batches went.

        Raises:
            InDoubtError: no answer in time; then it goes when it has been idle for long.
        """
        self._claim()
        reply = self._ask(Abort(**self._facts(), transaction=transaction), None)
        if isinstance(reply, AbortAck | CommitAck):
            return reply.dropped if isinstance(reply, AbortAck) else 0
        raise refusal(reply, client=self.client, epoch=self._epoch)

    def _claim(self) -> None:
        """Get an epoch, by which an older process of this writer is fenced."""
        if self._epoch:
            return

        def hello(epoch: int) -> AnyReply:
            facts = self._facts() | {"epoch": epoch}
            return self._ask(Hello(**facts, role="publisher", nonce=self._nonce), None)

        self._epoch = claim_epoch(0, hello, client=self.client)

    def _facts(self) -> dict[str, Any]:
        self._request += 1
        return {"client": self.client, "epoch": self._epoch, "request": self._request}

    def _ask(self, request: Hello | Stage | Commit | Abort, body: bytes | None) -> AnyReply:
        reply, _ = ask(
            request,
            body,
            transport=self._transport,
            clock=self._clock,
            retry=self._retry,
            chance=random.random,
        )
        return reply
