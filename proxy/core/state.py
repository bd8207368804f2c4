"""The state of one proxy, and the only ways in which it changes.

`apply` takes records, the same live and in the simulator; `committed` reports what is durable.
Records between the two change the state but are not shown to clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from msgspec import Struct

from reliable_pubsub.common.core.limits import (
    ENDED_CLEAN_MAX,
    ENDED_MAX,
    IDLE_SESSIONS_MAX,
    PUBLISHERS_PER_TOPIC_MAX,
    SESSIONS_MAX,
    SUBSCRIPTIONS_PER_TOPIC_MAX,
    TOPICS_MAX,
    UNNUMBERED_MAX,
)
from reliable_pubsub.common.core.messages import Role

from .lower_bounds import LowerBounds
from .records import (
    Appended,
    ControlSeen,
    CursorMoved,
    DeadLettered,
    Expired,
    Forgotten,
    Granted,
    Record,
    Staged,
    StoredSegment,
    StoredState,
    Subscribed,
    TopicCreated,
    TransactionCommitted,
    Trimmed,
    Unstaged,
    Unsubscribed,
    appended,
)
from .staging import LastTransaction, Staging
from .subscriptions import Session, Subscription
from .topic_log import Retention, TopicLog

# An older version granted any epoch. A higher one is kept, else it would become everyone's floor.
EPOCH_FORGOTTEN_MAX: Final = 2**62


class Memory(Struct, frozen=True, kw_only=True):
    """How many ended entries are kept of each kind; the oldest are removed first (R26)."""

    idle_sessions_max: int = IDLE_SESSIONS_MAX
    ended_max: int = ENDED_MAX  # of each topic, as the two below
    ended_clean_max: int = ENDED_CLEAN_MAX
    unnumbered_max: int = UNNUMBERED_MAX
    at_once_max: int = 1000  # removed in one turn


class BrokerSettings(Struct, frozen=True, kw_only=True):
    """What an operator may choose."""

    retention: Retention = Retention()
    topics: Mapping[str, Retention] = {}  # by name; the others have `retention`
    trim_interval_s: float = 0.25
    storage_retry_s: float = 1.0  # how long puts are refused after a full disk
    topics_max: int = TOPICS_MAX
    clients_max: int = SESSIONS_MAX
    subscriptions_per_topic_max: int = SUBSCRIPTIONS_PER_TOPIC_MAX
    publishers_per_topic_max: int = PUBLISHERS_PER_TOPIC_MAX
    memory: Memory = Memory()


class State:
    """Topics, subscriptions and sessions of one proxy."""

    def __init__(self, stored: StoredState, settings: BrokerSettings) -> None:
        """Create the state from the stored one, all of which is durable."""
        self._settings = settings
        self.store_id = stored.store_id
        self.topics: dict[str, TopicLog] = {
            s.topic: TopicLog.restore(s, self.retention(s.topic)) for s in stored.topics
        }
        self._by_id = {log.topic_id: log for log in self.topics.values()}
        self.last_topic_id = max(self._by_id, default=0)
        self.sessions: dict[tuple[Role, str], Session] = {
            (s.role, s.client): Session(s.epoch, s.nonce, s.control, 0) for s in stored.sessions
        }
        self.epoch_floor = stored.epoch_floor
        self.epoch_floor_lsn = 0  # the record that raised it last
        self.generation_floor = stored.generation_floor
        self.staging = Staging()
        self.last_transactions = {
            one.client: LastTransaction(one.transaction, one.digest, one.receipts, 0)
            for one in stored.transactions
        }
        self.lsn = 0  # number of the newest record
        self.durable_lsn = 0
        self._undurable: deque[tuple[int, Record]] = deque()
        self._leased: LowerBounds[tuple[int, str]] = LowerBounds()  # by when they end
        self._live: dict[str, dict[int, None]] = {}  # by subscriber: topics it is subscribed to
        self._numbered = {name for log in self.topics.values() for name in log.publishers}
        self._numbered |= self.last_transactions.keys()
        self._idle: dict[
            tuple[Role, str], None
        ] = {}  # sessions without effect, the most recently used last
        for role, client in self.sessions:
            self._look_at_session(role, client)
        self._crowded: set[int] = set()  # topics with more ended entries than are kept
        for log in self.topics.values():
            for name in log.subscriptions:
                self._look_at(log, name)
            self._look_at_memory(log)
        self._touched: set[int] = set(self._by_id)  # topics in which retention may find work
        self._ages: LowerBounds[int] = LowerBounds()  # the others, by when their oldest is too old
        self._apply: Mapping[type[Any], Callable[[Any], None]] = {
            TopicCreated: self._apply_topic_created,
            Appended: self._apply_appended,
            Granted: self._apply_granted,
            Subscribed: self._apply_subscribed,
            Unsubscribed: self._apply_unsubscribed,
            ControlSeen: self._apply_control,
            CursorMoved: self._apply_cursor_moved,
            Forgotten: self._apply_forgotten,
            DeadLettered: self._apply_dead_lettered,
            Expired: self._apply_expired,
            Trimmed: self._apply_trimmed,
            Staged: self.staging.add,
            Unstaged: self._apply_unstaged,
            TransactionCommitted: self._apply_transaction,
        }

    def retention(self, topic: str) -> Retention:
        """The retention settings of a topic."""
        return self._settings.topics.get(topic, self._settings.retention)

    def apply(self, records: Sequence[Record]) -> None:
        """Change the state."""
        for record in records:
            self.lsn += 1
            self._apply[type(record)](record)
            self._undurable.append((self.lsn, record))

    def committed(self, lsn: int) -> list[Appended]:
        """The store has every record up to `lsn`; return the batches that become readable."""
        assert self.durable_lsn <= lsn <= self.lsn, (self.durable_lsn, lsn, self.lsn)
        self.durable_lsn = lsn
        batches: list[Appended] = []
        while self._undurable and self._undurable[0][0] <= lsn:
            _, record = self._undurable.popleft()
            batch = appended(record)
            if batch is not None:
                self._by_id[batch.topic_id].durable_end = batch.end
                self._touched.add(batch.topic_id)
                batches.append(batch)
            if isinstance(record, DeadLettered):
                self._apply_durable_cursor(record.moved)
            elif isinstance(record, CursorMoved | Subscribed):
                self._apply_durable_cursor(record)
            elif isinstance(record, Trimmed):
                self._by_id[record.topic_id].gone(lsn)
        return batches

    def topic_with(self, topic_id: int) -> TopicLog:
        """The topic of a record."""
        return self._by_id[topic_id]

    def topic_of(self, batch: Appended) -> TopicLog:
        """The topic of a batch."""
        return self._by_id[batch.topic_id]

    def expired(self, now_ns: int) -> Sequence[Trimmed]:
        """The trims that retention makes now, in topics that have changed or aged."""
        records: list[Trimmed] = []
        touched, self._touched = self._touched, set()
        touched.update(self._ages.take_below(now_ns, lambda one: self._by_id[one].ages_at_ns))
        for topic_id in sorted(touched):
            log = self._by_id[topic_id]
            trimmed = log.expired(now_ns)
            ages_at_ns = log.ages_at_ns
            if trimmed is not None:
                records.append(trimmed)
                self._touched.add(topic_id)  # one record removes only so much
            elif ages_at_ns is not None and ages_at_ns >= now_ns:
                self._ages.add(topic_id, ages_at_ns)
            # Else a subscription keeps the old segment; its acknowledgement touches the topic.
        return records

    def forgotten(self) -> Sequence[Forgotten]:
        """Ended entries without effect beyond the number that is kept (rule R26).

        Only durable ones: a crash must not bring back an entry that a client saw as removed.
        """
        records = [*self._forgotten_sessions()]
        for topic_id in sorted(self._crowded):
            records += self._forgotten_of(self._by_id[topic_id])
        return records[: self._settings.memory.at_once_max]

    def _forgotten_sessions(self) -> Iterator[Forgotten]:
        excess = len(self._idle) - self._settings.memory.idle_sessions_max
        idle = (one for one in self._idle if self.sessions[one].epoch <= EPOCH_FORGOTTEN_MAX)
        for key in islice(idle, min(max(excess, 0), self._settings.memory.at_once_max)):
            if self.sessions[key].lsn <= self.durable_lsn:
                yield self.session_forgotten(*key)

    def session_forgotten(self, role: Role, client: str) -> Forgotten:
        """The record that removes an id; its epochs and lower ones are not granted again."""
        epoch = self.sessions[role, client].epoch
        return Forgotten("session", (role, client), max(epoch, self.epoch_floor))

    def _forgotten_of(self, log: TopicLog) -> Iterator[Forgotten]:
        memory = self._settings.memory
        for names, most in (
            (log.ended["clean"], memory.ended_clean_max),
            (log.ended["persistent"], memory.ended_max),
        ):
            for name in islice(names, min(max(len(names) - most, 0), memory.at_once_max)):
                one = log.subscriptions[name]
                if one.lsn <= self.durable_lsn:
                    floor = max(one.generation, self.generation_floor)
                    yield Forgotten("subscription", (log.topic_id, name), floor)
        excess = min(max(len(log.unnumbered) - memory.unnumbered_max, 0), memory.at_once_max)
        for name in islice(log.unnumbered, excess):
            if log.unnumbered[name].lsn <= self.durable_lsn:
                yield Forgotten("publisher", (log.topic_id, name, 1))

    def durable_segments(self) -> Mapping[int, Sequence[StoredSegment]]:
        """Durable segments by topic id, to rebuild the state after a failed commit.

        The store could count them again, but would have to read every row.
        """
        lost = [batch for _, record in self._undurable if (batch := appended(record)) is not None]
        segments = {topic_id: log.segment_values() for topic_id, log in self._by_id.items()}
        for batch in reversed(lost):
            kept = segments[batch.topic_id]
            last = kept.pop()
            if last.batches > 1:
                kept.append(
                    StoredSegment(
                        last.base,
                        batch.base,
                        last.body_bytes - len(batch.body),
                        last.batches - 1,
                        last.timestamp_ns,
                    )
                )
        return segments

    # Applying: one method for each record.

    def _apply_topic_created(self, record: TopicCreated) -> None:
        log = TopicLog(
            record.topic_id,
            record.topic,
            record.log,
            self.retention(record.topic),
            lsn=self.lsn,
        )
        self.topics[record.topic] = log
        self._by_id[record.topic_id] = log
        self.last_topic_id = record.topic_id

    def _apply_appended(self, record: Appended) -> None:
        log = self._by_id[record.topic_id]
        log.append(record, self.lsn)
        if record.qos == 1:
            self._look_at_memory(log)
        elif record.publisher not in self._numbered:
            self._numbered.add(record.publisher)
            self._look_at_session("publisher", record.publisher)

    def _apply_granted(self, record: Granted) -> None:
        self.sessions[(record.role, record.client)] = Session(
            record.epoch, record.nonce, 0, self.lsn
        )
        self._look_at_session(record.role, record.client)

    def _apply_subscribed(self, record: Subscribed) -> None:
        log = self._by_id[record.topic_id]
        held = log.subscriptions.get(record.subscriber)
        # Until this record is durable, retention keeps the messages above the old cursor.
        same = held is not None and held.active and held.generation == record.generation
        durable = min(held.durable_cursor, record.cursor) if held and same else 0
        log.subscriptions[record.subscriber] = Subscription(
            record.generation,
            record.cursor,
            durable,
            True,
            self.lsn,
            record.shown,
            record.terms,
            before=held.before if held and same else record.shown,
        )
        self._look_at(log, record.subscriber)
        self._apply_control(record)

    def _apply_unsubscribed(self, record: Unsubscribed) -> None:
        log = self._by_id[record.topic_id]
        subscription = log.subscriptions[record.subscriber]
        subscription.active = False
        subscription.shown = max(record.shown, record.cursor)
        subscription.lsn = self.lsn
        self._look_at(log, record.subscriber)
        self._touched.add(record.topic_id)
        self._apply_control(record)

    def _look_at(self, log: TopicLog, subscriber: str) -> None:
        """Update the indexes: a subscription has begun, ended or changed its terms."""
        log.look_at(subscriber)
        one = log.subscriptions[subscriber]
        if one.active:
            self._live.setdefault(subscriber, {})[log.topic_id] = None
        elif subscriber in self._live:
            self._live[subscriber].pop(log.topic_id, None)
            if not self._live[subscriber]:
                del self._live[subscriber]
        if one.listens and one.terms.lease_ms:
            # Its lease may now end sooner: check it in the next turn.
            self._leased.add((log.topic_id, subscriber), 0.0)
        self._look_at_session("subscriber", subscriber)
        self._look_at_memory(log)

    def _look_at_session(self, role: Role, client: str) -> None:
        """A session has an effect if it has a subscription, or sequences, which stay forever."""
        self._idle.pop((role, client), None)
        has_effect = client in (self._live if role == "subscriber" else self._numbered)
        if not has_effect and (role, client) in self.sessions:
            self._idle[role, client] = None

    def _look_at_memory(self, log: TopicLog) -> None:
        memory = self._settings.memory
        if (
            len(log.ended["clean"]) > memory.ended_clean_max
            or len(log.ended["persistent"]) > memory.ended_max
            or len(log.unnumbered) > memory.unnumbered_max
        ):
            self._crowded.add(log.topic_id)
        else:
            self._crowded.discard(log.topic_id)

    def _apply_forgotten(self, record: Forgotten) -> None:
        key: Any = record.key
        if record.kind == "session":
            del self.sessions[key]
            self._idle.pop(key, None)
            if record.floor > self.epoch_floor:
                self.epoch_floor, self.epoch_floor_lsn = record.floor, self.lsn
            return
        log = self._by_id[key[0]]
        if record.kind == "subscription":
            del log.subscriptions[key[1]]
            log.look_at(key[1])
            self.generation_floor = max(self.generation_floor, record.floor)
        else:
            del log.unnumbered[key[1]]
        self._look_at_memory(log)

    def _apply_control(self, record: Subscribed | Unsubscribed | ControlSeen) -> None:
        session = self.sessions[("subscriber", record.subscriber)]
        session.control = record.control
        session.lsn = self.lsn

    def _apply_cursor_moved(self, record: CursorMoved) -> None:
        subscription = self._by_id[record.topic_id].subscriptions[record.subscriber]
        if subscription.generation == record.generation:
            subscription.cursor = max(subscription.cursor, record.cursor)
            subscription.shown = record.shown

    def _apply_dead_lettered(self, record: DeadLettered) -> None:
        self._apply_appended(record.letter)
        self._apply_cursor_moved(record.moved)

    def _apply_expired(self, record: Expired) -> None:
        log = self._by_id[record.topic_id]
        subscription = log.subscriptions[record.subscriber]
        if subscription.generation == record.generation:
            subscription.expired = True
            subscription.active = record.terms.session == "persistent"
            subscription.lsn = self.lsn
            self._look_at(log, record.subscriber)
            self._touched.add(record.topic_id)

    def _apply_durable_cursor(self, record: CursorMoved | Subscribed) -> None:
        subscription = self._by_id[record.topic_id].subscriptions[record.subscriber]
        if subscription.generation == record.generation:
            subscription.durable_cursor = max(subscription.durable_cursor, record.cursor)
            self._touched.add(record.topic_id)

    def _apply_trimmed(self, record: Trimmed) -> None:
        self._by_id[record.topic_id].trim(record, self.lsn)

    def _apply_unstaged(self, record: Unstaged) -> None:
        self.staging.drop(record.client, record.transaction)

    def _apply_transaction(self, record: TransactionCommitted) -> None:
        self.last_transactions[record.client] = LastTransaction(
            record.transaction, record.digest, record.receipts, self.lsn
        )
        self._numbered.add(record.client)
        self._look_at_session("publisher", record.client)
        self.staging.drop_up_to(record.client, record.transaction)
