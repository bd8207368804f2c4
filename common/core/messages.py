"""Every request and every answer: frozen values with units and ranges beside the fields.

The wire form (docs/protocol.md) is a msgpack map; the tag `verb` or `answer` names the type.
A request with an unknown field is refused, because a proxy that does not know a field cannot
honour it; an answer may carry fields that this client does not know yet.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .arguments import check_fields
from .limits import (
    BATCH_MESSAGES_MAX,
    BODY_BYTES_MAX,
    HELLO_TOPICS_MAX,
    LEASE_MS_MAX,
    NONCE_BYTES_MAX,
    NUMBER_MAX,
    STATUS_ROWS_MAX,
    STATUS_TOPICS_MAX,
    TRANSACTION_TASKS_MAX,
    WAIT_MS_MAX,
)
from .names import CLIENT_ID_PATTERN, KEY_PATTERN, TOPIC_PATTERN

Role = Literal["publisher", "subscriber"]
Durability = Literal["sync", "os", "snapshot"]
QoS = Literal[0, 1, 2]  # 0: at most once, never stored; 1: at least once; 2: exactly once
StoredQoS = Literal[1, 2]
SessionKind = Literal["persistent", "clean"]
LeaseS = Annotated[float, Meta(ge=0.001, le=LEASE_MS_MAX // 1000)]  # allowed silence

ClientField = Annotated[str, Meta(pattern=CLIENT_ID_PATTERN)]
TopicField = Annotated[str, Meta(pattern=TOPIC_PATTERN)]
KeyField = Annotated[str, Meta(pattern=KEY_PATTERN)]
Count = Annotated[int, Meta(ge=1, le=BATCH_MESSAGES_MAX)]
Natural = Annotated[int, Meta(ge=0, le=NUMBER_MAX)]
Positive = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Crc32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
BytesMax = Annotated[int, Meta(ge=0, le=BODY_BYTES_MAX)]
Nonce = Annotated[bytes, Meta(min_length=8, max_length=NONCE_BYTES_MAX)]  # random


StartAt = Literal["now", "last", "earliest", "offset", "newest", "time", "age"]


class Start(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where to begin. `now`: after the newest message. `earliest`: at the first stored message.
    `last`: after the last message that this subscriber acknowledged, also if it has unsubscribed;
    the earliest if it never subscribed. The others need a `value`.
    """

    at: StartAt
    value: Natural = 0  # offset: it. newest: messages before the end. time: ns since 1970. age: ns

    def __post_init__(self) -> None:
        check_fields(self)


class Terms(Struct, frozen=True, kw_only=True):
    """What a subscriber asks of a subscription."""

    qos: QoS = 2  # what is delivered has the lower of this level and the publisher's
    session: SessionKind = "persistent"  # clean: it ends with BYE or its lease, and nothing is kept
    lease_ms: Annotated[int, Meta(ge=0, le=LEASE_MS_MAX)] = 0  # allowed silence; 0: any


class Request(Struct, frozen=True, kw_only=True, tag_field="verb", forbid_unknown_fields=True):
    """The fields of every request; the answer repeats these three (rule R1)."""

    client: ClientField
    epoch: Natural  # the sender's incarnation, granted by HELLO; an older one is FENCED
    request: Natural  # 1, 2, 3, ... within the epoch; every attempt of a request repeats it
    key: KeyField | UnsetType = UNSET  # public key of the sender, said by a relay between


class Hello(Request, frozen=True, kw_only=True, tag="HELLO"):
    """Ask for `epoch`; granted if it is above the current one.

    Answered by HELLO_ACK, FENCED, LIMIT or STORAGE_FULL.

    A late copy asks for an epoch that is no longer above, so it changes nothing (rule R11).
    A publisher may ask for its numbering in some topics at the same time, and, with the nonce
    of its epoch, again later.
    """

    role: Role
    nonce: Nonce  # per process
    topics: Annotated[tuple[TopicField, ...], Meta(max_length=HELLO_TOPICS_MAX)] = ()


