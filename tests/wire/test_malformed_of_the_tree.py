"""INTEREST and offers keep the rules of requests: each key once, and none that is unknown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.relay.core.unstored import decode_offer
from reliable_pubsub.relay.core.wire import decode_node_request

from .vectors import BODY

INTEREST: dict[str, Any] = {
    "verb": "INTEREST",
    "client": "r",
    "epoch": 0,
    "request": 1,
    "link": bytes(16),
    "version": 1,
    "digest": bytes(32),
    "patterns": [["exact", "t"]],
}
OFFER: dict[str, Any] = {
    "push": "OFFER",
    "publisher": "p",
    "epoch": 1,
    "first_sequence": 1,
    "count": 1,
    "crc": crc32(BODY),
}


def twice(fields: dict[str, Any], key: str) -> bytes:
    """A map that says a key a second time."""
    pairs = [*fields.items(), (key, fields[key])]
    return bytes([0x80 + len(pairs)]) + b"".join(
        msgspec.msgpack.encode(one) for pair in pairs for one in pair
    )


def read_interest(header: bytes) -> None:
    decode_node_request([b"RPS1", header])


def read_offer(header: bytes) -> None:
    decode_offer([b"t\0", b"RPS1", header, BODY])


KINDS = pytest.mark.parametrize(
    ("read", "fields"), [(read_interest, INTEREST), (read_offer, OFFER)], ids=["INTEREST", "offer"]
)


@KINDS
def test_as_the_page_says_they_are_read(read: Any, fields: dict[str, Any]) -> None:
    read(msgspec.msgpack.encode(fields))


@KINDS
def test_a_key_that_is_there_twice_is_refused(read: Any, fields: dict[str, Any]) -> None:
    for key in fields:
        with pytest.raises(MalformedError, match="twice"):
            read(twice(fields, key))


@KINDS
def test_a_field_that_is_not_known_is_refused(read: Any, fields: dict[str, Any]) -> None:
    with pytest.raises(MalformedError, match="color"):
        read(msgspec.msgpack.encode({**fields, "color": "red"}))


def test_a_pattern_has_two_values() -> None:
    with pytest.raises(MalformedError, match="patterns"):
        read_interest(msgspec.msgpack.encode({**INTEREST, "patterns": [["exact", "t", "u"]]}))


def test_a_set_has_no_pattern_twice() -> None:
    patterns = [["exact", "t"], ["prefix", "t"], ["exact", "t"]]

    with pytest.raises(MalformedError, match="no pattern twice"):
        read_interest(msgspec.msgpack.encode({**INTEREST, "patterns": patterns}))
