"""The state of one proxy, as values and the indexes over them.

Verbs read it and change nothing; `applying.py` changes it, by records. What is not durable, such as
when a subscriber was heard, belongs to one start of the proxy and is rebuilt empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeVar

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
from reliable_pubsub.common.core.message_base import Promise, Role, Terms
from reliable_pubsub.common.core.names import is_unique_id

from .batches import BatchReader, LogBatch
from .leases import Leases
from .lines import Lines
from .lower_bounds import LowerBounds
from .rows import Writes
from .stored import StoredSegment, StoredState
from .subscriptions import Session
from .topic_log import Retention, TopicLog, without

DISK_FULL: Final = "the proxy's disk is full"
Part = TypeVar("Part")


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


class Hooks(Struct, kw_only=True):
    """What features do at moments of the core: functions, in the order of the features."""

    # Fill their part of the state from the stored state; the core's part is there.
    restore: list[Callable[[State, StoredState], None]] = []
    # Return whether a session has an effect in their part, so that it is not idle.
    holds: list[Callable[[State, Role, str], bool]] = []
    # Return the records that begin with a topic, in the decision that creates it.
    begins: list[Callable[[State, TopicLog], Iterable[Record]]] = []
    created: list[Callable[[State, TopicLog], None]] = []  # a topic is there
    # A subscription has begun, ended or changed its terms; or only its cursor has moved.
    subscribed: list[Callable[[State, TopicLog, str], None]] = []
    moved: list[Callable[[State, TopicLog, str], None]] = []
    # Bytes were stored under the id of a publisher; below 0: removed.
    stored: list[Callable[[State, TopicLog, str, int], None]] = []
    gone: list[Callable[[State, Role | None, str], None]] = []  # a session; None: a topic
    # Return the records that remove what else is stored of a session.
    forgets: list[Callable[[State, Role, str], Iterable[Record]]] = []
    # Return the terms that a subscriber has in a topic besides its own SUB.
    terms: list[Callable[[State, str, str], Terms | None]] = []
    # Return how long a request of a subscriber may wait without losing its lease.
    waits_s: list[Callable[[State, str], float]] = []
    of_groups: dict[type[Any], Callable[..., Any]] = {}  # SUB and UNSUB of a member


class Parts:
    """Values of features, by their types; each is made when it is first needed."""

    def __init__(self, *parts: object) -> None:
        self._of: dict[type[Any], Any] = {type(one): one for one in parts}

    def __contains__(self, kind: type[Any]) -> bool:
        return kind in self._of

    def add(self, part: object) -> None:
        """Add a value, or replace the one of its type."""
        self._of[type(part)] = part

    def of(self, kind: type[Part]) -> Part:
        """Return the value of a type."""
        part: Part | None = self._of.get(kind)
        if part is None:
            part = self._of[kind] = kind()
        return part


class Setup(Struct, frozen=True, kw_only=True):
    """What one start of the proxy has besides its stored state; kept after a failed commit."""

    boot: str  # random name of this start; a position of another start is checked before use
    reader: BatchReader
    durability: Promise = "sync"
    settings: BrokerSettings = BrokerSettings()
    hooks: Hooks = field(default_factory=Hooks)
    kept: Parts = field(default_factory=Parts)  # what features have in memory only
    authority: Authority = Authority({})  # what each key may do
    attention: Attention = field(default_factory=Attention)  # the time by which silence is judged


class Record(Struct, frozen=True, gc=False):
    """A change of the state. It defines its effect, its rows and its line of the journal.

    Only records change the state, live and in the simulator; the store writes the same records.
    """

    urgent: ClassVar[bool] = True  # a reply waits for it
    is_stored: ClassVar[bool] = True  # False: its effect is in memory only

    @property
    def batch(self) -> LogBatch | None:
        """The batch that it appends to a log, or None."""
        return None

    @property
    def wakes(self) -> str:
        """The subscriber whose waiting GET is decided again, without a request; "": none."""
        return ""

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
    """Topics, subscriptions and sessions of one proxy, and the parts of its features."""

    def __init__(self, stored: StoredState, setup: Setup) -> None:
        """Create the state from the stored one, all of which is durable."""
        self.setup = setup
        self.hooks = setup.hooks
        self.part = Parts().of  # of a feature, by type
        self.kept = setup.kept.of  # the same, of this start of the proxy
        self.settings = setup.settings
        self.boot = setup.boot
        self.durability = setup.durability
        self.reader = setup.reader
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
        self.lsn = 0  # number of the newest record
        self.durable_lsn = 0
        self.undurable: deque[tuple[int, Record]] = deque()
        self.interest_version = 1  # grows with each change of what is subscribed to
        self.interest_lsn = 0  # the record of the newest change
        self.authority = setup.authority

        # In memory only.
        self.leases = Leases()
        self.is_storage_full = False  # until a commit has found room for messages
        self.storage_full_why = DISK_FULL
        self.storage_full_until_s: float | None = None  # monotonic; no write is tried until then
        self.trim_at_s = 0.0
        self.local_ns: int | None = None  # local time (rule R36); None: no clock was read
        self.begun_ns = self.gap_ns = 0  # of local time: the start, and what of it does not age yet
        self.newest_ns = max((s.timestamp_ns for s in stored.topics), default=0)  # timestamp

        # Indexes, so that the cost of a request does not depend on how much is stored.
        self.subscribed: dict[str, dict[int, None]] = {}  # by subscriber: topics
        self.numbered = {name for log in self.topics.values() for name in log.publishers}
        # By publisher whose id ends with its process: topics in which it has numbers.
        self.unique_numbers: dict[str, set[int]] = {}
        self.idle_sessions: dict[tuple[Role, str], None] = {}  # without effect, least recent first
        self.listened_topics: set[str] = set()  # with a subscription that gets what is put now
        self.crowded_topics: set[int] = set()  # with more ended entries than are kept
        self.touched_topics = set(self.topic_by_id)  # retention may find work in them
        self.ages: LowerBounds[int] = LowerBounds()  # the others, by when their oldest is too old
        for restore in self.hooks.restore:
            restore(self, stored)
        self.is_restored = False  # what the hooks see now is not new
        self._index_all()
        self.is_restored = True

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
        self.index_session("subscriber", subscriber)
        self.index_ended(log)
        for subscribed in self.hooks.subscribed:
            subscribed(self, log, subscriber)

    def lasting_publishers(self, log: TopicLog) -> int:
        """Count the publishers whose numbers in a topic are kept permanently."""
        return len(log.publishers) - len(self.unique_numbers.keys() & log.publishers.keys())

    def index_session(self, role: Role, client: str) -> None:
        """Note whether a session has a subscription, sequences, or an effect in a feature."""
        self.idle_sessions.pop((role, client), None)
        if role == "subscriber":
            has_effect = client in self.subscribed
        else:
            has_effect = client in self.numbered and client not in self.unique_numbers
        has_effect = has_effect or any(holds(self, role, client) for holds in self.hooks.holds)
        if not has_effect and (role, client) in self.sessions:
            self.idle_sessions[role, client] = None

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
