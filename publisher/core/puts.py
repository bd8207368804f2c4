"""The put of one call: its bytes, the request that it may share, and its outcome. Pure.

It is given payloads, which are bytes or values with a codec, and is encoded before it waits for its
turn. The thread that has the turn takes the waiting puts for the same topic and QoS, sends them as
one batch, and settles each: with the receipt of their request, or with an error of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Final, Protocol, TypedDict, TypeVar

from msgspec import Struct

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import TimeoutS, check_argument
from reliable_pubsub.common.core.batch import (
    ABSENT_BYTES,
    PAYLOAD_OVERHEAD_BYTES,
    Batch,
    EventTimeNs,
    fit_in_a_batch,
    message_bytes,
)
from reliable_pubsub.common.core.dead_letter import check_put_on
from reliable_pubsub.common.core.errors import InDoubtError, PubSubError, TooLargeError, UsageError
from reliable_pubsub.common.core.limits import PAYLOAD_BYTES_MAX
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.parameters import parameter_of
from reliable_pubsub.common.core.payload import (
    CONTENT_TYPE,
    Codec,
    CodecName,
    codec_named,
    with_content_type,
)
from reliable_pubsub.common.core.payload import encoded as encoded_payload
from reliable_pubsub.common.core.start import is_in_another_unit
from reliable_pubsub.common.core.steps import Wait

from .outbox import Encoded, encoded_batch
from .receipt import AcknowledgedBy, Receipt

Column = TypeVar("Column")

# What it is given.

AnyCodec = CodecName | Codec
Headers = Mapping[str, str] | None
_Plain = Annotated[bytes, "bytes, or a value with a codec such as codec='json'"]
_PLAIN: Final = parameter_of(_Plain)
_PLAINS: Final = parameter_of(Sequence[_Plain])


class IsDataclass(Protocol):
    """An instance of a dataclass, for type checkers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class IsModel(Protocol):
    """A pydantic model, for type checkers."""

    def model_dump_json(self, *args: Any, **kwargs: Any) -> str:
        """Return it as JSON."""


# What is put without `codec`: bytes, or what the codec of a topic writes. Text is left out for type
# checkers, because it is nearly always a forgotten `encode`.
Payload = bytes | Struct | Mapping[str, Any] | IsDataclass | IsModel


class PutOptions(TypedDict, total=False):
    """The other arguments of `put`, for type checkers and editors."""

    key: bytes | None
    headers: Headers
    event_time_ns: EventTimeNs | None
    qos: QoS
    wait: Wait
    acknowledged_by: AcknowledgedBy | None
    timeout_s: TimeoutS


@lru_cache(maxsize=1024, typed=True)
def topic_to_put_on(topic: TopicName) -> str:
    """Accept the name of a topic that a program may put on.

    Raises:
        InvalidNameError, UsageError.
    """
    exact = names.exact(topic)
    check_put_on(exact)
    return exact


def check_payload_bytes(payload_bytes: int) -> None:
    """Refuse a payload that is too large for every kind of put.

    Raises:
        TooLargeError.
    """
    if payload_bytes > PAYLOAD_BYTES_MAX:
        raise TooLargeError(
            what="payload in bytes",
            size=payload_bytes,
            size_max=PAYLOAD_BYTES_MAX,
            advice="split it, or put a reference to it",
        )


def encoded_put(topic: str, batch: Batch, *, are_bytes: bool = False) -> Encoded:
    """Encode a program's messages; see `encoded_batch`.

    Raises:
        TooLargeError, UsageError.
    """
    for time_ns in batch.event_times_ns or ():
        if isinstance(time_ns, int) and is_in_another_unit(time_ns):
            raise UsageError(
                f"event_time_ns {time_ns} would be a time from 1970 to 1973, because it is in "
                "nanoseconds; multiply seconds by 10**9. Nothing was sent"
            )
    encoded = encoded_batch(topic, batch, are_bytes=are_bytes)
    if len(encoded.body) > PAYLOAD_BYTES_MAX:  # else no payload can be too large
        for payload in batch.payloads:
            check_payload_bytes(len(payload))
    return encoded


