"""Tracks which subscribers have acknowledged a message, from one DELIVERY to the next. Pure.

A subscriber has acknowledged it if its durable cursor is past the message. Later subscriptions do
not receive the message; so only those count that were present in the first answer, or were seen
waiting since.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, assert_never

from msgspec import Meta, Struct

from reliable_pubsub.common.core.answers import Delivered
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.limits import DELIVERY_SUBSCRIBERS_MAX
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.steps import Wait

TIMEOUT_S_MAX: Final = 86_400  # a day, as for the pauses of step files
AcknowledgedBy = Annotated[int, Meta(ge=1, le=DELIVERY_SUBSCRIBERS_MAX)] | Literal["all"]
DeliveryS = Annotated[float, Meta(gt=0, le=TIMEOUT_S_MAX)]


class Delivery(Struct, frozen=True):
    """The subscribers of a message by state; ids, ascending."""

    acknowledged: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()  # subscribed, with a cursor not yet past it
    left: tuple[str, ...] = ()  # were waiting, and have unsubscribed, ended or expired since


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


def check_wait(
    wait: Wait,
    acknowledged_by: AcknowledgedBy | None,
    timeout_s: float | None,
    qos: QoS,
) -> None:
    """Refuse arguments of `put` that would have no effect.

    Raises:
        UsageError: they are for another `wait`, or the messages are never acknowledged.
    """
    if wait == "stored" and not (acknowledged_by is None and timeout_s is None):
        given = "timeout_s" if acknowledged_by is None else "acknowledged_by"
        raise UsageError(
            f"{given} needs wait='delivered': by default a put waits for the proxy, and for no "
            "subscriber. Nothing was sent"
        )
    if wait == "delivered" and qos == 0:
        raise UsageError(
            "wait='delivered' needs QoS 1 or 2: messages at QoS 0 are not stored and never "
            "acknowledged. Nothing was sent"
        )
