"""`aio.Subscriber`: the subscriber for asyncio, over the engine of the blocking one."""

from __future__ import annotations

import logging
from types import TracebackType

from reliable_pubsub.common.aio import AioClient, awaited, closing, gated
from reliable_pubsub.common.core.arguments import Seconds, checked
from reliable_pubsub.common.core.errors import InDoubtError
from reliable_pubsub.common.core.message_base import (
    Natural,
)
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.common.opened import CLOSE_S

from . import client as blocking
from .core.engine import SubscriberEngine
from .core.qos0_queue import UnstoredCounts
from .features import FEATURES
from .handlers.aio_handling import Awaiting, run
from .handlers.core.handler_feature import HandlerFeature
from .handlers.core.handlers import AioHandles, Handlers, OnFailure, PauseS
from .life import UNSENT
from .loop import AioLoop
from .opening import OpenedSubscriber
from .push.core.pull_timer import PushCounts
from .push.push_feature import PushFeature


class Subscriber(OpenedSubscriber, AioClient[SubscriberEngine]):
    """Receives the messages of topics, each once, across its own crashes and the proxy's.

    The calls are those of the blocking `Subscriber`, awaited, with the same arguments and errors.
    Neither an unreachable proxy nor a hung disk stops the event loop. One task at a time: a second
    one is refused while a call is open. A cancelled call undoes at most the deliveries that it made
    itself: messages of earlier calls stay in hand, so `asyncio.wait_for(subscriber.get(...), 1)` is
    a way to limit a wait. Await `get` in the task that processes the messages: what it returns
    counts as delivered, even if that task was dropped.
    """

    _features = FEATURES

    subscribe = awaited(blocking.Subscriber.subscribe)
    seek = awaited(blocking.Subscriber.seek)
    use_push = awaited(blocking.Subscriber.use_push)
    unsubscribe = awaited(blocking.Subscriber.unsubscribe)
    get = awaited(blocking.Subscriber.get)
    acknowledge = awaited(blocking.Subscriber.acknowledge)
    reject = awaited(blocking.Subscriber.reject)
    ack = awaited(blocking.Subscriber.ack)
    nack = awaited(blocking.Subscriber.nack)
    extend = awaited(blocking.Subscriber.extend)
    keep_alive = awaited(blocking.Subscriber.keep_alive)
    history = awaited(blocking.Subscriber.history)
    read = awaited(blocking.Subscriber.read)
    connect = awaited(blocking.Subscriber.connect)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            await self._break_off(error)
            return
        try:
            await self.close()
        except InDoubtError as unsent:
            self._engine.session.tell(logging.WARNING, f"{UNSENT}: {unsent}")

    @closing
    async def _break_off(self, error: BaseException | None) -> None:
        """Close without acknowledging the messages in hand; a group has them back immediately."""
        has_to_tell = not self._opened.remembers or self._engine.has_members
        try:
            if not self._gate.closed and has_to_tell:
                with self._opened.last_words():
                    self._gate.begin_again()
                    await self._run(
                        self._engine.break_off(tells_cursors=not self._opened.remembers)
                    )
        finally:
            self._free(error)

    @closing
    async def close(self, *, timeout_s: Seconds = CLOSE_S) -> None:
        """Acknowledge the messages in hand, send the cursors, and close socket and state.

        Args:
            timeout_s: that the proxy has for its answers.

        Raises:
            InDoubtError: without `state_dir`; the proxy may deliver messages again.
        """
        if self._gate.closed:
            self._free(None)
            return
        with self._opened.last_call(self._free, timeout_s):
            self._gate.begin_again()
            await self._run(self._engine.leave(tells_ahead=not self._opened.remembers))

    async def abandon(self) -> None:
        """Close socket and state without acknowledging the messages in hand: redelivered later."""
        await self._break_off(None)

    def is_pushed(self, topic: Topics) -> bool:
        """Whether push is on for a topic."""
        return self._engine.is_pushed(topic)

    def push_counts(self, topic: Topics) -> PushCounts:
        """Counts of the pushes of a topic for which push is on, in this process."""
        return self._engine.feature(PushFeature).pushing.counts(topic)

    def unstored_counts(self, topic: str) -> UnstoredCounts:
        """Counts of the QoS 0 messages of a topic, in this process."""
        return self.inbox.of(topic).qos0.counts

    @checked
    def messages(self, topic: Topics, *, timeout_s: Seconds | None = None) -> AioLoop:
        """Iterate over messages; the next step, a next call or `close` acknowledges each.

        Args:
            timeout_s: end after this long without a message; None waits forever.
        """
        wait_s = float("inf") if timeout_s is None else timeout_s
        return AioLoop(lambda loop: self._take(loop, topic, wait_s), self._stops.begin())

    @gated
    async def _take(self, loop: AioLoop, topic: Topics, wait_s: float) -> None:
        """Settle what the loop has taken, and give it the next messages."""
        if wait_s:
            self._gate.patience.wait(wait_s, is_loop=self._opened.asks_forever)
        else:
            self._gate.patience.begin(loop.asks_s)
        loop.begin(*await self._run(self._engine.take(topic, wait_s, loop.until)))
        loop.on_taken = self._engine.record_taken if self._opened.recorder.active else None
        self._gate.steps = loop

    async def _take_fetched(self, loop: AioLoop, topic: Topics) -> None:
        """As `_take`, but end the loop where the proxy would have to be asked."""
        if loop.messages and not loop.has_next:
            raise StopAsyncIteration
        await self._take(loop, topic, 0.0)

    @property
    def _handlers(self) -> Handlers:
        return self._engine.feature(HandlerFeature).handlers

    @checked
    def on(
        self,
        topic: TopicName | Pattern,
        handler: AioHandles,
        *,
        retries: Natural = 3,
        pause_s: PauseS = 1.0,
        on_failure: OnFailure | None = None,
        group: str | None = None,
    ) -> None:
        """Let `run` call a function or coroutine function with each message of a topic.

        One after another, also those of several topics. Arguments and errors are those of the
        blocking client.
        """
        self._handlers.add(
            topic,
            handler,
            awaits=True,
            group=group,
            retries=retries,
            pause_s=pause_s,
            on_failure=on_failure,
        )

    @checked
    async def run(self, *, timeout_s: Seconds | None = None) -> None:
        """Handle messages of the topics of `on`, until `stop`; see the blocking client.

        If it is cancelled, the message that is being handled is not acknowledged.
        """
        await run(Awaiting(self, self._take_fetched), self._handlers, timeout_s)

    @checked
    def off(self, topic: Topics) -> bool:
        """Remove the handler of a topic or pattern; return whether it had one.

        The subscription stays. A `run` that has no handler left ends.
        """
        return self._handlers.remove(topic)
