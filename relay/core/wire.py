"""Frames of what nodes say to each other, and back. Decoding gives a value or MalformedError."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import msgspec

from reliable_pubsub.common.core.answers import AnyReply
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.limits import HEADER_BYTES_MAX
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.schemas import msgpack_decoder
from reliable_pubsub.common.core.tree_messages import AnyInterestReply, InterestRequest, Node
from reliable_pubsub.common.core.well_formed import check_keys
from reliable_pubsub.common.core.wire import PROTOCOL

_VERBS = frozenset({"INTEREST", "NODE"})


class _Verb(msgspec.Struct):
    verb: str


_verbs = msgpack_decoder(_Verb)
_requests: msgspec.msgpack.Decoder[InterestRequest | Node] = msgpack_decoder(InterestRequest | Node)
_FAULTS = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@cache  # when first used, as that of `common/core/wire.py`
def reply_decoder() -> msgspec.msgpack.Decoder[AnyReply | AnyInterestReply]:
    return msgpack_decoder(AnyReply | AnyInterestReply)


def is_for_node(frames: Sequence[bytes]) -> bool:
    """Whether a request is for the node that it came to, and not for the proxy above."""
    if len(frames) != 2 or frames[0] != PROTOCOL or len(frames[1]) > HEADER_BYTES_MAX:
        return False
    try:
        return _verbs.decode(frames[1]).verb in _VERBS
    except _FAULTS:
        return False


def decode_node_request(frames: Sequence[bytes]) -> InterestRequest | Node:
    """Read a request of which `is_for_node` is true.

    Raises:
        MalformedError: says which field is wrong.
    """
    try:
        request = _requests.decode(frames[1])
        check_keys(frames[1])
    except _FAULTS as error:
        raise MalformedError(f"header: {error}") from error
    patterns = request.patterns if isinstance(request, InterestRequest) else None
    if patterns and len(set(patterns)) < len(patterns):
        raise MalformedError("header: patterns: a set has no pattern twice")
    return request


def decode_node_reply(frames: Sequence[bytes]) -> Reply:
    """Read an answer to INTEREST or NODE.

    Raises:
        MalformedError: it is none.
    """
    if len(frames) != 2 or frames[0] != PROTOCOL or len(frames[1]) > HEADER_BYTES_MAX:
        raise MalformedError("an answer of a node is RPS1 and a header")
    try:
        return reply_decoder().decode(frames[1])
    except _FAULTS as error:
        raise MalformedError(f"header: {error}") from error
