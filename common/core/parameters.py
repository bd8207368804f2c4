"""The values that an annotation accepts, and what they become; see `arguments.py`. Pure."""

from __future__ import annotations

import functools
import reprlib
import types
import typing
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from math import inf, nextafter
from numbers import Integral, Real
from operator import index
from typing import Annotated, Any, Final, Literal, Union

from msgspec import Meta, Struct
from msgspec.structs import replace

from .keys import SecureEndpoint
from .names import ExactTopic, is_encodable

SHOWN_CHARS_MAX: Final = 80
BYTES: Final = (bytes, bytearray, memoryview)


class WrongError(Exception):
    """A value is not what the annotation expects; the text may give details."""


class Parameter(Struct, frozen=True):
    """The values that one parameter accepts."""

    allowed: str  # in words
    take: Callable[[Any], Any]  # returns the plain value, or raises
    passes: frozenset[type] = frozenset()  # types whose values are all valid as they are
    kinds: frozenset[type] = frozenset()  # types of which these values are valid as they are
    values: Container[Any] = ()
    numbers: frozenset[type] = frozenset()  # types whose values are, from `low` to `high`; no NaN
    low: float = -inf
    high: float = inf


def inspected(parameter: Parameter, value: Any) -> Any:
    """The plain value; what the methods of the caller's own class raise is a wrong value."""
    try:
        return parameter.take(value)
    except WrongError:
        raise
    except Exception as error:
        if not _is_of_value(error, value):
            raise
        raise WrongError(f"looking at it raises {type(error).__name__}") from error


_KNOWN_PACKAGES: Final = frozenset({"builtins", "datetime", "pathlib", __name__.partition(".")[0]})


def _is_of_value(error: Exception, value: object) -> bool:
    """Whether an error may come from the methods of a value.

    Those of known classes raise nothing but errors of values. Anything else comes from a signal
    handler of the program (an alarm), and must reach the program.
    """
    package = type(value).__module__.partition(".")[0]
    return package not in _KNOWN_PACKAGES or isinstance(error, ValueError | OverflowError)


def shown(value: object) -> str:
    """A value in at most 80 characters, and its type."""
    try:
        part = bytes(value[:40]) if isinstance(value, bytes | bytearray) else value
        text = " ".join(_repr.repr(part).split())
    except Exception as error:
        if not _is_of_value(error, value):
            raise
        return f"a {type(value).__name__}"
    if len(text) > SHOWN_CHARS_MAX:
        text = text[: SHOWN_CHARS_MAX - 3] + "..."
    return text if value is None else f"{text} ({type(value).__name__})"


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = SHOWN_CHARS_MAX


@functools.cache
def parameters_of(kind: type[Struct]) -> dict[str, Parameter]:
    hints = typing.get_type_hints(kind, include_extras=True)
    return {name: parameter_of(hints[name]) for name in kind.__struct_fields__}


