"""What messages are made of: fields with their ranges, what every request and answer has. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from .arguments import check_fields
from .limits import (
    BATCH_MESSAGES_MAX,
    BODY_BYTES_MAX,
    DELIVERIES_MAX,
    LEASE_MS_MAX,
    NONCE_BYTES_MAX,
    NUMBER_MAX,
)
from .names import CLIENT_ID_PATTERN, KEY_PATTERN, SUBSCRIPTION_PATTERN, TOPIC_PATTERN

Role = Literal["publisher", "subscriber"]
Durability = Literal["sync", "os", "snapshot"]
Promise = Literal["sync", "os", "snapshot", "replicated"]  # the last: on a standby server, too
QoS = Literal[0, 1, 2]  # 0: at most once, never stored; 1: at least once; 2: exactly once
StoredQoS = Literal[1, 2]
SessionKind = Literal["persistent", "clean"]
DelayS = Annotated[float, Meta(ge=0, le=LEASE_MS_MAX // 1000)]
LeaseS = Annotated[float, Meta(ge=0.001, le=LEASE_MS_MAX // 1000)]  # allowed silence

ClientField = Annotated[str, Meta(pattern=CLIENT_ID_PATTERN)]
GroupField = Annotated[str, Meta(pattern=CLIENT_ID_PATTERN)]
SubscriptionField = Annotated[str, Meta(pattern=SUBSCRIPTION_PATTERN)]
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
    by_pattern: bool | UnsetType = UNSET  # True: made by patterns alone, so it ends with the last

    def joined(self, other: Terms) -> Terms:
        """Return the terms that keep what either of two subscriptions is to receive (rule R32)."""
        lasting = [one for one in (self, other) if one.session == "persistent"] or [self, other]
        leases_ms = [one.lease_ms for one in lasting]
        return Terms(
            qos=max(self.qos, other.qos),
            session=lasting[0].session,
            lease_ms=0 if 0 in leases_ms else max(leases_ms),
            by_pattern=(self.by_pattern and other.by_pattern) or UNSET,
        )


class Request(Struct, frozen=True, kw_only=True, tag_field="verb", forbid_unknown_fields=True):
    """The fields of every request; the answer repeats these three (rule R1)."""

    client: ClientField
    epoch: Natural  # the sender's incarnation, granted by HELLO; an older one is FENCED
    request: Natural  # 1, 2, 3, ... within the epoch; every attempt of a request repeats it
    key: KeyField | UnsetType = UNSET  # public key of the sender, added by a relay


class Reply(Struct, frozen=True, kw_only=True, tag_field="answer"):
    """The fields of every answer: those repeated from the request (R1), and those of the proxy."""

    client: str
    epoch: int
    request: int
    boot: str = ""  # random, per start of the proxy; filled in by the server
    durability: Promise = "sync"  # what an acknowledgement means here


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


OrderedBy = Literal["", "key"]


class GroupTerms(Struct, frozen=True, kw_only=True):
    """What holds for every member of a group."""

    lease_ms: Annotated[int, Meta(ge=1, le=LEASE_MS_MAX)] = 30_000  # how long a message is held
    max_deliveries: Annotated[int, Meta(ge=0, le=DELIVERIES_MAX)] = 0  # then a dead letter; 0: any
    ordered_by: OrderedBy = ""  # key: of each key one message at a time is held, in order