class Put(Request, frozen=True, kw_only=True, tag="PUT"):
    """Append one batch (the body frame) to a topic, once however often it is sent (QoS 2).

    Answered by ACK, DUPLICATE, GAP, CONFLICT, FENCED, LIMIT, FULL, BUSY or STORAGE_FULL.

    At QoS 1 every copy is appended: the numbers are compared with nothing, and have to be unique
    only as far as readers are to know a copy by its id.
    """

    topic: TopicField
    first_sequence: Positive  # of the batch; it uses first_sequence .. first_sequence + count - 1
    count: Count  # messages in the batch
    crc: Crc32  # CRC-32 of the body frame
    qos: StoredQoS = 2  # at QoS 0 nothing is asked: see `relay/core/unstored.py`


class Stage(Request, frozen=True, kw_only=True, tag="STAGE"):
    """Stage one batch (the body frame) of a transaction; it is not visible before COMMIT.

    Answered by STAGE_ACK, COMMIT_ACK (the transaction is over), STAGE_LOST, CONFLICT, LIMIT or
    FULL.

    Needs no session (`epoch` is ignored): what is staged has no effect, and the tasks of a writer
    may run on many machines. A second copy of a batch changes nothing.
    """

    transaction: Positive  # the writer's own number, growing, not dense
    task: Natural  # a part of the writer's work; its batches are contiguous in the log
    attempt: Nonce  # per try of the task: only one of them is named in COMMIT
    chunk: Natural  # 0, 1, 2, ... within the attempt
    topic: TopicField
    count: Count  # messages in the batch
    crc: Crc32  # CRC-32 of the body frame
    first_sequence: Positive | None = None  # as in PUT; None: the proxy numbers it, at COMMIT


