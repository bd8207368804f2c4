"""The calls of a blocking subscriber for single messages of a group."""

from __future__ import annotations

from reliable_pubsub.common.core.arguments import TimeoutS, when_refused
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.message_base import DelayS
from reliable_pubsub.common.gate import gated

from ..topic_calls import TopicCalls
from .core.group_feature import GroupFeature


class GroupCalls(TopicCalls):
    """Settles messages of a group one by one, in any order."""

    @gated
    def ack(self, message: Message, *, timeout_s: TimeoutS = None) -> None:
        """Acknowledge a message of a group, in any order; returns when the proxy has stored it.

        `get` and a loop acknowledge what they gave before, so this is for what is done earlier.

        Raises:
            UsageError: it is not in hand, or of no group; nothing was done.
            LeaseLostError: too late: another member has it, or it has ended.
            InDoubtError: no definite answer; the next call finishes it.
            NotSubscribedError, FencedError, LogChangedError.
        """
        return self._run(self._engine.feature(GroupFeature).settle_one(message, "ack"))

    @gated
    @when_refused(TopicCalls._keep)
    def nack(self, message: Message, *, delay_s: DelayS = 0.0, timeout_s: TimeoutS = None) -> None:
        """Give a message of a group back: it comes again, to any member, as redelivered.

        Args:
            delay_s: not before this time, 0 to 30 days.

        Raises:
            UsageError, LeaseLostError, InDoubtError, NotSubscribedError, FencedError,
            LogChangedError: as of `ack`.
        """
        delay_ms = round(delay_s * 1000)
        return self._run(self._engine.feature(GroupFeature).settle_one(message, "nack", delay_ms))

    @gated
    def extend(self, message: Message, *, timeout_s: TimeoutS = None) -> None:
        """Begin the lease of a message of a group again, while it takes long to process.

        Raises:
            UsageError, LeaseLostError, InDoubtError, NotSubscribedError, FencedError,
            LogChangedError: as of `ack`.
        """
        return self._run(self._engine.feature(GroupFeature).settle_one(message, "extend"))
