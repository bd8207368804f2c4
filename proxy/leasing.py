"""Leases: how long a silent subscriber holds back what it has not acknowledged (rule R17).

REQ/REP knows no disconnect, so silence is measured: after one lease a subscription is suspended,
which status shows and which changes nothing; after two it has expired. A clean one then ends. A
persistent one holds nothing back any more: its subscriber may return, and is told what is gone.
A start of the proxy begins every lease anew, because nobody could be heard while it was away.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reliable_pubsub.common.messages import (
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
    """The rules for silence. `heard` is told of every request; time is an argument."""

    _now_s: float = 0.0
    _since_s: float | None = None  # when this proxy began to listen
    _heard_s: dict[str, float]

    def heard(self, request: AnyRequest, now_s: float) -> None:
        """A request came in; one of the current epoch keeps the leases of its sender.

        Args:
            now_s: monotonic clock.
        """
        self._now_s = now_s
        for key in (("publisher", request.client), ("subscriber", request.client)):
            if key in self._idle:
                self._idle[key] = self._idle.pop(key)
        # A SUB counts before there is a lease: it may be the one that begins it.
        # A HELLO does not: it may be one of a process that was never granted this epoch.
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
        """Seconds since a subscriber was heard, or since this proxy listens."""
        since_s = self._now_s if self._since_s is None else self._since_s
        return max(self._now_s - self._heard_s.get(client, since_s), 0.0)

    def state_of(self, client: str, subscription: Subscription) -> SubscriptionState:
        """What status shows."""
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
        """When a subscription expires if it is not heard; None: it has no lease any more."""
        topic_id, client = key
        one = self._by_id[topic_id].subscriptions.get(client)
        if one is None or not one.listens or not one.terms.lease_ms:
            return None
        heard_s = self._now_s - self.silent_s(client)
        return heard_s + LEASES_TO_EXPIRY * one.terms.lease_ms / 1000
