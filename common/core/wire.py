"""Bytes to messages and batches, and back: the only file that knows the frames.

Requests and replies are `RPS1` | header | body, the body only where the message has one. The body
of a PUT is a batch: columnar msgpack, `[payloads, keys, headers, event_times_ns]`. One pass in C
encodes or decodes a whole column, which is where the speed comes from.
Decoding returns a value or raises `MalformedError`, nothing else, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final

import msgspec

from .answers import AnyReply, MessageBatches
from .batch import (
    EVENT_TIME_NS_MAX,
    EVENT_TIME_NS_MIN,
    Batch,
    StoredBatch,
    crc32,
    fits_event_time,
)
from .errors import MalformedError, TooLargeError, UsageError
from .group_messages import Settle, Take, Taken
from .limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX, FRAMES_MAX, HEADER_BYTES_MAX
from .message_base import BatchHeader, Reply, Request
from .names import topic_fits
from .pattern_messages import Fetch, Fetched, Match
from .requests import AnyRequest, Dead, Hello, History, Put, Sub
from .schemas import msgpack_decoder
from .transaction_messages import Commit, Stage
from .well_formed import check_keys, check_request

PROTOCOL = b"RPS1"
# Tuples, because a union is made again each time that it is looked at.
_CHECKED: Final = (Sub, History, Commit, Take, Settle, Match)
_OF_SEVERAL: Final = (Hello, Fetch)
_WITH_BODY: Final = (Put, Stage, Dead)
_ANSWERS_WITH_BODY: Final = (MessageBatches, Taken, Fetched)
_BYTES: Final = frozenset({bytes, bytearray, memoryview})

_encoder = msgspec.msgpack.Encoder()
_batches = msgpack_decoder(Batch)


@cache  # made when first used: that takes 4 ms, and a client reads no requests
def request_decoder() -> msgspec.msgpack.Decoder[AnyRequest]:
    return msgpack_decoder(AnyRequest)


@cache
def reply_decoder() -> msgspec.msgpack.Decoder[AnyReply]:
    return msgpack_decoder(AnyReply)


def encode(message: Request | Reply, body: bytes | None = None) -> list[bytes]:
    """Frames of a request or a reply; PUT, STAGE, DEAD, MESSAGE, TAKEN and FETCHED have a body."""
    header = _encoder.encode(message)
    return [PROTOCOL, header] if body is None else [PROTOCOL, header, body]


def decode_request(frames: Sequence[bytes]) -> tuple[AnyRequest, bytes]:
    """Read a request and its body (empty where the verb has none).

    Raises:
        MalformedError: says which rule the frames break.
    """
    header, body = _split(frames)
    try:
        request = request_decoder().decode(header)
        if _encoder.encode(request) != header:  # ours never differ
            check_keys(header)
        if isinstance(request, _CHECKED):
            check_request(request, header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"header: {error}") from error
    if isinstance(request, _WITH_BODY):
        verb = request.__struct_config__.tag
        if body is None:
            raise MalformedError(f"{verb} has no body frame")
        if crc32(body) != request.crc:
            raise MalformedError(f"{verb}: the body does not have the CRC-32 of its header")
        if (
            not isinstance(request, Dead)
            and (request.first_sequence or 0) > 2**63 - 1 - request.count
        ):
            raise MalformedError(f"{verb}: sequence numbers end at 2^63 - 1")
    elif body is not None:
        raise MalformedError("only PUT, STAGE and DEAD have a body frame")
    topic = getattr(request, "topic", "")
    if not topic.isascii() or isinstance(request, _OF_SEVERAL):
        _check_topics(topic, request)
    return request, body or b""


def _check_topics(topic: str, request: AnyRequest) -> None:
    topics: Sequence[str] = [topic]
    if isinstance(request, Hello):
        topics = request.topics
    elif isinstance(request, Fetch):
        topics = [one.topic for one in request.told]
    if not all(map(topic_fits, topics)):
        raise MalformedError("topic: more than 255 bytes of UTF-8")


def decode_reply(frames: Sequence[bytes]) -> tuple[AnyReply, bytes]:
    """Read a reply and its body (empty where it has none).

    Raises:
        MalformedError: says which rule the frames break.
    """
    header, body = _split(frames)
    try:
        reply = reply_decoder().decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"header: {error}") from error
    if isinstance(reply, _ANSWERS_WITH_BODY):
        batches = (
            [*(b for t in reply.topics for b in t.batches), *(u.batch for u in reply.unstored)]
            if isinstance(reply, Fetched)
            else reply.batches
        )
        promised = sum(batch.body_bytes for batch in batches)
        verb = reply.__struct_config__.tag
        if promised != len(body or b"") or any(b.body_bytes < 0 for b in batches):
            raise MalformedError(f"{verb}: the body is not as long as its batches")
    return reply, body or b""


def _split(frames: Sequence[bytes]) -> tuple[bytes, bytes | None]:
    """The header and the body, if there is one."""
    count = len(frames)
    if not count or frames[0] != PROTOCOL:
        raise MalformedError("first frame is not RPS1: another protocol, or another version")
    if not 2 <= count <= FRAMES_MAX:
        raise MalformedError(f"{count} frames, expected RPS1, header and perhaps a body")
    if len(frames[1]) > HEADER_BYTES_MAX:
        raise MalformedError(f"header of {len(frames[1])} bytes, at most {HEADER_BYTES_MAX}")
    if count == 2:
        return frames[1], None
    if len(frames[2]) > BODY_BYTES_MAX:
        raise MalformedError(f"body of {len(frames[2])} bytes, at most {BODY_BYTES_MAX}")
    return frames[1], frames[2]


# Bodies.


def encode_batch(batch: Batch, *, are_bytes: bool = False) -> bytes:
    """Encode a batch.

    Args:
        are_bytes: the payloads were looked at, and each is bytes.

    Raises:
        TooLargeError: more than 65,536 messages, or more than 1 MiB encoded.
        UsageError: there is no message, or a column has an invalid value or another length.
    """
    count = len(batch.payloads)
    if not count:
        raise UsageError("there is nothing to put: a batch holds at least one message")
    if count > BATCH_MESSAGES_MAX:
        raise TooLargeError(
            what="messages in a batch",
            size=count,
            size_max=BATCH_MESSAGES_MAX,
            advice="split it",
        )
    if not are_bytes and not _BYTES.issuperset(map(type, batch.payloads)):
        raise UsageError("a payload is bytes; encode text first, for example text.encode()")
    is_plain = batch.keys is None and batch.headers is None and batch.event_times_ns is None
    if not is_plain:
        _check_lengths(batch)
        _check_event_times(batch.event_times_ns or ())
    try:
        body = _encoder.encode(batch)
    except (TypeError, OverflowError, UnicodeEncodeError) as error:
        raise UsageError(f"keys, headers or event times: {error}") from error
    if not is_plain:
        try:
            decode_batch(body, count)  # invalid columns would make the batch unreadable
        except MalformedError as error:
            raise UsageError(f"keys, headers or event times: {error}") from error
    if len(body) > BODY_BYTES_MAX:
        raise TooLargeError(
            what="encoded batch in bytes",
            size=len(body),
            size_max=BODY_BYTES_MAX,
            advice="send fewer or smaller messages at once",
        )
    return body


def _check_lengths(batch: Batch) -> None:
    """Refuse columns that are shorter or longer than the payloads.

    Raises:
        UsageError: names the first wrong column.
    """
    for name in ("keys", "headers", "event_times_ns"):
        column, count = getattr(batch, name), len(batch.payloads)
        if column is not None and len(column) != count:
            entries = "1 entry" if len(column) == 1 else f"{len(column):,} entries"
            raise UsageError(
                f"{name} has {entries}, payloads {count:,}: give one for each, or None. Nothing "
                "was sent"
            )


def _check_event_times(times: Sequence[int | None]) -> None:
    """Refuse times that do not fit in 64 bits, which some readers need.

    Raises:
        UsageError: names the first wrong time.
    """
    for time_ns in times:
        if time_ns is not None and (type(time_ns) is not int or not fits_event_time(time_ns)):
            raise UsageError(
                f"event_time_ns is {repr(time_ns)[:40]}, allowed are whole nanoseconds since 1970 "
                f"from {EVENT_TIME_NS_MIN} to {EVENT_TIME_NS_MAX} (the years 1677 to 2262)"
            )


def decode_batch(body: bytes | memoryview, count: int) -> Batch:
    """Decode a batch whose header promised `count` messages.

    Raises:
        MalformedError: the bytes are not a batch, or a column has another length.
    """
    try:
        batch = _batches.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"body is not a batch: {error}") from error
    for column in (batch.payloads, batch.keys, batch.headers, batch.event_times_ns):
        if column is not None and len(column) != count:
            raise MalformedError(f"batch has a column of {len(column)}, its header says {count}")
    return batch


def direct_batches(
    topic: str, cursor: int, batches: Sequence[BatchHeader], body: bytes
) -> list[StoredBatch]:
    """Decode the direct followers of a cursor; what is below it is dropped (rule R8).

    Raises:
        MalformedError: there is a gap before or between the batches, or a body is not what its
            publisher encoded. Nothing was taken.
    """
    found: list[StoredBatch] = []
    expected = cursor
    place = 0
    view = memoryview(body)
    for header in batches:
        part = view[place : place + header.body_bytes]
        place += header.body_bytes
        if header.base + header.count <= expected:
            continue
        if header.base > expected:
            raise MalformedError(
                f"topic {topic!r}: expected offset {expected}, the proxy sent {header.base}"
            )
        if crc32(part) != header.crc:
            raise MalformedError(
                f"topic {topic!r}: the batch at offset {header.base} does not have its CRC-32"
            )
        columns = decode_batch(part, header.count)
        found.append(StoredBatch(header, columns, expected - header.base))
        expected = header.base + header.count
    return found
