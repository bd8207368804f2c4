"""SUBSCRIPTIONS: what is subscribed to the topics of a pattern, in pages of bounded cost."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop
from typing import Final, TypeVar

from msgspec import UNSET, UnsetType

from reliable_pubsub.common.access.core.authorisation import ShownTopics
from reliable_pubsub.common.core.dead_letter import DEAD_SUFFIX
from reliable_pubsub.common.core.errors import InvalidPatternError
from reliable_pubsub.common.core.interest_messages import (
    SubscriptionPlace,
    SubscriptionRow,
    Subscriptions,
    SubscriptionsReport,
)
from reliable_pubsub.common.core.limits import (
    COMPARE_STEPS_MAX,
    SUBSCRIPTIONS_ROWS_MAX,
    SUBSCRIPTIONS_STEPS_MAX,
)
from reliable_pubsub.common.core.patterns.automaton import Effort
from reliable_pubsub.common.core.patterns.matching import Kinds, canonical, is_of
from reliable_pubsub.common.core.patterns.pattern import Pattern

from ..core.feature import Feature
from ..core.records import Decision
from ..core.replies import echo, malformed
from ..core.state import State
from ..groups.state import GroupIndex, is_group, subscription_of_group
from ..patterns.index import PatternIndex

T = TypeVar("T", str, Pattern)

_KINDS: Final = Kinds()


def subscriptions(
    state: State,
    request: Subscriptions,
    _body: bytes,
    _now_ns: int,
    shown: ShownTopics | None = None,
) -> Decision:
    """One page. It leaves when the newest change that it may show is durable.

    Args:
        shown: the topics that are shown; None: all.
    """
    try:
        asked = canonical(request.match)
    except InvalidPatternError as error:
        return Decision(malformed(state, str(error), request))
    if not _KINDS.knows(asked):
        return Decision(malformed(state, f"the kind {asked.kind!r} is not known", request))
    version, visible_at = state.interest_version, state.interest_lsn
    if (request.boot, request.known) == (state.boot, version):
        reply = SubscriptionsReport(**echo(state, request), version=version, unchanged=True)
        return Decision(reply, visible_at=visible_at)
    page = _Page(state, asked, shown)
    following = page.fill(request.after)
    reply = SubscriptionsReport(
        **echo(state, request), version=version, rows=tuple(page.rows), next=following
    )
    return Decision(reply, visible_at=visible_at)


class _Page:
    """The rows of one answer."""

    def __init__(self, state: State, asked: Pattern, shown: ShownTopics | None) -> None:
        self.rows: list[SubscriptionRow] = []
        self._state, self._asked, self._shown = state, asked, shown
        self._steps_left = SUBSCRIPTIONS_STEPS_MAX
        self._states = max(_KINDS.cost(asked)[1], 1)
        self._effort = Effort(COMPARE_STEPS_MAX)  # of comparing patterns

    def fill(self, after: SubscriptionPlace | UnsetType) -> SubscriptionPlace | UnsetType:
        """Add the rows after a place while there is room; return where the next page begins."""
        for match in self._in_order(after):
            begins_at = "" if after is UNSET or match != after.match else after.group
            for row in self._rows_of(match):
                if begins_at and row.group <= begins_at:
                    continue
                if len(self.rows) == SUBSCRIPTIONS_ROWS_MAX:
                    last = self.rows[-1]
                    return SubscriptionPlace(
                        last.match, last.group if last.match == match else None
                    )
                self.rows.append(row)
            if self._steps_left <= 0 or self._effort.left < COMPARE_STEPS_MAX // 2:
                return SubscriptionPlace(match)
        return UNSET

    def _in_order(self, after: SubscriptionPlace | UnsetType) -> Iterator[Pattern]:
        """Topics and then patterns, in the order of their kinds and texts."""
        state = self._state
        topics = state.listened_topics - state.deleted_topics
        topics |= {one.text for one in state.part(PatternIndex).all() if one.kind == "exact"}
        patterns = [one for one in state.part(PatternIndex).all() if one.kind != "exact"]
        if after is not UNSET:
            begins = operator.ge if after.group is not None else operator.gt
            patterns = [one for one in patterns if begins(one, after.match)]
            first, is_topic = after.match.text, after.match.kind == "exact"
            topics = {name for name in topics if begins(name, first)} if is_topic else set()
        yield from (Pattern("exact", name) for name in _ascending(topics))
        yield from _ascending(patterns)

    def _rows_of(self, match: Pattern) -> Iterator[SubscriptionRow]:
        if match.kind == "exact":
            self._steps_left -= 1 + self._states * len(match.text)
            if not is_of(self._asked, match.text) or not (
                self._shown is None or self._shown(match.text)
            ):
                return
            if match.text in self._state.topics:
                yield from self._rows_of_topic(match)
                return
        elif not self._may_share(match):
            return
        subscribers = self._state.part(PatternIndex).subscribers_of(match)
        self._steps_left -= len(subscribers)
        qos = max(one.terms.qos for one in subscribers)
        yield SubscriptionRow(match, "", qos, len(subscribers))

    def _rows_of_topic(self, match: Pattern) -> Iterator[SubscriptionRow]:
        log = self._state.topics[match.text]
        self._steps_left -= len(log.listening)
        plain = [log.subscriptions[one].terms.qos for one in log.listening if not is_group(one)]
        if plain:
            yield SubscriptionRow(match, "", max(plain), len(plain))
        groups = self._state.part(GroupIndex).in_topic(log)
        for name in sorted(groups):
            if subscription_of_group(name) in log.listening:
                yield SubscriptionRow(match, name, 2, len(groups[name].members))

    def _may_share(self, match: Pattern) -> bool:
        """Whether a pattern may share a topic with the one asked for, and one that is shown."""
        if match.text.endswith(DEAD_SUFFIX) is not self._asked.text.endswith(DEAD_SUFFIX):
            return False
        if _KINDS.overlap(self._asked, canonical(match), self._effort) is False:
            return False
        return self._shown is None or self._shown.shares(canonical(match), self._effort)


def _ascending(unordered: Iterable[T]) -> Iterator[T]:
    """In order. A page takes the first few of many, so the others are not sorted for it."""
    left = list(unordered)
    heapify(left)
    while left:
        yield heappop(left)


FEATURE: Final = Feature(
    name="interests", verbs={Subscriptions: subscriptions}, endpoints={Subscriptions: "publisher"}
)
