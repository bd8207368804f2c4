"""Errors as Spark shows them: Spark puts a traceback above our message, and this keeps it short."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction, isgeneratorfunction
from typing import Any, TypeVar

from reliable_pubsub.common.core.errors import PubSubError

T = TypeVar("T")


def without_our_frames(kind: type[T]) -> type[T]:
    """Let the methods of a class that Spark calls raise a PubSubError without our own frames."""
    for name, method in list(vars(kind).items()):
        if isfunction(method) and not name.startswith("_"):
            setattr(kind, name, _short(method))
    return kind


def _short(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except PubSubError as error:
            raise error.with_traceback(None) from None

    @wraps(method)
    def iterate(*args: Any, **named: Any) -> Iterator[Any]:
        try:
            yield from method(*args, **named)
        except PubSubError as error:
            raise error.with_traceback(None) from None

    return iterate if isgeneratorfunction(method) else call
