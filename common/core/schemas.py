"""Decoders and conversions for types, built by one thread at a time. Pure but for this lock.

msgspec 0.22 describes a type when it is first needed, and publishes the description before it is
complete. A second thread that finds it incomplete ends the process with SIGSEGV. So every decoder
and every conversion of this package is made here (`tests/test_architecture.py`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

import msgspec

T = TypeVar("T")
DecHook = Callable[[type, Any], Any] | None

# A fork waits for it (`gate.py`): a child would keep an incomplete description forever.
BUILDING: Final = threading.RLock()


@overload
def json_decoder(kind: type[T], dec_hook: DecHook = None) -> msgspec.json.Decoder[T]: ...


@overload
def json_decoder(kind: Any, dec_hook: DecHook = None) -> msgspec.json.Decoder[Any]: ...


def json_decoder(kind: Any, dec_hook: DecHook = None) -> msgspec.json.Decoder[Any]:
    """Make a JSON decoder for a type; see `msgspec.json.Decoder`."""
    with BUILDING:
        return msgspec.json.Decoder(kind, dec_hook=dec_hook)


@overload
def msgpack_decoder(kind: type[T], dec_hook: DecHook = None) -> msgspec.msgpack.Decoder[T]: ...


@overload
def msgpack_decoder(kind: Any, dec_hook: DecHook = None) -> msgspec.msgpack.Decoder[Any]: ...


def msgpack_decoder(kind: Any, dec_hook: DecHook = None) -> msgspec.msgpack.Decoder[Any]:
    """Make a MessagePack decoder for a type; see `msgspec.msgpack.Decoder`."""
    with BUILDING:
        return msgspec.msgpack.Decoder(kind, dec_hook=dec_hook)


@overload
def convert(value: object, kind: type[T], *, strict: bool = True) -> T: ...


@overload
def convert(value: object, kind: Any, *, strict: bool = True) -> Any: ...


def convert(value: object, kind: Any, *, strict: bool = True) -> Any:
    """Convert a value to a type; see `msgspec.convert`."""
    with BUILDING:
        return msgspec.convert(value, kind, strict=strict)


def classes_unknown_to_msgspec(kind: Any) -> list[type]:
    """List the classes within a type that msgspec can neither read nor write by itself."""
    from msgspec import inspect  # takes 2 ms, and few programs need it

    seen: dict[int, Any] = {}
    with BUILDING:
        left: list[Any] = [inspect.type_info(kind)]  # makes a decoder
    while left:
        one = left.pop()
        if isinstance(one, tuple | list):
            left += one
        elif isinstance(one, inspect.Type | inspect.Field) and id(one) not in seen:
            seen[id(one)] = one
            left += [getattr(one, name) for name in one.__struct_fields__]
    return [one.cls for one in seen.values() if isinstance(one, inspect.CustomType)]
