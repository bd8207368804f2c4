"""What a put is given as bytes: payloads as they are, or values with a codec. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Protocol, TypedDict

from msgspec import Struct

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import check_argument
from reliable_pubsub.common.core.batch import (
    PAYLOAD_OVERHEAD_BYTES,
    Batch,
    EventTimeNs,
    message_bytes,
)
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.parameters import parameter_of
from reliable_pubsub.common.core.payload import (
    CONTENT_TYPE,
    Codec,
    CodecName,
    codec_named,
    encoded,
    with_content_type,
)
from reliable_pubsub.common.core.steps import Wait

from .combining import WaitingPut, topic_to_put_on
from .delivery import AcknowledgedBy, DeliveryS
from .outbox import encoded as encoded_batch

AnyCodec = CodecName | Codec
Headers = Mapping[str, str] | None
_Plain = Annotated[bytes, "bytes, or a value with a codec such as codec='json'"]
_PLAIN: Final = parameter_of(_Plain)
_PLAINS: Final = parameter_of(Sequence[_Plain])


class IsDataclass(Protocol):
    """An instance of a dataclass, for type checkers."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


# What is put without `codec`: bytes, or what the codec of a topic writes. Text is left out for type
# checkers, because it is nearly always a forgotten `encode`.
Payload = bytes | Struct | Mapping[str, Any] | IsDataclass


class PutOptions(TypedDict, total=False):
    """The other arguments of `put`, for type checkers and editors."""

    key: bytes | None
    headers: Headers
    event_time_ns: EventTimeNs | None
    qos: QoS
    wait: Wait
    acknowledged_by: AcknowledgedBy | None
    timeout_s: DeliveryS | None


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
    ) -> WaitingPut:
        """The put of one message; see `one`."""
        if codec is not None or self.by_topic or type(payload) is not bytes:
            payload, headers = self.one(call, topic, payload, headers, codec)
        batch = Batch(
            [payload],
            None if key is None else [key],
            None if headers is None else [headers],
            None if event_time_ns is None else [event_time_ns],
        )
        return WaitingPut(batch, encoded_batch(topic_to_put_on(topic), batch, are_bytes=True), qos)

    def one(
        self,
        call: Callable[..., Any],
        topic: str,
        payload: object,
        headers: Headers,
        codec: AnyCodec | None,
    ) -> tuple[bytes, Headers]:
        """The bytes and headers of one message.

        Raises:
            UsageError: without a codec it is not bytes. PayloadError: the codec cannot write it.
        """
        chosen = self.codec(topic, codec)
        if chosen is None:
            plain: bytes = check_argument(call, "payload", payload, _PLAIN)
            return plain, headers
        return encoded(topic, payload, chosen), with_content_type(headers, chosen)

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
    ) -> WaitingPut:
        """The put of several messages as one batch, each as `one`."""
        chosen = self.codec(topic, codec)
        plain: Sequence[bytes]
        if chosen is None:
            plain = check_argument(call, "payloads", payloads, _PLAINS)
        else:
            plain = [encoded(topic, payload, chosen) for payload in payloads]
            each = [None] * len(payloads) if headers is None else headers
            headers = [with_content_type(one, chosen) for one in each]
        batch = Batch(plain, keys, headers, event_times_ns)
        return WaitingPut(batch, encoded_batch(topic_to_put_on(topic), batch, are_bytes=True), qos)

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
