"""What one connection, and all of an endpoint together, may make us hold; who is cut off. Pure.

ZeroMQ bounds messages, and neither their bytes nor their frames: a message without end is held as
long as its connection lasts. So the bytes that a connection has sent since a message of it was
taken are counted, and those who do not read are found by what the kernel cannot send
(docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.limits import (
    CONNECTION_BYTES,
    KIB,
    SAID_BYTES_MAX,
    SAID_BYTES_MAX_IN_DEBT,
    SAID_BYTES_MAX_TOGETHER,
    SAID_BYTES_PER_S,
    SAID_BYTES_PER_S_TOGETHER,
    STALLED_CONNECTIONS_MAX,
    UNHEARD_BYTES_MAX,
    UNHEARD_BYTES_MAX_TOGETHER,
)

STALLED_S_MAX: Final = 2.0  # longer without reading what is sent, and the connection is cut
NOTABLE_BYTES: Final = 64 * KIB
ANSWER_BYTES_MIN: Final = 32  # more than a PING of ours, less than any answer


class Look(Struct, frozen=True):
    """What the kernel has counted of a connection, and whether it holds what it cannot send."""

    received_bytes: int
    acknowledged_bytes: int
    is_waiting: bool


class Tally:
    """What one connection makes us hold, from one look to the next."""

    __slots__ = ("_acknowledged", "_answered", "_heard", "received", "stalled_at_s", "was_heard")

    def __init__(self) -> None:
        """It has said nothing."""
        self.was_heard = False  # a message of it was taken since the last look
        self.received = self._heard = self._acknowledged = self._answered = 0
        self.stalled_at_s: float | None = None

    @property
    def unheard_bytes(self) -> int:
        """Sent to us since a message was taken, or one was answered."""
        return self.received - self._heard

    @property
    def is_notable(self) -> bool:
        """Whether it makes us hold more than an ordinary peer does."""
        return self.unheard_bytes > NOTABLE_BYTES or self.stalled_at_s is not None

    def look(self, seen: Look, now_s: float) -> None:
        """Take what the kernel says now."""
        self.received = seen.received_bytes
        # Who reads answers has asked: where others take the messages, that is how they are seen.
        is_answered = seen.acknowledged_bytes - self._answered >= ANSWER_BYTES_MIN
        if self.was_heard or is_answered:
            self._heard, self._answered = self.received, seen.acknowledged_bytes
            self.was_heard = False
        if not seen.is_waiting or seen.acknowledged_bytes != self._acknowledged:
            self.stalled_at_s = None
        elif self.stalled_at_s is None:
            self.stalled_at_s = now_s
        self._acknowledged = seen.acknowledged_bytes


def to_be_cut(tallies: Mapping[int, Tally], now_s: float) -> list[int]:
    """The connections that are above their own bound, or the worst where all are above theirs."""
    cut = [
        number
        for number, one in tallies.items()
        if one.unheard_bytes > UNHEARD_BYTES_MAX
        or (one.stalled_at_s is not None and now_s - one.stalled_at_s > STALLED_S_MAX)
    ]
    rest = {number: one for number, one in tallies.items() if number not in set(cut)}
    together = sum(one.unheard_bytes for one in rest.values())
    for number in sorted(rest, key=lambda one: -rest[one].unheard_bytes):
        if together <= UNHEARD_BYTES_MAX_TOGETHER:
            break
        together -= rest[number].unheard_bytes
        cut.append(number)
    stalled = sorted(
        (one.stalled_at_s, number) for number, one in rest.items() if one.stalled_at_s is not None
    )
    excess = max(len(stalled) - STALLED_CONNECTIONS_MAX, 0)
    return list(dict.fromkeys([*cut, *(number for _, number in stalled[:excess])]))


class Bucket:
    """Bytes that may come: a number at once, and a number per second from then on.

    More may be taken than is left. The debt is paid by the time that passes.
    """

    __slots__ = ("_at_s", "_bytes_max", "_bytes_per_s", "_left")

    def __init__(self, bytes_max: int, bytes_per_s: int, now_s: float) -> None:
        """The bucket is full."""
        self._bytes_max, self._bytes_per_s = bytes_max, bytes_per_s
        self._left, self._at_s = float(bytes_max), now_s

    def left(self, now_s: float) -> float:
        """Bytes that are left; below 0 is a debt."""
        refilled = self._left + (now_s - self._at_s) * self._bytes_per_s
        self._left, self._at_s = min(refilled, float(self._bytes_max)), now_s
        return self._left

    def used(self, now_s: float) -> float:
        """Bytes that were taken and are not refilled yet."""
        return self._bytes_max - self.left(now_s)

    def take(self, size_bytes: int, now_s: float) -> None:
        """Take bytes, whether they are there or not."""
        self.left(now_s)
        self._left -= size_bytes

    def paid_in_s(self, now_s: float) -> float:
        """Seconds until a debt is paid."""
        return max(-self.left(now_s) / self._bytes_per_s, 0.0)


class Said:
    """What one connection has said on a push endpoint."""

    __slots__ = ("_bucket", "_received")

    def __init__(self, now_s: float) -> None:
        """The connection is new."""
        self._bucket = Bucket(SAID_BYTES_MAX, SAID_BYTES_PER_S, now_s)
        self._received = 0

    def hear(self, received_bytes: int, now_s: float) -> int:
        """Take what the kernel has counted since the connection began; return what is new of it."""
        new, self._received = received_bytes - self._received, received_bytes
        self._bucket.take(new, now_s)
        return new

    def recent_bytes(self, now_s: float) -> float:
        """What was said lately: SAID_BYTES_PER_S of it are forgotten each second."""
        return self._bucket.used(now_s)


class Admission:
    """Who may go on, and whether more may come in, by what all connections of an endpoint say."""

    def __init__(self, now_s: float) -> None:
        """There are no connections."""
        self._bucket = Bucket(SAID_BYTES_MAX_TOGETHER, SAID_BYTES_PER_S_TOGETHER, now_s)

    def accepted(self, now_s: float) -> Said:
        """Count a new connection."""
        self._bucket.take(CONNECTION_BYTES, now_s)
        return Said(now_s)

    def hears(self, said: Said, received_bytes: int, now_s: float) -> bool:
        """Count what a connection has said; False: the connection is to be cut."""
        self._bucket.take(said.hear(received_bytes, now_s), now_s)
        bound = SAID_BYTES_MAX_IN_DEBT if self.closed_for_s(now_s) else SAID_BYTES_MAX
        return said.recent_bytes(now_s) <= bound

    def closed_for_s(self, now_s: float) -> float:
        """Seconds for which no connection may come in; 0: they may."""
        return self._bucket.paid_in_s(now_s)
