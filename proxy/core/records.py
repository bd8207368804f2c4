"""The records of topics and sessions, and the decision that makes records. Pure.

The records of subscriptions are in `subscription_records.py`, those of a feature with the feature.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import Struct

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.answers import AnyReply
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.names import is_unique_id

from .batches import LogBatch
from .lines import Lines, seen_in
from .rows import FLOORS, Writes, row_crc, row_key
from .schema import (
    DELETED_TOPIC,
    META,
    MOVED_SUBSCRIPTION,
    PUBLISHER,
    SESSION,
    SKIPPED_RANGE,
    SUBSCRIPTION,
    TOPIC,
)
from .state import Record, State
from .stored import ForgottenKind
from .subscriptions import Session
from .topic_log import CutBytes, TopicLog


class Decision(Struct, frozen=True, gc=False):
    """The reply, the records to make durable, and when the reply may leave."""

    reply: AnyReply
    records: tuple[Record, ...] = ()
    visible_at: int = 0  # the reply leaves once this record number is durable
    body: bytes | None = None
    is_empty: bool = False  # there is nothing yet, so a request with `wait_ms` is kept


class TopicCreated(Record, frozen=True, gc=False):
    """A topic is created, by its first SUB or PUT."""

    topic_id: int  # 1, 2, 3, ...; never reused
    topic: str
    log: str  # log id

    def apply(self, state: State) -> None:
        """Create the topic, without messages."""
        retention = state.retention(self.topic)
        log = TopicLog(self.topic_id, self.topic, self.log, retention, lsn=state.lsn)
        state.topics[self.topic] = state.topic_by_id[self.topic_id] = log
        state.last_topic_id = self.topic_id
        for created in state.hooks.created:
            created(state, log)

    def store(self, writes: Writes) -> None:
        """Add a row without messages."""
        writes.topics[self.topic_id] = (self.topic, self.log)
        writes.rows[TOPIC][self.topic_id,] = (self.topic_id, self.topic, self.log, 0, 0, 0)

    def describe(self, lines: Lines) -> None:
        """Write its name and log."""
        lines.topics[self.topic_id] = self.topic
        lines.line(journal.CreatedLine, topic=self.topic, log=self.log)


class TopicDeleted(Record, frozen=True, gc=False):
    """An empty topic is deleted; or (`is_back`) created again where it ended."""

    topic_id: int
    is_back: bool = False

    def apply(self, state: State) -> None:
        """Hide the topic, or show it again."""
        topic = state.topic_by_id[self.topic_id].topic
        if self.is_back:
            state.deleted_topics.discard(topic)
        else:
            state.deleted_topics.add(topic)
            for gone in state.hooks.gone:
                gone(state, None, topic)
        state.interest_changed()

    def store(self, writes: Writes) -> None:
        """Mark the topic as deleted, or remove the mark."""
        writes.rows[DELETED_TOPIC][self.topic_id,] = None if self.is_back else (self.topic_id,)


class Appended(LogBatch, Record, frozen=True, gc=False):
    """One batch is appended to its topic."""

    @property
    def batch(self) -> LogBatch:
        """Itself."""
        return self

    def apply(self, state: State) -> None:
        """Append the batch; it becomes readable when it is durable."""
        append(state, self)

    def store(self, writes: Writes) -> None:
        """Add the batch, and what later puts of its publisher are compared with."""
        store_batch(writes, self)

    def describe(self, lines: Lines) -> None:
        """Write its messages, without their payloads."""
        topic, messages = lines.topics[self.topic_id], seen_in(self)
        lines.line(journal.StoredLine, topic=topic, epoch=self.epoch, messages=messages)


def append(state: State, batch: LogBatch) -> None:
    """Append a batch to its topic, also one that is a part of another record."""
    log = state.topic_by_id[batch.topic_id]
    log.append(batch, state.lsn, state.local_ns)
    state.newest_ns = max(state.newest_ns, batch.timestamp_ns)
    for stored in state.hooks.stored:
        stored(state, log, batch.publisher, len(batch.body))
    if batch.qos == 1:
        state.index_ended(log)
        return
    if batch.publisher not in state.numbered:
        state.numbered.add(batch.publisher)
        state.index_session("publisher", batch.publisher)
    topics = state.unique_numbers.get(batch.publisher)
    if topics is not None:
        topics.add(batch.topic_id)


def store_batch(writes: Writes, batch: LogBatch) -> None:
    """Add the rows of a batch, also of one that is a part of another record."""
    topic_id, publisher, base, count = batch.topic_id, batch.publisher, batch.base, batch.count
    first, crc, qos = batch.first_sequence, batch.crc, batch.qos
    columns = (topic_id, base, count, publisher, batch.epoch, first, batch.timestamp_ns, crc, qos)
    row = (row_key(topic_id, base), *columns, row_crc(*columns), batch.body)
    writes.batches.append(row)
    newest = (topic_id, publisher, first, count, base, crc, qos)
    writes.rows[PUBLISHER][topic_id, publisher, qos] = newest


class LetterStored(Record, frozen=True, gc=False):
    """A dead letter is stored, for a message whose end is recorded in the same decision."""

    letter: Appended

    @property
    def body(self) -> bytes:
        """The body of the dead letter."""
        return self.letter.body

    @property
    def batch(self) -> LogBatch:
        """The dead letter."""
        return self.letter

    def apply(self, state: State) -> None:
        """Append the dead letter."""
        append(state, self.letter)

    def store(self, writes: Writes) -> None:
        """Add the dead letter."""
        store_batch(writes, self.letter)


class Granted(Record, frozen=True, gc=False):
    """A client was granted a new epoch."""

    role: Role
    client: str
    epoch: int
    nonce: bytes

    def apply(self, state: State) -> None:
        """Begin the session."""
        session = Session(self.epoch, self.nonce, 0, state.lsn)
        state.sessions[self.role, self.client] = session
        if self.role == "publisher" and is_unique_id(self.client):
            state.unique_numbers.setdefault(self.client, set())
        state.index_session(self.role, self.client)

    def store(self, writes: Writes) -> None:
        """Replace the session."""
        row = (self.role, self.client, self.epoch, self.nonce, 0)
        writes.rows[SESSION][self.role, self.client] = row

    def describe(self, lines: Lines) -> None:
        """Write the epoch."""
        lines.line(journal.GrantedLine, role=self.role, client=self.client, epoch=self.epoch)


_FORGOTTEN: Final = {"session": SESSION, "subscription": SUBSCRIPTION, "publisher": PUBLISHER}


class Forgotten(Record, frozen=True, gc=False):
    """An entry that can no longer have an effect is removed (rule R26).

    It is an id without subscriptions or numbers, an ended subscription, or a QoS 1 publisher; at an
    operator's request also the numbers of a publisher.
    """

    urgent: ClassVar[bool] = False
    kind: ForgottenKind
    key: tuple[int | str, ...]  # of its row in the store
    floor: int = 0  # epochs, or generations, up to this one are not granted to unknown ids

    def apply(self, state: State) -> None:
        """Remove the entry."""
        key: Any = self.key
        match self.kind:
            case "session":
                self._forget_session(state, *key)
            case "subscription":
                log = state.topic_by_id[key[0]]
                del log.subscriptions[key[1]]
                log.index_subscription(key[1])
                state.generation_floor = max(state.generation_floor, self.floor)
                state.index_ended(log)
            case "publisher":
                log = state.topic_by_id[key[0]]
                del (log.unnumbered if key[2] == 1 else log.publishers)[key[1]]
                state.index_ended(log)

    def _forget_session(self, state: State, role: Role, client: str) -> None:
        del state.sessions[role, client]
        state.idle_sessions.pop((role, client), None)
        if role == "subscriber":
            state.leases.forget(client)
        else:
            state.numbered.discard(client)
            state.unique_numbers.pop(client, None)
        for gone in state.hooks.gone:
            gone(state, role, client)
        if self.floor > state.epoch_floor:
            state.epoch_floor, state.epoch_floor_lsn = self.floor, state.lsn

    def store(self, writes: Writes) -> None:
        """Remove its row, and keep the floor."""
        writes.rows[_FORGOTTEN[self.kind]][self.key] = None
        if self.kind == "subscription":
            writes.rows[MOVED_SUBSCRIPTION][self.key] = None
            writes.rows[SKIPPED_RANGE][self.key] = None
        name = FLOORS.get(self.kind)
        if name is not None and self.floor:
            before = writes.rows[META].get((name,))
            floor = max(self.floor, int(before[1]) if before else 0)
            writes.rows[META][name,] = (name, str(floor))


class Trimmed(Record, frozen=True, gc=False):
    """A topic now begins at `start`; lower offsets are removed."""

    urgent: ClassVar[bool] = False
    topic_id: int
    start: int
    end: int  # of the topic, kept because the last batch may be among the removed
    timestamp_ns: int  # of the newest batch, for the same reason
    # What goes of the first segment that stays; not stored, counted again at the next start.
    cut_batches: int = 0
    cut_bytes: CutBytes = ()

    def apply(self, state: State) -> None:
        """Remove the oldest messages of the topic."""
        log = state.topic_by_id[self.topic_id]
        for stored in state.hooks.stored:
            for publisher, size_bytes in log.bytes_below(self.start, self.cut_bytes).items():
                stored(state, log, publisher, -size_bytes)
        cut_batches, cut_bytes = self.cut_batches, self.cut_bytes
        log.trim(self.start, state.lsn, cut_batches=cut_batches, cut_bytes=cut_bytes)

    def has_become_durable(self, state: State) -> None:
        """Forget the segments that are no longer on disk."""
        state.topic_by_id[self.topic_id].trims_durable(state.durable_lsn)

    def store(self, writes: Writes) -> None:
        """Remove the batches below the start; also those that this commit appends."""
        topic_id, start = self.topic_id, self.start
        places = (row_key(topic_id, 0), row_key(topic_id, start))
        writes.last.append(("DELETE FROM batch WHERE place >= ? AND place < ?", places))
        row = (topic_id, *writes.topics[topic_id], start, self.end, self.timestamp_ns)
        writes.rows[TOPIC][topic_id,] = row

    def describe(self, lines: Lines) -> None:
        """Write the new start."""
        lines.line(journal.TrimmedLine, topic=lines.topics[self.topic_id], start=self.start)


def trimmed_to(log: TopicLog, start: int) -> Trimmed:
    """Return the record that lets a topic begin at `start`."""
    return Trimmed(log.topic_id, start, log.end, log.timestamp_ns)
