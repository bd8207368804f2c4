"""`Receipt`: the outcome of a put. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.limits import DELIVERY_SUBSCRIBERS_MAX
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.names import message_id

# stored: the proxy has it. At QoS 0, sent: it was sent once. unwanted: there is no listener.
# dropped: no room on the link, or no link; there may be listeners.
Fate = Literal["stored", "sent", "unwanted", "dropped"]
AcknowledgedBy = Annotated[int, Meta(ge=1, le=DELIVERY_SUBSCRIBERS_MAX)] | Literal["all"]


class OfferCounts(Struct, kw_only=True):
    """Counts of the QoS 0 messages of this process, by fate."""

    sent: int = 0
    unwanted: int = 0
    dropped: int = 0


class Delivery(Struct, frozen=True):
    """The subscribers of a message by state; ids, ascending."""

    acknowledged: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()  # subscribed, with a cursor not yet past it
    left: tuple[str, ...] = ()  # were waiting, and have unsubscribed, ended or expired since


class Receipt(Struct, frozen=True):
    """The outcome of a put: the proxy has the messages, or (QoS 0) they were sent, or not."""

    topic: str
    publisher: str
    first_sequence: int
    count: int
    offset: int | None  # of the first; None if the proxy stored and has since removed them
    durability: str  # what "has" means: sync, os or snapshot; none at QoS 0
    duplicate: bool  # whether an earlier attempt had stored them
    qos: QoS = 2
    fate: Fate = "stored"
    delivery: Delivery | None = None  # which subscribers acknowledged it, if the put waited for it

    @property
    def message_id(self) -> str:
        """Id of the first message, `<publisher>_<sequence>`."""
        return message_id(self.publisher, self.first_sequence)

    def part(self, index: int, count: int = 1) -> Receipt:
        """The receipt of `count` of these messages, from the one at `index`."""
        if count == self.count:
            return self
        return replace(
            self,
            first_sequence=self.first_sequence + index,
            count=count,
            offset=None if self.offset is None else self.offset + index,
        )
