"""The calls of a blocking subscriber that show what push does."""

from __future__ import annotations

from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.gate import gated_after_close

from ..topic_calls import TopicCalls
from .core.pull_timer import PushCounts
from .push_feature import PushFeature


class PushCalls(TopicCalls):
    """Shows what push does."""

    @gated_after_close
    def push_counts(self, topic: Topics) -> PushCounts:
        """Counts of the pushes of a topic for which push is on, in this process."""
        return self._engine.feature(PushFeature).pushing.counts(topic)
