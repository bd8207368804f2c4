"""The records that a decision makes. Pure.

Only records change the state, live and in the simulator; the store writes the same records.
`urgent` says whether a reply waits for it: cursors that a GET carries are written lazily, because
the subscriber's own state also has them (rule R7).
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from reliable_pubsub.common.core.actions import AnyAction, Effect
from reliable_pubsub.common.core.answers import AnyReply
from reliable_pubsub.common.core.group_messages import Grant, Outcome, Stretch
from reliable_pubsub.common.core.message_base import BatchHeader, GroupTerms, Role, StoredQoS, Terms
from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.transaction_messages import TopicReceipt

from .group_state import GroupRun, Member, subscription_of_group


class TopicCreated(Struct, frozen=True, gc=False):
    """A topic is created, by its first SUB or PUT."""

    urgent: ClassVar[bool] = True
    topic_id: int  # 1, 2, 3, ...; never reused
    topic: str
    log: str  # log id


class Appended(Struct, frozen=True, gc=False):
    """One batch is appended to its topic. The log is read in this form, too."""

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
        """The offset after its last message."""
        return self.base + self.count

    @property
    def header(self) -> BatchHeader:
        """Everything except the body."""
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
    """A client was granted a new epoch."""

    urgent: ClassVar[bool] = True
    role: Role
    client: str
    epoch: int
    nonce: bytes


# An operator has moved a subscription, and its subscriber has not yet taken that: its own place no
# longer counts ("set"), or only if it is above the cursor ("skip").
Moved = Literal["", "set", "skip"]


class Subscribed(Struct, frozen=True, gc=False):
    """A subscription begins, resumes, or is moved to another cursor."""

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
    moved: Moved = ""
    skipped: tuple[int, int] | None = None  # below the cursor, and not acknowledged: first and end


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


class PatternSubscribed(Struct, frozen=True, gc=False):
    """A subscriber has a pattern; the subscriptions that it begins are separate records."""

    urgent: ClassVar[bool] = True
    subscriber: str
    pattern: Pattern
    terms: Terms
    reader: str  # the keys that may read what it matches; "": there were no keys
    epoch: int
    nonce: bytes
    control: int


class PatternEnded(Struct, frozen=True, gc=False):
    """A pattern ends; the ends of its subscriptions are separate records."""

    urgent: ClassVar[bool] = True
    subscriber: str
    pattern: Pattern
    epoch: int
    nonce: bytes
    control: int


class CursorMoved(Struct, frozen=True, gc=False):
    """A subscriber has acknowledged everything below `cursor`."""

    topic_id: int
    subscriber: str
    generation: int
    cursor: int
    urgent: bool  # True: an ACK waits for it; False: it came with a GET
    shown: int = 0  # it was sent the messages below this
    terms: Terms = Terms()
    takes: bool = False  # it reads on from where an operator has moved it; always `urgent`


Charge = Literal["publisher", "subscriber", "topic"]  # what is charged to a key: an id, or a topic


class Charged(Struct, frozen=True, gc=False):
    """An id or a topic is charged to a key, and no longer to another (`accounts.py`)."""

    urgent: ClassVar[bool] = False
    kind: Charge
    name: str
    key: str  # its name


ForgottenKind = Literal["session", "subscription", "publisher", "transaction", "charge"]


class Forgotten(Struct, frozen=True, gc=False):
    """An entry that can no longer have an effect is removed (rule R26).

    It is an id without subscriptions or numbers, an ended subscription, a QoS 1 publisher, or a
    charge of what no longer exists; at an operator's request also the numbers of a publisher and
    its last transaction.
    """

    urgent: ClassVar[bool] = False
    kind: ForgottenKind
    key: tuple[int | str, ...]  # of its row in the store
    floor: int = 0  # epochs, or generations, up to this one are not granted to unknown ids


class DeadLettered(Struct, frozen=True, gc=False):
    """A message is rejected: its dead letter is stored and the cursor moved, both or neither."""

    urgent: ClassVar[bool] = True
    letter: Appended
    moved: CursorMoved

    @property
    def body(self) -> bytes:
        """The body of the dead letter."""
        return self.letter.body


class Expired(Struct, frozen=True, gc=False):
    """A subscription expired: it was silent for two leases, or too slow at a bound.

    A clean one has ended. A persistent one no longer keeps messages stored; its subscriber may
    return, and gets LOST for the messages that were removed.
    """

    urgent: ClassVar[bool] = False
    topic_id: int
    subscriber: str
    generation: int
    cursor: int
    terms: Terms
    silent_ms: int = 0  # not stored: for the journal
    shown: int = 0  # it was sent the messages below this


class Trimmed(Struct, frozen=True, gc=False):
    """A topic now begins at `start`; lower offsets are removed."""

    urgent: ClassVar[bool] = False
    topic_id: int
    start: int
    end: int  # of the topic, kept because the last batch may be among the removed
    timestamp_ns: int  # of the newest batch, for the same reason
    # What goes of the first segment that stays; not stored, counted again at the next start.
    cut_batches: int = 0
    cut_bytes: tuple[tuple[str, int], ...] = ()  # by publisher


class Administered(Struct, frozen=True):
    """An operator's action; its other records are in the same decision."""

    urgent: ClassVar[bool] = True
    number: int  # 1, 2, 3, ...
    nonce: bytes
    at_ns: int  # wall clock
    who: str  # name of the key; "": the proxy knows no keys
    client: str
    action: AnyAction
    effect: Effect


