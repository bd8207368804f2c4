"""What patterns add to the core, besides MATCH and FETCH.

They begin subscriptions with new topics, keep terms, and end with their leases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import inf
from typing import Final

from reliable_pubsub.common.core.answers import ByeAck
from reliable_pubsub.common.core.message_base import Role, Terms
from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.requests import Bye

from ..core.appending import begun_after
from ..core.batches import LogBatch
from ..core.feature import Feature, Runtime
from ..core.lease_ends import ends_s, shortest_wait_s
from ..core.records import Decision
from ..core.replies import decided
from ..core.state import Hooks, State
from ..core.stored import StoredState
from ..core.subscription_records import Subscribed
from ..core.topic_log import TopicLog
from ..core.waiting_gets import WaitKind
from .index import PatternIndex, RegisteredPattern, StoredPattern
from .records import PATTERN_SUBSCRIPTION, PatternEnded
from .verbs import fetch, match


def restore(state: State, stored: StoredState) -> None:
    """Add the stored patterns."""
    index = state.part(PatternIndex)
    for each in stored.of(StoredPattern):
        one = RegisteredPattern(each.terms, each.reader, 0)
        index.add(each.subscriber, each.pattern, one, state.topics)


def begun_by_patterns(state: State, log: TopicLog) -> Iterator[Subscribed]:
    """Yield the subscriptions that begin with a topic, by the patterns that match it."""
    for subscriber, patterns in state.part(PatternIndex).wanting(log.topic):
        before = log.subscriptions.get(subscriber)
        is_kept = before is not None and before.active  # the topic was deleted meanwhile
        terms = [one.terms for one in patterns if state.authority.may_read(one.reader, log.topic)]
        if not is_kept and terms:
            session = state.sessions["subscriber", subscriber]
            joined = reduce(Terms.joined, terms)
            yield begun_after(state, log, subscriber, session, joined, session.control, log.end)


def add_topic(state: State, log: TopicLog) -> None:
    """Note which patterns match a new topic."""
    state.part(PatternIndex).add_topic(log)


def index(state: State, log: TopicLog, subscriber: str) -> None:
    """Note whether anything of a topic is unread."""
    patterns = state.part(PatternIndex)
    if subscriber in patterns.of:
        patterns.index(log, subscriber)


def has_patterns(state: State, role: Role, client: str) -> bool:
    """Return whether a session has a pattern."""
    return role == "subscriber" and client in state.part(PatternIndex).of


def terms_of(state: State, subscriber: str, topic: str) -> Terms | None:
    """Return the terms that a subscriber's patterns need of a topic; None: no match."""
    return state.part(PatternIndex).terms_of(subscriber, topic)


def longest_wait_s(state: State, client: str) -> float:
    """Return how long a subscriber's request may wait: half the shortest lease of its patterns."""
    mine = state.part(PatternIndex).of.get(client)
    return shortest_wait_s([one.terms for one in mine.values()]) if mine else inf


def have_come(engine: Runtime, batches: Sequence[LogBatch]) -> None:
    """Note the topics with new messages as unread, and wake what waits for their patterns."""
    patterns = engine.state.part(PatternIndex)
    if not patterns.of:
        return
    for batch in batches:
        patterns.has_come(batch.topic_id)
        if engine.waiting.of:
            engine.waiting.has_come(*patterns.patterns_of(batch.topic_id))


def bye(engine: Runtime, request: Bye, decision: Decision) -> Decision:
    """End the clean patterns of a subscriber, besides its clean sessions."""
    if not isinstance(decision.reply, ByeAck):
        return decision
    state = engine.state
    session = state.sessions["subscriber", request.client]
    ended = [
        PatternEnded(request.client, pattern, session.epoch, session.nonce, session.control)
        for pattern, one in state.part(PatternIndex).of.get(request.client, {}).items()
        if one.is_clean
    ]
    return decided(state, decision.reply, *ended, *decision.records) if ended else decision


def ended_patterns(state: State) -> Sequence[PatternEnded]:
    """Return the clean patterns whose subscriber has been silent for too long by now."""
    now_s = state.leases.now_s
    ended: list[PatternEnded] = []
    ends = state.part(PatternIndex).ends
    for client in ends.take_below(now_s, lambda key: _patterns_end_s(state, key)):
        session = state.sessions["subscriber", client]
        head = (session.epoch, session.nonce, session.control)
        for pattern, lease_ms in _clean_patterns(state, client).items():
            if ends_s(state, client, lease_ms) < now_s:
                ended.append(PatternEnded(client, pattern, *head))
    return ended


def _patterns_end_s(state: State, client: str) -> float | None:
    """Return when the first clean pattern of a silent subscriber ends; None: it has none."""
    leases_ms = _clean_patterns(state, client).values()
    return ends_s(state, client, min(leases_ms)) if leases_ms else None


def _clean_patterns(state: State, client: str) -> dict[Pattern, int]:
    """Return the clean patterns of a subscriber, with their leases."""
    mine = state.part(PatternIndex).of.get(client, {}).items()
    return {pattern: one.terms.lease_ms for pattern, one in mine if one.is_clean}


FEATURE: Final = Feature(
    name="patterns",
    verbs={Match: match, Fetch: fetch},
    completes={Bye: bye},
    of_subscribers={Match: True, Fetch: True},
    waits={Fetch: WaitKind(lambda request: request.match)},
    tables=(PATTERN_SUBSCRIPTION,),
    visible=have_come,
    due=ended_patterns,
    hooks=Hooks(
        restore=[restore],
        holds=[has_patterns],
        begins=[begun_by_patterns],
        created=[add_topic],
        subscribed=[index],
        moved=[index],
        terms=[terms_of],
        waits_s=[longest_wait_s],
    ),
)
