"""Requests that cannot be taken, by what is wrong with them."""

from __future__ import annotations

import msgspec

from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.limits import BODY_BYTES_MAX, FRAME_BYTES_MAX, HEADER_BYTES_MAX
from reliable_pubsub.common.core.requests import Put
from reliable_pubsub.common.core.wire import PROTOCOL, encode, encode_batch

BODY = encode_batch(Batch([b"hostile"]))
_STATUS_FIELDS = {"verb": "STATUS", "client": "stranger", "epoch": 0, "request": 1}


def header(fields: object) -> bytes:
    """A header without any check."""
    return msgspec.msgpack.encode(fields)


def a_put(**changed: object) -> Put:
    """A put of a stranger."""
    fields = {"client": "stranger", "epoch": 1, "request": 7, "topic": "t", "first_sequence": 1}
    return msgspec.convert(fields | {"count": 1, "crc": crc32(BODY)} | changed, Put)


MALFORMED: dict[str, list[bytes]] = {
    "nothing": [b""],
    "no header": [PROTOCOL],
    "another protocol": [b"RPS2", header(_STATUS_FIELDS)],
    "text": [b"hello"],
    "empty header": [PROTOCOL, b""],
    "header is no msgpack": [PROTOCOL, b"\xc1\xc1\xc1"],
    "header is a list": [PROTOCOL, header([1, 2, 3])],
    "cut header": [PROTOCOL, header(_STATUS_FIELDS)[:-2]],
    "something after the header": [PROTOCOL, header(_STATUS_FIELDS) + b"x"],
    "nested deeper than the stack": [PROTOCOL, b"\x91" * 100_000],
    "huge map": [PROTOCOL, b"\xdf\xff\xff\xff\xff"],
    "huge text": [PROTOCOL, b"\x81\xa4verb\xdb\xff\xff\xff\xff"],
    "unknown verb": [PROTOCOL, header(_STATUS_FIELDS | {"verb": "DELETE"})],
    "no verb": [PROTOCOL, header({"client": "stranger"})],
    "unknown field": [PROTOCOL, header(_STATUS_FIELDS | {"password": "x"})],
    "bad id": [PROTOCOL, header(_STATUS_FIELDS | {"client": "../etc"})],
    "negative number": [PROTOCOL, header(_STATUS_FIELDS | {"request": -1})],
    "number above 2^63": [PROTOCOL, header(_STATUS_FIELDS | {"request": 2**63})],
    "id is a number": [PROTOCOL, header(_STATUS_FIELDS | {"client": 5})],
    "not UTF-8": [PROTOCOL, header(_STATUS_FIELDS).replace(b"stranger", b"\xff" * 8)],
    "body where none belongs": [PROTOCOL, header(_STATUS_FIELDS), b"body"],
    "nine frames": [PROTOCOL, header(_STATUS_FIELDS), *[b"x"] * 7],
    "put without body": encode(a_put()),
    "put with another crc": encode(a_put(crc=1), BODY),
    "long topic": encode(a_put(topic="\u00fc" * 200), BODY),
    "topic with a control character": [
        PROTOCOL,
        encode(a_put(topic="tab."))[1].replace(b"tab.", b"tab\t"),
        BODY,
    ],
    "large header": [PROTOCOL, b"\xc0" * (HEADER_BYTES_MAX + 1)],
    "large body": encode(a_put(), b"x" * (BODY_BYTES_MAX + 1)),
    "largest frame that is read": encode(a_put(), b"x" * FRAME_BYTES_MAX),
}
