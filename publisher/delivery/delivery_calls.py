"""The calls of a blocking publisher that wait for subscribers."""

from __future__ import annotations

from msgspec.structs import replace

from reliable_pubsub.common.core.arguments import checked
from reliable_pubsub.common.core.steps import DELIVERED_S, Wait
from reliable_pubsub.common.gate import gated

from ..core.puts import WaitingPut
from ..core.receipt import AcknowledgedBy, Delivery, Receipt
from ..put_calls import PutCalls
from .core.delivery import DeliveryS, DeliveryWait, wait_of_put


class DeliveryCalls(PutCalls):
    """Waits until subscribers have acknowledged."""

    def _put_and_wait(
        self,
        put: WaitingPut,
        wait: Wait,
        acknowledged_by: AcknowledgedBy | None,
        timeout_s: float | None,
    ) -> Receipt:
        by = wait_of_put(wait, acknowledged_by, put.qos)
        now_s = self._opened.asker.clock.now_s
        began_s = now_s()
        receipt = self._put(put, timeout_s=timeout_s)
        left_s = DELIVERED_S if timeout_s is None else began_s + timeout_s - now_s()
        delivery = self._wait_delivered(receipt, by, left_s)
        return replace(receipt, delivery=delivery)

    @checked
    def wait_delivered(
        self,
        receipt: Receipt,
        *,
        acknowledged_by: AcknowledgedBy = "all",
        timeout_s: DeliveryS = DELIVERED_S,
    ) -> Delivery:
        """Wait until subscribers have acknowledged all messages of a receipt.

        A subscriber acknowledges when it comes back for the next message, or calls `acknowledge`.

        Args:
            acknowledged_by: how many subscribers, 1 to 2,000; "all" that are subscribed, and at
                least one. Later subscriptions do not count; those that end are not waited for.
            timeout_s: above 0, at most a day; the last answer may take 2 s longer.

        Raises:
            NotDeliveredError: not in time; it has the ids that have acknowledged, and the others.
            LogChangedError: the proxy no longer has the message. LimitError: too many subscribers.
            UsageError.
        """
        return self._wait_delivered(receipt, acknowledged_by, timeout_s)

    def _wait_delivered(
        self, receipt: Receipt, acknowledged_by: AcknowledgedBy, timeout_s: float
    ) -> Delivery:
        clock = self._opened.asker.clock
        wait = DeliveryWait(receipt, acknowledged_by, timeout_s, now_s=clock.now_s)
        while (pause_s := self._look(wait, timeout_s=wait.asks_s)) is not None:
            clock.sleep(pause_s)
        return wait.delivery

    @gated
    def _look(self, wait: DeliveryWait, *, timeout_s: float) -> float | None:
        return self._run(wait.look(self._engine.session, self.outbox))
