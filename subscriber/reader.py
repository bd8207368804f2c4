"""Reads stored messages of any topic by offset, without a subscription or state."""

from __future__ import annotations

import secrets

from reliable_pubsub.common.asking import Asker
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import StoredBatch
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.requests import History
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.settings import SUBSCRIBER_ENDPOINT
from reliable_pubsub.common.world import REAL, World

from .core.reading import start_of_reading, stored_batches


class LogReader:
    """Reads by offsets. Any number of readers can run at once; the proxy keeps nothing for them."""

    def __init__(
        self,
        endpoint: str = SUBSCRIBER_ENDPOINT,
        *,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  (frozen)
        _world: World = REAL,
    ) -> None:
        """Create a reader; the first read sends the first request.

        Args:
            _world: private.
        """
        self._asker = Asker(
            f"reader-{secrets.token_hex(4)}",
            endpoint,
            retry=retry,
            role="subscriber",
            world=_world,
        )

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._asker.close()

    def read(
        self,
        topic: str,
        start: int | Start,
        *,
        log: str | None = None,
        witness_ns: int | None = None,
        messages_max: int = BATCH_MESSAGES_MAX,
        bytes_max: int = BODY_BYTES_MAX,
    ) -> list[StoredBatch]:
        """Send one request for the batches from an offset, or another start.

        Args:
            log: log id of `start`; None accepts any log.
            witness_ns: with an offset: timestamp of the batch before it, if known.
            messages_max, bytes_max: no further batch beyond these bounds; at least one.

        Returns:
            Whole batches, each the direct follower of the one before; the first may begin below
            the requested place (`skip`). None at the end of the topic.

        Raises:
            UsageError: `start` is `LastReceived` or `Now`, or an offset out of range.
            TruncatedError: `start` is no longer stored; the error has the first stored offset.
            LostError: an operator has discarded damaged messages there.
            LogChangedError: log id, offset or witness are not of this log.
            ProxyUnreachableError: every attempt went unanswered.
        """
        request = History(
            **self._asker.head(),
            topic=names.topic(topic),
            start=start_of_reading(start),
            log=log,
            witness_ns=witness_ns,
            messages_max=messages_max,
            bytes_max=bytes_max,
        )
        reply, body = self._asker.ask(request)
        return stored_batches(request, reply, body)
