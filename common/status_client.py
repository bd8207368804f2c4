"""Asking a proxy how it is: STATUS, page by page."""

from __future__ import annotations

import random
import secrets

import msgspec
from msgspec import UNSET

from .errors import RefusedError
from .limits import STATUS_ROWS_MAX
from .messages import Status, StatusReport, TopicStatus
from .retry import Clock, RetryPolicy, Transport, ask
from .transport import ReqTransport, SystemClock


class StatusClient:
    """Asks for all pages of a proxy's status."""

    def __init__(
        self,
        endpoint: str,
        retry: RetryPolicy,
        *,
        transport: Transport | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Prepare; `transport` and `clock` are the world outside, where a test brings its own."""
        self._transport = transport or ReqTransport(endpoint)
        self._clock = clock or SystemClock()
        self._retry = retry
        self._name = f"status-{secrets.token_hex(4)}"
        self._request = 0

    def ask(self, *, rows_max: int = STATUS_ROWS_MAX) -> StatusReport:
        """The whole state as one report.

        Args:
            rows_max: subscriptions shown of each topic, and publishers; with 0 it is cheap.

        Raises:
            ProxyUnreachableError: no answer.
        """
        topics: list[TopicStatus] = []
        after = ""
        while True:
            self._request += 1
            request = Status(
                client=self._name,
                epoch=0,
                request=self._request,
                after_topic=after,
                rows_max=rows_max,
            )
            reply, _ = ask(
                request,
                None,
                transport=self._transport,
                clock=self._clock,
                retry=self._retry,
                chance=random.random,
            )
            if not isinstance(reply, StatusReport):
                raise RefusedError(f"the proxy answered {type(reply).__name__} to STATUS")
            topics += reply.topics
            if reply.next_topic is UNSET:
                return msgspec.structs.replace(reply, topics=tuple(topics))
            after = reply.next_topic

    def close(self) -> None:
        """Close the socket."""
        close = getattr(self._transport, "close", None)
        if close is not None:
            close()
