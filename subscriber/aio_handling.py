"""`run` of `aio.Subscriber`: awaits the steps of `handling.py`, which imports no asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

from reliable_pubsub.common.aio import gated
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.core.stopping import GRACE_S, until_stopped

from .core.handlers import Handlers
from .handling import IN_RUN, RunSteps, Step, steps_of_run
from .loop import AioLoop

if TYPE_CHECKING:
    from .aio import Subscriber


class Awaiting:
    """What the steps need of an `aio.Subscriber`; see `Blocking`."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.now_s, self.sleep = subscriber._opened.asker.clock.now_s, asyncio.sleep
        self.engine, self.inbox = subscriber._engine, subscriber.inbox
        self.subscribe, self.use_push = subscriber.subscribe, subscriber.use_push
        self.until = subscriber._stops.begin()
        self._subscriber = subscriber
        self._gate = subscriber._gate
        self.asks_s = inf if subscriber._opened.asks_forever else None

    @gated
    async def wait_any(self, topics: Sequence[Topics], wait_s: float) -> Topics | None:
        self._gate.patience.wait(wait_s, is_loop=self.asks_s is not None)
        waiting = self.engine.wait_any(topics, wait_s)
        return await self._subscriber._run(until_stopped(waiting, self.until.is_over))

    @gated
    async def settle(self, settling: Any) -> None:
        self._gate.patience.begin(self.asks_s)
        await self._subscriber._run(until_stopped(settling, self.until.is_over, GRACE_S))

    def turn(self, topic: Topics) -> tuple[AioLoop, Step]:
        subscriber = self._subscriber
        loop = AioLoop(lambda loop: subscriber._take_fetched(loop, topic), handles=True)
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
