"""Leases: how long a silent subscriber keeps its unacknowledged messages stored (rule R17).

REQ/REP knows no disconnect, so silence is measured: after one lease a subscription is suspended,
which STATUS shows and which has no other effect; after two it expires. A clean one then ends. A
persistent one no longer keeps messages stored: its subscriber may return, and gets LOST for the
messages that were removed. A start of the proxy restarts every lease, because no client could reach
it while it was down. For the same reason a pause of the proxy counts for no lease (rule R30).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.status import LEASES_TO_EXPIRY, SubscriptionState

from .lower_bounds import LowerBounds
from .records import Expired, PatternEnded
from .subscriptions import Subscription

if TYPE_CHECKING:
    from .state import State


class Leases:
    """When each subscriber was heard last; in memory only."""

    def __init__(self) -> None:
        """Create it before any subscriber is heard."""
        self.now_s = 0.0  # by which silence is judged (`Attention`), at the last request or tick
        self.since_s: float | None = None  # when this proxy began to listen
        self.heard_s: dict[str, float] = {}
        self.ends: LowerBounds[tuple[int, str]] = LowerBounds()  # by topic id and subscriber
        self.pattern_ends: LowerBounds[str] = LowerBounds()  # by subscriber with a clean pattern

    def forget(self, client: str) -> None:
        """Forget a subscriber that has no session."""
        self.heard_s.pop(client, None)

    def silent_s(self, client: str) -> float:
        """Seconds since a subscriber's last request, or since this proxy began to listen."""
        since_s = self.now_s if self.since_s is None else self.since_s
        return max(self.now_s - self.heard_s.get(client, since_s), 0.0)

    def state_of(self, client: str, subscription: Subscription) -> SubscriptionState:
        """The state of a subscription as STATUS shows it."""
        if subscription.expired:
            return "expired"
        lease_s = subscription.terms.lease_ms / 1000
        return "suspended" if lease_s and self.silent_s(client) > lease_s else "active"


def longest_wait_s(state: State, client: str) -> float:
    """How long a request of a subscriber may wait: half its shortest lease, or without end."""
    if not (state.leases.ends or state.leases.pattern_ends):
        return math.inf
    mine = [
        state.topic_by_id[one].subscriptions[client].terms
        for one in state.subscribed.get(client, ())
    ]
    mine += [one.terms for one in state.patterns.of.get(client, {}).values()]
    return min((terms.lease_ms / 2000 for terms in mine if terms.lease_ms), default=math.inf)


def ended_leases(state: State) -> Sequence[Expired]:
    """The subscriptions that have been silent for too long by now."""
    leases = state.leases
    if leases.since_s is None:
        leases.since_s = leases.now_s
    ended: list[Expired] = []
    until_s = leases.now_s
    for topic_id, client in leases.ends.take_below(until_s, lambda key: lease_ends_s(state, key)):
        one = state.topic_by_id[topic_id].subscriptions[client]
        silent_ms = int(leases.silent_s(client) * 1000)
        ended.append(
            Expired(topic_id, client, one.generation, one.cursor, one.terms, silent_ms, one.shown)
        )
    return ended


def ended_patterns(state: State) -> Sequence[PatternEnded]:
    """The clean patterns whose subscriber has been silent for too long by now."""
    leases = state.leases
    now_s = leases.now_s
    ended: list[PatternEnded] = []
    for client in leases.pattern_ends.take_below(now_s, lambda key: patterns_end_s(state, key)):
        session = state.sessions["subscriber", client]
        head = (session.epoch, session.nonce, session.control)
        for pattern, lease_ms in _clean_patterns(state, client).items():
            if _ends_s(state, client, lease_ms) < now_s:
                ended.append(PatternEnded(client, pattern, *head))
    return ended


def patterns_end_s(state: State, client: str) -> float | None:
    """When the first clean pattern of a subscriber ends unless it is heard; None: there is none."""
    leases_ms = _clean_patterns(state, client).values()
    return _ends_s(state, client, min(leases_ms)) if leases_ms else None


def _clean_patterns(state: State, client: str) -> dict[Pattern, int]:
    """The clean patterns of a subscriber, with their leases."""
    mine = state.patterns.of.get(client, {}).items()
    return {pattern: one.terms.lease_ms for pattern, one in mine if one.is_clean}


def lease_ends_s(state: State, key: tuple[int, str]) -> float | None:
    """When a subscription expires unless it is heard; None: it no longer has a lease."""
    topic_id, client = key
    one = state.topic_by_id[topic_id].subscriptions.get(client)
    if one is None or not one.listens or not one.terms.lease_ms:
        return None
    return _ends_s(state, client, one.terms.lease_ms)


def _ends_s(state: State, client: str, lease_ms: int) -> float:
    heard_s = state.leases.now_s - state.leases.silent_s(client)
    return heard_s + LEASES_TO_EXPIRY * lease_ms / 1000
