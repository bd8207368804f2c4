"""What the proxy stores about clients: cursors and sessions."""

from __future__ import annotations

from dataclasses import dataclass

from reliable_pubsub.common.core.message_base import Terms

from .stored import Moved


@dataclass(slots=True)
class Subscription:
    """One subscriber's position in one topic."""

    generation: int  # the subscription's id: 1, 2, 3, ... for each (topic, subscriber)
    cursor: int  # the next offset not acknowledged
    durable_cursor: int  # the same, on disk; retention uses this one
    active: bool  # False: ended, and kept so that generations grow
    lsn: int  # record number of its last SUB or UNSUB
    shown: int  # messages below it were sent; those above the cursor may be redelivered
    terms: Terms
    expired: bool = False  # its lease has ended
    before: int = 0  # messages below it were sent before this generation, or this start
    moved: Moved = ""
    skipped: tuple[int, int] | None = None  # below the cursor, and not acknowledged: first and end

    @property
    def holds(self) -> bool:
        """Whether its unacknowledged messages must be kept; not at QoS 0."""
        return self.listens and self.terms.qos > 0

    @property
    def listens(self) -> bool:
        """Whether it receives what is put now."""
        return self.active and not self.expired


@dataclass(slots=True)
class Session:
    """One client id: its epoch and its last control request (rules R11 and R12)."""

    epoch: int
    nonce: bytes
    control: int  # number of the last SUB or UNSUB within the epoch
    lsn: int  # record number of the last grant or control request


def skipped_by(
    known: Subscription | None, cursor: int, *, by_start: bool = True
) -> tuple[int, int] | None:
    """Return the unacknowledged messages below the cursor of a new start or a seek.

    They are kept as one range, so that a later subscription can begin there.

    Args:
        by_start: otherwise the subscriber has processed what lies below its cursor.
    """
    if known is None or known.terms.session == "clean" or known.terms.qos == 0:
        return None
    first, end = known.skipped or (known.cursor, known.cursor)
    end = min(cursor if by_start and cursor > known.cursor else end, cursor)
    return (first, end) if first < end else None
