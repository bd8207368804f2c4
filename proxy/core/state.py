"""The state of one proxy, as values and the indexes over them.

Verbs read it and change nothing; `applying.py` changes it, by records. What is not durable, such as
when a subscriber was heard, belongs to one start of the proxy and is rebuilt empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import ClassVar, Final

from msgspec import Struct, field

from reliable_pubsub.common.access.core.authorisation import Authority
from reliable_pubsub.common.core.attention import Attention
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.limits import (
    ENDED_CLEAN_MAX,
    ENDED_MAX,
    IDLE_SESSIONS_MAX,
    NUMBER_MAX,
    PUBLISHERS_PER_TOPIC_MAX,
    SESSIONS_MAX,
    STAGED_BYTES_MAX,
    SUBSCRIPTIONS_PER_TOPIC_MAX,
    TOPICS_MAX,
    UNNUMBERED_MAX,
)
from reliable_pubsub.common.core.message_base import Promise, Role
from reliable_pubsub.common.core.names import is_unique_id

from ..access.accounts import Accounts
from ..operators.history import Administration
from ..patterns.index import PatternIndex
from ..qos0.ring import Rings
from ..transactions.staging import LastTransaction, Staging
from .batches import BatchReader, LogBatch
from .leases import Leases
from .lines import Lines
from .lower_bounds import LowerBounds
from .rows import Writes
from .stored import Charge, StoredSegment, StoredState
from .subscriptions import Session
from .topic_log import Retention, TopicLog, without

DISK_FULL: Final = "the proxy's disk is full"


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
    staged_bytes_max: int = STAGED_BYTES_MAX
    stored_bytes_max: int = NUMBER_MAX  # of all topics
    memory: Memory = Memory()


class EngineTiming(Struct, frozen=True, kw_only=True):
    """The engine's wait times, in seconds."""

    lazy_s: float = 0.1  # how long a cursor that came with a GET may wait to be written
    disk_patience_s: float = 1.0  # a reply that waits longer is replaced by BUSY


class Setup(Struct, frozen=True, kw_only=True):
    """What one start of the proxy has besides its stored state; kept after a failed commit."""

    boot: str  # random name of this start; a position of another start is checked before use
    reader: BatchReader
    durability: Promise = "sync"
    settings: BrokerSettings = BrokerSettings()
    rings: Rings = field(default_factory=Rings)  # QoS 0 messages, never durable
    authority: Authority = Authority({})  # what each key may do
    attention: Attention = field(default_factory=Attention)  # the time by which silence is judged


class Record(Struct, frozen=True, gc=False):
    """A change of the state. It defines its effect, its rows and its line of the journal.

    Only records change the state, live and in the simulator; the store writes the same records.
    """

    urgent: ClassVar[bool] = True  # a reply waits for it

    @property
    def batch(self) -> LogBatch | None:
        """The batch that it appends to a log, or None."""
        return None

    def apply(self, state: State) -> None:
        """Change the state in memory."""
        raise NotImplementedError

    def has_become_durable(self, state: State) -> None:
        """Note what depends on the disk; called in the order of the records."""

    def store(self, writes: Writes) -> None:
        """Add its rows to a commit."""
        raise NotImplementedError

    def describe(self, lines: Lines) -> None:
        """Write its line of the journal, if it has one."""