class Part(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The staged batches of one task."""

    task: Natural
    attempt: Nonce
    chunks: Positive  # batches


class Commit(Request, frozen=True, kw_only=True, tag="COMMIT"):
    """Make exactly these staged batches visible, in all their topics at once, one time.

    Answered by COMMIT_ACK, STAGE_LOST, GAP, CONFLICT, FENCED, LIMIT, FULL or STORAGE_FULL.
    """

    transaction: Positive
    parts: Annotated[tuple[Part, ...], Meta(max_length=TRANSACTION_TASKS_MAX)]  # in log order
    digest: Nonce | None = None  # of the content; a repeat with another one is CONFLICT


class Abort(Request, frozen=True, kw_only=True, tag="ABORT"):
    """Drop the staged batches of a transaction: idempotent; a committed one stays.

    Answered by ABORT_ACK, COMMIT_ACK (too late) or FENCED.
    """

    transaction: Positive


class Delivery(Request, frozen=True, kw_only=True, tag="DELIVERY"):
    """Ask which of the current subscribers have acknowledged a message; needs no session.

    Answered by DELIVERED, LOG_CHANGED or LIMIT.
    """

    topic: TopicField
    offset: Natural  # of the message, or of the last of several
    log: str | None = None  # log id that the offset speaks of; None: whatever is there


class Get(Request, frozen=True, kw_only=True, tag="GET"):
    """Acknowledge everything below `cursor`, and read what follows (a peek, rule R7).

    Answered by MESSAGE, NO_MESSAGES_YET, LOST, NOT_SUB, STALE, LOG_CHANGED or FENCED.
    """

    topic: TopicField
    generation: Positive  # of the subscription, from SUB_ACK
    boot: str  # from SUB_ACK; after a restart of the proxy the position is checked again
    cursor: Natural  # the next offset wanted
    messages_max: Count = 1  # whole batches are sent, at least one
    bytes_max: BytesMax = BODY_BYTES_MAX
    # The proxy may hold the answer so long while there is nothing to read; unset: not at all.
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] | UnsetType = UNSET
    ring: Natural | UnsetType = UNSET  # a wait ends when the ring of the topic is past this place


class Ack(Request, frozen=True, kw_only=True, tag="ACK"):
    """Acknowledge everything below `cursor`, durably.

    Answered by ACK, STORAGE_FULL, or a refusal of GET.
    """

    topic: TopicField
    generation: Positive
    boot: str
    cursor: Natural


class Dead(Request, frozen=True, kw_only=True, tag="DEAD"):
    """Reject the message at `cursor`: its dead letter (the body frame) goes to `<topic>.dead`.

    Answered by DEAD_ACK, MALFORMED (the topic has no dead letters), LIMIT, FULL, STORAGE_FULL, or a
    refusal of GET. Everything below `cursor` is acknowledged, and with the letter the message too.
    """

    topic: TopicField
    generation: Positive
    boot: str
    cursor: Natural
    crc: Crc32  # CRC-32 of the body frame, a batch of one


class Sub(Request, frozen=True, kw_only=True, tag="SUB"):
    """Subscribe, or resume: idempotent.

    Answered by SUB_ACK, STALE, LOG_CHANGED, TRUNCATED, OUT_OF_RANGE, FENCED, LIMIT or
    STORAGE_FULL.

    Without `cursor` a new subscription begins at the end of the topic and an existing one is
    resumed where the proxy knows it. With it, the client's own position counts (rule R13), and
    the witness shows that both speak of the same log (rule R14). With `start` alone it begins
    there, whatever was known; with both at the greatest of the offset that `start` names, the
    cursor, and the acknowledged cursor that the proxy knows.
    """

    topic: TopicField
    control: Positive  # numbers SUB and UNSUB within the epoch; a late copy is STALE (R12)
    log: str | None = None  # log id the client knows
    cursor: Natural | None = None
    witness_ns: Natural | None = None  # timestamp of the batch that holds offset cursor - 1
    start: Start | None = None  # with `cursor`: acknowledged messages do not come again
    terms: Terms = Terms()  # a clean session needs a lease


class Unsub(Request, frozen=True, kw_only=True, tag="UNSUB"):
    """End a subscription: idempotent. Answered by UNSUB_ACK, STALE, FENCED or STORAGE_FULL."""

    topic: TopicField
    control: Positive


class Bye(Request, frozen=True, kw_only=True, tag="BYE"):
    """Leave: clean sessions end now, persistent ones stay. Idempotent.

    Answered by BYE_ACK, FENCED or STORAGE_FULL.
    """


class History(Request, frozen=True, kw_only=True, tag="HISTORY"):
    """Read stored batches without a subscription; needs no session (`epoch` is ignored).

    Answered by MESSAGE, NO_MESSAGES_YET, LOST, TRUNCATED, LOG_CHANGED or MALFORMED (`last` means
    nothing here).

    A reader that resumes at an offset sends log id and witness, as in SUB (rule R14).
    """

    topic: TopicField
    start: Start  # the first wanted
    log: str | None = None  # log id that `start` speaks of; None: whatever is there
    witness_ns: Natural | None = None  # with an offset: of the batch that holds the one before it
    messages_max: Count = 1
    bytes_max: BytesMax = BODY_BYTES_MAX


class Ring(Request, frozen=True, kw_only=True, tag="RING"):
    """Read the QoS 0 messages in the ring of a topic. No cursor is moved.

    Answered by MESSAGE, NO_MESSAGES_YET, NOT_SUB, STALE or FENCED.
    """

    topic: TopicField
    generation: Positive
    boot: str  # places in the ring are of one start of the proxy
    place: Natural  # the next place wanted
    messages_max: Count = 1
    bytes_max: BytesMax = BODY_BYTES_MAX


class Listeners(Request, frozen=True, kw_only=True, tag="LISTENERS"):
    """Ask for the listeners of a topic; needs no session. Answered by LISTENERS_REPORT."""

    topic: TopicField


class Status(Request, frozen=True, kw_only=True, tag="STATUS"):
    """Ask for one page of the proxy's state; needs no session. Answered by STATUS_REPORT."""

    after_topic: str = ""  # topics are listed in order; "" is the first page
    topics_max: Annotated[int, Meta(ge=1, le=STATUS_TOPICS_MAX)] = STATUS_TOPICS_MAX
    # Subscriptions of each topic, and publishers; with 0 it costs the proxy next to nothing.
    rows_max: Annotated[int, Meta(ge=0, le=STATUS_ROWS_MAX)] = STATUS_ROWS_MAX


AnyRequest = (
    Hello
    | Put
    | Stage
    | Commit
    | Abort
    | Delivery
    | Get
    | Ack
    | Dead
    | Sub
    | Unsub
    | Bye
    | History
    | Ring
    | Listeners
    | Status
)


class Reply(Struct, frozen=True, kw_only=True, tag_field="answer"):
    """The fields of every answer: those repeated from the request (R1), and those of the proxy."""

    client: str
    epoch: int
    request: int
    boot: str = ""  # random, per start of the proxy; filled in by the server
    durability: Durability = "sync"  # what an acknowledgement means here


class TopicPosition(Struct, frozen=True, kw_only=True):
    """A publisher's numbering in one topic."""

    topic: str
    log: str  # log id: differs for a new topic with the same name
    last_sequence: int  # 0: nothing stored yet
    offset: int | None  # of that message


class HelloAck(Reply, frozen=True, kw_only=True, tag="HELLO_ACK"):
    """The epoch asked for is granted, durably."""

    positions: tuple[TopicPosition, ...] = ()
    transaction: int | UnsetType = UNSET  # number of the last one that it has committed


class PutAck(Reply, frozen=True, kw_only=True, tag="ACK"):
    """The batch is stored (or, for the verb ACK, the cursor)."""

    offset: int  # of the first message of the batch; for the verb ACK, the cursor


class Duplicate(Reply, frozen=True, kw_only=True, tag="DUPLICATE"):
    """The batch was stored before: a success."""

    offset: int | None  # None: it was stored, and retention has removed it since


class StageAck(Reply, frozen=True, kw_only=True, tag="STAGE_ACK"):
    """The batch is staged: in memory, until COMMIT, ABORT, or the end of this proxy."""


class TopicReceipt(Struct, frozen=True):
    """The messages of a transaction in one topic; they are contiguous."""

    topic: str
    first_sequence: int
    count: int
    offset: int  # of the first


class CommitAck(Reply, frozen=True, kw_only=True, tag="COMMIT_ACK"):
    """The transaction is stored, whole."""

    already: bool  # an earlier request had done it
    receipts: tuple[TopicReceipt, ...] | None  # None: not kept, because a later one is stored


class AbortAck(Reply, frozen=True, kw_only=True, tag="ABORT_ACK"):
    """Nothing is staged for the transaction."""

    dropped: int  # batches


class Delivered(Reply, frozen=True, kw_only=True, tag="DELIVERED"):
    """The current subscriptions, those that have expired left out: ids, ascending."""

    acknowledged: tuple[str, ...]  # their durable cursor is past the message
    waiting: tuple[str, ...]


class DeadAck(Reply, frozen=True, kw_only=True, tag="DEAD_ACK"):
    """The dead letter is stored, and the cursor is past its message."""

    offset: int  # of the letter, in `<topic>.dead`
    already: bool  # an earlier attempt had done it


class SubAck(Reply, frozen=True, kw_only=True, tag="SUB_ACK"):
    """Subscribed from `cursor`."""

    topic: str
    generation: int  # the subscription's id; grows with each new subscription
    log: str
    cursor: int
    already: bool  # the subscription existed
    witness_ns: int | None = None  # timestamp of the batch that holds offset cursor - 1
    terms: Terms = Terms()
    shown: int = 0  # messages below it were sent before: a process without state marks them
    ring: int = 0  # the next place in the ring of the topic


class UnsubAck(Reply, frozen=True, kw_only=True, tag="UNSUB_ACK"):
    """The subscription has ended."""

    topic: str
    already: bool  # there was none


class ByeAck(Reply, frozen=True, kw_only=True, tag="BYE_ACK"):
    """The sender has left."""

    ended: int  # clean sessions that ended with it


class BatchHeader(Struct, frozen=True, array_like=True):
    """One batch of a MESSAGE: its offsets, its publisher, the length of its body."""

    base: int  # offset of its first message
    count: int
    publisher: str
    first_sequence: int
    timestamp_ns: int  # when the proxy stored it, strictly increasing within the topic
    crc: int  # CRC-32 of the body
    body_bytes: int
    qos: QoS = 2  # the publisher's level


class MessageBatches(Reply, frozen=True, kw_only=True, tag="MESSAGE"):
    """Whole batches in offset order; the body frame is their bodies, concatenated.

    The first batch may begin below the requested offset: the client skips that part.
    """

    batches: tuple[BatchHeader, ...]
    end: int  # durable end of the topic, for lag
    first: int | UnsetType = UNSET  # to HISTORY: the offset that its start names
    log: str | UnsetType = UNSET  # to HISTORY: log id of the topic
    ring: int | UnsetType = UNSET  # to GET: the next place in the ring, if it was ever used


class NoMessagesYet(Reply, frozen=True, kw_only=True, tag="NO_MESSAGES_YET"):
    """Nothing at or above the cursor."""

    end: int
    log: str | UnsetType = UNSET  # to HISTORY: log id of the topic, if there is one
    ring: int | UnsetType = UNSET  # to GET: the next place in the ring, if it was ever used


class Lost(Reply, frozen=True, kw_only=True, tag="LOST"):
    """Offsets first .. end - 1 are lost for this subscription: continue at `end`."""

    first: int
    end: int
    waiting_max: int | UnsetType = UNSET  # they are stored, but only this many may wait here


class Refusal(Reply, frozen=True, kw_only=True):
    """A refusal: the facts, and a sentence that says what happened and what to do."""

    text: str


class NotSub(Refusal, frozen=True, kw_only=True, tag="NOT_SUB"):
    """There is no such subscription."""


class Stale(Refusal, frozen=True, kw_only=True, tag="STALE"):
    """The request is for an earlier subscription or an earlier start of the proxy."""


class Fenced(Refusal, frozen=True, kw_only=True, tag="FENCED"):
    """The request's epoch is not the current one."""

    current_epoch: int  # 0: this proxy does not know the client
    forgotten: bool | UnsetType = (
        UNSET  # to HELLO: the client is unknown, and lower epochs are used up
    )


class StageLost(Refusal, frozen=True, kw_only=True, tag="STAGE_LOST"):
    """The batches of a COMMIT, or those before a STAGE, are not staged: stage all again."""

    task: int  # the first with missing batches


class Gap(Refusal, frozen=True, kw_only=True, tag="GAP"):
    """A sequence before this one was never stored."""

    expected: int


class Conflict(Refusal, frozen=True, kw_only=True, tag="CONFLICT"):
    """These sequence numbers are stored with another body, or as another batch."""

    first_sequence: int
    count: int


class LogChanged(Refusal, frozen=True, kw_only=True, tag="LOG_CHANGED"):
    """The client's position is not one of this log."""

    topic: str
    log: str
    start: int
    end: int


class Truncated(Refusal, frozen=True, kw_only=True, tag="TRUNCATED"):
    """The topic now begins after the requested start."""

    start: int
    start_ns: int | None = None  # timestamp of the batch that holds it; nil: nothing is stored


class OutOfRange(Refusal, frozen=True, kw_only=True, tag="OUT_OF_RANGE"):
    """The requested start is after the end of the topic."""

    start: int
    end: int


class Denied(Refusal, frozen=True, kw_only=True, tag="DENIED"):
    """The key of the sender lacks a right (docs/security.md). Nothing was changed."""

    right: str  # what is missing: id, relay, or a right by topic
    topic: str  # "": it is not of one topic


class Limit(Refusal, frozen=True, kw_only=True, tag="LIMIT"):
    """A bound of the proxy, or a quota of the key, is reached; waiting does not help."""

    limit: int


class Malformed(Refusal, frozen=True, kw_only=True, tag="MALFORMED"):
    """The request cannot be decoded, or came to a wrong endpoint."""


class TryLater(Refusal, frozen=True, kw_only=True):
    """Not now: the same request may succeed later."""

    code: ClassVar[str] = ""


class Full(TryLater, frozen=True, kw_only=True, tag="FULL"):
    """The topic is at its bound until subscribers acknowledge."""

    code: ClassVar[str] = "FULL"


class Busy(TryLater, frozen=True, kw_only=True, tag="BUSY"):
    """The answer depends on a commit that has not finished, or bytes of a key came too fast."""

    code: ClassVar[str] = "BUSY"


class StorageFull(TryLater, frozen=True, kw_only=True, tag="STORAGE_FULL"):
    """The disk is full; gets are served, puts are refused until there is space."""

    code: ClassVar[str] = "STORAGE_FULL"


SubscriptionState = Literal["active", "suspended", "expired"]


class SubscriptionStatus(Struct, frozen=True, kw_only=True):
    """One subscription, as STATUS shows it."""

    subscriber: str
    generation: int
    terms: Terms
    state: SubscriptionState
    silent_s: float  # since its last request, or since the start of the proxy
    cursor: int
    lag_messages: int
    lag_s: float  # age of the oldest message not yet acknowledged; 0 if there is none
    lost: int | UnsetType = UNSET  # QoS 0 messages that it read too late; unset: none


class PublisherStatus(Struct, frozen=True, kw_only=True):
    """One publisher of a topic at one level, as STATUS shows it."""

    publisher: str
    qos: int
    last_sequence: int
    last_offset: int


class RingStatus(Struct, frozen=True, kw_only=True):
    """The QoS 0 messages of a topic since the start of the proxy, as STATUS shows them."""

    end: int  # messages, so far
    held: int  # of them are still in the ring
    held_bytes: int


class TopicStatus(Struct, frozen=True, kw_only=True):
    """One topic, as STATUS shows it."""

    topic: str
    log: str
    start: int
    end: int  # durable
    stored_bytes: int  # bodies
    subscriptions: tuple[SubscriptionStatus, ...]
    subscriptions_left_out: int  # above the rows of one page
    publishers: tuple[PublisherStatus, ...]
    publishers_left_out: int
    ring: RingStatus | UnsetType = UNSET  # unset: nothing was put at QoS 0


class CommitterStatus(Struct, frozen=True, kw_only=True):
    """The writing thread, as STATUS shows it."""

    queued_records: int
    commits: int
    records: int
    last_commit_ms: float
    storage_full: bool
    log_held_bytes: int | UnsetType = UNSET  # of the log, while another program holds it


class PushStatus(Struct, frozen=True, kw_only=True):
    """The push endpoint, as STATUS shows it."""

    endpoint: str
    links: int  # nodes below: relays and subscribers
    plain: int  # prefixes that plain ZeroMQ subscribers want
    sent: int  # batches
    dropped: int  # wanted batches that did not fit in the queue
    queued: int  # batches


class StagingStatus(Struct, frozen=True, kw_only=True):
    """Transactions that are not committed, as STATUS shows them."""

    transactions: int
    batches: int
    staged_bytes: int
    writers: int  # publishers that have committed a transaction


class IngressStatus(Struct, frozen=True, kw_only=True):
    """The endpoint that receives QoS 0 messages, as STATUS shows it."""

    endpoint: str
    patterns: int  # announced to publishers
    taken: int  # batches
    unwanted: int  # batches without a listener when they arrived
    refused: int  # batches that are malformed, or of a fenced process


class ListenersReport(Reply, frozen=True, kw_only=True, tag="LISTENERS_REPORT"):
    """The listeners of a topic."""

    topic: str
    subscriptions: int  # active ones, including those of relays
    pushed: bool = False  # whether the push tree wants it; filled in by the server
    ingress_endpoint: str = ""  # where QoS 0 messages are sent; filled in by the server


class StatusReport(Reply, frozen=True, kw_only=True, tag="STATUS_REPORT"):
    """One page of the proxy's state."""

    topics: tuple[TopicStatus, ...]
    next_topic: str | UnsetType = UNSET  # ask again with `after_topic`; unset: this was the last
    topics_count: int
    sessions_count: int
    dropped_requests: int  # MALFORMED answers since the start
    requests_count: int = 0  # well-formed requests since the start
    committer: CommitterStatus | UnsetType = UNSET  # filled in by the server
    push: PushStatus | UnsetType = UNSET  # filled in by the server
    staging: StagingStatus | UnsetType = UNSET  # unset: there never was a transaction
    ingress: IngressStatus | UnsetType = UNSET  # filled in by the server
    waiting_gets: int | UnsetType = UNSET  # unset: none
    store_path: str = ""


AnyReply = (
    HelloAck
    | PutAck
    | Duplicate
    | StageAck
    | CommitAck
    | AbortAck
    | Delivered
    | DeadAck
    | SubAck
    | UnsubAck
    | ByeAck
    | MessageBatches
    | NoMessagesYet
    | Lost
    | NotSub
    | Stale
    | Fenced
    | StageLost
    | Gap
    | Conflict
    | LogChanged
    | Truncated
    | OutOfRange
    | Denied
    | Limit
    | Malformed
    | Full
    | Busy
    | StorageFull
    | ListenersReport
    | StatusReport
)
