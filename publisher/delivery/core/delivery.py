"""Waits until subscribers have acknowledged the messages of a receipt. Pure.

The proxy is polled with growing pauses, and keeps no state for it.

A subscriber has acknowledged a message if its durable cursor is past it. Later subscriptions do
not receive the message; so only those count that were present in the first answer, or were seen
waiting since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, assert_never

from msgspec import Meta

from reliable_pubsub.common.core.answers import Delivered
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import InDoubtError, NotDeliveredError, UsageError
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.requests import DeliveryRequest
from reliable_pubsub.common.core.retry import ANSWER_S, poll_pause_s
from reliable_pubsub.common.core.steps import Wait

from ...core.outbox import Outbox
from ...core.receipt import AcknowledgedBy, Delivery, Receipt
from ...core.session import PublisherSession

TIMEOUT_S_MAX: Final = 86_400  # a day, as for the pauses of step files
DeliveryS = Annotated[float, Meta(gt=0, le=TIMEOUT_S_MAX)]


class DeliveryWatch:
    """Combines the answers to DELIVERY."""

    def __init__(self, acknowledged_by: AcknowledgedBy) -> None:
        """Create a watch without an answer.

        Args:
            acknowledged_by: how many subscribers; "all" that are subscribed, and at least one.
        """
        self._wanted = acknowledged_by
        self._counted: set[str] | None = None
        self._acknowledged: set[str] = set()
        self.delivery = Delivery()

    def saw(self, reply: Delivered) -> bool:
        """Add an answer; return whether enough subscribers have acknowledged."""
        waiting = set(reply.waiting)
        if self._counted is None:
            self._counted = set(reply.acknowledged)
        self._counted |= waiting
        self._acknowledged |= self._counted & set(reply.acknowledged)
        self.delivery = Delivery(
            tuple(sorted(self._acknowledged)),
            tuple(sorted(waiting)),
            tuple(sorted(self._counted - self._acknowledged - waiting)),
        )
        match self._wanted:
            case "all":
                return bool(self._acknowledged) and not waiting
            case int(subscribers):
                return len(self._acknowledged) >= subscribers
            case never:
                assert_never(never)


def wait_of_put(
    wait: Wait,
    acknowledged_by: AcknowledgedBy | None,
    qos: QoS,
) -> AcknowledgedBy:
    """Return how many subscribers must acknowledge a `put`.

    Raises:
        UsageError: an argument has no effect without `wait`, or the messages are never
            acknowledged.
    """
    if wait == "stored":
        raise UsageError(
            "acknowledged_by needs wait='delivered': by default a put waits only for the "
            "proxy, not for subscribers. Nothing was sent"
        )
    if qos == 0:
        raise UsageError(
            "wait='delivered' needs QoS 1 or 2: messages at QoS 0 are not stored and never "
            "acknowledged. Nothing was sent"
        )
    return "all" if acknowledged_by is None else acknowledged_by


class DeliveryWait:
    """One wait, from look to look; between them the publisher is free."""

    def __init__(
        self,
        receipt: Receipt,
        acknowledged_by: AcknowledgedBy,
        timeout_s: float,
        *,
        now_s: Callable[[], float],
    ) -> None:
        """Begin to wait; see `Publisher.wait_delivered`."""
        self._receipt = receipt
        self._acknowledged_by = acknowledged_by
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._deadline_s = now_s() + timeout_s
        self._watch = DeliveryWatch(acknowledged_by)
        self._looks = 0

    @property
    def asks_s(self) -> float:
        """Return the time for the next answer; the last one may take ANSWER_S longer."""
        return max(self._deadline_s - self._now_s(), 0.0) + ANSWER_S

    @property
    def delivery(self) -> Delivery:
        """The subscribers by state, as of the last look."""
        return self._watch.delivery

    def look(self, session: PublisherSession, outbox: Outbox) -> Conversation[float | None]:
        """Ask the proxy; None if enough have acknowledged, else how long to wait.

        Raises:
            NotDeliveredError, LogChangedError, LimitError: see `Publisher.wait_delivered`.
        """
        receipt = self._receipt
        if receipt.offset is None:
            raise self._error("its offset is no longer known, because retention has removed it")
        numbering = outbox.topics.get(receipt.topic) if receipt.qos == 2 else None
        request = DeliveryRequest(
            **session.head(),
            topic=receipt.topic,
            offset=receipt.offset + receipt.count - 1,
            log=(numbering.log or None) if numbering else None,
        )
        try:
            reply = yield from session.asking(request)
        except InDoubtError as error:
            raise self._error("the proxy is away") from error
        if not isinstance(reply, Delivered):
            session.refused(reply)
        if self._watch.saw(reply):
            return None
        left_s = self._deadline_s - self._now_s()
        if left_s <= 0:
            raise self._error(
                f"not acknowledged by {self._acknowledged_by} within {self._timeout_s:g} s"
            )
        self._looks += 1
        return min(poll_pause_s(self._looks), left_s)

    def _error(self, why: str) -> NotDeliveredError:
        delivery = self.delivery
        return NotDeliveredError(
            why,
            message_id=self._receipt.message_id,
            topic=self._receipt.topic,
            acknowledged=delivery.acknowledged,
            waiting=delivery.waiting,
            left=delivery.left,
        )
