"""Bytes to messages and back: the only file that knows the frames.

Requests and replies are `RPS1` | header | body, the body only where the message has one.
Decoding returns a value or raises `MalformedError`, nothing else, whatever the bytes are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from .answers import AnyReply, MessageBatches
from .batch import crc32
from .errors import MalformedError
from .group_messages import Settle, Take, Taken
from .limits import BODY_BYTES_MAX, FRAMES_MAX, HEADER_BYTES_MAX
from .message_base import Reply, Request
from .names import topic_fits
from .pattern_messages import Fetch, Fetched, Match
from .requests import AnyRequest, Dead, Hello, History, Put, Sub
from .transaction_messages import Commit, Stage
from .well_formed import check_fields, check_keys

PROTOCOL = b"RPS1"
# Tuples, because a union is made again each time that it is looked at.
_CHECKED: Final = (Sub, History, Commit, Take, Settle, Match)
_OF_SEVERAL: Final = (Hello, Fetch)
_WITH_BODY: Final = (Put, Stage, Dead)
_ANSWERS_WITH_BODY: Final = (MessageBatches, Taken, Fetched)

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[AnyRequest] = msgspec.msgpack.Decoder(AnyRequest)
_replies: msgspec.msgpack.Decoder[AnyReply] = msgspec.msgpack.Decoder(AnyReply)


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
        request = _requests.decode(header)
        if _encoder.encode(request) != header:  # ours never differ
            check_keys(header)
        if isinstance(request, _CHECKED):
            check_fields(request, header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"header: {error}") from error
    if isinstance(request, _WITH_BODY):
        verb = type(request).__name__.upper()
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
    if len(frames) == 2 and frames[0] == PROTOCOL and len(frames[1]) <= HEADER_BYTES_MAX:
        header, body = frames[1], None
    else:
        header, body = _split(frames)
    try:
        reply = _replies.decode(header)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"header: {error}") from error
    if isinstance(reply, _ANSWERS_WITH_BODY):
        batches = (
            [b for t in reply.topics for b in t.batches]
            if isinstance(reply, Fetched)
            else reply.batches
        )
        promised = sum(batch.body_bytes for batch in batches)
        verb = reply.__struct_config__.tag
        if promised != len(body or b"") or any(b.body_bytes < 0 for b in batches):
            raise MalformedError(f"{verb}: the body is not as long as its batches")
    return reply, body or b""


def _split(frames: Sequence[bytes]) -> tuple[bytes, bytes | None]:
    if not frames or frames[0] != PROTOCOL:
        raise MalformedError("first frame is not RPS1: another protocol, or another version")
    if not 2 <= len(frames) <= FRAMES_MAX:
        raise MalformedError(f"{len(frames)} frames, expected RPS1, header and perhaps a body")
    if len(frames[1]) > HEADER_BYTES_MAX:
        raise MalformedError(f"header of {len(frames[1])} bytes, at most {HEADER_BYTES_MAX}")
    if len(frames) == 3 and len(frames[2]) > BODY_BYTES_MAX:
        raise MalformedError(f"body of {len(frames[2])} bytes, at most {BODY_BYTES_MAX}")
    return frames[1], frames[2] if len(frames) == 3 else None
