"""What waits for the disk: records, and the answers that report them. Bounded (rule R27). Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct

from reliable_pubsub.common.core.answers import AnyReply
from reliable_pubsub.common.core.batch import ENTRY_BYTES
from reliable_pubsub.common.core.limits import (
    BODY_BYTES_MAX,
    CACHE_BYTES_MAX,
    HELD_REQUESTS_MAX,
    MIB,
)
from reliable_pubsub.common.core.message_base import Role

from .outputs import Work
from .records import Record

UNWRITTEN_BYTES_MAX: Final = 16 * MIB  # above it puts, and a `snapshot` ACK, wait for the disk
assert UNWRITTEN_BYTES_MAX + BODY_BYTES_MAX < CACHE_BYTES_MAX  # so all of it can be read


class EngineTiming(Struct, frozen=True, kw_only=True):
    """How long the engine waits, in seconds."""

    lazy_s: float = 0.1  # how long a cursor that came with a GET may wait to be written
    disk_patience_s: float = 1.0  # a reply that waits longer is replaced by BUSY


class HeldAnswer(Struct, frozen=True):
    """An answer that waits for the disk."""

    visible_at: int  # number of the record that must be durable first
    since_s: float
    reply_to: Any
    reply: AnyReply
    frames: list[bytes]  # encoded while the disk is busy


class Backlog:
    """The answers and records of one engine that wait for the disk."""

    def __init__(self) -> None:
        """Nothing waits."""
        self.answers: deque[HeldAnswer] = deque()
        self.applied: list[Record] = []  # and not handed to the store
        self.is_urgent = False  # an answer waits for one of them
        self._lazy_at_s: float | None = None  # when they are handed over although none does
        self._unwritten: deque[tuple[int, int]] = deque()  # record number, bytes up to it
        self.unwritten_bytes = 0

    def takes_more(self, role: Role) -> bool:
        """Whether an endpoint is read on; if not, its requests wait in ZeroMQ for a commit.

        Subscribers have twice the room, so that puts do not keep gets out.
        """
        shares = 1 if role == "publisher" else 2
        return (
            len(self.answers) < shares * HELD_REQUESTS_MAX
            and self.unwritten_bytes <= shares * UNWRITTEN_BYTES_MAX
        )

    @property
    def is_readable(self) -> bool:
        """Whether so little is not written that all of it can be read from memory."""
        return self.unwritten_bytes <= UNWRITTEN_BYTES_MAX

    def add(self, records: Sequence[Record], lsn: int) -> None:
        """Records were applied; `lsn` is the number of the last one."""
        size = 0
        for one in records:
            size += ENTRY_BYTES + len(getattr(one, "body", b""))
            self.is_urgent = self.is_urgent or one.urgent
        self.applied.extend(records)
        self._unwritten.append((lsn, size))
        self.unwritten_bytes += size

    def work(self, lsn: int) -> Work:
        """Hand the applied records over; `lsn` is the number of the last one."""
        work = Work(self.applied, lsn)
        self.applied, self.is_urgent = [], False
        return work

    def is_lazy_due(self, now_s: float, lazy_s: float) -> bool:
        """Whether records wait, for `lazy_s` since this was asked first."""
        if not self.applied:
            self._lazy_at_s = None
        elif self._lazy_at_s is None:
            self._lazy_at_s = now_s + lazy_s
        return self._lazy_at_s is not None and now_s >= self._lazy_at_s

    def written(self, lsn: int) -> None:
        """The store has every record up to `lsn`."""
        while self._unwritten and self._unwritten[0][0] <= lsn:
            self.unwritten_bytes -= self._unwritten.popleft()[1]

    def discard(self) -> None:
        """The records will not be written."""
        self.applied, self.is_urgent = [], False
        self._unwritten.clear()
        self.unwritten_bytes = 0
