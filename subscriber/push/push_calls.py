"""The calls of a blocking subscriber that have to do with push."""

from __future__ import annotations

from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.common.gate import gated, gated_after_close

from ..topic_calls import TopicCalls
from .core.pull_timer import PushCounts
from .push_feature import PushFeature


class PushCalls(TopicCalls):
    """Switches push on and off, and shows what it does."""

    @gated
    def use_push(self, topic: TopicName | Pattern, push: bool) -> None:
        """Switch push on or off at any time, of a topic or of a pattern that is subscribed to.

        A push is a hint: `get` returns the same messages in the same order with and without. With
        it waiting sends no request, and a message arrives once it is durable. Needs a proxy or
        relay that pushes; while it does not, the topic is polled.
        """
        self._engine.use_push(topic, push)

    @gated_after_close
    def is_pushed(self, topic: Topics) -> bool:
        """Return whether push is on for a topic, even while it fails and the topic is polled."""
        return topic in self._engine.feature(PushFeature).pushing

    @gated_after_close
    def push_counts(self, topic: Topics) -> PushCounts:
        """Counts of the pushes of a topic for which push is on, in this process."""
        return self._engine.feature(PushFeature).pushing.counts(topic)
