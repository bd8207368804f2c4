"""`run` of `aio.Subscriber`: awaits the steps of `handling.py`, which imports no asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from reliable_pubsub.common.aio import gated
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.patterns.pattern import Topics

from ..loop import AioLoop
from ..opening import OpenedSubscriber
from .core.handlers import Handlers
from .handling import IN_RUN, RunningClient, RunSteps, Step, steps_of_run


class Awaiting(RunningClient):
    """Of an `aio.Subscriber`."""

    def __init__(
        self, subscriber: OpenedSubscriber, take: Callable[[AioLoop, Topics], Any]
    ) -> None:
        """Take the steps of a loop with `take`, without asking the proxy."""
        super().__init__(subscriber, asyncio.sleep)
        self._take = take

    @gated
    async def wait_any(self, topics: Sequence[Topics], wait_s: float) -> Topics | None:
        found: Topics | None = await self.waiting(topics, wait_s)
        return found

    @gated
    async def settle(self, settling: Any) -> None:
        await self.settling(settling)

    def turn(self, topic: Topics) -> tuple[AioLoop, Step]:
        loop = AioLoop(lambda loop: self._take(loop, topic), handles=True)
        loop.asks_s = self.asks_s
        return loop, partial(anext, loop, None)


async def run(client: Awaiting, handlers: Handlers, timeout_s: float | None) -> None:
    """As the blocking `run`."""
    if handlers.is_awaited:
        raise UsageError(IN_RUN)
    handlers.is_awaited = True
    try:
        await _run(steps_of_run(client, handlers, timeout_s))
    finally:
        handlers.is_awaited = False


async def _run(steps: RunSteps) -> None:
    failure: Exception | None
    try:
        step = next(steps)
        while True:
            try:
                result = step()
                if inspect.isawaitable(result):
                    result = await result
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        failure = end.value
    if failure is not None:
        raise failure
