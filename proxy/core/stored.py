"""The state as a store holds it: what a broker starts from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct

from reliable_pubsub.common.core.message_base import Role, Terms

# An operator has moved a subscription, and its subscriber has not yet taken that: its own place no
# longer counts ("set"), or only if it is above the cursor ("skip").
Moved = Literal["", "set", "skip"]
ForgottenKind = Literal["session", "subscription", "publisher"]
Row = TypeVar("Row")


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
    deleted: bool = False


class StoredSession(Struct, frozen=True, gc=False):
    """One client as the store holds it."""

    role: Role
    client: str
    epoch: int
    nonce: bytes
    control: int


class StoredState(Struct, frozen=True):
    """The stored state from which a broker starts."""

    store_id: str  # random, made with the data directory; part of every log id
    topics: Sequence[StoredTopic] = ()
    sessions: Sequence[StoredSession] = ()
    epoch_floor: int = 0  # the highest epoch of the forgotten sessions
    generation_floor: int = 0  # the same of generations
    rows: Mapping[type[Any], Sequence[Any]] = {}  # of features, by type

    def of(self, kind: type[Row]) -> Sequence[Row]:
        """Return the rows of a feature."""
        return self.rows.get(kind, ())
