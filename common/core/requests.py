"""Every request: frozen values, with units and ranges next to the fields.

Requests of these features are in files of their own, with their answers: transactions, groups,
patterns, QoS 0, interests, status, actions of operators.

The wire form (docs/internals/protocol.md) is a msgpack map; the tag `verb` names the type. A
request with an unknown field is refused, because a proxy cannot honour a field it does not know.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from .actions import AdminRequest
from .group_messages import Settle, Take
from .interest_messages import Subscriptions
from .limits import (
    BODY_BYTES_MAX,
    HELLO_TOPICS_MAX,
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
from .qos0_messages import Listeners, Ring
from .status import Clients, Status
from .transaction_messages import Abort, Commit, Stage


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
    """Append one batch (the body frame) to a topic, exactly once however often it is sent (QoS 2).

    Answered by ACK, DUPLICATE, GAP, CONFLICT, FENCED, LIMIT, FULL, BUSY or STORAGE_FULL.

    At QoS 1 every copy is appended: numbers are not compared, and need to be unique only if readers
    are to recognise a copy by its id.
    """

    topic: TopicField
    first_sequence: Positive  # of the batch; it uses first_sequence .. first_sequence + count - 1
    count: Count  # messages in the batch
    crc: Crc32  # CRC-32 of the body frame
    qos: StoredQoS = 2  # QoS 0 has no requests: see `relay/core/unstored.py`


class DeliveryRequest(Request, frozen=True, kw_only=True, tag="DELIVERY"):
    """Ask which of the current subscribers have acknowledged a message; needs no session.

    Answered by DELIVERED, LOG_CHANGED or LIMIT.
    """

    topic: TopicField
    offset: Natural  # of the message, or of the last of several
    log: str | None = None  # log id that the offset refers to; None: the current log


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
    # How long the proxy may hold the answer while there is nothing to read; unset: not at all.
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
    the witness shows that both refer to the same log (rule R14). `start` is where a new one begins;
    one that exists resumes, unless it is clean, at QoS 0, or `seeks` moves it (rule R33). With
    `start` and `cursor` it begins at the greatest of the offset of `start`, the cursor, and the
    acknowledged cursor that the proxy knows.
    """

    topic: TopicField
    control: Positive  # numbers SUB and UNSUB within the epoch; a late copy is STALE (R12)
    log: str | None = None  # log id the client knows
    cursor: Natural | None = None
    witness_ns: Natural | None = None  # timestamp of the batch that holds offset cursor - 1
    start: Start | None = None  # with `cursor`: acknowledged messages are not redelivered
    seeks: bool | UnsetType = UNSET  # True: move an existing subscription to `start`
    terms: Terms = Terms()  # a clean session needs a lease
    group: GroupField | UnsetType = UNSET  # join this group; `cursor`: only if there is one
    group_terms: GroupTerms | UnsetType = UNSET  # of the whole group, from now on


class Unsub(Request, frozen=True, kw_only=True, tag="UNSUB"):
    """End a subscription: idempotent. Answered by UNSUB_ACK, STALE, FENCED or STORAGE_FULL."""

    topic: TopicField
    control: Positive
    group: GroupField | UnsetType = UNSET  # leave this group, which gets back what is held
    ends_group: bool | UnsetType = UNSET  # True: the group ends, for all its members


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
    log: str | None = None  # log id that `start` refers to; None: the current log
    witness_ns: Natural | None = None  # with an offset: of the batch that holds the one before it
    messages_max: Count = 1
    bytes_max: BytesMax = BODY_BYTES_MAX


AnyRequest = (
    Hello
    | Put
    | Stage
    | Commit
    | Abort
    | DeliveryRequest
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
    | AdminRequest
)
