"""Waits until subscribers have acknowledged the messages of a receipt. Pure.

The proxy is polled with growing pauses; it keeps no state for it.
"""

from __future__ import annotations

from collections.abc import Callable

from reliable_pubsub.common.core.answers import Delivered
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import InDoubtError, NotDeliveredError
from reliable_pubsub.common.core.requests import Delivery as DeliveryRequest
from reliable_pubsub.common.core.retry import poll_pause_s

from .delivery import AcknowledgedBy, Delivery, DeliveryWatch
from .outbox import Outbox
from .receipt import Receipt
from .session import PublisherSession


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
            raise self._error("its offset is not known any more, because retention has removed it")
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
