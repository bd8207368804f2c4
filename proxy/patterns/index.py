"""Subscriptions by pattern: who has which, the topics that each matches, and what is unread there.

The cost follows what happens: a new topic is compared with each different pattern, a batch is noted
for each subscriber of the patterns of its topic, a cursor that moves for its own subscriber.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import reduce

from msgspec import Struct

from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.patterns.matching import is_of
from reliable_pubsub.common.core.patterns.pattern import Pattern

from ..core.lower_bounds import LowerBounds
from ..core.topic_log import TopicLog


class StoredPattern(Struct, frozen=True, gc=False):
    """A subscription by pattern."""

    subscriber: str
    pattern: Pattern
    terms: Terms
    reader: str = ""


@dataclass(slots=True)
class RegisteredPattern:
    """One subscriber's pattern."""

    terms: Terms
    reader: str  # the keys that may read what it matches; "": there were no keys
    lsn: int  # record number of its last MATCH
    epoch: int = 0  # of its last MATCH; 0: by an earlier start of the proxy
    unread: dict[int, None] = field(default_factory=dict)  # topic ids; the longest unread first

    @property
    def is_clean(self) -> bool:
        """Whether it ends with its subscriber, or with its lease."""
        return self.terms.session == "clean"


class PatternIndex:
    """Every subscription by pattern."""

    def __init__(self) -> None:
        self.of: dict[str, dict[Pattern, RegisteredPattern]] = {}  # by subscriber
        self.ends: LowerBounds[str] = LowerBounds()  # by subscriber with a clean pattern
        self._subscribers: dict[Pattern, dict[str, None]] = {}
        self._patterns: dict[int, tuple[Pattern, ...]] = {}  # that match a topic, by its id

    def __len__(self) -> int:
        """How many different patterns there are."""
        return len(self._subscribers)

    def has(self, pattern: Pattern) -> bool:
        """Whether any subscriber has it."""
        return pattern in self._subscribers

    def all(self) -> Collection[Pattern]:
        """The different patterns of all subscribers."""
        return self._subscribers.keys()

    def subscribers_of(self, pattern: Pattern) -> Collection[RegisteredPattern]:
        """The subscriptions by one pattern."""
        return [self.of[one][pattern] for one in self._subscribers[pattern]]

    def names_of(self, pattern: Pattern) -> Set[str]:
        """Return the subscribers that have a pattern."""
        return self._subscribers[pattern].keys()

    def topics_of(self, pattern: Pattern) -> Iterator[int]:
        """The ids of the topics that match."""
        return (one for one, patterns in self._patterns.items() if pattern in patterns)

    def matching(self, topic: str) -> tuple[Pattern, ...]:
        """The patterns that match a name."""
        return tuple(one for one in self._subscribers if is_of(one, topic))

    def wanting(self, topic: str) -> Iterator[tuple[str, list[RegisteredPattern]]]:
        """Return the subscribers of a new topic, each once, with their matching patterns."""
        found: dict[str, list[RegisteredPattern]] = {}
        for pattern in self.matching(topic):
            for subscriber in self._subscribers[pattern]:
                found.setdefault(subscriber, []).append(self.of[subscriber][pattern])
        return iter(found.items())

    def terms_of(self, subscriber: str, topic: str) -> Terms | None:
        """Return the terms that a subscriber's patterns need of a topic; None: no match."""
        mine = self.of.get(subscriber, {}).items()
        found = [one.terms for pattern, one in mine if is_of(pattern, topic)]
        return reduce(Terms.joined, found) if found else None

    def patterns_of(self, topic_id: int) -> tuple[Pattern, ...]:
        """The patterns that match a topic."""
        return self._patterns.get(topic_id, ())

    def wants(self, subscriber: str, topic_id: int) -> bool:
        """Whether a pattern of this subscriber matches a topic."""
        return bool(self._of_both(topic_id, subscriber))

    # Changes.

    def add_topic(self, log: TopicLog) -> None:
        """A topic was created."""
        found = self.matching(log.topic)
        if found:
            self._patterns[log.topic_id] = found

    def add(
        self,
        subscriber: str,
        pattern: Pattern,
        one: RegisteredPattern,
        topics: Mapping[str, TopicLog],
    ) -> None:
        """A subscriber has a pattern; its topics are to be indexed."""
        if pattern not in self._subscribers:
            self._subscribers[pattern] = {}
            for topic, log in topics.items():
                if is_of(pattern, topic):
                    self._patterns[log.topic_id] = (*self.patterns_of(log.topic_id), pattern)
        known = self.of.setdefault(subscriber, {}).get(pattern)
        if known is not None:
            one.unread = known.unread
        self._subscribers[pattern][subscriber] = None
        self.of[subscriber][pattern] = one
        if one.is_clean:
            self.ends.add(subscriber, 0.0)

    def remove(self, subscriber: str, pattern: Pattern) -> None:
        """A pattern has ended."""
        del self.of[subscriber][pattern]
        if not self.of[subscriber]:
            del self.of[subscriber]
        del self._subscribers[pattern][subscriber]
        if self._subscribers[pattern]:
            return
        del self._subscribers[pattern]
        for topic_id in list(self.topics_of(pattern)):
            left = tuple(one for one in self._patterns[topic_id] if one != pattern)
            if left:
                self._patterns[topic_id] = left
            else:
                del self._patterns[topic_id]

    def index(self, log: TopicLog, subscriber: str) -> None:
        """A subscription has begun, moved or ended: note whether anything is unread."""
        one = log.subscriptions.get(subscriber)
        is_unread = one is not None and one.active and one.cursor < log.durable_end
        for pattern in self._of_both(log.topic_id, subscriber):
            unread = self.of[subscriber][pattern].unread
            unread.pop(log.topic_id, None)
            if is_unread:
                unread[log.topic_id] = None  # last: the others come first

    def has_come(self, topic_id: int) -> None:
        """A topic has new durable messages."""
        for pattern in self.patterns_of(topic_id):
            for subscriber in self._subscribers[pattern]:
                self.of[subscriber][pattern].unread.setdefault(topic_id)

    def _of_both(self, topic_id: int, subscriber: str) -> list[Pattern]:
        mine = self.of.get(subscriber, {})
        return [one for one in self.patterns_of(topic_id) if one in mine]
