"""`KeptPlace`: a subscription whose place is kept elsewhere, with the effect of its messages.

A job with a checkpoint, or a sink that stores the offset beside its rows, reads with `LogReader`
and needs no inbox. What it does need of a subscription is that the proxy knows its place: for lag,
and so that retention waits for it. One verb does all of it: SUB with a place (rule R13).
"""

from __future__ import annotations

import random
import secrets

from reliable_pubsub.common import names
from reliable_pubsub.common.errors import TryLaterError
from reliable_pubsub.common.messages import AnyReply, Hello, Sub, SubAck
from reliable_pubsub.common.retry import Clock, RetryPolicy, Transport, ask
from reliable_pubsub.common.session import claim_epoch, is_forgotten, refusal
from reliable_pubsub.common.settings import SUBSCRIBER_ENDPOINT
from reliable_pubsub.common.transport import ReqTransport, SystemClock

from .inbox import Place

SESSIONS_MAX = 10  # that one call begins because the proxy forgot the one before


class KeptPlace:
    """Subscribes, and tells the proxy where its owner stands. One running process for each id."""

    def __init__(
        self,
        client: str,
        endpoint: str = SUBSCRIBER_ENDPOINT,
        *,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  (frozen)
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; the proxy is asked at the first call.

        Args:
            transport, clock: the world outside, where a test brings its own.

        Raises:
            InvalidNameError.
        """
        self.client = names.client_id(client)
        self._transport = transport or ReqTransport(endpoint)
        self._clock = clock or SystemClock()
        self._retry = retry
        self._nonce = secrets.token_bytes(16)
        self._epoch = 0  # 0: no session yet
        self._request = 0
        self._control = 0

    def tell(self, topic: str, place: Place | None = None) -> Place:
        """Begin a subscription, or move it on: everything below the place is processed.

        Args:
            place: None begins at the end of the topic, or resumes what exists where it is.

        Returns:
            Where the subscription stands now: the greater of the place and what the proxy knew.

        Raises:
            LogChangedError: the place is not one of this log.
            FencedError: a newer process uses this id.
            LimitError, ProxyUnreachableError, TryLaterError.
        """
        for _ in range(SESSIONS_MAX):
            if not self._epoch:
                self._connect()
            reply = self._sub(names.topic(topic), place)
            if isinstance(reply, SubAck):
                return Place(reply.log, reply.cursor, reply.witness_ns)
            if not is_forgotten(reply, self._epoch):
                raise refusal(reply, client=self.client, epoch=self._epoch)
            self._epoch = 0
        raise TryLaterError(
            code="FENCED", text="the proxy forgets this session again", attempts=SESSIONS_MAX
        )

    def close(self) -> None:
        """Close the socket; the subscription stays."""
        close = getattr(self._transport, "close", None)
        if close is not None:
            close()

    def _connect(self) -> None:
        self._epoch = claim_epoch(self._epoch, self._hello, client=self.client)
        self._control = 0

    def _hello(self, epoch: int) -> AnyReply:
        return self._ask(
            Hello(
                client=self.client,
                epoch=epoch,
                request=self._next_request(),
                role="subscriber",
                nonce=self._nonce,
            )
        )

    def _sub(self, topic: str, place: Place | None) -> AnyReply:
        self._control += 1
        return self._ask(
            Sub(
                client=self.client,
                epoch=self._epoch,
                request=self._next_request(),
                topic=topic,
                control=self._control,
                log=place.log if place else None,
                cursor=place.cursor if place else None,
                witness_ns=place.witness_ns if place else None,
            )
        )

    def _ask(self, request: Hello | Sub) -> AnyReply:
        reply, _ = ask(
            request,
            None,
            transport=self._transport,
            clock=self._clock,
            retry=self._retry,
            chance=random.random,
        )
        return reply

    def _next_request(self) -> int:
        self._request += 1
        return self._request
