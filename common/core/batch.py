"""The batch: 1..N messages of one publisher for one topic, encoded once, opaque to the proxy."""

from __future__ import annotations

import reprlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count as numbers_from
from itertools import islice, repeat
from typing import Annotated, Any, Final, Protocol, TypeVar, overload

from msgspec import Meta, Struct

from .limits import BATCH_MESSAGES_MAX, PAYLOAD_BYTES_MAX, REPLY_BATCHES_MAX
from .message_base import BatchHeader
from .names import message_id
from .parameters import SHOWN_CHARS_MAX
from .payload import decoded

ENTRY_BYTES: Final = 400  # memory of a batch that is kept or waits, without its body
# What the encoding adds, at most, to each message, and to one of which nothing but a payload is set
# in any message of its batch.
MESSAGE_OVERHEAD_BYTES: Final = 16
PAYLOAD_OVERHEAD_BYTES: Final = 5
HEADER_OVERHEAD_BYTES: Final = 10  # to each header
EVENT_TIME_BYTES: Final = 9
ABSENT_BYTES: Final = 3  # a message's nil entries in the columns that others use
BATCH_ROOM_BYTES: Final = PAYLOAD_BYTES_MAX  # what its messages take together, at most
NO_OFFSET: Final = -1  # of a message that was never stored

# Signed 64 bits, which every reader has: the years 1677 to 2262. Before 1970 it is negative.
EVENT_TIME_NS_MIN: Final = -(2**63)
EVENT_TIME_NS_MAX: Final = 2**63 - 1
EventTimeNs = Annotated[int, Meta(ge=EVENT_TIME_NS_MIN, le=EVENT_TIME_NS_MAX)]


_Value = TypeVar("_Value")


_short = reprlib.Repr()
_short.maxstring = _short.maxother = SHOWN_CHARS_MAX
_short.maxdict = 4


def shortened(payload: bytes) -> str:
    """Return the beginning of a payload."""
    if len(payload) <= SHOWN_CHARS_MAX // 2:
        return repr(payload)
    return f"{payload[: SHOWN_CHARS_MAX // 2]!r}..."


def fits_event_time(time_ns: int) -> bool:
    """Whether a time fits in 64 bits; other client implementations may put larger ones."""
    return EVENT_TIME_NS_MIN <= time_ns <= EVENT_TIME_NS_MAX


class Batch(Struct, frozen=True, array_like=True):
    """The columns of a batch; each is nil or has one entry for each message."""

    payloads: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None
    headers: Sequence[Mapping[str, str] | None] | None = None
    event_times_ns: Sequence[int | None] | None = None

    def __repr__(self) -> str:
        return f"<Batch of {len(self.payloads):,} messages>"


def column(values: Sequence[_Value | None]) -> Sequence[_Value | None] | None:
    """A column of a batch: nil, if no message uses it."""
    return None if all(value is None for value in values) else values


def fit_in_a_batch(size: int, count: int) -> bool:
    """Whether one batch can hold so many messages, which take so many bytes together."""
    return size <= BATCH_ROOM_BYTES and count <= BATCH_MESSAGES_MAX


def message_bytes(
    payload: bytes,
    key: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    event_time_ns: int | None = None,
) -> int:
    """What a message takes of a batch, at most; a batch has room for BATCH_ROOM_BYTES."""
    size = len(payload) + len(key or b"") + MESSAGE_OVERHEAD_BYTES
    for name, value in (headers or {}).items():
        size += len(name.encode()) + len((value or "").encode()) + HEADER_OVERHEAD_BYTES
    return size if event_time_ns is None else size + EVENT_TIME_BYTES


