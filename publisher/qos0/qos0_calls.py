"""The calls of a blocking publisher that look for listeners."""

from __future__ import annotations

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import Seconds, TimeoutS, checked
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.retry import limit_s
from reliable_pubsub.common.gate import gated

from ..core.receipt import OfferCounts
from ..put_calls import PutCalls
from .core.qos0_puts import Interest
from .qos0_feature import QoS0Feature


class ListenerCalls(PutCalls):
    """Asks and waits for listeners, for whom QoS 0 messages are sent."""

    @gated
    def interest(self, topic: TopicName, *, timeout_s: TimeoutS = None) -> Interest:
        """Ask the proxy for the listeners of a topic; false if there are none.

        Raises:
            InvalidNameError, InDoubtError.
        """
        return self._run(self._engine.feature(QoS0Feature).lower_qos.interest(names.exact(topic)))

    @checked
    def wait_for_interest(self, topic: TopicName, timeout_s: Seconds) -> Interest:
        """Wait until a topic has a listener, to avoid work that no subscriber needs.

        Returns:
            The listeners; false when the time is over. A QoS 0 message that is put right after it
            is sent, not dropped as unwanted.

        Raises:
            InvalidNameError, InDoubtError.
        """
        return self._wait_for_interest(topic, timeout_s, timeout_s=limit_s(timeout_s))

    @gated
    def _wait_for_interest(
        self, topic: TopicName, wait_s: float, *, timeout_s: float | None
    ) -> Interest:
        qos0 = self._engine.feature(QoS0Feature).lower_qos.qos0
        self._gate.patience.wait(wait_s)
        return self._run(qos0.wait_for_interest(names.exact(topic), wait_s))

    @property
    def offer_counts(self) -> OfferCounts:
        """Counts of the QoS 0 messages of this process."""
        return self._engine.feature(QoS0Feature).lower_qos.qos0.counts
