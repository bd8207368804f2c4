"""What the proxy remembers of subscribers and publishers: cursors and sessions."""

from __future__ import annotations

from dataclasses import dataclass

from reliable_pubsub.common.messages import Terms


@dataclass(slots=True)
class Subscription:
    """One subscriber's place in one topic."""

    generation: int  # the subscription's id: 1, 2, 3, ... for each (topic, subscriber)
    cursor: int  # the next offset not acknowledged
    durable_cursor: int  # the same, on disk; only this one lets messages go
    active: bool  # False: ended, and remembered so that generations grow
    lsn: int  # record number of its last SUB or UNSUB
    shown: int  # messages below it were sent; above the cursor they may come again
    terms: Terms
    expired: bool = False  # its lease has ended
    before: int = 0  # messages below it were sent before this generation, or this start

    @property
    def holds(self) -> bool:
        """Whether what it has not acknowledged has to stay: at QoS 0 nothing is kept for it."""
        return self.listens and self.terms.qos > 0

    @property
    def listens(self) -> bool:
        """Whether it is to get what is put now."""
        return self.active and not self.expired


@dataclass(slots=True)
class Session:
    """One client id: its incarnation, and its last control request (rules R11 and R12)."""

    epoch: int
    nonce: bytes
    control: int  # number of the last SUB or UNSUB within the epoch
    lsn: int  # record number of the last grant or control request