class Staged(Struct, frozen=True, gc=False):
    """A batch of a transaction is staged, in memory only: the store does not write it."""

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
    staged_s: float  # by the clock of leases
    body: bytes
    instead_of: tuple[tuple[int, bytes], ...] = ()  # tasks and attempts dropped to make room


class Unstaged(Struct, frozen=True, gc=False):
    """The staged batches of a transaction are dropped. In memory only, as `Staged`."""

    urgent: ClassVar[bool] = False
    client: str
    transaction: int


class TransactionCommitted(Struct, frozen=True, gc=False):
    """A transaction is committed; its batches are in the same decision."""

    urgent: ClassVar[bool] = True
    client: str
    transaction: int
    digest: bytes  # of its content, computed by the writer; empty: not sent
    receipts: tuple[TopicReceipt, ...]


class GroupChanged(Struct, frozen=True, gc=False):
    """The new value of a group, whole, from its cursor to its frontier."""

    urgent: ClassVar[bool] = True
    topic_id: int
    group: str
    generation: int
    cursor: int
    terms: GroupTerms
    runs: tuple[GroupRun, ...]
    members: tuple[Member, ...]
    lost: tuple[Stretch, ...] = ()  # what no member is known to have reported
    begins: bool = False
    ends: bool = False
    # The rest is not stored. Keys of its messages, by offset, as far as they were read:
    keys: tuple[tuple[int, bytes | None], ...] = ()
    member: str = ""  # the sender of the request, its epoch, and what the request did
    epoch: int = 0
    granted: tuple[Grant, ...] = ()
    settled: tuple[Outcome, ...] = ()

    @property
    def subscriber(self) -> str:
        """The name of its subscription."""
        return subscription_of_group(self.group)


class TopicDeleted(Struct, frozen=True, gc=False):
    """An empty topic is deleted; or (`is_back`) created again where it ended."""

    urgent: ClassVar[bool] = True
    topic_id: int
    is_back: bool = False


class GroupLetter(Struct, frozen=True, gc=False):
    """The dead letter of a message of a group; a `GroupChanged` of the same decision ends it."""

    urgent: ClassVar[bool] = True
    letter: Appended
    topic_id: int  # of the message
    group: str
    generation: int
    offset: int

    @property
    def body(self) -> bytes:
        """The body of the dead letter."""
        return self.letter.body


Record = (
    TopicCreated
    | Appended
    | Granted
    | Subscribed
    | Unsubscribed
    | ControlSeen
    | PatternSubscribed
    | PatternEnded
    | CursorMoved
    | Charged
    | Forgotten
    | DeadLettered
    | GroupChanged
    | TopicDeleted
    | GroupLetter
    | Expired
    | Trimmed
    | Administered
    | Staged
    | Unstaged
    | TransactionCommitted
)


def appended(record: Record) -> Appended | None:
    """The batch that a record appends to a log, or None."""
    if isinstance(record, DeadLettered | GroupLetter):
        return record.letter
    return record if isinstance(record, Appended) else None


class Decision(Struct, frozen=True, gc=False):
    """The reply, the records to make durable, and when the reply may leave."""

    reply: AnyReply
    records: tuple[Record, ...] = ()
    visible_at: int = 0  # the reply leaves once this record number is durable
    body: bytes | None = None
    is_empty: bool = False  # there is nothing yet, so a request with `wait_ms` is kept
