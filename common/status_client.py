"""Reads the status of a proxy: STATUS, page by page."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec
from msgspec import UNSET

from .asking import Asker
from .core.limits import STATUS_ROWS_MAX
from .core.retry import RetryPolicy
from .core.session import refusal
from .core.status import Status, StatusReport, TopicStatus
from .world import REAL, World


class StatusClient:
    """Asks for all pages of a proxy's status."""

    def __init__(
        self,
        endpoint: str,
        retry: RetryPolicy,
        *,
        _world: World = REAL,
    ) -> None:
        """Create a client; the first call sends the first request."""
        name = f"status-{secrets.token_hex(4)}"
        self._asker = Asker(name, endpoint, retry=retry, world=_world)

    def ask(self, *, rows_max: int = STATUS_ROWS_MAX) -> StatusReport:
        """The whole state as one report.

        Args:
            rows_max: subscriptions shown of each topic, and publishers; with 0 it is cheap.

        Raises:
            ProxyUnreachableError: no answer. DeniedError: the key may not ask.
        """
        topics: list[TopicStatus] = []
        after = ""
        first: StatusReport | None = None
        while True:
            reply = self._page(after_topic=after, rows_max=rows_max)
            topics += reply.topics
            first = first or reply
            if reply.next_topic is UNSET:
                return msgspec.structs.replace(
                    reply,
                    topics=tuple(topics),
                    kept=first.kept,
                    accounts=first.accounts,
                    accounts_left_out=first.accounts_left_out,
                )
            after = reply.next_topic

    def summary(self) -> StatusReport:
        """Return the state of the proxy, with one topic at most. Raises as `ask`."""
        return self._page(topics_max=1, rows_max=0)

    def _page(self, **wanted: Any) -> StatusReport:
        request = Status(**self._asker.head(), **wanted)
        reply, _ = self._asker.ask(request)
        if not isinstance(reply, StatusReport):
            raise refusal(reply, client=request.client, epoch=0)
        return reply

    def close(self) -> None:
        """Close the socket."""
        self._asker.close()