class Message(Struct, frozen=True, gc=False):
    """One message as a subscriber sees it."""

    topic: str
    offset: int  # in its topic: 0, 1, 2, ...; `NO_OFFSET` if it was put at QoS 0
    publisher: str
    sequence: int  # the publisher's number in this topic
    timestamp_ns: int  # when the proxy stored the batch
    payload: bytes
    key: bytes | None = None
    headers: Mapping[str, str] | None = None
    event_time_ns: int | None = None  # the publisher's own time of the event
    delivery_count: int = (
        1  # how often it was delivered here; above 1 after a crash, or in a replay
    )
    qos: int = 2  # the lower of the publisher's level and the subscription's

    @property
    def message_id(self) -> str:
        """`<publisher>_<sequence>`, unique within the topic."""
        return message_id(self.publisher, self.sequence)

    @property
    def value(self) -> Any:
        """The payload, decoded as its header `content-type` says; without one, the bytes.

        It is decoded at each access.

        Raises:
            PayloadError: no codec here knows the content type, or the bytes are not of it.
        """
        return self.value_as(Any)

    @overload
    def value_as(self, kind: type[_Value]) -> _Value: ...

    @overload
    def value_as(self, kind: Any) -> Any: ...

    def value_as(self, kind: Any) -> Any:
        """Return the payload as a value of a type, checked for JSON and MessagePack.

        Args:
            kind: a type as `typed` takes it, or a codec of the program, which reads it whatever
                the header says. Without the header a payload is read as JSON.

        Raises:
            PayloadError: the bytes are not such a value.
            UsageError: no codec here can read the type.
        """
        return decoded(self.payload, self.headers, kind, topic=self.topic, offset=self.offset)

    def __repr__(self) -> str:
        """Return one line, with long values shortened."""
        key = "" if self.key is None else f" key={_short.repr(self.key)}"
        headers = "" if self.headers is None else f" headers={_short.repr(dict(self.headers))}"
        return (
            f"<Message {self.message_id} topic={_short.repr(self.topic)} offset={self.offset}"
            f"{key}{headers} delivery_count={self.delivery_count} qos={self.qos} "
            f"{len(self.payload):,} bytes: {shortened(self.payload)}>"
        )

    @property
    def redelivered(self) -> bool:
        """Whether it was delivered before: it was not acknowledged, or it is replayed."""
        return self.delivery_count > 1


class BatchPlace(Protocol):
    """Where the messages of a batch stand."""

    @property
    def base(self) -> int:
        """The offset of the first."""

    @property
    def count(self) -> int:
        """How many there are."""


_Place = TypeVar("_Place", bound=BatchPlace)


def whole_batches(
    batches: Iterable[tuple[_Place, bytes]], offset: int, *, messages_max: int, bytes_max: int
) -> Iterator[tuple[_Place, bytes]]:
    """The batches that one answer to a GET holds: whole ones, and at least one, if there is one.

    Args:
        batches: in their order; those that end at or below `offset` are passed over.
        messages_max: none is given after the one that reaches it, counted from `offset`.
        bytes_max: none is given that would pass it, the first one apart.

    Yields:
        At most `REPLY_BATCHES_MAX`; of `batches` nothing is read that is not needed to know.
    """
    number = messages = size = 0
    for place, body in batches:
        end = place.base + place.count
        if end <= offset:
            continue
        size += len(body)
        if number and size > bytes_max:
            return
        yield place, body
        number += 1
        messages += end - max(place.base, offset)
        if messages >= messages_max or number == REPLY_BATCHES_MAX:
            return


crc32: Callable[[bytes | memoryview], int] = zlib.crc32  # of a body; IEEE 802.3


class StoredBatch(Struct, frozen=True):
    """A decoded batch with its header, without its first `skip` messages."""

    header: BatchHeader
    columns: Batch
    skip: int = 0  # messages at its beginning that are below what was asked for

    @property
    def offset(self) -> int:
        """The offset of the first message after the skipped ones."""
        return self.header.base + self.skip

    @property
    def end(self) -> int:
        """The offset after its last message."""
        return self.header.base + self.header.count

    @property
    def count(self) -> int:
        """The number of messages without the skipped ones."""
        return self.header.count - self.skip

    def messages(self, topic: str, *, qos: int = 2, is_stored: bool = True) -> list[Message]:
        """Its messages in order, without the skipped ones.

        Args:
            qos: of the subscription; a message has the lower of it and its publisher's.
            is_stored: else they have no offset (QoS 0).
        """
        header, batch, skip = self.header, self.columns, self.skip
        columns = (batch.keys, batch.headers, batch.event_times_ns)
        return list(
            map(
                Message,
                repeat(topic),
                numbers_from(header.base + skip) if is_stored else repeat(NO_OFFSET),
                repeat(header.publisher),
                numbers_from(header.first_sequence + skip),
                repeat(header.timestamp_ns),
                islice(batch.payloads, skip, None),
                *(repeat(None) if one is None else islice(one, skip, None) for one in columns),
                repeat(1),
                repeat(min(header.qos, qos)),
            )
        )


def messages_in(topic: str, batches: Iterable[StoredBatch]) -> list[Message]:
    """The messages of batches, one by one."""
    return [message for batch in batches for message in batch.messages(topic)]
