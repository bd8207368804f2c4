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

from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.status import LEASES_TO_EXPIRY

from ..patterns.records import PatternEnded
from .state import State
from .subscription_records import Expired


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
