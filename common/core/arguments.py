"""Checks the arguments of public calls against their annotations, before the call begins.

A wrong argument never lowers a promise (rule R27): it is refused with a `UsageError`, and the call
has no effect. One decorator does it; the signature says what is allowed:

    qos: QoS                                  one of these values, and of this type: True is not 1
    timeout_s: Annotated[float, Meta(ge=0)]   bounds; NaN is always outside
    payload: bytes                            bytes, or a copy of a bytearray or memoryview
    retry: RetryPolicy                        one of our values, and each of its fields

Numbers of other libraries, members of enumerations, subclasses and paths are accepted where they
are of the expected kind, and converted to the plain value. A value whose exact type is enough is
not inspected, which keeps a put cheap. A call with too few arguments, or with one
that does not exist, is Python's own TypeError, with a note of those that exist. Pure.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar, cast

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from .errors import UsageError
from .parameters import (
    ANYTHING,
    Parameter,
    WrongError,
    inspected,
    parameter_of,
    parameters_of,
    shown,
)

D = TypeVar("D", bound=Callable[..., Any])

Seconds = Annotated[float, Meta(ge=0)]  # that a call waits
TimeoutS = Annotated[float, Meta(gt=0)] | None  # that a call takes at most; None: by its retries
KINDS_MAX: Final = 16  # remembered for one function: programs may pass many classes of their own


# The public interface.


def when_refused(report: Callable[..., object]) -> Callable[[D], D]:
    """Decorate a function that is to be checked: `report` is called with refused arguments.

    A refused call has no effect, except for what its caller must not lose by the refusal.
    """

    def decorate(function: D) -> D:
        function.when_refused = report  # type: ignore[attr-defined]
        return function

    return decorate


def checked(function: D) -> D:
    """Decorate a function, or a coroutine function, so that its arguments are checked."""
    call = _checking(function)
    if not inspect.iscoroutinefunction(function):
        return cast(D, call)

    @functools.wraps(function)
    async def awaited(*given: Any, **named: Any) -> Any:  # refused where it is awaited
        return await call(*given, **named)

    return cast(D, awaited)


def _checking(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, called with arguments that were checked."""
    code = function.__code__
    refused = getattr(function, "when_refused", None)
    own = int(code.co_varnames[:1] in (("self",), ("cls",)))
    names = code.co_varnames[own : code.co_argcount]
    plain: set[tuple[type, ...]] = set()  # types of arguments by place that need no inspection

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        kinds = tuple(map(type, given))
        if named or kinds not in plain:
            parameters = _parameters_of(function)  # now that every name of an annotation exists
            try:
                for place, name in enumerate(names[: len(given) - own], own):
                    parameter, value = parameters[name], given[place]
                    if parameter is not ANYTHING and type(value) not in parameter.passes:
                        kinds = ()
                        value = _taken(parameter, value, name, function, given[:own])
                        given = (*given[:place], value, *given[place + 1 :])
                for name, value in named.items():
                    parameter, kind = parameters.get(name, ANYTHING), type(value)
                    if parameter is ANYTHING or kind in parameter.passes:
                        continue
                    if not (
                        (kind in parameter.numbers and parameter.low <= value <= parameter.high)
                        or (kind in parameter.kinds and value in parameter.values)
                    ):
                        named[name] = _taken(parameter, value, name, function, given[:own])
            except UsageError:
                if refused is not None:
                    refused(*given, **named)
                raise
            if kinds and len(plain) < KINDS_MAX:
                plain.add(kinds)
        try:
            return function(*given, **named)
        except TypeError as error:
            _note_arguments(error, function, given[:own])
            raise

    return call


def _note_arguments(
    error: TypeError, function: Callable[..., Any], owner: Sequence[object]
) -> None:
    """Let the error of a call that did not begin say how its arguments are given."""
    if not str(error).startswith(f"{function.__qualname__}() "):
        return
    asked = [
        one
        for one in inspect.signature(function).parameters.values()
        if one.name not in ("self", "cls") and not one.name.startswith("_")
    ]
    ways = {
        "by place": [one.name for one in asked if one.kind is not one.KEYWORD_ONLY],
        "by name": [f"{one.name}=" for one in asked if one.kind is one.KEYWORD_ONLY],
    }
    said = "; ".join(f"{way} {', '.join(names)}" for way, names in ways.items() if names)
    error.add_note(f"{_in_words(function, owner)} takes {said or 'nothing'}")


def _in_words(door: Callable[..., Any], owner: Sequence[object]) -> str:
    """Name a call by its object's class: a program does not know the base that has the method."""
    call = door.__qualname__.removesuffix(".__init__")
    for one in owner:
        kind = one if isinstance(one, type) else type(one)
        call = call.replace(door.__qualname__.partition(".")[0], kind.__name__, 1)
    return call


def check_fields(value: Struct) -> None:
    """Check the fields of a value that callers create; called in its `__post_init__`."""
    for name, parameter in parameters_of(type(value)).items():
        given = getattr(value, name)
        plain = _taken(parameter, given, name, type(value))
        if plain is not given:
            force_setattr(value, name, plain)


def check_argument(
    door: Callable[..., Any],
    name: str,
    value: Any,
    parameter: Parameter | None = None,
    *owner: object,
) -> Any:
    """Check one argument, where the decorator is too slow; return the plain value.

    Args:
        parameter: what is allowed, where another argument decides about it; by default what the
            annotation says.
        owner: the object whose method it is, if a base class defines that.
    """
    return _taken(parameter or _parameters_of(door)[name], value, name, door, owner)


def _taken(
    parameter: Parameter, value: Any, name: str, door: Any, owner: Sequence[object] = ()
) -> Any:
    if type(value) in parameter.passes:
        return value
    try:
        return inspected(parameter, value)
    except WrongError as error:
        why = f"; {error}" if str(error) else ""
        cause = error.__cause__
    call = _in_words(door, owner)
    raise UsageError(
        f"{call}: {name} is {shown(value)}, allowed is {parameter.allowed}{why}. Nothing was done; "
        f"help({call}) says more"
    ) from cause


# Reading annotations.


@functools.cache
def _parameters_of(function: Callable[..., Any]) -> dict[str, Parameter]:
    wanted = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    hints = typing.get_type_hints(
        types.SimpleNamespace(__annotations__=wanted),
        inspect.unwrap(function).__globals__,
        include_extras=True,
    )
    return {name: parameter_of(hint) for name, hint in hints.items()}
