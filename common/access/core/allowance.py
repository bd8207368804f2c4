"""Limits the memory that one connection, and all of a process, may take. Pure.

ZeroMQ bounds messages, and neither their bytes nor their frames: a message without end is held as
long as its connection lasts. So the bytes that a connection has sent and that were not taken as
messages are counted, and connections that do not read are found by what the kernel cannot send.

What libzmq keeps of a byte depends on how it came, and cannot be counted: up to 32 bytes where
frames are empty, and a buffer of its own for each read. So the most that it can be is reckoned,
and that alone cuts no connection off; it does once the process has grown (docs/decisions/0026).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from ...core.limits import (
    CALM_BYTES_MAX,
    CONNECTION_BYTES,
    GROWTH_BYTES_MAX,
    HELD_BYTES_MAX,
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
STALLED_S_MIN: Final = 0.05  # a shorter pause is none
# Measured with libzmq 4.3.5: a frame has 2 bytes or more and is kept in 64; each read that brings
# frames of more than 33 bytes has a buffer, of which 8 KiB are touched.
HELD_PER_BYTE: Final = 32
HELD_PER_READ: Final = 8 * KIB
READ_BYTES_MIN: Final = 36
HEARTBEAT_BYTES_PER_S: Final = 4  # a PING and a PONG of 9 bytes each, every 5 s
SETTLE_S: Final = 0.25  # libzmq frees what an ended connection held a moment after its end


class TcpCounters(Struct, frozen=True):
    """What the kernel has counted of a connection, and whether it holds what it cannot send."""

    received_bytes: int
    acknowledged_bytes: int
    is_waiting: bool
    received_segments: int = 0


class Tally:
    """What one connection makes us hold, from one look to the next."""

    __slots__ = (
        "_acknowledged",
        "_base",
        "_drains",
        "_heard_at_s",
        "_heard_segments",
        "_taken_bytes",
        "held_bytes_max",
        "stalled_at_s",
        "unheard_bytes",
        "was_heard",
    )

    def __init__(self) -> None:
        self.was_heard = False  # a message of it was taken, and not yet found in a look
        self.unheard_bytes = 0  # sent to us and not taken, without heartbeats
        self.held_bytes_max = 0  # the most that libzmq can hold of them
        self._taken_bytes = 0  # of its messages
        self._base = 0  # what else it had sent when all of its messages were taken
        self._drains = 0  # of its endpoint, when a message of it was taken last
        self._heard_segments = self._acknowledged = 0
        self._heard_at_s: float | None = None
        self.stalled_at_s: float | None = None

    def take(self, size_bytes: int, drains: int) -> None:
        """Count a message that was taken.

        Args:
            size_bytes: as it was sent.
            drains: how often the endpoint has had nothing left to take.
        """
        self.was_heard = True
        self._taken_bytes += size_bytes
        self._drains = drains

    def look(self, seen: TcpCounters, now_s: float, drains: int) -> None:
        """Take what the kernel has counted, and `drains` as in `take`."""
        if self.was_heard and drains > self._drains:  # everything was taken
            self._base = seen.received_bytes - self._taken_bytes
            self._heard_segments = seen.received_segments
            self._heard_at_s, self.was_heard = now_s, False
        elif self._heard_at_s is None:
            self._heard_at_s = now_s
        heartbeat_bytes = int((now_s - self._heard_at_s) * HEARTBEAT_BYTES_PER_S)
        heard_bytes = self._base + self._taken_bytes + heartbeat_bytes
        self.unheard_bytes = max(seen.received_bytes - heard_bytes, 0)
        reads = min(
            seen.received_segments - self._heard_segments, self.unheard_bytes // READ_BYTES_MIN
        )
        self.held_bytes_max = HELD_PER_BYTE * self.unheard_bytes + HELD_PER_READ * reads
        if not seen.is_waiting or seen.acknowledged_bytes != self._acknowledged:
            self.stalled_at_s = None
        elif self.stalled_at_s is None:
            self.stalled_at_s = now_s
        self._acknowledged = seen.acknowledged_bytes


class Allowance:
    """What all connections that one guard watches make us hold."""

    def __init__(self) -> None:
        self._tallies: dict[int, Tally] = {}
        self._above: set[int] = set()  # their own bound of bytes
        self._stalled: set[int] = set()
        self._unheard_bytes = self.held_bytes_max = 0  # of all

    def accepted(self, key: int, tally: Tally) -> None:
        self.ended(key)
        self._tallies[key] = tally

    def ended(self, key: int) -> None:
        """Forget a connection, if it is known."""
        tally = self._tallies.pop(key, None)
        if tally is not None:
            self._unheard_bytes -= tally.unheard_bytes
            self.held_bytes_max -= tally.held_bytes_max
        self._above.discard(key)
        self._stalled.discard(key)

    def look(self, key: int, seen: TcpCounters, now_s: float, drains: int = 0) -> None:
        """Take what the kernel has counted of a connection; `drains` as in `Tally.take`."""
        tally = self._tallies[key]
        self._unheard_bytes -= tally.unheard_bytes
        self.held_bytes_max -= tally.held_bytes_max
        tally.look(seen, now_s, drains)
        self._unheard_bytes += tally.unheard_bytes
        self.held_bytes_max += tally.held_bytes_max
        for is_in, keys in (
            (tally.unheard_bytes > UNHEARD_BYTES_MAX, self._above),
            (tally.stalled_at_s is not None, self._stalled),
        ):
            keys.add(key) if is_in else keys.discard(key)

    def is_stalled(self, key: int) -> bool:
        """Whether a connection did not read what is sent, when it was looked at."""
        return key in self._stalled

    def to_be_cut(self, grown_bytes: int, now_s: float) -> list[int]:
        """The connections that are above their own bound, and the worst where all are above theirs.

        Args:
            grown_bytes: what the process holds more than it did while its connections held little.

        Returns:
            Connections, each once; they are forgotten.
        """
        cut: dict[int, None] = dict.fromkeys(self._above)
        stalled = sorted((self._stalled_for_s(key, now_s), key) for key in self._stalled)
        stalled = [one for one in stalled if one[0] >= STALLED_S_MIN]
        is_pressed = grown_bytes > GROWTH_BYTES_MAX
        most = 0 if is_pressed else STALLED_CONNECTIONS_MAX
        for place, (for_s, key) in enumerate(reversed(stalled)):
            if for_s > STALLED_S_MAX or place < len(stalled) - most:
                cut[key] = None
        for key in cut:
            self.ended(key)
        while self._unheard_bytes > UNHEARD_BYTES_MAX_TOGETHER or (
            is_pressed and self.held_bytes_max > HELD_BYTES_MAX
        ):
            worst = max(self._tallies, key=lambda key: self._tallies[key].held_bytes_max)
            self.ended(worst)
            cut[worst] = None
        return list(cut)

    def _stalled_for_s(self, key: int, now_s: float) -> float:
        stalled_at_s = self._tallies[key].stalled_at_s
        return 0.0 if stalled_at_s is None else now_s - stalled_at_s


class Growth:
    """How much more a process holds than its connections account for."""

    def __init__(self, resident_bytes: int) -> None:
        self._others_bytes = resident_bytes  # what is not of the connections
        self._calm_at_s = self._settled_at_s = float("-inf")

    def look(self, resident_bytes: int, held_bytes_max: int, now_s: float) -> int:
        """Take what the process holds, and the most that its connections can; give its growth."""
        if held_bytes_max > CALM_BYTES_MAX:
            self._calm_at_s = now_s + SETTLE_S
        grown_bytes = resident_bytes - self._others_bytes
        if grown_bytes <= GROWTH_BYTES_MAX:
            self._settled_at_s = now_s + SETTLE_S
        return grown_bytes

    def is_settled(self, now_s: float) -> bool:
        """Whether what ended connections held is free, so that `settle` is due."""
        return now_s >= min(self._calm_at_s, self._settled_at_s)

    def settle(self, resident_bytes: int, held_bytes_max: int) -> None:
        """Take what the process holds without freed memory: the rest is not of the connections."""
        if held_bytes_max <= CALM_BYTES_MAX:
            self._others_bytes = resident_bytes
        else:
            self._others_bytes = max(self._others_bytes, resident_bytes - held_bytes_max)


class Bucket:
    """Bytes, or connections, that may come: a number at once, and then a number per second.

    More may be taken than is left. The debt is paid by the time that passes.
    """

    __slots__ = ("_at_s", "_left", "_most", "_per_s")

    def __init__(self, most: int, per_s: int, now_s: float) -> None:
        self._most, self._per_s = most, per_s
        self._left, self._at_s = float(most), now_s

    def left(self, now_s: float) -> float:
        """What is left; below 0 is a debt."""
        refilled = self._left + (now_s - self._at_s) * self._per_s
        self._left, self._at_s = min(refilled, float(self._most)), now_s
        return self._left

    def used(self, now_s: float) -> float:
        """What was taken and is not refilled yet."""
        return self._most - self.left(now_s)

    def take(self, amount: int, now_s: float) -> None:
        """Take so much, whether it is there or not."""
        self.left(now_s)
        self._left -= amount

    def paid_in_s(self, now_s: float) -> float:
        """Seconds until a debt is paid."""
        return max(-self.left(now_s) / self._per_s, 0.0)


class Said:
    """What one connection has said on a push endpoint."""

    __slots__ = ("_bucket", "_received")

    def __init__(self, now_s: float) -> None:
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
        self._bucket = Bucket(SAID_BYTES_MAX_TOGETHER, SAID_BYTES_PER_S_TOGETHER, now_s)

    def accepted(self, now_s: float) -> Said:
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
