"""A message as one line of JSON, which `get` and `--output` write and `put` reads. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .batch import NO_OFFSET, Message
from .errors import ConfigurationError
from .schemas import json_decoder


class _Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bytes that are not text stand under a name that says base64. To put, a payload is enough."""

    topic: str = ""
    offset: int | None = None
    message_id: str = ""
    publisher: str = ""
    timestamp_ns: int = 0
    time: str = ""
    key: str | None = None
    key_base64: bytes | UnsetType = UNSET
    headers: Mapping[str, str] = {}
    event_time_ns: int | UnsetType | None = UNSET
    payload: str | UnsetType = UNSET
    payload_base64: bytes | UnsetType = UNSET


_encode = msgspec.json.Encoder().encode
_decode = json_decoder(_Line).decode


def message_line(message: Message) -> bytes:
    """Return a message as one line."""
    seconds, ns = divmod(message.timestamp_ns, 10**9)
    time = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    texts = _as_text("payload", message.payload)
    if message.key is not None:
        texts |= _as_text("key", message.key)
    line = _Line(
        topic=message.topic,
        offset=None if message.offset == NO_OFFSET else message.offset,
        message_id=message.message_id,
        publisher=message.publisher,
        timestamp_ns=message.timestamp_ns,
        time=f"{time}.{ns:09}Z",
        headers=message.headers or {},
        event_time_ns=UNSET if message.event_time_ns is None else message.event_time_ns,
        **texts,
    )
    return _encode(line) + b"\n"


def _as_text(name: str, value: bytes) -> dict[str, Any]:
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        return {f"{name}_base64": value}


class PutRow(Struct, frozen=True, kw_only=True):
    """One message to put."""

    payload: bytes
    key: bytes | None = None
    headers: Mapping[str, str] = {}
    event_time_ns: int | None = None


def row_of_line(line: bytes, number: int) -> PutRow:
    """Read a line that `message_line` wrote, or a program; only what can be put counts.

    Args:
        number: of the line, for errors.

    Raises:
        ConfigurationError: it is not such a line.
    """
    try:
        found = _decode(line)
        if isinstance(found.payload, str):
            payload = found.payload.encode()
        elif isinstance(found.payload_base64, bytes):
            payload = found.payload_base64
        else:
            raise msgspec.ValidationError("it has no payload")
    except msgspec.MsgspecError as error:
        raise ConfigurationError(
            f"line {number:,} is not a message: {error}. Expected an object with payload (text) or "
            "payload_base64, and perhaps key, key_base64, headers and event_time_ns. The lines "
            "before it were put. Without --json, a line is put as it is"
        ) from error
    key = None if found.key is None else found.key.encode()
    return PutRow(
        payload=payload,
        key=key if found.key_base64 is UNSET else found.key_base64,
        headers=found.headers,
        event_time_ns=None if found.event_time_ns is UNSET else found.event_time_ns,
    )
