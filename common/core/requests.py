"""Every request: frozen values with units and ranges beside the fields.

The wire form (docs/protocol.md) is a msgpack map; the tag `verb` names the type. A request with an
unknown field is refused, because a proxy that does not know a field cannot honour it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .actions import AnyAction
from .interest_messages import Subscriptions
from .limits import (
    BODY_BYTES_MAX,
    GROUP_OUTCOMES_MAX,
    HELLO_TOPICS_MAX,
    LEASE_MS_MAX,
    REASON_CHARS_MAX,
    STATUS_ROWS_MAX,
    STATUS_TOPICS_MAX,
    TRANSACTION_TASKS_MAX,
    WAIT_MS_MAX,
)
from .message_base import (
    BytesMax,
    Count,
    Crc32,
    GroupField,
    GroupTerms,
    Natural,
    Nonce,
    Positive,
    Request,
    Role,
    Start,
    StoredQoS,
    Terms,
    TopicField,
)
from .pattern_messages import Fetch, Match


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
    group: GroupField | UnsetType = UNSET  # join this group; `cursor`: only if there is one
    group_terms: GroupTerms | UnsetType = UNSET  # of the whole group, from now on


class Unsub(Request, frozen=True, kw_only=True, tag="UNSUB"):
    """End a subscription: idempotent. Answered by UNSUB_ACK, STALE, FENCED or STORAGE_FULL."""

    topic: TopicField
    control: Positive
    group: GroupField | UnsetType = UNSET  # leave this group, which gets back what is held
    ends_group: bool | UnsetType = UNSET  # True: the group ends, for all its members


How = Literal["ack", "nack", "return", "extend", "reject"]


class Outcome(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What became of messages that a member holds. `nack`: another delivery, after `delay_ms`.
    `return`: the same, not counted, because the program never saw them. `extend`: the lease begins
    again. `reject`: of one message, which becomes a dead letter.
    """

    first: Natural  # offset
    count: Positive  # messages
    delivery: Positive  # from TAKEN
    how: How
    delay_ms: Annotated[int, Meta(ge=0, le=LEASE_MS_MAX)] = 0
    reason: Annotated[str, Meta(max_length=REASON_CHARS_MAX)] = ""


Outcomes = Annotated[tuple[Outcome, ...], Meta(max_length=GROUP_OUTCOMES_MAX)]


class Take(Request, frozen=True, kw_only=True, tag="TAKE"):
    """Settle messages, and take more of a group; each is held until the lease of the group ends.

    Answered by TAKEN, NOT_SUB, STALE, MALFORMED, LIMIT, FULL, FENCED or STORAGE_FULL. A repeat with
    the same request number is given the same messages. The lease counts from the sending.
    """

    topic: TopicField
    group: GroupField
    generation: Positive  # of the group, from SUB_ACK
    outcomes: Outcomes = ()
    messages_max: Count = 1
    bytes_max: BytesMax = BODY_BYTES_MAX
    wait_ms: Annotated[int, Meta(ge=0, le=WAIT_MS_MAX)] | UnsetType = UNSET  # as in GET
    received: Natural = 0  # number of the newest TAKE whose messages came; later ones are lost
    fresh: bool = False  # the sender holds nothing: what it held is given back, as delivered


class Settle(Request, frozen=True, kw_only=True, tag="SETTLE"):
    """Settle messages of a group, durably. Answered by SETTLED, or a refusal of TAKE."""

    topic: TopicField
    group: GroupField
    generation: Positive
    outcomes: Outcomes


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


class Clients(Request, frozen=True, kw_only=True, tag="CLIENTS"):
    """Ask for one page of the client ids that the proxy knows; needs no session.

    Answered by CLIENTS_REPORT.
    """

    after_client: str = ""  # ids are listed in order; "" is the first page
    clients_max: Annotated[int, Meta(ge=1, le=STATUS_ROWS_MAX)] = STATUS_ROWS_MAX


class Admin(Request, frozen=True, kw_only=True, tag="ADMIN"):
    """Look at what an action would do, or do it, once however often it is sent.

    Answered by ADMIN_ACK, STALE, NOT_POSSIBLE, TRUNCATED, MALFORMED or STORAGE_FULL. Needs no
    session (`epoch` is ignored).

    Actions are numbered by the proxy, without gaps. A look is told the next number, and the same
    action with that number and a nonce does it. It is STALE if another one has taken the number.
    """

    do: AnyAction
    number: Natural = 0  # of this action; 0: only look
    nonce: Nonce | None = None  # random, for each action that is done; every copy repeats it


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
    | Take
    | Settle
    | Match
    | Fetch
    | Sub
    | Unsub
    | Bye
    | History
    | Ring
    | Listeners
    | Subscriptions
    | Status
    | Clients
    | Admin
)