class WaitingPut(Struct, eq=False):
    """The put of one call, encoded, so that one thread's mistake does not fail others' request."""

    batch: Batch
    encoded: Encoded
    qos: QoS
    note: bytes | None = None  # stored with its numbers; at QoS 1 and 0 after the put
    is_alone: bool = False  # it shares no request
    ahead: int = 0  # messages of other puts before its own, in the request that they share
    # Once it is settled: the receipt of its request, or why it was not stored, or is in doubt.
    outcome: Receipt | PubSubError | None = None
    owner: dict[str, str] = {}

    def claim(self) -> bool:
        """Take it into a request of another call; return False if its caller has withdrawn it."""
        return self.owner.setdefault("by", "request") == "request"  # atomic

    def release(self) -> None:
        """Leave it to its caller: the request was not numbered."""
        self.owner.clear()

    def withdraw(self) -> bool:
        """Take it back, because its call timed out; False: a request has it."""
        return self.owner.setdefault("by", "caller") == "caller"

    @property
    def may_share(self) -> bool:
        """Whether its request may hold other puts: not if it has a note, or no reply (QoS 0)."""
        return not self.is_alone and self.note is None and self.qos != 0


class Payloads:
    """The payloads of one publisher, with the codecs that it has for topics."""

    def __init__(self, codecs: Mapping[str, Codec] | None = None) -> None:
        """Fix the codecs.

        Args:
            codecs: by topic. What is put there is written with the topic's codec; with a schema
                (`typed`) nothing else can be put.
        """
        self.by_topic: dict[str, Codec] = {
            names.exact(topic): codec for topic, codec in (codecs or {}).items()
        }

    def codec(self, topic: str, codec: AnyCodec | None) -> Codec | None:
        """The codec of a put; None: it is given bytes.

        Raises:
            UsageError: the topic has another one.
        """
        own = self.by_topic.get(str(topic)) if self.by_topic else None
        if codec is None:
            return own
        asked = codec_named(codec)
        if own is not None and asked != own:
            raise UsageError(
                f"topic {topic!r:.80} has the codec {own.name!r} in this publisher, and this put "
                f"asks for {asked.name!r}; leave `codec` out. Nothing was sent"
            )
        return asked

    def put(
        self,
        call: Callable[..., Any],
        topic: str,
        payload: object,
        codec: AnyCodec | None,
        key: bytes | None,
        headers: Headers,
        event_time_ns: int | None,
        qos: QoS,
        *client: object,
    ) -> WaitingPut:
        """The put of one message; see `one`."""
        if codec is not None or self.by_topic or type(payload) is not bytes:
            payload, headers = self.one(call, topic, payload, headers, codec, *client)
        batch = Batch(
            [payload],
            None if key is None else [key],
            None if headers is None else [headers],
            None if event_time_ns is None else [event_time_ns],
        )
        return WaitingPut(batch, encoded_put(topic_to_put_on(topic), batch, are_bytes=True), qos)

    def one(
        self,
        call: Callable[..., Any],
        topic: str,
        payload: object,
        headers: Headers,
        codec: AnyCodec | None,
        *client: object,
    ) -> tuple[bytes, Headers]:
        """The bytes and headers of one message.

        Args:
            client: whose class has the call in an error.

        Raises:
            UsageError: without a codec it is not bytes. PayloadError: the codec cannot write it.
        """
        chosen = self.codec(topic, codec)
        if chosen is None:
            plain: bytes = check_argument(call, "payload", payload, _PLAIN, *client)
            return plain, headers
        return encoded_payload(topic, payload, chosen), with_content_type(headers, chosen)

    def put_many(
        self,
        call: Callable[..., Any],
        topic: str,
        payloads: Sequence[object],
        codec: AnyCodec | None,
        keys: Sequence[bytes | None] | None,
        headers: Sequence[Headers] | None,
        event_times_ns: Sequence[int | None] | None,
        qos: QoS,
        *client: object,
    ) -> WaitingPut:
        """The put of several messages as one batch, each as `one`."""
        chosen = self.codec(topic, codec)
        plain: Sequence[bytes]
        if chosen is None:
            plain = check_argument(call, "payloads", payloads, _PLAINS, *client)
        else:
            plain = [encoded_payload(topic, payload, chosen) for payload in payloads]
            each = [None] * len(payloads) if headers is None else headers
            headers = [with_content_type(one, chosen) for one in each]
        batch = Batch(plain, keys, headers, event_times_ns)
        return WaitingPut(batch, encoded_put(topic_to_put_on(topic), batch, are_bytes=True), qos)

    def of_stream(
        self, call: Callable[..., Any], topic: str, payload: object, codec: AnyCodec | None
    ) -> tuple[bytes, str | None]:
        """The bytes of one message of a stream, and its content type, if it has one."""
        plain, headers = self.one(call, topic, payload, None, codec)
        return plain, None if headers is None else headers[CONTENT_TYPE]

    def check_bytes(self, topic: str) -> None:
        """Refuse a batch, whose payloads are bytes already, on a topic that has a codec."""
        if str(topic) in self.by_topic:
            raise UsageError(
                f"topic {topic!r:.80} has the codec {self.by_topic[str(topic)].name!r} in this "
                "publisher, and a batch has bytes: use put or put_many. Nothing was sent"
            )


