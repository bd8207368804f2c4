"""Planted faults of patterns: later topics that are missed, in part or whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec.structs import replace

from reliable_pubsub.proxy.core.state import State
from reliable_pubsub.proxy.core.subscription_records import Subscribed
from reliable_pubsub.proxy.core.topic_log import TopicLog
from reliable_pubsub.proxy.patterns.feature import begun_by_patterns
from reliable_pubsub.proxy.patterns.records import PatternEnded, PatternSubscribed
from reliable_pubsub.subscriber.core.place import Batches
from reliable_pubsub.subscriber.core.restoring import Running
from reliable_pubsub.subscriber.core.subscription import TopicSubscription
from reliable_pubsub.subscriber.patterns.core.pattern_subscribing import PatternSubscribing
from reliable_pubsub.subscriber.patterns.core.pattern_subscription import Condition

from .faults_of_clients import with_parts
from .simulated_store import SimulatedStore
from .simulation import Variant


class ForgetsPatterns(SimulatedStore):
    """A pattern is not stored: after a restart of the proxy later topics are not subscribed to."""

    def _write_pattern(self, record: PatternSubscribed | PatternEnded) -> None:
        self._write_session(record)


def misses_first_messages(state: State, log: TopicLog) -> Iterator[Subscribed]:
    """A later topic begins after its first message."""
    return (replace(one, cursor=1, shown=1) for one in begun_by_patterns(state, log))


class ForgetsTheTopicsBefore(TopicSubscription):
    """The row of a topic in a run does not say how many messages of other topics come first."""

    def join_run(
        self, whole: Running, batches: Batches, *, skip: int = 0, total: int = 0
    ) -> Running:
        run = super().join_run(whole, batches, skip=skip, total=total)
        assert self.place.run is not None
        self.move(replace(self.place, run=replace(self.place.run, skip=0)))
        return run


class SkipsWhatOneRejects(PatternSubscribing):
    """A message that one subscription rejects is skipped for all of the subscriber."""

    def condition_of(self, topics: Iterable[str]) -> Condition | None:
        known = self._session.inbox.patterns.values()
        conditions = [one.matches for one in known if one.matches is not None]
        return (lambda message: all(one(message) for one in conditions)) if conditions else None


FAULTS_OF_PATTERNS: Final[Mapping[str, Variant]] = {
    "pattern: not stored": Variant(store=ForgetsPatterns),
    "pattern: later topics missed": Variant(rules={begun_by_patterns: lambda *_: iter(())}),
    "pattern: first messages missed": Variant(rules={begun_by_patterns: misses_first_messages}),
    "pattern: one condition skips for all": Variant(
        subscriber=with_parts(patterns=SkipsWhatOneRejects)
    ),
    "pattern: topics before not counted": Variant(
        subscriber=with_parts(subscription=ForgetsTheTopicsBefore)
    ),
}
