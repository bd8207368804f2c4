"""The state as a store holds it: what a broker starts from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from reliable_pubsub.common.core.actions import AnyAction, Effect
from reliable_pubsub.common.core.message_base import Role, Terms
from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.transaction_messages import TopicReceipt

from ..groups.state import StoredGroup

# An operator has moved a subscription, and its subscriber has not yet taken that: its own place no
# longer counts ("set"), or only if it is above the cursor ("skip").
Moved = Literal["", "set", "skip"]
ForgottenKind = Literal["session", "subscription", "publisher", "transaction", "charge"]
Charge = Literal["publisher", "subscriber", "topic"]  # what is charged to a key: an id, or a topic


class StoredSegment(Struct, frozen=True, gc=False):
    """A run of neighbouring batches; retention removes whole segments."""

    base: int
    end: int
    body_bytes: int
    batches: int
    timestamp_ns: int  # of its last batch
    since_ns: int  # local time of that; its timestamp, if another process stored it
    bytes_by: Mapping[str, int] = {}  # by publisher


class StoredPublisher(Struct, frozen=True, gc=False):
    """The newest batch of a publisher in a topic at one QoS, enough to check every later put."""

    publisher: str
    first_sequence: int
    count: int
    base: int
    crc: int
    qos: int = 2


class StoredSubscription(Struct, frozen=True, gc=False):
    """A subscription, live or ended."""

    subscriber: str
    generation: int
    cursor: int
    active: bool
    shown: int = 0
    terms: Terms = Terms()
    expired: bool = False
    moved: Moved = ""
    skipped: tuple[int, int] | None = None


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
    groups: Sequence[StoredGroup] = ()
    deleted: bool = False


class StoredPattern(Struct, frozen=True, gc=False):
    """A subscription by pattern."""

    subscriber: str
    pattern: Pattern
    terms: Terms
    reader: str = ""


class StoredSession(Struct, frozen=True, gc=False):
    """One client as the store holds it."""

    role: Role
    client: str
    epoch: int
    nonce: bytes
    control: int


class StoredCharge(Struct, frozen=True, gc=False):
    """The key to which an id or a topic is charged."""

    kind: Charge
    name: str
    key: str  # its name


class StoredTransaction(Struct, frozen=True, gc=False):
    """The last transaction that a publisher has committed."""

    client: str
    transaction: int
    digest: bytes  # of its content, computed by the writer; empty: not sent
    receipts: tuple[TopicReceipt, ...]


class StoredAction(Struct, frozen=True):
    """What an operator did."""

    number: int  # 1, 2, 3, ...
    nonce: bytes
    at_ns: int  # wall clock
    who: str  # name of the key; "": the proxy knows no keys
    client: str
    action: AnyAction
    effect: Effect


class StoredState(Struct, frozen=True):
    """The stored state from which a broker starts."""

    store_id: str  # random, made with the data directory; part of every log id
    topics: Sequence[StoredTopic] = ()
    sessions: Sequence[StoredSession] = ()
    transactions: Sequence[StoredTransaction] = ()  # the last one of each publisher
    epoch_floor: int = 0  # the highest epoch of the forgotten sessions
    generation_floor: int = 0  # the same of generations
    actions: Sequence[StoredAction] = ()  # of operators, the newest last
    paused: str | None = None  # the reason; None: puts go on
    patterns: Sequence[StoredPattern] = ()
    charges: Sequence[StoredCharge] = ()
