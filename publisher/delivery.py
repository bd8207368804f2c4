"""Who has acknowledged a message, as its publisher sees it from one look to the next. Pure.

What counts is a durable cursor behind the message, of a subscription that is there now. Whoever
subscribes later has not got the message; so only those count that were there at the first look, or
were seen waiting since.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, assert_never

from msgspec import Meta, Struct

from reliable_pubsub.common.limits import DELIVERY_SUBSCRIBERS_MAX
from reliable_pubsub.common.messages import Delivered

TIMEOUT_S_MAX: Final = 86_400  # a day, as for the pauses of step files
AcknowledgedBy = Annotated[int, Meta(ge=1, le=DELIVERY_SUBSCRIBERS_MAX)] | Literal["all"]
DeliveryS = Annotated[float, Meta(gt=0, le=TIMEOUT_S_MAX)]


class Delivery(Struct, frozen=True):
    """Who has acknowledged a message, by name and in order."""

    acknowledged: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()  # subscribed, and not behind it yet
    left: tuple[str, ...] = ()  # were waiting, and have unsubscribed, ended or expired since


class DeliveryWatch:
    """Adds looks together."""

    def __init__(self, acknowledged_by: AcknowledgedBy) -> None:
        """Nobody has looked.

        Args:
            acknowledged_by: so many; "all" that are subscribed, and one at least.
        """
        self._wanted = acknowledged_by
        self._counted: set[str] | None = None
        self._acknowledged: set[str] = set()
        self.delivery = Delivery()

    def saw(self, reply: Delivered) -> bool:
        """Take a look into account; say whether it is enough."""
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
