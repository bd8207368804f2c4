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

from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.status import LEASES_TO_EXPIRY

from .state import State
from .subscription_records import Expired


def longest_wait_s(state: State, client: str) -> float:
    """How long a request of a subscriber may wait: half its shortest lease, or without end."""
    if not state.leases.ends:
        return math.inf
    mine = [
        state.topic_by_id[one].subscriptions[client].terms
        for one in state.subscribed.get(client, ())
    ]
    return shortest_wait_s(mine)


def shortest_wait_s(mine: Sequence[Terms]) -> float:
    """Return half the shortest lease of subscriptions; infinite if they have none."""
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


def lease_ends_s(state: State, key: tuple[int, str]) -> float | None:
    """When a subscription expires unless it is heard; None: it no longer has a lease."""
    topic_id, client = key
    one = state.topic_by_id[topic_id].subscriptions.get(client)
    if one is None or not one.listens or not one.terms.lease_ms:
        return None
    return ends_s(state, client, one.terms.lease_ms)


def ends_s(state: State, client: str, lease_ms: int) -> float:
    """Return when a lease of a subscriber ends unless it is heard."""
    heard_s = state.leases.now_s - state.leases.silent_s(client)
    return heard_s + LEASES_TO_EXPIRY * lease_ms / 1000
