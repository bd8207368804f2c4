"""`on` and `run`: a handler for each topic, called with its messages one after another.

A message is acknowledged when its handler has returned. An exception of the handler is answered by
the policy of its `Handler`: retries with growing pauses, then a dead letter, or the end of `run`.
In a group the pause is that of the message, which any member may have then, and its attempts are
its deliveries. Any other end of `run` (Ctrl-C, a cancellation, kill -9) leaves the message that was
being handled unacknowledged: it is redelivered, marked.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from reliable_pubsub.common.aio import gated as aio_gated
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.pattern import Topics
from reliable_pubsub.common.frames import frames_of
from reliable_pubsub.common.gate import gated

from .core.handlers import LOOK_S, TURN_MESSAGES, Handler, Handlers, check_finished, reason_of
from .loop import AioLoop, Loop

if TYPE_CHECKING:
    from .aio import Subscriber as AioSubscriber
    from .client import Subscriber

_log = logging.getLogger("reliable_pubsub.subscriber")
_IN_RUN: Final = (
    "`run` of this subscriber is handling messages, and is called from one of its handlers, or in "
    "another thread or task; return from the handler, and `run` goes on with the next message"
)


class Blocking:
    """What `run` needs of a `Subscriber`."""

    def __init__(self, subscriber: Subscriber) -> None:
        clock = subscriber._opened.asker.clock
        self.now_s, self.sleep, self.reject = clock.now_s, clock.sleep, subscriber.reject
        self.is_member = subscriber._engine.is_member
        self._subscriber = subscriber
        self._gate = subscriber._gate

    @gated
    def wait_any(self, topics: Sequence[Topics], timeout_s: float) -> Topics | None:
        """Settle what is in hand; wait until one of the topics has messages to deliver."""
        subscriber = self._subscriber
        return subscriber._run(subscriber._engine.wait_any(topics, timeout_s))

    @gated
    def fail(self, message: Message, pause_s: float | None, reason: str) -> None:
        """Give a message of a group back for a pause; None: let it die."""
        subscriber = self._subscriber
        subscriber._run(subscriber._engine.groups.fail(message, pause_s, reason))

    def turn(self, topic: Topics) -> tuple[Loop, Iterable[Message]]:
        """A loop over the messages that are here, each processed when that is noted."""
        loop = Loop(handles=True)
        return loop, self._subscriber._steps(loop, topic, 0.0)

    def keep_alive(self, topic: str) -> None:
        """Renew the lease, if the subscription has one."""
        if self._subscriber.inbox.of(topic).place.terms.lease_ms:
            self._subscriber.keep_alive()


class Awaiting:
    """What `aio_run` needs of an `aio.Subscriber`; see `Blocking`."""

    def __init__(self, subscriber: AioSubscriber) -> None:
        self.now_s, self.reject = subscriber._opened.asker.clock.now_s, subscriber.reject
        self.is_member = subscriber._engine.is_member
        self._subscriber = subscriber
        self._gate = subscriber._gate

    @aio_gated
    async def wait_any(self, topics: Sequence[Topics], timeout_s: float) -> Topics | None:
        subscriber = self._subscriber
        return await subscriber._run(subscriber._engine.wait_any(topics, timeout_s))

    @aio_gated
    async def fail(self, message: Message, pause_s: float | None, reason: str) -> None:
        subscriber = self._subscriber
        await subscriber._run(subscriber._engine.groups.fail(message, pause_s, reason))

    def turn(self, topic: Topics) -> AioLoop:
        subscriber = self._subscriber
        return AioLoop(lambda loop: subscriber._take_fetched(loop, topic), handles=True)

    async def keep_alive(self, topic: str) -> None:
        if self._subscriber._inbox.of(topic).place.terms.lease_ms:
            await self._subscriber.keep_alive()


def run(client: Blocking, handlers: Handlers, timeout_s: float | None) -> None:
    """Handle messages until `stop`, or `timeout_s` without one.

    Raises:
        UsageError: they are being handled, by a `run` that has called this, or in another thread.
    """
    if _is_run(handlers):
        raise UsageError(_IN_RUN)
    _run(client, handlers, timeout_s)


def _is_run(handlers: Handlers) -> bool:
    """Whether a `run` is executed. A frame is proof of it, however that ends (rule R25)."""
    return any(
        frame.f_code is _run.__code__ and frame.f_locals["handlers"] is handlers
        for frame in frames_of()
    )


def _run(client: Blocking, handlers: Handlers, timeout_s: float | None) -> None:
    handlers.is_stopped = False
    last_s, patience_s = client.now_s(), inf if timeout_s is None else timeout_s
    while not handlers.is_stopped:
        left_s = max(last_s + patience_s - client.now_s(), 0.0)
        topic = client.wait_any(handlers.in_turn(), min(left_s, LOOK_S))
        if topic is None:
            if left_s <= LOOK_S:
                return
            continue
        handle = _handle_of_group if client.is_member(topic) else _handle
        loop, messages = client.turn(topic)
        for number, message in enumerate(messages, 1):
            handle(client, handlers.of(topic), message)
            loop.note_handled()
            if handlers.is_stopped or number == TURN_MESSAGES:
                break
        last_s = client.now_s()


async def aio_run(client: Awaiting, handlers: Handlers, timeout_s: float | None) -> None:
    """As `run`."""
    if handlers.is_awaited:
        raise UsageError(_IN_RUN)
    handlers.is_awaited = True
    try:
        await _aio_run(client, handlers, timeout_s)
    finally:
        handlers.is_awaited = False


async def _aio_run(client: Awaiting, handlers: Handlers, timeout_s: float | None) -> None:
    handlers.is_stopped = False
    last_s, patience_s = client.now_s(), inf if timeout_s is None else timeout_s
    while not handlers.is_stopped:
        left_s = max(last_s + patience_s - client.now_s(), 0.0)
        topic = await client.wait_any(handlers.in_turn(), min(left_s, LOOK_S))
        if topic is None:
            if left_s <= LOOK_S:
                return
            continue
        handle = _aio_handle_of_group if client.is_member(topic) else _aio_handle
        loop = client.turn(topic)
        number = 0
        async for message in loop:
            await handle(client, handlers.of(topic), message)
            loop.note_handled()
            number += 1
            if handlers.is_stopped or number == TURN_MESSAGES:
                break
        last_s = client.now_s()


def _handle(client: Blocking, handler: Handler, message: Message) -> None:
    """Call the handler until it returns, or the message has failed."""
    attempts = 0
    while True:
        try:
            result = handler.call(message)
        except Exception as error:
            attempts += 1
            pause_s = _pause_s(handler, message, error, attempts)
            if pause_s is None:
                client.reject(message, reason_of(error, attempts))
                return
        else:
            check_finished(message, result)
            return
        client.keep_alive(message.topic)
        client.sleep(pause_s)


def _handle_of_group(client: Blocking, handler: Handler, message: Message) -> None:
    """Call the handler once; a failed message is given back, for any member, until it has died."""
    try:
        result = handler.call(message)
    except Exception as error:
        attempts = message.delivery_count
        pause_s = _pause_s(handler, message, error, attempts)
        client.fail(message, pause_s, reason_of(error, attempts))
    else:
        check_finished(message, result)


async def _aio_handle(client: Awaiting, handler: Handler, message: Message) -> None:
    attempts = 0
    while True:
        try:
            result = handler.call(message)
            if inspect.isawaitable(result):
                result = await result
        except Exception as error:
            attempts += 1
            pause_s = _pause_s(handler, message, error, attempts)
            if pause_s is None:
                await client.reject(message, reason_of(error, attempts))
                return
        else:
            check_finished(message, result)
            return
        await client.keep_alive(message.topic)
        await asyncio.sleep(pause_s)


async def _aio_handle_of_group(client: Awaiting, handler: Handler, message: Message) -> None:
    try:
        result = handler.call(message)
        if inspect.isawaitable(result):
            result = await result
    except Exception as error:
        attempts = message.delivery_count
        pause_s = _pause_s(handler, message, error, attempts)
        await client.fail(message, pause_s, reason_of(error, attempts))
    else:
        check_finished(message, result)


def _pause_s(handler: Handler, message: Message, error: Exception, attempts: int) -> float | None:
    """How long to pause before the next attempt; None: reject the message.

    Raises:
        Exception: the error, if `run` is to end with it.
    """
    pause_s = handler.pause_before(attempts)
    if pause_s is None and handler.on_failure == "stop":
        raise error
    then = "it is rejected" if pause_s is None else f"again in {pause_s:g} s"
    _log.warning(
        "the handler of topic %r failed with %s at offset %d, attempt %d of %d; %s",
        *(message.topic, type(error).__name__, message.offset, attempts, handler.retries + 1, then),
    )
    return pause_s
