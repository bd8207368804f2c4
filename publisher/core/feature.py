"""What a feature adds to a publisher: one value, which the list in `features.py` names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from msgspec import Struct

from reliable_pubsub.common.core.answers import AnyReply
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.transaction_messages import CommitAck

from .outbox import Pending
from .puts import WaitingPut
from .receipt import Receipt


class PublisherOpening(Struct, frozen=True, kw_only=True):
    """How a publisher was opened."""

    endpoint: str
    recorder: Recorder
    now_s: Callable[[], float]
    token: Callable[[int], bytes]  # gives so many random bytes
    connect_data: Callable[[str], Any] | None = None  # a link for data; None: over ZeroMQ


class PublisherFeature:
    """What one feature does in the calls of a publisher; here each method does nothing.

    Where a method may return None, that means: this feature has no part in the call.
    """

    name: ClassVar[str]

    def begin_again(self) -> None:
        """Continue after an interrupted call."""

    def close(self) -> None:
        """End its links."""

    def put(self, puts: Sequence[WaitingPut]) -> Conversation[None] | None:
        """Put at a lower level than QoS 2, and settle."""
        return None

    def send(self, pending: Pending) -> Conversation[AnyReply] | None:
        """Send a put of several batches until the reply is definite."""
        return None

    def receipts(self, reply: CommitAck, pending: Pending) -> tuple[Receipt, ...] | None:
        """A receipt for each topic of such a put."""
        return None

    def give_up(self, number: int) -> Conversation[None]:
        """Drop such a put at the proxy."""
        yield from ()