class State:
    """Topics, subscriptions and sessions of one proxy, and what is staged."""

    def __init__(self, stored: StoredState, setup: Setup) -> None:
        """Create the state from the stored one, all of which is durable."""
        self.setup = setup
        self.settings = setup.settings
        self.boot = setup.boot
        self.durability = setup.durability
        self.reader = setup.reader
        self.rings = setup.rings
        self.timestamp_step_ns = 1 + (crc32(setup.boot.encode()) & 0xFFFF)  # least, within a topic

        self.store_id = stored.store_id
        self.topics = {s.topic: TopicLog.restore(s, self.retention(s.topic)) for s in stored.topics}
        self.deleted_topics = {s.topic for s in stored.topics if s.deleted}  # their numbers stay
        self.topic_by_id = {log.topic_id: log for log in self.topics.values()}
        self.last_topic_id = max(self.topic_by_id, default=0)
        self.sessions: dict[tuple[Role, str], Session] = {
            (s.role, s.client): Session(s.epoch, s.nonce, s.control, 0) for s in stored.sessions
        }
        self.epoch_floor = stored.epoch_floor
        self.epoch_floor_lsn = 0  # the record that raised it last
        self.generation_floor = stored.generation_floor
        self.last_transactions = {
            one.client: LastTransaction(one.transaction, one.digest, one.receipts, 0)
            for one in stored.transactions
        }
        self.administration = Administration(stored.actions, stored.paused)
        self.lsn = 0  # number of the newest record
        self.durable_lsn = 0
        self.undurable: deque[tuple[int, Record]] = deque()
        self.interest_version = 1  # grows with each change of what is subscribed to
        self.interest_lsn = 0  # the record of the newest change

        self.patterns = PatternIndex()
        self.patterns.restore(stored.patterns, self.topics)
        self.authority = setup.authority
        self.accounts = self._restored_accounts(stored)
        for charged in stored.charges:
            self.index_charge(charged.kind, charged.name)

        # In memory only.
        self.staging = Staging()
        self.leases = Leases()
        self.groups_due: LowerBounds[tuple[int, str]] = LowerBounds()  # by the next lease that ends
        self.groups_seen_s = 0.0  # when `groups_due` was last checked
        self.is_storage_full = False  # until a commit has found room for messages
        self.storage_full_why = DISK_FULL
        self.storage_full_until_s: float | None = None  # monotonic; no write is tried until then
        self.trim_at_s = 0.0
        self.local_ns: int | None = None  # local time (rule R36); None: no clock was read
        self.begun_ns = self.gap_ns = 0  # of local time: the start, and what of it does not age yet
        self.newest_ns = max((s.timestamp_ns for s in stored.topics), default=0)  # timestamp

        # Indexes, so that the cost of a request does not depend on how much is stored.
        self.subscribed: dict[str, dict[int, None]] = {}  # by subscriber: topics
        self.members: dict[str, int] = {}  # by subscriber: groups that it is a member of
        self.numbered = {name for log in self.topics.values() for name in log.publishers}
        self.numbered |= self.last_transactions.keys()
        # By publisher whose id ends with its process: topics in which it has numbers.
        self.unique_numbers: dict[str, set[int]] = {}
        self.idle_sessions: dict[tuple[Role, str], None] = {}  # without effect, least recent first
        self.listened_topics: set[str] = set()  # with a subscription that gets what is put now
        self.are_listeners_changed = True  # since they were last announced to publishers
        self.crowded_topics: set[int] = set()  # with more ended entries than are kept
        self.touched_topics = set(self.topic_by_id)  # retention may find work in them
        self.ages: LowerBounds[int] = LowerBounds()  # the others, by when their oldest is too old
        for log in self.topics.values():
            for group in log.groups.values():
                for name in group.members:
                    self.members[name] = self.members.get(name, 0) + 1
        self._index_all()

    def _index_all(self) -> None:
        for role, client in self.sessions:
            if role == "publisher" and is_unique_id(client):
                self.unique_numbers[client] = set()
        for log in self.topics.values():
            for name in self.unique_numbers.keys() & log.publishers.keys():
                self.unique_numbers[name].add(log.topic_id)
        for role, client in self.sessions:
            self.index_session(role, client)
        for log in self.topics.values():
            for name in log.subscriptions:
                self.index_subscription(log, name)
            self.index_ended(log)
        for subscriber in self.patterns.of:
            self.index_patterns(subscriber)

    def _restored_accounts(self, stored: StoredState) -> Accounts:
        accounts = Accounts()
        for log in self.topics.values():
            for segment in log.segments:
                for publisher, size_bytes in segment.bytes_by.items():
                    accounts.stored(log.put_by, publisher, size_bytes)
        for charged in stored.charges:
            accounts.charge(charged)
        return accounts

    def age_from(self, begun_ns: int, older_ns: int = 0) -> None:
        """Let what another process stored be no younger than the start of this one."""
        for log in self.topic_by_id.values():
            log.age_from(begun_ns, older_ns)
        self.touched_topics.update(self.topic_by_id)

    def reconfigure(self, settings: BrokerSettings) -> None:
        """Decide by these settings from now on, as if they had been there at the start."""
        self.settings = settings
        for log in self.topics.values():
            log.retention = self.retention(log.topic)
        self.touched_topics.update(self.topic_by_id)  # retention may find work in each

    def retention(self, topic: str) -> Retention:
        """The retention settings of a topic."""
        return self.settings.topics.get(topic, self.settings.retention)

    def next_topic(self, topic: str, others: int = 0) -> TopicLog:
        """A topic as it will be when created.

        Args:
            others: topics that the same decision creates before it.
        """
        topic_id = self.last_topic_id + 1 + others
        log = f"{self.store_id}.{topic_id}"
        return TopicLog(topic_id, topic, log, self.retention(topic))

    def topic_or_next(self, topic: str) -> TopicLog:
        """A topic; if there is none of this name, as it would be when created."""
        return self.topics.get(topic) or self.next_topic(topic)

    def interest_changed(self) -> None:
        """What is subscribed to may be different from now on."""
        self.interest_version += 1
        self.interest_lsn = self.lsn

    def index_subscription(self, log: TopicLog, subscriber: str) -> None:
        """Update the indexes: a subscription has begun, ended or changed its terms."""
        log.index_subscription(subscriber)
        self.interest_changed()
        one = log.subscriptions[subscriber]
        if one.active:
            self.subscribed.setdefault(subscriber, {})[log.topic_id] = None
        elif subscriber in self.subscribed:
            self.subscribed[subscriber].pop(log.topic_id, None)
            if not self.subscribed[subscriber]:
                del self.subscribed[subscriber]
        if one.listens and one.terms.lease_ms:
            # Its lease may now end sooner: check it in the next turn.
            self.leases.ends.add((log.topic_id, subscriber), 0.0)
        if log.listening:
            self.listened_topics.add(log.topic)
        else:
            self.listened_topics.discard(log.topic)
        self.are_listeners_changed = True
        self.index_session("subscriber", subscriber)
        self.index_ended(log)
        if subscriber in self.patterns.of:
            self.patterns.index(log, subscriber)

    def index_patterns(self, subscriber: str) -> None:
        """A subscriber has one pattern more or less: note what is unread in its topics."""
        self.interest_changed()
        self.are_listeners_changed = True
        if any(one.is_clean for one in self.patterns.of.get(subscriber, {}).values()):
            self.leases.pattern_ends.add(subscriber, 0.0)
        for topic_id in self.subscribed.get(subscriber, ()):
            self.patterns.index(self.topic_by_id[topic_id], subscriber)
        self.index_session("subscriber", subscriber)

    def index_member(self, client: str, joined: int) -> None:
        """A client has joined a group (1) or left it (-1)."""
        self.interest_changed()
        count = self.members.get(client, 0) + joined
        if count:
            self.members[client] = count
        else:
            del self.members[client]
        self.index_session("subscriber", client)

    def lasting_publishers(self, log: TopicLog) -> int:
        """Count the publishers whose numbers in a topic are kept permanently."""
        return len(log.publishers) - len(self.unique_numbers.keys() & log.publishers.keys())

    def index_session(self, role: Role, client: str) -> None:
        """Note whether a session has a subscription, a group, a staged batch, or sequences."""
        self.idle_sessions.pop((role, client), None)
        if role == "subscriber":
            has_effect = any(
                client in those for those in (self.subscribed, self.members, self.patterns.of)
            )
        else:
            has_numbers = client in self.numbered and client not in self.unique_numbers
            has_effect = has_numbers or client in self.staging.clients
        if not has_effect and (role, client) in self.sessions:
            self.idle_sessions[role, client] = None

    def index_charge(self, kind: Charge, name: str) -> None:
        """End the charge of an id or a topic, if it no longer exists."""
        if kind == "topic":
            is_there = name in self.topics and name not in self.deleted_topics
        else:
            is_there = (kind, name) in self.sessions or self.accounts.stored_under(kind, name) > 0
        if not is_there:
            self.accounts.end(kind, name)

    def index_ended(self, log: TopicLog) -> None:
        """Note whether a topic has more ended entries than are kept."""
        memory = self.settings.memory
        if (
            len(log.ended["clean"]) > memory.ended_clean_max
            or len(log.ended["persistent"]) > memory.ended_max
            or len(log.unnumbered) > memory.unnumbered_max
        ):
            self.crowded_topics.add(log.topic_id)
        else:
            self.crowded_topics.discard(log.topic_id)

    def durable_segments(self) -> Mapping[int, Sequence[StoredSegment]]:
        """Durable segments by topic id, to rebuild the state after a failed commit.

        The store could count them again, but would have to read every row.
        """
        lost = [batch for _, record in self.undurable if (batch := record.batch) is not None]
        segments = {topic_id: log.segment_values() for topic_id, log in self.topic_by_id.items()}
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
                        last.since_ns,
                        without(last.bytes_by, {batch.publisher: len(batch.body)}),
                    )
                )
        return segments
