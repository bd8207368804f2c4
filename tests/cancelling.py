"""Cancels a coroutine at its n-th await, as `tests/interrupting.py` breaks off a call at a line."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from itertools import count
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class CancelledAt(Generic[T]):
    """An awaitable: a coroutine that is cancelled at its n-th await, counted from 0."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], n: int) -> None:
        self._coroutine = coroutine
        self._n = n
        self.was_cancelled = False

    def __await__(self) -> Generator[Any, Any, T | None]:
        steps = self._coroutine.__await__()
        try:
            awaited = steps.send(None)
            for at in count():
                if at == self._n:
                    self.was_cancelled = True
                    if awaited is not None:  # as `Task.cancel` does it
                        awaited.cancel()
                    awaited = steps.throw(asyncio.CancelledError())  # it may clean up, and await
                try:
                    yield awaited
                except BaseException as error:
                    awaited = steps.throw(error)
                else:
                    awaited = steps.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        except asyncio.CancelledError:
            if not self.was_cancelled:
                raise
        return None


async def cancelled_at(coroutine: Coroutine[Any, Any, T], n: int) -> tuple[bool, T | None]:
    """Whether it was cancelled at its n-th await; if not, its result."""
    cancelled = CancelledAt(coroutine, n)
    result = await cancelled
    return cancelled.was_cancelled, result
