"""Every answer: frozen values, with units and ranges next to the fields.

The wire form (docs/internals/protocol.md) is a msgpack map; the tag `answer` names the type. An
answer may carry fields that this client does not know yet.
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import UNSET, Struct, UnsetType

from .actions import AdminAck
from .group_messages import Settled, Taken
from .interest_messages import SubscriptionsReport
from .message_base import BatchHeader, Reply, Terms
from .pattern_messages import Fetched, Matched
from .qos0_messages import ListenersReport
from .status import ClientsReport, StatusReport
from .transaction_messages import AbortAck, CommitAck, StageAck


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
    # An operator has moved the subscription to `cursor`, and no request came from there yet. A
    # client with a higher cursor goes back; one with a lower cursor asks from there, and gets LOST.
    moved: bool | UnsetType = UNSET


class UnsubAck(Reply, frozen=True, kw_only=True, tag="UNSUB_ACK"):
    """The subscription has ended."""

    topic: str
    already: bool  # there was none


class ByeAck(Reply, frozen=True, kw_only=True, tag="BYE_ACK"):
    """The sender has left."""

    ended: int  # clean sessions that ended with it


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
    operator: bool | UnsetType = UNSET  # an operator has skipped or removed them, or some of them


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
    """The key of the sender lacks a right (docs/how-to/security.md). Nothing was changed."""

    right: str  # what is missing: id, relay, or a right by topic
    topic: str  # "": it is not of one topic


class Limit(Refusal, frozen=True, kw_only=True, tag="LIMIT"):
    """A bound of the proxy, or a quota of the key, is reached; waiting does not help."""

    limit: int


class NotPossible(Refusal, frozen=True, kw_only=True, tag="NOT_POSSIBLE"):
    """An action of an operator cannot be done as things are. Nothing was changed."""


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
    | Taken
    | Settled
    | Matched
    | Fetched
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
    | NotPossible
    | Malformed
    | Full
    | Busy
    | StorageFull
    | ListenersReport
    | SubscriptionsReport
    | StatusReport
    | ClientsReport
    | AdminAck
)
