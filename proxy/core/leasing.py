"""Leases: how long a silent subscriber keeps its unacknowledged messages stored (rule R17).

REQ/REP knows no disconnect, so silence is measured: after one lease a subscription is suspended,
which STATUS shows and which has no other effect; after two it expires. A clean one then ends. A
persistent one no longer keeps messages stored: its subscriber may return, and gets LOST for the
messages that were removed. A start of the proxy restarts every lease, because no client could reach
it while it was down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reliable_pubsub.common.core.messages import (
    AnyRequest,
    Delivery,
    Hello,
    History,
    Listeners,
    Put,
    Status,
    Sub,
    SubscriptionState,
)

from .records import Expired, Forgotten
from .rules import Rules
from .subscriptions import Subscription

LEASES_TO_EXPIRY: Final = 2


class Leasing(Rules):
    """The rules for silent subscribers. `heard` is called for every request."""

    _now_s: float = 0.0
    _since_s: float | None = None  # when this proxy began to listen, monotonic
    _heard_s: dict[str, float]

    def heard(self, request: AnyRequest, now_s: float) -> None:
        """Renew the leases of a request's sender, if its epoch is current.

        Args:
            now_s: monotonic clock.
        """
        self._now_s = now_s
        for key in (("publisher", request.client), ("subscriber", request.client)):
            if key in self._idle:
                self._idle[key] = self._idle.pop(key)
        # A SUB counts before there is a lease: it may create one.
        # A HELLO does not: its process may never have been granted this epoch.
        if isinstance(request, Sub) or (
            self._leased
            and not isinstance(request, Hello | Put | Delivery | History | Listeners | Status)
        ):
            session = self.sessions.get(("subscriber", request.client))
            if session is not None and session.epoch == request.epoch:
                self._heard_s[request.client] = now_s

    def _apply_forgotten(self, record: Forgotten) -> None:
        super()._apply_forgotten(record)
        if record.kind == "session" and record.key[0] == "subscriber":
            self._heard_s.pop(str(record.key[1]), None)

    def silent_s(self, client: str) -> float:
        """Seconds since a subscriber's last request, or since this proxy began to listen."""
        since_s = self._now_s if self._since_s is None else self._since_s
        return max(self._now_s - self._heard_s.get(client, since_s), 0.0)

    def state_of(self, client: str, subscription: Subscription) -> SubscriptionState:
        """The state of a subscription as STATUS shows it."""
        if subscription.expired:
            return "expired"
        lease_s = subscription.terms.lease_ms / 1000
        return "suspended" if lease_s and self.silent_s(client) > lease_s else "active"

    def ended_leases(self, now_s: float) -> Sequence[Expired]:
        """The subscriptions that have been silent for too long by now."""
        self._now_s = now_s
        if self._since_s is None:
            self._since_s = now_s
        ended: list[Expired] = []
        for topic_id, client in self._leased.take_below(now_s, self._lease_ends_s):
            one = self._by_id[topic_id].subscriptions[client]
            silent_ms = int(self.silent_s(client) * 1000)
            ended.append(
                Expired(
                    topic_id, client, one.generation, one.cursor, one.terms, silent_ms, one.shown
                )
            )
        return ended

    def _lease_ends_s(self, key: tuple[int, str]) -> float | None:
        """When a subscription expires unless it is heard; None: it no longer has a lease."""
        topic_id, client = key
        one = self._by_id[topic_id].subscriptions.get(client)
        if one is None or not one.listens or not one.terms.lease_ms:
            return None
        heard_s = self._now_s - self.silent_s(client)
        return heard_s + LEASES_TO_EXPIRY * one.terms.lease_ms / 1000
