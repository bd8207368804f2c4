"""`run` of `aio.Subscriber`: awaits the steps of `handling.py`, which imports no asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from reliable_pubsub.common.aio import gated
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.pattern import Topics

from .core.handlers import Handlers
from .handling import IN_RUN, RunSteps, Step, steps_of_run
from .loop import AioLoop

if TYPE_CHECKING:
    from .aio import Subscriber


class Awaiting:
    """What the steps need of an `aio.Subscriber`; see `Blocking`."""

    def __init__(self, subscriber: Subscriber) -> None:
        self.now_s, self.sleep = subscriber._opened.asker.clock.now_s, asyncio.sleep
        self.engine, self.inbox = subscriber._engine, subscriber._inbox
        self.subscribe, self.use_push = subscriber.subscribe, subscriber.use_push
        self.reject, self.keep_alive = subscriber.reject, subscriber.keep_alive
        self._subscriber = subscriber
        self._gate = subscriber._gate

    @gated
    async def wait_any(self, topics: Sequence[Topics], timeout_s: float) -> Topics | None:
        return await self._subscriber._run(self.engine.wait_any(topics, timeout_s))

    @gated
    async def fail(self, message: Message, pause_s: float | None, reason: str) -> None:
        await self._subscriber._run(self.engine.groups.fail(message, pause_s, reason))

    def turn(self, topic: Topics) -> tuple[AioLoop, Step]:
        subscriber = self._subscriber
        loop = AioLoop(lambda loop: subscriber._take_fetched(loop, topic), handles=True)
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
