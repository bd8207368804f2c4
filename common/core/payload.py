"""Payloads as values: a codec turns a value into bytes, and its content type goes into a header.

The proxy stores bytes and never looks into them. A publisher names a codec; a subscriber finds the
content type in the header `content-type` (RFC 9110, section 8.3; the name is that of CloudEvents'
bindings, so bridges to Kafka and HTTP need no table), and `Message.value` is the value again.

    codec       content type                     values
    bytes       application/octet-stream         bytes
    text        text/plain; charset=utf-8        text
    json        application/json, .../...+json   what JSON has; dataclasses and msgspec.Struct too
    msgpack     application/vnd.msgpack          the same, bytes, and keys that are not text

What JSON does not have is written as what it has, and read back as that: bytes as base64, a tuple
or a set as a list, a key that is a number, a date or a UUID as text. What would be lost by that is
refused: NaN, infinities, and one of two keys that become the same text.

`typed(Order)` is a codec with a schema: the bytes of every put are read back as an `Order` before
they are sent, so nothing is stored that a reader with the same type could not read. Pure.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from .arguments import check_fields, checked
from .errors import PayloadError, UsageError
from .parameters import shown
from .schemas import classes_unknown_to_msgspec, json_decoder, msgpack_decoder

CONTENT_TYPE: Final = "content-type"
CodecName = Literal["bytes", "text", "json", "msgpack"]
Format = Literal["json", "msgpack"]
# What codecs raise for a value or for bytes that they cannot take; anything else, a signal
# handler's exception above all, is not about the payload and passes.
_WRONG: Final = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


class Codec(Struct, frozen=True):
    """A way to write values as bytes. A program may make its own, and read with `value_as`.

    For a value or bytes that it cannot take it raises ValueError or TypeError, which become a
    `PayloadError`; another exception passes.
    """

    name: str
    content_type: str  # as in HTTP; "+json" and parameters are understood
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]

    def __post_init__(self) -> None:
        check_fields(self)

    def __repr__(self) -> str:
        return f"<Codec {self.name!r}>"


@checked
def typed(kind: Any, format: Format = "json") -> Codec:
    """Return a codec for the values of one type; it refuses other values at put.

    Args:
        kind: a type that msgspec knows: a Struct, dataclass, TypedDict, `list[int]`, bounds by
            `Meta`, a tagged union, ... (https://jcristharif.com/msgspec/supported-types.html). Or a
            pydantic model, also within such a type.

    Raises:
        UsageError: it is, or contains, another class.
    """
    plain = _BY_NAME[format]
    decode = _decoder_of(format, kind, "typed")

    def encode(value: object) -> bytes:
        payload = plain.encode(value)
        decode(payload)
        return payload

    return Codec(f"{plain.name} of {_name(kind)}", plain.content_type, encode, decode)


def encoded(topic: str, value: object, codec: Codec) -> bytes:
    """The bytes of a value.

    Raises:
        PayloadError: the codec cannot write this value; nothing was sent.
    """
    try:
        payload = codec.encode(value)
    except _WRONG as error:
        raise PayloadError(
            f"topic {topic!r}: the codec {codec.name!r} cannot write {_shown(value)}: {error}. "
            "Nothing was sent",
            topic=topic,
            content_type=codec.content_type,
        ) from error
    if type(payload) is not bytes:
        raise UsageError(f"the codec {codec.name!r} gave {type(payload).__name__} and not bytes")
    return payload


def codec_named(name: CodecName | Codec) -> Codec:
    """The codec of a name."""
    return name if isinstance(name, Codec) else _BY_NAME[name]


def with_content_type(headers: Mapping[str, str] | None, codec: Codec) -> Mapping[str, str]:
    """The headers of a message with the content type of its codec.

    Raises:
        UsageError: they have another one.
    """
    for name, value in (headers or {}).items():
        if name.lower() == CONTENT_TYPE and value != codec.content_type:
            raise UsageError(
                f"headers say {name}: {value!r:.80}, and the codec {codec.name!r} writes "
                f"{codec.content_type!r}; leave the header to the codec. Nothing was sent"
            )
    return {**(headers or {}), CONTENT_TYPE: codec.content_type}


def decoded(
    payload: bytes, headers: Mapping[str, str] | None, kind: Any, *, topic: str, offset: int
) -> Any:
    """The value of a message.

    Args:
        kind: `Any`, a type to read it as, or a codec to read it with, whatever the header says.

    Raises:
        PayloadError: the bytes are not what the header, or the type, says.
    """
    content_type = (headers or {}).get(CONTENT_TYPE)
    if isinstance(kind, Codec):
        decode = kind.decode
    elif content_type is None and kind is Any:
        return payload  # put without a codec
    else:
        decode = _decoder(content_type or "application/json", kind, topic, offset)
    try:
        return decode(payload)
    except _WRONG as error:
        what = kind.name if isinstance(kind, Codec) else content_type or "JSON"
        raise PayloadError(
            f"the message at offset {offset} of topic {topic!r} is not {what!r}"
            f"{'' if kind is Any or isinstance(kind, Codec) else f' of type {_name(kind)}'}: "
            f"{error}. Its bytes are in `message.payload`; `reject` takes it out of the way",
            topic=topic,
            content_type=content_type,
            offset=offset,
        ) from error


def _decoder(content_type: str, kind: Any, topic: str, offset: int) -> Callable[[bytes], Any]:
    codec = _codec_of(content_type)
    if codec is None:
        raise PayloadError(
            f"the message at offset {offset} of topic {topic!r} has the content type "
            f"{content_type!r:.80}, which no codec here reads: use `message.payload`, or "
            "`message.value_as(codec)` with the codec of its publisher",
            topic=topic,
            content_type=content_type,
            offset=offset,
        )
    if kind is Any:
        return codec.decode
    if codec.name not in _DECODERS:
        raise UsageError(
            f"value_as({_name(kind)}): {content_type!r} has no types; use `message.value`"
        )
    return _decoder_of(codec.name, kind, "Message.value_as")


def _decoder_of(format: str, kind: Any, call: str) -> Callable[[bytes], Any]:
    """Reads a type.

    Raises:
        UsageError: msgspec does not know it.
    """
    try:
        try:
            hash(kind)
        except TypeError:  # a bound with a list in its annotation, for example
            return _DECODERS[format].__wrapped__(kind)
        return _DECODERS[format](kind)
    except (TypeError, RuntimeError, ValueError) as error:
        raise UsageError(
            f"{call}: kind is {shown(kind)}, allowed is a type that msgspec knows or a pydantic "
            f"model{f': {error}' if type(error) is _UnknownClassError else ''}; nothing was done"
        ) from error


def _codec_of(content_type: str) -> Codec | None:
    """The codec of a content type; its parameters do not matter, but for a foreign charset."""
    media, _, parameters = content_type.lower().partition(";")
    media = media.strip()
    charset = parameters.replace(" ", "").replace('"', "").partition("charset=")[2]
    if charset.partition(";")[0] not in ("", "utf-8", "us-ascii"):
        return None
    if media.endswith("+json"):  # RFC 6839
        return _BY_NAME["json"]
    if media.startswith("text/"):
        return _BY_NAME["text"]
    return _BY_MEDIA.get(media)


def _json(value: object) -> bytes:
    """JSON that says all of the value.

    It has no NaN and no infinity; msgspec would write null, and the number would be lost. So would
    one of two keys that become the same text. What is read back is shorter then.
    """
    payload = msgspec.json.encode(value, enc_hook=_plain_model)
    if b"null" in payload:
        _check_finite(msgspec.to_builtins(value, enc_hook=_plain_model))
    if len(msgspec.json.encode(msgspec.json.decode(payload))) < len(payload):
        json.loads(payload, object_pairs_hook=_check_keys)
    return payload


def _msgpack(value: object) -> bytes:
    return msgspec.msgpack.encode(value, enc_hook=_plain_model)


def _check_keys(pairs: list[tuple[str, object]]) -> None:
    keys = [key for key, _ in pairs]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise ValueError(f"two keys of a mapping become the same text, {twice!r:.80}")


def _check_finite(value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no {value}")
    if isinstance(value, dict):
        for one in value.values():
            _check_finite(one)
    elif isinstance(value, list):
        for one in value:
            _check_finite(one)


def _octets(value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("it takes bytes")
    return bytes(value)


def _text(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError("it takes text")
    return value.encode()


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind)[:80]


def _shown(value: object) -> str:
    return f"a {type(value).__name__}"


# Models of pydantic, known by their methods: this package does not import it.


class _UnknownClassError(TypeError):
    """A type contains a class that no codec can read."""


def _hook(kind: Any) -> Callable[[type, Any], Any] | None:
    """Return what reads the models in a type; None: there are none."""
    classes = classes_unknown_to_msgspec(kind)
    for one in classes:
        if not hasattr(one, "model_validate_json"):
            raise _UnknownClassError(f"{_name(one)} is neither")
    return _read_model if classes else None


def _read_model(kind: type, value: Any) -> Any:
    return kind.model_validate_json(msgspec.json.encode(value))  # type: ignore[attr-defined]


def _plain_model(value: Any) -> Any:
    """Return a model as what JSON has; see `enc_hook` of msgspec."""
    if not hasattr(value, "model_dump"):
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return value.model_dump(mode="json", by_alias=True)


@functools.lru_cache(maxsize=1024)
def _json_decoder(kind: Any) -> Callable[[bytes], Any]:
    return json_decoder(kind, _hook(kind)).decode


@functools.lru_cache(maxsize=1024)
def _msgpack_decoder(kind: Any) -> Callable[[bytes], Any]:
    return msgpack_decoder(kind, _hook(kind)).decode


_CODECS: Final = (
    Codec("bytes", "application/octet-stream", _octets, lambda payload: payload),
    Codec("text", "text/plain; charset=utf-8", _text, bytes.decode),
    Codec("json", "application/json", _json, msgspec.json.decode),
    Codec("msgpack", "application/vnd.msgpack", _msgpack, msgspec.msgpack.decode),
)
_BY_NAME: Final[Mapping[str, Codec]] = {one.name: one for one in _CODECS}
_BY_MEDIA: Final[Mapping[str, Codec]] = {
    **{one.content_type.partition(";")[0]: one for one in _CODECS},
    "application/msgpack": _BY_NAME["msgpack"],
    "application/x-msgpack": _BY_NAME["msgpack"],
}
_DECODERS: Final = {"json": _json_decoder, "msgpack": _msgpack_decoder}
