"""Staged batches: those of uncommitted transactions, in memory, bounded.

A transaction is identified by its writer and the writer's number for it. Each of its tasks has one
or more attempts, each a list of batches. COMMIT names the attempts that count. Why in memory:
docs/decisions/0017.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import takewhile

from msgspec import Struct

from reliable_pubsub.common.core.limits import STAGED_BATCH_BYTES
from reliable_pubsub.common.core.transaction_messages import Part, TopicReceipt

TaskAttempt = tuple[int, bytes]  # task and its attempt


class StagedBatch(Struct, frozen=True, gc=False):
    """A batch of a transaction that is not committed."""

    client: str
    transaction: int
    task: int
    attempt: bytes
    chunk: int
    topic: str
    count: int
    crc: int
    first_sequence: int | None
    staged_s: float  # by the clock of leases
    body: bytes
    instead_of: tuple[tuple[int, bytes], ...] = ()  # tasks and attempts dropped to make room


class StoredTransaction(Struct, frozen=True, gc=False):
    """The last transaction that a publisher has committed."""

    client: str
    transaction: int
    digest: bytes  # of its content, computed by the writer; empty: not sent
    receipts: tuple[TopicReceipt, ...]


@dataclass(slots=True)
class LastTransaction:
    """The last transaction that a publisher has committed."""

    transaction: int
    digest: bytes
    receipts: tuple[TopicReceipt, ...]
    lsn: int  # its record number; 0: durable since the start


@dataclass(slots=True)
class StagedTransaction:
    """One transaction that is not committed."""

    touched_s: float = 0.0  # by the clock of leases, of its last STAGE
    held_bytes: int = 0
    attempts: dict[TaskAttempt, list[StagedBatch]] = field(
        default_factory=dict
    )  # in the order in which they began

    def batches(self, part: Part) -> Sequence[StagedBatch] | None:
        """The batches that COMMIT names; None if some are missing."""
        staged = self.attempts.get((part.task, part.attempt), [])
        return staged if len(staged) == part.chunks else None

    def superseded(self, current: TaskAttempt) -> Iterator[tuple[TaskAttempt, int]]:
        """Attempts with a newer one of the same task, the oldest first, with their bytes.

        COMMIT may still name an older attempt, when two race; so one is dropped only for lack of
        room.

        Args:
            current: the attempt that needs room; it is kept.
        """
        newest = dict(self.attempts.keys())  # by task
        newest[current[0]] = current[1]
        for key, staged in self.attempts.items():
            task, attempt = key
            if newest[task] != attempt and key != current:
                yield key, sum(map(held_bytes, staged))


class Staging:
    """Everything that is staged, and what each publisher has committed last."""

    def __init__(self) -> None:
        self.last: dict[str, LastTransaction] = {}  # by publisher
        self.held_bytes = 0
        self._open: dict[tuple[str, int], StagedTransaction] = {}  # the most recently used last
        self._numbers: dict[str, set[int]] = {}  # of the same, by client
        self._bytes_of: dict[str, int] = {}

    @property
    def transactions(self) -> int:
        """How many transactions have something staged."""
        return len(self._open)

    @property
    def batches(self) -> int:
        """How many batches are staged."""
        return sum(len(s) for one in self._open.values() for s in one.attempts.values())

    def of(self, client: str, transaction: int) -> StagedTransaction:
        """One transaction, empty if nothing is staged for it."""
        return self._open.get((client, transaction)) or StagedTransaction()

    @property
    def clients(self) -> Set[str]:
        """Who has something staged."""
        return self._numbers.keys()

    def bytes_of(self, client: str) -> int:
        """What is staged by one client."""
        return self._bytes_of.get(client, 0)

    def idle_since(self, before_s: float) -> list[tuple[str, int]]:
        """Client and number of transactions whose last STAGE was before a time."""
        idle = takewhile(lambda item: item[1].touched_s < before_s, self._open.items())
        return [key for key, _ in idle]

    def add(self, record: StagedBatch) -> None:
        key = (record.client, record.transaction)
        one = self._open[key] = self._open.pop(key, StagedTransaction())
        self._numbers.setdefault(record.client, set()).add(record.transaction)
        for attempt in record.instead_of:
            freed = sum(map(held_bytes, one.attempts.pop(attempt)))
            self._hold(record.client, one, -freed)
        staged = one.attempts.setdefault((record.task, record.attempt), [])
        assert record.chunk == len(staged), (record.chunk, len(staged))
        staged.append(record)
        one.touched_s = record.staged_s
        self._hold(record.client, one, held_bytes(record))

    def _hold(self, client: str, one: StagedTransaction, more_bytes: int) -> None:
        one.held_bytes += more_bytes
        self.held_bytes += more_bytes
        self._bytes_of[client] = self.bytes_of(client) + more_bytes

    def drop(self, client: str, transaction: int) -> None:
        one = self._open.pop((client, transaction), None)
        if one is not None:
            self._hold(client, one, -one.held_bytes)
            self._numbers[client].discard(transaction)
            if not self._numbers[client]:
                del self._numbers[client], self._bytes_of[client]

    def drop_up_to(self, client: str, transaction: int) -> None:
        """Drop a writer's transactions up to a number, which is committed."""
        for number in [one for one in self._numbers.get(client, ()) if one <= transaction]:
            self.drop(client, number)


def held_bytes(staged: StagedBatch) -> int:
    """Memory of a batch, including its entry."""
    return len(staged.body) + STAGED_BATCH_BYTES
