"""A payload as a person reads it: as text, as JSON, as bytes. Pure.

Nothing is made safe here for being shown: the page puts every text into the document as text, and
shows control characters and marks of direction as escapes (`page/dom.js`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.payload import CONTENT_TYPE

PREVIEW_CHARS: Final = 200
SHOWN_BYTES_MAX: Final = 65_536  # of one payload
HEX_BYTES_MAX: Final = 4_096  # a dump takes four times as much
_LINE_BYTES: Final = 16

Form = Literal["text", "json", "hex"]


class Content(Struct, frozen=True, kw_only=True):
    """A payload in each form that it has."""

    best: Form  # the form to show first
    size: int  # bytes
    text: str | None  # None: it is no UTF-8
    json: str | None  # indented; None: it is no JSON
    hex: str  # its beginning
    left_out: int  # bytes that `text` does not show


class MessageRow(Struct, frozen=True, kw_only=True):
    """One message of a list."""

    offset: int
    timestamp_ns: str  # digits: a number of JavaScript would lose the last ones
    message_id: str
    key: str | None
    headers: int
    size: int
    form: Form
    preview: str


class MessageView(Struct, frozen=True, kw_only=True):
    """One message, whole."""

    row: MessageRow
    publisher: str
    sequence: int
    qos: int
    event_time_ns: str | None
    headers: tuple[tuple[str, str], ...]
    content: Content


def row_of(message: Message) -> MessageRow:
    """A message as one line."""
    form = best_form(message.payload[:SHOWN_BYTES_MAX], message.headers)
    return MessageRow(
        offset=message.offset,
        timestamp_ns=str(message.timestamp_ns),
        message_id=message.message_id,
        key=None if message.key is None else bytes_in_words(message.key),
        headers=len(message.headers or {}),
        size=len(message.payload),
        form=form,
        preview=_preview(message.payload, form),
    )


def view_of(message: Message) -> MessageView:
    """A message with all that belongs to it."""
    return MessageView(
        row=row_of(message),
        publisher=message.publisher,
        sequence=message.sequence,
        qos=message.qos,
        event_time_ns=None if message.event_time_ns is None else str(message.event_time_ns),
        headers=tuple((message.headers or {}).items()),
        content=content_of(message.payload, message.headers),
    )


def content_of(payload: bytes, headers: Mapping[str, str] | None = None) -> Content:
    """A payload in each form that it has, as far as there is room."""
    shown = payload[:SHOWN_BYTES_MAX]
    text = _text(shown, is_cut=len(payload) > SHOWN_BYTES_MAX)
    return Content(
        best=best_form(shown, headers),
        size=len(payload),
        text=text,
        json=_json(shown) if len(payload) <= SHOWN_BYTES_MAX else None,
        hex=hex_dump(payload[:HEX_BYTES_MAX]),
        left_out=max(len(payload) - SHOWN_BYTES_MAX, 0),
    )


def best_form(payload: bytes, headers: Mapping[str, str] | None = None) -> Form:
    """The form that a payload was most probably written in.

    A JSON object, array or string, or what its header says is JSON; a number alone is text.
    """
    said = [value for name, value in (headers or {}).items() if name.lower() == CONTENT_TYPE]
    may_be_json = any("json" in one for one in said) or payload.lstrip()[:1] in (b"{", b"[")
    if may_be_json and _json(payload) is not None:
        return "json"
    text = _text(payload, is_cut=True)
    if text is None:
        return "hex"
    strange = sum(char < " " and char not in "\t\n\r\x1b" for char in text)
    return "hex" if strange * 10 > len(text) else "text"


def bytes_in_words(value: bytes) -> str:
    """Bytes as text if they are, else `0x...`, as `parse_bytes` reads them."""
    text = _text(value, is_cut=False)
    return f"0x{value.hex()}" if text is None or text.startswith("0x") else text


def parse_bytes(text: str) -> bytes:
    """The bytes that a person means: `0x` and hex digits, or any other text."""
    if text.startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            pass
    return text.encode(errors="replace")


def hex_dump(payload: bytes) -> str:
    """Lines of offset, 16 bytes, and their ASCII."""
    lines: list[str] = []
    for start in range(0, len(payload), _LINE_BYTES):
        part = payload[start : start + _LINE_BYTES]
        digits = f"{part[:8].hex(' ')}  {part[8:].hex(' ')}"
        plain = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in part)
        lines.append(f"{start:08x}  {digits:<49} {plain}")
    return "\n".join(lines)


def _preview(payload: bytes, form: Form) -> str:
    if form == "hex":
        return payload[: PREVIEW_CHARS // 4].hex(" ")
    text = _text(payload[: 4 * PREVIEW_CHARS], is_cut=True) or ""
    return text[:PREVIEW_CHARS]


def _text(payload: bytes, *, is_cut: bool) -> str | None:
    """UTF-8 as text; of what is cut, the last character may be a part."""
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        if is_cut and error.start >= len(payload) - 3 and error.reason == "unexpected end of data":
            return payload[: error.start].decode()
        return None


def _json(payload: bytes) -> str | None:
    """JSON indented as it stands: numbers and repeated names are kept as they were written."""
    try:
        msgspec.json.decode(payload)
        return msgspec.json.format(payload, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
