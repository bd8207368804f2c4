"""Frames of QoS 0 puts, on their way to the proxy; the wire is docs/internals/protocol.md's.

    topic | RPS1 | header | body

An offer goes from a publisher to the ingress of the proxy, which gives it a place in the ring of
its topic and pushes it on (`push.PushedUnstored`). Both are sent once. As with every push frame,
the first frame is what ZeroMQ filters by: a message without a listener is dropped where it is put.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import InvalidNameError, MalformedError
from reliable_pubsub.common.core.limits import BODY_BYTES_MAX, HEADER_BYTES_MAX
from reliable_pubsub.common.core.message_base import ClientField, Count, Crc32, Natural
from reliable_pubsub.common.core.names import topic as checked_topic
from reliable_pubsub.common.core.patterns.matching import Kinds, Pattern
from reliable_pubsub.common.core.schemas import msgpack_decoder
from reliable_pubsub.common.core.well_formed import check_keys
from reliable_pubsub.common.core.wire import PROTOCOL

from .push import END

# No topic begins with this byte. The proxy asks for it always, so that a publisher sees the link.
LINKED: Final = b"\xff"


class Offer(
    Struct, frozen=True, kw_only=True, tag="OFFER", tag_field="push", forbid_unknown_fields=True
):
    """A batch at QoS 0, on its way to the proxy."""

    publisher: ClientField
    epoch: Natural  # of the publisher's session; one of an older process is not passed on
    first_sequence: Annotated[int, Meta(ge=1, le=2**62)]  # room for what follows
    count: Count
    crc: Crc32  # of the body


class OfferFrames(Struct, frozen=True):
    """An offer, read."""

    topic: str
    offer: Offer
    body: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgpack_decoder(Offer)


def topic_frame(topic: str) -> bytes:
    """The first frame of what is sent for a topic."""
    return topic.encode() + END


def encode_offer(topic: str, offer: Offer, body: bytes) -> list[bytes]:
    return [topic_frame(topic), PROTOCOL, _encoder.encode(offer), body]


def decode_offer(frames: Sequence[bytes]) -> OfferFrames:
    """Read an offer of any sender.

    Raises:
        MalformedError: says which rule the frames break.
    """
    if len(frames) != 4 or frames[1] != PROTOCOL or frames[0][-1:] != END:
        raise MalformedError("not an offer: topic and a zero byte, RPS1, header, body")
    if len(frames[2]) > HEADER_BYTES_MAX or len(frames[3]) > BODY_BYTES_MAX:
        raise MalformedError("the header or the body of an offer is too long")
    try:
        topic = checked_topic(frames[0][:-1].decode())
        offer = _decoder.decode(frames[2])
        check_keys(frames[2])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidNameError) as error:
        raise MalformedError(f"offer: {error}") from error
    if crc32(frames[3]) != offer.crc:
        raise MalformedError("offer: the body does not have the CRC-32 of its header")
    return OfferFrames(topic, offer, frames[3])


def is_wanted(topic: str, prefixes: Iterable[bytes]) -> bool:
    """Whether these prefixes include a topic."""
    frame = topic_frame(topic)
    known = prefixes if isinstance(prefixes, frozenset | set) else set(prefixes)
    return any(frame[:end] in known for end in range(len(frame) + 1))


def offer_prefixes(
    patterns: Iterable[Pattern], kinds: Kinds, uncapped: Iterable[Pattern] = ()
) -> frozenset[bytes]:
    """Return the proxy's prefixes for publishers: as narrow as ZeroMQ can filter.

    A prefix may include topics that no pattern matches. So there is also a mark of the patterns,
    which changes with them: then a publisher asks again whether its topics have a listener.

    Args:
        uncapped: the patterns of the mark, if `patterns` replaces them by everything.
    """
    tests = sorted(one for one in uncapped or patterns if one.kind != "exact")
    mark = LINKED + crc32(repr(tests).encode()).to_bytes(4)
    found = frozenset(_prefix(pattern, kinds) for pattern in patterns) | {LINKED}
    return found | {mark} if tests else found


def marks_of(prefixes: Iterable[bytes]) -> frozenset[bytes]:
    """Return the marks of patterns among these prefixes."""
    return frozenset(one for one in prefixes if one[:1] == LINKED and one != LINKED)


def _prefix(pattern: Pattern, kinds: Kinds) -> bytes:
    if kinds.everything(pattern):
        return b""
    if pattern.kind == "exact":
        return topic_frame(pattern.text)
    return kinds.literal_prefix(pattern).encode()
