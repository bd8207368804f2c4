"""Decoders and conversions for types, built by one thread at a time. Pure but for this lock.

msgspec 0.22 describes a type when it is first needed, and publishes the description before it is
complete. A second thread that finds it incomplete ends the process with SIGSEGV. So every decoder
and every conversion of this package is made here (`tests/test_architecture.py`).
"""

from __future__ import annotations

import threading
from typing import Any, Final, TypeVar, overload

import msgspec

T = TypeVar("T")

# A fork waits for it (`gate.py`): a child would keep an incomplete description forever.
BUILDING: Final = threading.RLock()


@overload
def json_decoder(kind: type[T]) -> msgspec.json.Decoder[T]: ...


@overload
def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]: ...


def json_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Make a JSON decoder for a type."""
    with BUILDING:
        return msgspec.json.Decoder(kind)


@overload
def msgpack_decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...


@overload
def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...


def msgpack_decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Make a MessagePack decoder for a type."""
    with BUILDING:
        return msgspec.msgpack.Decoder(kind)


@overload
def convert(value: object, kind: type[T], *, strict: bool = True) -> T: ...


@overload
def convert(value: object, kind: Any, *, strict: bool = True) -> Any: ...


def convert(value: object, kind: Any, *, strict: bool = True) -> Any:
    """Convert a value to a type; see `msgspec.convert`."""
    with BUILDING:
        return msgspec.convert(value, kind, strict=strict)