def bytes_in_stream(payload: bytes, content_type: str | None) -> int:
    """What a message takes of a stream's batch, whose messages have one content type."""
    if content_type is None:
        return len(payload) + PAYLOAD_OVERHEAD_BYTES
    return message_bytes(payload, headers={CONTENT_TYPE: content_type})


# Which share a request, and what happens to them.


def fitting(first: WaitingPut, others: Iterable[object]) -> list[WaitingPut]:
    """`first`, and those puts of the others that can share its request, in their order."""
    puts = [first]
    if not first.may_share:
        return puts
    size = _size(first)
    count = first.encoded.count
    for put in others:
        if not isinstance(put, WaitingPut):
            continue
        if not put.may_share or put.outcome is not None:
            continue
        if (put.encoded.topic, put.qos) != (first.encoded.topic, first.qos):
            continue
        size_with, count_with = size + _size(put), count + put.encoded.count
        if fit_in_a_batch(size_with, count_with) and put.claim():
            puts.append(put)
            size, count = size_with, count_with
    return puts


def _size(put: WaitingPut) -> int:
    return len(put.encoded.body) + ABSENT_BYTES * put.encoded.count


def joined(puts: Sequence[WaitingPut]) -> tuple[Batch, Encoded]:
    """One batch of all their messages, and what is sent of it."""
    if len(puts) == 1:
        return puts[0].batch, puts[0].encoded
    batches = [put.batch for put in puts]
    ahead = 0
    for put in puts:
        put.ahead = ahead
        ahead += put.encoded.count
    batch = Batch(
        [payload for one in batches for payload in one.payloads],
        _column([(one.keys, len(one.payloads)) for one in batches]),
        _column([(one.headers, len(one.payloads)) for one in batches]),
        _column([(one.event_times_ns, len(one.payloads)) for one in batches]),
    )
    return batch, encoded_batch(puts[0].encoded.topic, batch)


def _column(
    parts: Sequence[tuple[Sequence[Column | None] | None, int]],
) -> list[Column | None] | None:
    if all(part is None for part, _ in parts):
        return None
    return [value for part, count in parts for value in (part or [None] * count)]


def failed(puts: Iterable[WaitingPut], error: PubSubError, *, kept: bool = False) -> None:
    """Settle the others with separate copies of an error, because each thread raises its own.

    Args:
        kept: whether their batch is kept, to be sent again.
    """
    for put in puts:
        if put.outcome is None:
            put.outcome = copy_of(error, kept=kept)


def copy_of(error: PubSubError, *, kept: bool) -> PubSubError:
    """The error, for a message that is kept to be sent again, or is not."""
    one = type(error).__new__(type(error), *error.args)
    one.__dict__.update(error.__dict__)
    one.__cause__ = error.__cause__
    if isinstance(one, InDoubtError):
        one.kept = kept
    return one.with_traceback(error.__traceback__)
