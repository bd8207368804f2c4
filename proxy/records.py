"""What is durable: the records that a decision makes, and the state they add up to.

A record is the only way to change the broker, live and in the simulator; the store writes the
same record. `urgent` says whether an answer waits for it: cursors that a GET carries are lazy,
because the subscriber itself is the evidence for them (rule R7).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from msgspec import Struct

from reliable_pubsub.common.messages import (
    AnyReply,
    BatchHeader,
    Role,
    StoredQoS,
    Terms,
    TopicReceipt,
)


class TopicCreated(Struct, frozen=True, gc=False):
    """A topic appears, at its first SUB or PUT."""

    urgent: ClassVar[bool] = True
    topic_id: int  # 1, 2, 3, ...; never used again
    topic: str
    log: str  # log id


class Appended(Struct, frozen=True, gc=False):
    """One batch stands in its topic. It is also the form in which the log is read."""

    urgent: ClassVar[bool] = True
    topic_id: int
    base: int  # offset of the first message
    count: int
    publisher: str
    epoch: int
    first_sequence: int
    timestamp_ns: int
    crc: int
    body: bytes
    qos: StoredQoS = 2

    @property
    def end(self) -> int:
        """The offset behind its last message."""
        return self.base + self.count

    @property
    def header(self) -> BatchHeader:
        """What is said of it beside its body."""
        return BatchHeader(
            self.base,
            self.count,
            self.publisher,
            self.first_sequence,
            self.timestamp_ns,
            self.crc,
            len(self.body),
            self.qos,
        )

    @property
    def last_sequence(self) -> int:
        """Sequence of its last message."""
        return self.first_sequence + self.count - 1


class Granted(Struct, frozen=True, gc=False):
    """A client has a new epoch."""

    urgent: ClassVar[bool] = True
    role: Role
    client: str
    epoch: int
    nonce: bytes


class Subscribed(Struct, frozen=True, gc=False):
    """A subscription begins, is resumed, or is set to another cursor."""

    urgent: ClassVar[bool] = True
    topic_id: int
    subscriber: str
    generation: int
    cursor: int
    epoch: int  # of the subscriber's session, with its nonce and the number of this SUB
    nonce: bytes
    control: int
    shown: int = 0  # it was sent the messages below this
    terms: Terms = Terms()


class Unsubscribed(Struct, frozen=True, gc=False):
    """A subscription ends; its generation is remembered."""

    urgent: ClassVar[bool] = True
    topic_id: int
    subscriber: str
    generation: int
    cursor: int
    epoch: int
    nonce: bytes
    control: int
    terms: Terms = Terms()
    shown: int = 0  # it was sent the messages below this


class ControlSeen(Struct, frozen=True, gc=False):
    """A control request that changed nothing else; its late copies have no effect (rule R12)."""

    urgent: ClassVar[bool] = True
    subscriber: str
    epoch: int
    nonce: bytes
    control: int


class CursorMoved(Struct, frozen=True, gc=False):
    """A subscriber has acknowledged everything below `cursor`, and was sent more."""

    topic_id: int
    subscriber: str
    generation: int
    cursor: int
    urgent: bool  # True: an ACK waits for it; False: it came with a GET
    shown: int = 0  # it was sent the messages below this
    terms: Terms = Terms()


ForgottenKind = Literal["session", "subscription", "publisher"]


class Forgotten(Struct, frozen=True, gc=False):
    """What has ended and can have no effect any more is not remembered (rule R26).

    An id without a subscription or a number; a subscription that has ended; who has put at QoS 1.
    """

    urgent: ClassVar[bool] = False
    kind: ForgottenKind
    key: tuple[int | str, ...]  # of its row in the store
    floor: int = 0  # epochs, or generations, up to this one are used up for those not known


class DeadLettered(Struct, frozen=True, gc=False):
    """A message is given up: its letter is stored and the cursor is past it, or neither is."""

    urgent: ClassVar[bool] = True
    letter: Appended
    moved: CursorMoved

    @property
    def body(self) -> bytes:
        """Of the letter."""
        return self.letter.body


class Expired(Struct, frozen=True, gc=False):
    """A subscription was silent for longer than its lease and as long again.

    A clean one has ended. A persistent one holds nothing back any more; its subscriber may return,
    and is told of what is gone.
    """

    urgent: ClassVar[bool] = False
    topic_id: int
    subscriber: str
    generation: int
    cursor: int
    terms: Terms
    silent_ms: int = 0  # not stored: why it was decided
    shown: int = 0  # it was sent the messages below this


class Trimmed(Struct, frozen=True, gc=False):
    """A topic now begins at `start`; what was below is gone."""

    urgent: ClassVar[bool] = False
    topic_id: int
    start: int
    end: int  # of the topic, kept because the last batch may be among the removed
    timestamp_ns: int  # of the newest batch, for the same reason


class Staged(Struct, frozen=True, gc=False):
    """A batch of a transaction lies ready. In memory alone: the store does not write it."""

    urgent: ClassVar[bool] = False
    client: str
    transaction: int
    task: int
    attempt: bytes
    chunk: int
    topic: str
    count: int
    crc: int
    first_sequence: int | None
    staged_ns: int
    body: bytes
    instead_of: tuple[tuple[int, bytes], ...] = ()  # tasks and attempts that make room for it


class Unstaged(Struct, frozen=True, gc=False):
    """What was staged for a transaction is dropped. In memory alone, as `Staged`."""

    urgent: ClassVar[bool] = False
    client: str
    transaction: int


class TransactionCommitted(Struct, frozen=True, gc=False):
    """The batches of the same decision are a transaction, and it is over."""

    urgent: ClassVar[bool] = True
    client: str
    transaction: int
    digest: bytes  # of its content, by the writer; empty: not told
    receipts: tuple[TopicReceipt, ...]


Record = (
    TopicCreated
    | Appended
    | Granted
    | Subscribed
    | Unsubscribed
    | ControlSeen
    | CursorMoved
    | Forgotten
    | DeadLettered
    | Expired
    | Trimmed
    | Staged
    | Unstaged
    | TransactionCommitted
)


def appended(record: Record) -> Appended | None:
    """The batch that a record adds to a log, if it does."""
    if isinstance(record, DeadLettered):
        return record.letter
    return record if isinstance(record, Appended) else None


class Decision(Struct, frozen=True, gc=False):
    """What to answer, what to make durable, and when the answer may leave."""

    reply: AnyReply
    records: tuple[Record, ...] = ()
    visible_at: int = 0  # the answer leaves once this record number is durable
    body: bytes | None = None


class StoredSegment(Struct, frozen=True, gc=False):
    """A run of neighbouring batches; retention removes whole segments."""

    base: int
    end: int
    body_bytes: int
    batches: int
    timestamp_ns: int  # of its last batch


class StoredPublisher(Struct, frozen=True, gc=False):
    """The newest batch of a publisher in a topic, at one level: enough to judge every later put."""

    publisher: str
    first_sequence: int
    count: int
    base: int
    crc: int
    qos: int = 2


class StoredSubscription(Struct, frozen=True, gc=False):
    """A subscription, or the memory of one that has ended."""

    subscriber: str
    generation: int
    cursor: int
    active: bool
    shown: int = 0
    terms: Terms = Terms()
    expired: bool = False


class StoredTopic(Struct, frozen=True):
    """One topic as the store holds it."""

    topic_id: int
    topic: str
    log: str
    start: int
    end: int
    timestamp_ns: int
    segments: Sequence[StoredSegment] = ()
    publishers: Sequence[StoredPublisher] = ()
    subscriptions: Sequence[StoredSubscription] = ()


class StoredSession(Struct, frozen=True, gc=False):
    """One client as the store holds it."""

    role: Role
    client: str
    epoch: int
    nonce: bytes
    control: int


class StoredState(Struct, frozen=True):
    """Everything a broker begins with."""

    store_id: str  # random, made with the data directory; part of every log id
    topics: Sequence[StoredTopic] = ()
    sessions: Sequence[StoredSession] = ()
    transactions: Sequence[TransactionCommitted] = ()  # the last one of each publisher
    epoch_floor: int = 0  # the highest epoch of those that were forgotten
    generation_floor: int = 0  # the same of generations
