"""Push frames: one batch on its way down the tree; the wire is docs/internals/protocol.md's.

    topic | RPS1 | header | body

The first frame is what ZeroMQ filters by. It ends in a zero byte, which no topic holds, so that an
exact topic is a prefix too. A frame for one link alone begins with a zero byte and the link's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import InvalidNameError, MalformedError
from reliable_pubsub.common.core.limits import (
    HEADER_BYTES_MAX,
    LINK_BYTES,
    PATTERN_CHARS_MAX,
    PUSH_BODY_BYTES_MAX,
)
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.names import topic as checked_topic
from reliable_pubsub.common.core.patterns.matching import EVERYTHING, Kinds, Pattern
from reliable_pubsub.common.core.schemas import msgpack_decoder
from reliable_pubsub.common.core.wire import PROTOCOL

END: Final = b"\0"
_LINK_END = 1 + LINK_BYTES

# What a topic may begin with, byte by byte: space to ~, and the first byte of each longer
# character. All of them together are "every topic, and no frame for a single link".
FIRST_BYTES: Final = frozenset(bytes([one]) for one in (*range(0x20, 0x7F), *range(0xC2, 0xF5)))


class Pushed(Struct, frozen=True, kw_only=True, tag="BATCH", tag_field="push"):
    """One durable batch. Without a body frame it is only announced, and has to be fetched."""

    boot: str  # start of the proxy
    log: str  # log id of the topic
    batch: BatchHeader


class PushedUnstored(Struct, frozen=True, kw_only=True, tag="UNSTORED", tag_field="push"):
    """One batch that was put at QoS 0; the base of its header is its place in the ring.

    Without a body frame it can be had from the ring, as long as it is there.
    """

    boot: str  # start of the proxy
    batch: BatchHeader
    next: int | UnsetType = UNSET  # number of the batch after it, of all topics; see FETCH


class PushFrames(Struct, frozen=True):
    """A push frame, read."""

    topic: str
    pushed: Pushed
    body: bytes | None


class UnstoredFrames(Struct, frozen=True):
    """A push frame of what was put at QoS 0, read."""

    topic: str
    pushed: PushedUnstored
    body: bytes | None


AnyPush = PushFrames | UnstoredFrames

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Pushed | PushedUnstored] = msgpack_decoder(
    Pushed | PushedUnstored
)


def encode_push(topic: str, pushed: Pushed | PushedUnstored, body: bytes) -> list[bytes]:
    """Frames of a batch; a body above 64 KiB stays away."""
    frames = [topic.encode() + END, PROTOCOL, _encoder.encode(pushed)]
    return [*frames, body] if len(body) <= PUSH_BODY_BYTES_MAX else frames


def decode_push(frames: Sequence[bytes]) -> PushFrames:
    """Read a push frame of a durable batch; see `decode_any_push`.

    Raises:
        MalformedError: it is none.
    """
    push = decode_any_push(frames)
    if isinstance(push, UnstoredFrames):
        raise MalformedError("a push frame of a batch that is not stored")
    return push


def decode_any_push(frames: Sequence[bytes]) -> AnyPush:
    """Read a push frame for any receiver.

    Raises:
        MalformedError: says which rule the frames break.
    """
    if not 3 <= len(frames) <= 4 or frames[1] != PROTOCOL:
        raise MalformedError("not a push frame: topic, RPS1, header and perhaps a body")
    if len(frames[2]) > HEADER_BYTES_MAX:
        raise MalformedError(f"push header of {len(frames[2])} bytes, at most {HEADER_BYTES_MAX}")
    name = shared_topic_frame(frames[0])
    if name[-1:] != END:
        raise MalformedError("the topic of a push frame does not end in a zero byte")
    try:
        topic = checked_topic(name[:-1].decode())
        pushed = _decoder.decode(frames[2])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidNameError) as error:
        raise MalformedError(f"push frame: {error}") from error
    body = frames[3] if len(frames) == 4 else None
    if body is not None and (len(body), crc32(body)) != (pushed.batch.body_bytes, pushed.batch.crc):
        raise MalformedError("push frame: the body does not match its header")
    if isinstance(pushed, PushedUnstored):
        return UnstoredFrames(topic, pushed, body)
    return PushFrames(topic, pushed, body)


def single_topic_frame(link: bytes, topic_frame: bytes) -> bytes:
    """The first frame of a copy for one link alone."""
    return END + link + topic_frame


def shared_topic_frame(topic_frame: bytes) -> bytes:
    """The first frame as all receivers get it, also of a copy for one link."""
    return topic_frame[_LINK_END:] if topic_frame[:1] == END else topic_frame


def prefixes_of(patterns: Iterable[Pattern], kinds: Kinds) -> frozenset[bytes]:
    """What ZeroMQ is to filter by for a consumer; its other patterns are served singly."""
    prefixes: set[bytes] = set()
    for pattern in patterns:
        if kinds.everything(pattern):
            return FIRST_BYTES
        if pattern.kind == "exact":
            prefixes.add(pattern.text.encode() + END)
        elif pattern.kind == "prefix":
            prefixes.add(pattern.text.encode())
    return frozenset(prefixes)


def prefix_of(pattern: Pattern, kinds: Kinds) -> bytes:
    """The narrowest prefix that a plain ZeroMQ publisher can filter by for a pattern."""
    return b"" if kinds.everything(pattern) else kinds.literal_prefix(pattern).encode()


def pattern_of_plain(prefix: bytes) -> Pattern:
    """What a plain ZeroMQ subscriber means; a prefix cut within a character is made shorter."""
    for end in range(len(prefix), max(len(prefix) - 4, -1), -1):
        try:
            text = prefix[:end].decode()
        except UnicodeDecodeError:
            continue
        exact = text.endswith("\0") and len(text) > 1
        kind, name = ("exact", text[:-1]) if exact else ("prefix", text)
        return Pattern(kind, name) if len(name) <= PATTERN_CHARS_MAX else EVERYTHING
    return EVERYTHING