def parameter_of(hint: Any) -> Parameter:
    """The values that an annotation accepts."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return _narrowed(parameter_of(arguments[0]), arguments[1:])
    if origin is Literal:
        return _one_of(arguments)
    if origin in (Union, types.UnionType):
        paths = any(hasattr(one, "__fspath__") for one in arguments)  # which takes text too
        return _any_of([parameter_of(one) for one in arguments if not (paths and one is str)])
    if origin is Sequence:
        return _sequence(parameter_of(arguments[0]))
    if origin is tuple:
        return _tuple(parameter_of(arguments[0]))
    if origin is Mapping:
        return _mapping(*map(parameter_of, arguments))
    if Callable in (hint, origin):
        return _FUNCTION
    return _PLAIN.get(hint) or _of_class(hint)


def _take_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongError
    return value


def _take_int(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise WrongError
    return int(index(value))


def _take_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:  # NaN
        raise WrongError
    return float(value)


def _take_exact_topic(value: Any) -> ExactTopic:
    if not isinstance(value, ExactTopic):
        raise WrongError
    return value


def _take_str(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongError
    return str.__str__(value)  # of a member of an enumeration its value, not its name


def _take_bytes(value: Any) -> bytes:
    if not isinstance(value, BYTES):
        is_text = isinstance(value, str)
        raise WrongError("encode text first, for example text.encode()" if is_text else "")
    return bytes(memoryview(value))


def _take_none(value: Any) -> None:
    if value is not None:
        raise WrongError


def _take_function(value: Any) -> Any:
    if not callable(value):
        raise WrongError
    return value


_FUNCTION: Final = Parameter("a function", _take_function)
_NONE: Final = Parameter("None", _take_none, frozenset({type(None)}))
ANYTHING: Final = Parameter("anything", lambda value: value, frozenset({object}))  # not looked at
_PLAIN: Final[Mapping[Any, Parameter]] = {
    Any: ANYTHING,
    object: ANYTHING,
    bool: Parameter("True or False", _take_bool, frozenset({bool})),
    int: Parameter("a whole number", _take_int, frozenset({int})),
    float: Parameter("a number", _take_float, numbers=frozenset({float})),
    str: Parameter("text", _take_str, frozenset({str, SecureEndpoint})),
    ExactTopic: Parameter("an ExactTopic", _take_exact_topic, frozenset({ExactTopic})),
    bytes: Parameter("bytes", _take_bytes, frozenset({bytes})),
    type(None): _NONE,
}


def _narrowed(wide: Parameter, metadata: Sequence[Any]) -> Parameter:
    """Apply the bounds of each `Meta`; a text there replaces the description."""
    for one in metadata:
        if isinstance(one, Meta):
            wide = _within(one, wide)
    words = next((one for one in metadata if isinstance(one, str)), wide.allowed)
    return replace(wide, allowed=words)


def _within(meta: Meta, wide: Parameter) -> Parameter:
    if meta.max_length is not None:
        return _text(meta.max_length, wide)
    low = wide.low if meta.ge is None else meta.ge
    low = low if meta.gt is None else nextafter(meta.gt, inf)
    high = wide.high if meta.le is None else meta.le

    def take(value: Any) -> Any:
        plain = wide.take(value)
        if not low <= plain <= high:
            raise WrongError
        return plain

    least = f" from {meta.ge:,}" if meta.ge is not None else ""
    least = f" above {meta.gt:,}" if meta.gt is not None else least
    most = f" to {meta.le:,}" if meta.le is not None else ""
    numbers = wide.passes | wide.numbers
    return Parameter(f"{wide.allowed}{least}{most}", take, numbers=numbers, low=low, high=high)


def _text(length_max: int, wide: Parameter) -> Parameter:
    def take(value: Any) -> Any:
        plain = wide.take(value)
        if len(plain) > length_max or not is_encodable(plain):
            raise WrongError
        return plain

    allowed = f"{wide.allowed} of at most {length_max:,} characters that has a UTF-8 form"
    return Parameter(allowed, take)


def _one_of(values: Sequence[Any]) -> Parameter:
    kinds = [_PLAIN[kind] for kind in dict.fromkeys(map(type, values))]
    exact = frozenset(map(type, values))
    plain_value = _any_of(kinds).take

    def take(value: Any) -> Any:
        plain = value if type(value) in exact else plain_value(value)
        if plain not in values:
            raise WrongError
        return plain

    return Parameter(
        _either([repr(value) for value in values]), take, kinds=exact, values=tuple(values)
    )


def _any_of(members: Sequence[Parameter]) -> Parameter:
    def take(value: Any) -> Any:
        why = ""
        for member in members:
            try:
                return member.take(value)
            except WrongError as error:
                why = why or str(error)
        raise WrongError(why)

    passes = frozenset[type]().union(*(member.passes for member in members))
    return Parameter(_either([member.allowed for member in members]), take, passes)


def _sequence(entry: Parameter) -> Parameter:
    def take(value: Any) -> Sequence[Any]:
        if isinstance(value, (str, *BYTES)) or not isinstance(value, Iterable):
            raise WrongError
        if not isinstance(value, Sequence):
            raise WrongError("make a list of it first")
        if entry is ANYTHING or entry.passes.issuperset(map(type, value)):
            return value
        return [_part(entry, one, f"entry {place}") for place, one in enumerate(value)]

    passes = frozenset({list, tuple}) if entry is ANYTHING else frozenset[type]()
    return Parameter(f"a list or tuple, each entry {entry.allowed}", take, passes)


def _tuple(entry: Parameter) -> Parameter:
    def take(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple):
            raise WrongError
        return tuple(_part(entry, one, f"entry {place}") for place, one in enumerate(value))

    return Parameter(f"a tuple, each entry {entry.allowed}", take)


def _mapping(key: Parameter, entry: Parameter) -> Parameter:
    def take(value: Any) -> Mapping[Any, Any]:
        if not isinstance(value, Mapping):
            raise WrongError
        return {
            _part(key, name, "a key"): _part(entry, one, "entry", name)
            for name, one in value.items()
        }

    return Parameter(f"a mapping of {key.allowed} to {entry.allowed}", take)


def _part(parameter: Parameter, value: Any, where: str, *key: Any) -> Any:
    """A value within another one; `key` is its key, if that is part of where it is."""
    if type(value) in parameter.passes:
        return value
    try:
        return inspected(parameter, value)
    except WrongError as error:
        more = f"; {error}" if str(error) else ""
        where = " ".join([where, *map(shown, key)])
        wrong = f"{where} is {shown(value)}, not {parameter.allowed}{more}"
        raise WrongError(wrong) from error.__cause__


def _of_class(kind: type) -> Parameter:
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    allowed = getattr(kind, "allowed", f"{article} {kind.__name__}")
    if getattr(kind, "_is_protocol", False):
        return _protocol(kind)
    if hasattr(kind, "__fspath__"):
        return Parameter("a path", functools.partial(_take_path, kind))
    if issubclass(kind, Struct):
        return Parameter(allowed, functools.partial(_take_struct, kind))

    def take(value: Any) -> Any:
        if not isinstance(value, kind):
            raise WrongError
        return value

    return Parameter(allowed, take)


def _take_path(kind: type, value: Any) -> Any:
    if not isinstance(value, str) and not hasattr(type(value), "__fspath__"):
        raise WrongError
    path = kind(value if isinstance(value, str) else value.__fspath__())
    if value == "" or "\0" in str(path):
        raise WrongError
    try:
        str(path).encode(errors="surrogateescape")  # what names of files may hold
    except UnicodeEncodeError:
        raise WrongError("it has no UTF-8 form") from None
    return path


def _take_struct(kind: type[Struct], value: Any) -> Any:
    if not isinstance(value, kind):
        raise WrongError
    given = {name: getattr(value, name) for name in kind.__struct_fields__}
    plain = {
        name: _part(parameter, given[name], f"its {name}")
        for name, parameter in parameters_of(kind).items()
    }
    same = all(plain[name] is given[name] for name in given)
    return value if same else replace(value, **plain)


def _protocol(kind: type) -> Parameter:
    """A caller's object that implements a protocol."""
    asked = [name for one in kind.__mro__ for name in _asked_by(one)]
    if asked == ["__call__"]:
        return _FUNCTION

    def take(value: Any) -> Any:
        if isinstance(value, type) or not all(hasattr(value, name) for name in asked):
            raise WrongError
        return value

    return Parameter(f"an object with {', '.join(asked)}", take)


def _asked_by(protocol: type) -> Iterator[str]:
    """The attributes that a protocol requires."""
    if getattr(protocol, "_is_protocol", False):
        names = {**vars(protocol), **vars(protocol).get("__annotations__", {})}
        yield from (name for name in names if name == "__call__" or not name.startswith("_"))


def _either(words: Sequence[str]) -> str:
    words = list(dict.fromkeys(words))
    if "None" in words and any(word.endswith(" or None") for word in words):
        words.remove("None")  # at the end it would read as a part of those words
        return f"None, or {_either(words)}"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
