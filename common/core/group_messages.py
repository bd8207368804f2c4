"""TAKE and SETTLE: the members of a group take messages and report their outcome."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .limits import (
    BODY_BYTES_MAX,
    GROUP_OUTCOMES_MAX,
    LEASE_MS_MAX,
    REASON_CHARS_MAX,
    WAIT_MS_MAX,
)
from .message_base import (
    BatchHeader,
    BytesMax,
    Count,
    GroupField,
    Natural,
    Positive,
    Reply,
    Request,
    TopicField,
)

How = Literal["ack", "nack", "return", "extend", "reject"]


class Outcome(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The outcome of messages that a member holds. `nack`: another delivery, after `delay_ms`.
    `return`: the same, not counted, because the program never saw them. `extend`: they came, and
    the lease begins again. `reject`: of one message, which becomes a dead letter.
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
    fresh: bool = False  # the sender holds nothing: what it received is given back, as delivered


class Settle(Request, frozen=True, kw_only=True, tag="SETTLE"):
    """Settle messages of a group, durably. Answered by SETTLED, or a refusal of TAKE."""

    topic: TopicField
    group: GroupField
    generation: Positive
    outcomes: Outcomes


class Stretch(Struct, frozen=True, array_like=True):
    """Messages at offsets first .. first + count - 1."""

    first: int
    count: int


class Grant(Struct, frozen=True, array_like=True):
    """Messages that the sender now holds."""

    first: int
    count: int
    delivery: int  # 1: never delivered before


class Taken(Reply, frozen=True, kw_only=True, tag="TAKEN"):
    """The messages that the member now holds, in whole batches; none: there is nothing yet.

    The body frame is the bodies of the batches, which may have more messages than were granted.
    """

    grants: tuple[Grant, ...] = ()  # in offset order
    batches: tuple[BatchHeader, ...] = ()
    refused: tuple[Stretch, ...] = ()  # settled too late: the sender no longer held them
    letters: tuple[int, ...] = ()  # offsets of the dead letters of what was rejected
    lost: tuple[Stretch, ...] = ()  # removed before they were delivered
    lease_ms: int = 0  # how long they are held, counted from the sending of the request
    unconfirmed: bool | UnsetType = UNSET  # no deliveries until the member has extended them


class Settled(Reply, frozen=True, kw_only=True, tag="SETTLED"):
    """What the sender settled is durable, but for what is refused."""

    refused: tuple[Stretch, ...] = ()
    letters: tuple[int, ...] = ()
    lease_ms: int = 0  # of what was extended
