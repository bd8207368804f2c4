"""The disk of the proxy, in memory: what `proxy/store.py` keeps, and nothing that is not durable.

A commit is all or nothing, as in SQLite. Readers see a commit as soon as it is durable, which is
before the loop thread hears of it: the real second connection does the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import astuple

from reliable_pubsub.common.core.actions import Pause, Resume
from reliable_pubsub.common.core.batch import whole_batches
from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.proxy.access.accounts import StoredCharge
from reliable_pubsub.proxy.access.records import Charged, ChargeForgotten
from reliable_pubsub.proxy.core.records import (
    Appended,
    Forgotten,
    Granted,
    TopicCreated,
    TopicDeleted,
    Trimmed,
)
from reliable_pubsub.proxy.core.state import Record
from reliable_pubsub.proxy.core.stored import (
    StoredPublisher,
    StoredSegment,
    StoredSession,
    StoredState,
    StoredSubscription,
    StoredTopic,
)
from reliable_pubsub.proxy.core.subscription_records import (
    ControlSeen,
    CursorMoved,
    Expired,
    Subscribed,
    Unsubscribed,
)
from reliable_pubsub.proxy.core.topic_log import Segment, add_to_segments
from reliable_pubsub.proxy.dead_letters.verbs import DeadLettered
from reliable_pubsub.proxy.groups.records import GroupChanged, GroupLetter
from reliable_pubsub.proxy.groups.state import StoredGroup, at_rest, subscription_of_group
from reliable_pubsub.proxy.operators.history import StoredAction, StoredPause
from reliable_pubsub.proxy.operators.records import Administered
from reliable_pubsub.proxy.patterns.index import StoredPattern
from reliable_pubsub.proxy.patterns.records import PatternEnded, PatternSubscribed
from reliable_pubsub.proxy.transactions.records import TransactionCommitted, TransactionForgotten
from reliable_pubsub.proxy.transactions.staging import StoredTransaction


@dataclass
class _Rows:
    """What is stored of one topic."""

    topic: str
    log: str
    start: int = 0
    end: int = 0
    timestamp_ns: int = 0
    batches: list[Appended] = field(default_factory=list)
    bases: list[int] = field(default_factory=list)  # of the same batches, for bisection
    publishers: dict[tuple[str, int], StoredPublisher] = field(default_factory=dict)  # and level
    subscriptions: dict[str, StoredSubscription] = field(default_factory=dict)
    groups: dict[str, StoredGroup] = field(default_factory=dict)
    deleted: bool = False


class SimulatedStore:
    """Durable records. Implements `storage.BatchReader`."""

    def __init__(
        self,
        on_commit: Callable[[Sequence[Record]], None],
        on_rollback: Callable[[Sequence[Record]], None] = lambda _: None,
    ) -> None:
        """Begin empty.

        Args:
            on_commit: called with every record that has become durable.
            on_rollback: called with every record that is gone.
        """
        self._on_commit = on_commit
        self._on_rollback = on_rollback
        self._committed: list[Sequence[Record]] = []
        self.commits = 0
        self._forget_all()

    def _forget_all(self) -> None:
        self._topics: dict[int, _Rows] = {}
        self._sessions: dict[tuple[str, str], StoredSession] = {}
        self._transactions: dict[str, StoredTransaction] = {}
        self._epoch_floor = self._generation_floor = 0
        self._patterns: dict[tuple[str, Pattern], StoredPattern] = {}
        self._charges: dict[tuple[str, str], StoredCharge] = {}
        self._actions: list[StoredAction] = []
        self._paused: str | None = None

    is_full = False  # that it is, the simulated committer decides

    def commit(self, records: Sequence[Record]) -> None:
        """Make records durable, all of them."""
        for record in records:
            self._write(record)
        self.commits += 1
        self._committed.append(records)
        self._on_commit(records)

    def appended(self) -> Iterator[Appended]:
        """Every batch that has become durable, also what was removed since."""
        for records in self._committed:
            yield from (one for one in records if isinstance(one, Appended))

    def roll_back(self, commits: int) -> None:
        """Become the copy that was made before the last `commits` commits."""
        keep = max(len(self._committed) - commits, 0)
        kept, gone = self._committed[:keep], self._committed[keep:]
        self._committed = kept
        self._forget_all()
        for records in kept:
            for record in records:
                self._write(record)
        self._on_rollback([record for records in gone for record in records])

    def _write(self, record: Record) -> None:
        if isinstance(record, GroupLetter | GroupChanged):
            self._write_of_group(record)
        elif isinstance(record, PatternSubscribed | PatternEnded):
            self._write_pattern(record)
        else:
            self._write_other(record)

    def _write_other(self, record: Record) -> None:
        match record:
            case TopicCreated(topic_id, topic, log):
                assert topic_id not in self._topics, f"topic number {topic_id} is used twice"
                self._topics[topic_id] = _Rows(topic, log)
            case Appended():
                self._append(self._topics[record.topic_id], record)
            case DeadLettered(letter, moved):
                self._append(self._topics[letter.topic_id], letter)
                self._write_subscription(moved)
            case CursorMoved() | Expired():
                self._write_subscription(record)
            case Subscribed() | Unsubscribed():
                self._write_subscription(record)
                self._write_session(record)
            case Granted() | ControlSeen():
                self._write_session(record)
            case Forgotten():
                self._forget(record)
            case Administered():
                self._administer(record)
            case Trimmed() | TopicDeleted():
                self._remove(self._topics[record.topic_id], record)
            case _:
                self._write_of_client(record)

    def _write_of_client(self, record: Record) -> None:
        match record:
            case Charged(kind, name):
                self._charges[kind, name] = StoredCharge(*astuple(record))
            case ChargeForgotten(kind, name):
                del self._charges[kind, name]
            case TransactionCommitted(client):
                self._transactions[client] = StoredTransaction(*astuple(record))
            case TransactionForgotten(client):
                del self._transactions[client]

    def _remove(self, rows: _Rows, record: Trimmed | TopicDeleted) -> None:
        if isinstance(record, TopicDeleted):
            rows.deleted = not record.is_back
            return
        gone = sum(batch.base < record.start for batch in rows.batches)
        del rows.batches[:gone], rows.bases[:gone]
        rows.start, rows.end = record.start, max(record.end, rows.end)
        rows.timestamp_ns = max(record.timestamp_ns, rows.timestamp_ns)

    def _write_pattern(self, record: PatternSubscribed | PatternEnded) -> None:
        key = (record.subscriber, record.pattern)
        if isinstance(record, PatternEnded):
            del self._patterns[key]
        else:
            self._patterns[key] = StoredPattern(*key, record.terms, record.reader)
        self._write_session(record)

    def _write_session(
        self,
        record: Granted
        | ControlSeen
        | Subscribed
        | Unsubscribed
        | PatternSubscribed
        | PatternEnded,
    ) -> None:
        if isinstance(record, Granted):
            role, client, control = record.role, record.client, 0
        else:
            role, client, control = "subscriber", record.subscriber, record.control
        self._sessions[(role, client)] = StoredSession(
            role, client, record.epoch, record.nonce, control
        )

    def _administer(self, record: Administered) -> None:
        self._actions.append(StoredAction(*astuple(record)))
        match record.action:
            case Pause(reason=reason):
                self._paused = reason
            case Resume():
                self._paused = None

    def _write_of_group(self, record: GroupLetter | GroupChanged) -> None:
        if isinstance(record, GroupLetter):
            self._append(self._topics[record.letter.topic_id], record.letter)
            return
        rows, name = self._topics[record.topic_id], record.subscriber
        rows.subscriptions[name] = StoredSubscription(
            name, record.generation, record.cursor, not record.ends, record.cursor
        )
        rows.groups.pop(record.group, None)
        if not record.ends:
            head, runs = (record.topic_id, record.group, record.terms), at_rest(record.runs)
            rows.groups[record.group] = StoredGroup(*head, runs, record.members, record.lost)

    def _forget(self, record: Forgotten) -> None:
        key: Any = record.key
        if record.kind == "session":
            del self._sessions[key]
            self._epoch_floor = max(record.floor, self._epoch_floor)
        elif record.kind == "subscription":
            del self._topics[key[0]].subscriptions[key[1]]
            self._generation_floor = max(record.floor, self._generation_floor)
        else:
            del self._topics[key[0]].publishers[key[1:]]

    def _append(self, rows: _Rows, batch: Appended) -> None:
        assert batch.base == rows.end, (
            f"the disk ends at {rows.end}, a batch begins at {batch.base}"
        )
        rows.batches.append(batch)
        rows.bases.append(batch.base)
        rows.end = batch.end
        rows.timestamp_ns = batch.timestamp_ns
        rows.publishers[(batch.publisher, batch.qos)] = StoredPublisher(
            batch.publisher, batch.first_sequence, batch.count, batch.base, batch.crc, batch.qos
        )

    def _write_subscription(
        self, record: CursorMoved | Expired | Subscribed | Unsubscribed
    ) -> None:
        client, terms = record.subscriber, record.terms
        expired = isinstance(record, Expired)
        ended = isinstance(record, Unsubscribed) or (expired and terms.session == "clean")
        before = self._topics[record.topic_id].subscriptions.get(client)
        moved = before.moved if before else ""
        if isinstance(record, Subscribed):
            moved = record.moved
        elif (ended and terms.session == "clean") or (
            isinstance(record, CursorMoved) and record.takes
        ):
            moved = ""
        self._topics[record.topic_id].subscriptions[client] = StoredSubscription(
            client,
            record.generation,
            record.cursor,
            not ended,
            record.shown
            if isinstance(record, CursorMoved | Subscribed)
            else max(record.shown, record.cursor),
            terms,
            expired,
            moved,
            record.skipped
            if isinstance(record, Subscribed)
            else before.skipped
            if before
            else None,
        )

    def state(self) -> StoredState:
        """What a broker begins with."""
        topics = [
            StoredTopic(
                topic_id,
                rows.topic,
                rows.log,
                rows.start,
                rows.end,
                rows.timestamp_ns,
                _segments(rows.batches),
                list(rows.publishers.values()),
                list(rows.subscriptions.values()),
                rows.deleted,
            )
            for topic_id, rows in self._topics.items()
        ]
        return StoredState(
            "store",
            topics,
            list(self._sessions.values()),
            self._epoch_floor,
            self._generation_floor,
            {
                StoredGroup: [
                    one for rows in self._topics.values() for one in rows.groups.values()
                ],
                StoredTransaction: list(self._transactions.values()),
                StoredAction: list(self._actions),
                StoredPause: [] if self._paused is None else [StoredPause(self._paused)],
                StoredPattern: list(self._patterns.values()),
                StoredCharge: list(self._charges.values()),
            },
        )

    def end(self, topic: str) -> int:
        """Where the durable log of a topic ends."""
        return next((rows.end for rows in self._topics.values() if rows.topic == topic), 0)

    def group_is_untold(self, topic: str, group: str) -> bool:
        """Whether a group has lost messages, and no member is known to have heard of it."""
        return any(
            rows.topic == topic and group in rows.groups and bool(rows.groups[group].lost)
            for rows in self._topics.values()
        )

    def group_cursor(self, topic: str, group: str) -> int:
        """Where the first message of a group is that has not ended; -1: there is no such group."""
        name = subscription_of_group(group)
        for rows in self._topics.values():
            if rows.topic == topic and group in rows.groups:
                return rows.subscriptions[name].cursor
        return -1

    def batches(self, topic_id: int) -> Sequence[Appended]:
        """All that is left of a log."""
        return self._topics[topic_id].batches

    def read(
        self, topic_id: int, offset: int, *, messages_max: int, bytes_max: int
    ) -> Sequence[Appended]:
        rows = self._topics.get(topic_id)
        if rows is None:
            return ()
        first = max(bisect_right(rows.bases, offset) - 1, 0)
        pairs = ((batch, batch.body) for batch in rows.batches[first:])
        found = whole_batches(pairs, offset, messages_max=messages_max, bytes_max=bytes_max)
        return [batch for batch, _ in found]

    def timestamp_ns(self, topic_id: int, offset: int) -> int | None:
        rows = self._topics.get(topic_id)
        for batch in reversed(rows.batches if rows else ()):
            if batch.base <= offset:
                return batch.timestamp_ns if offset < batch.end else None
        return None

    def first_since(self, topic_id: int, base: int, end: int, timestamp_ns: int) -> int | None:
        rows = self._topics.get(topic_id)
        for batch in rows.batches if rows else ():
            if base <= batch.base < end and batch.timestamp_ns >= timestamp_ns:
                return batch.base
        return None

    def find(self, topic_id: int, publisher: str, sequence: int) -> Appended | None:
        rows = self._topics.get(topic_id)
        for batch in reversed(rows.batches if rows else ()):
            if batch.publisher == publisher and batch.first_sequence <= sequence:
                return batch if sequence <= batch.last_sequence else None
        return None


def _segments(batches: Sequence[Appended]) -> list[StoredSegment]:
    """Count the segments, as `check.py` does at the start."""
    segments: deque[Segment] = deque()
    for batch in batches:
        size, publisher = len(batch.body), batch.publisher
        add_to_segments(segments, batch.base, batch.end, size, batch.timestamp_ns, publisher)
    return [segment.value for segment in segments]
