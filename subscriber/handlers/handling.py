"""`on` and `run`: a handler for each topic, called with its messages one after another.

A message is acknowledged when its handler has returned. An exception of the handler is answered by
the policy of its `Handler`: retries with growing pauses, then a dead letter, or the end of `run`.
In a group the pause is that of the message, which any member may have then, and its attempts are
its deliveries. Any other end of `run` (Ctrl-C, a cancellation, kill -9) leaves the message that was
being handled unacknowledged: it is redelivered, marked.

All of that is one generator of steps, which `run` calls, and that of `aio_handling.py` awaits.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any, Final

from reliable_pubsub.common.core.arguments import Seconds, checked
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import StoppedError, UsageError
from reliable_pubsub.common.core.message_base import Natural
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.common.core.stopping import GRACE_S, LOOK_S, until_stopped
from reliable_pubsub.common.frames import frames_of
from reliable_pubsub.common.gate import gated

from ..loop import MessageLoop
from ..opening import OpenedSubscriber
from ..topic_calls import TopicCalls
from .core.handler_feature import HandlerFeature, wait_any
from .core.handlers import (
    TURN_MESSAGES,
    Handler,
    Handlers,
    Handles,
    OnFailure,
    PauseS,
    check_finished,
    reason_of,
)

_log = logging.getLogger("reliable_pubsub.subscriber")
IN_RUN: Final = (
    "`run` of this subscriber is handling messages, and is called from one of its handlers, or in "
    "another thread or task; return from the handler, and `run` goes on with the next message"
)

Step = Callable[[], Any]  # its result, or its exception, goes back to the generator
RunSteps = Generator[Step, Any, Exception | None]  # returns what a handler has failed with for good


class RunningClient(ABC):
    """What the steps need of a subscriber of either kind."""

    def __init__(self, subscriber: OpenedSubscriber, sleep: Callable[[float], Any]) -> None:
        self.now_s, self.sleep = subscriber._opened.asker.clock.now_s, sleep
        self.engine, self.inbox = subscriber._engine, subscriber.inbox
        self.subscribe: Callable[..., Any] = subscriber.subscribe  # type: ignore[attr-defined]
        self.use_push: Callable[..., Any] = subscriber.use_push  # type: ignore[attr-defined]
        self.until = subscriber._stops.begin()
        self._gate = subscriber._gate
        self.asks_s = inf if subscriber._opened.asks_forever else None
        self._run: Callable[[Any], Any] = subscriber._run  # type: ignore[attr-defined]

    def waiting(self, topics: Sequence[Topics], wait_s: float) -> Any:
        """Settle what is in hand; wait until one of the topics has messages to deliver."""
        self._gate.patience.wait(wait_s, is_loop=self.asks_s is not None)
        waiting = wait_any(self.engine, topics, wait_s)
        return self._run(until_stopped(waiting, self.until.is_over))

    def settling(self, settling: Any) -> Any:
        """Settle a message that has failed, by a conversation; `stop` gives it GRACE_S."""
        self._gate.patience.begin(self.asks_s)
        return self._run(until_stopped(settling, self.until.is_over, GRACE_S))

    @abstractmethod
    def wait_any(self, topics: Sequence[Topics], wait_s: float) -> Any:
        """Do `waiting` in a call of the client."""

    @abstractmethod
    def settle(self, settling: Any) -> Any:
        """Do `settling` in a call of the client."""

    @abstractmethod
    def turn(self, topic: Topics) -> tuple[MessageLoop, Step]:
        """A loop over the messages that are here, each processed when that is noted.

        Returns:
            And the step that takes the next one; None: there are no more.
        """


class Blocking(RunningClient):
    """Of a `Subscriber`."""

    def __init__(self, subscriber: TopicCalls) -> None:
        super().__init__(subscriber, subscriber._opened.asker.clock.sleep)
        self._subscriber = subscriber

    @gated
    def wait_any(self, topics: Sequence[Topics], wait_s: float) -> Topics | None:
        found: Topics | None = self.waiting(topics, wait_s)
        return found

    @gated
    def settle(self, settling: Any) -> None:
        self.settling(settling)

    def turn(self, topic: Topics) -> tuple[MessageLoop, Step]:
        loop = MessageLoop(handles=True)
        loop.asks_s = self.asks_s
        return loop, partial(next, self._subscriber._steps(loop, topic, 0.0), None)


class HandlerCalls(TopicCalls):
    """The calls of a blocking subscriber that have to do with handlers."""

    @property
    def _handlers(self) -> Handlers:
        return self._engine.feature(HandlerFeature).handlers

    @checked
    def on(
        self,
        topic: TopicName | Pattern,
        handler: Handles,
        *,
        retries: Natural = 3,
        pause_s: PauseS = 1.0,
        on_failure: OnFailure | None = None,
        group: str | None = None,
    ) -> None:
        """Let `run` call a function with each message of a topic, one after another.

        A second call for the same topic replaces the first; `off` removes it.

        Args:
            topic: or a pattern that is subscribed to; not with `group`.
            handler: a plain function; its message is acknowledged when it returns.
                `message.value` is the payload by its content type.
            retries: how often it is called again after an exception, with the same message.
            pause_s: before the first retry, 0 to 60; it doubles.
            on_failure: after the last one: stop (default) ends `run` with the exception, and the
                message is redelivered to the next `run`; reject (default with `group`) makes it a
                dead letter, and goes on.
            group: `run` is a member of this group, and joins it if `subscribe` has not, with its
                default terms. A message that fails is given back (`nack`) for the pause, then any
                member may have it; its retries are counted by its deliveries. A handler that takes
                longer than the lease calls `extend` meanwhile.

        Raises:
            UsageError: the topic can have no dead letters, or calling the handler does nothing
                yet (a coroutine or generator function).
            InvalidNameError: of the group.
        """
        self._handlers.add(
            topic,
            handler,
            awaits=False,
            group=group,
            retries=retries,
            pause_s=pause_s,
            on_failure=on_failure,
        )

    @checked
    def run(self, *, timeout_s: Seconds | None = None) -> None:
        """Handle messages of the topics of `on`, until `stop`.

        More than one topic is pushed (`use_push`), so that one call can wait for all of them; that
        of a group is polled, and so are patterns.

        Args:
            timeout_s: end after this long without a message; None waits forever.

        Raises:
            Exception: of a handler, after its retries; the message is not acknowledged.
            UsageError: it is called while it runs, from a handler or in another thread.
            LostError, NotSubscribedError, FencedError, LogChangedError: as `get`.
            InDoubtError: only with a number of retries, or `timeout_s`; else it asks until `stop`.
        """
        run(Blocking(self), self._handlers, timeout_s)

    @checked
    def off(self, topic: TopicName | Pattern) -> bool:
        """Remove the handler of a topic or pattern; return whether it had one.

        The subscription stays. A `run` that has no handler left ends.
        """
        return self._handlers.remove(topic)


def run(client: RunningClient, handlers: Handlers, timeout_s: float | None) -> None:
    """Handle messages until `stop`, or `timeout_s` without one.

    Raises:
        UsageError: they are being handled, by a `run` that has called this, or in another thread.
    """
    if _is_run(handlers):
        raise UsageError(IN_RUN)
    _run(handlers, steps_of_run(client, handlers, timeout_s))


def _is_run(handlers: Handlers) -> bool:
    """Whether a `run` is executed. A frame is proof of it, however that ends (rule R25)."""
    return any(
        frame.f_code is _run.__code__ and frame.f_locals["handlers"] is handlers
        for frame in frames_of()
    )


def _run(handlers: Handlers, steps: RunSteps) -> None:
    """Call each step; `handlers` is what `_is_run` looks for."""
    failure: Exception | None
    try:
        step = next(steps)
        while True:
            try:
                result = step()
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(result)
    except StopIteration as end:
        failure = end.value
    if failure is not None:
        raise failure


def _joined(client: RunningClient, handlers: Handlers) -> RunSteps:
    """Join the groups of the handlers; let several topics be pushed, to be waited for at once."""
    topics = handlers.in_turn()
    for topic, group in handlers.groups():
        if not client.engine.is_member(topic, group):
            yield partial(client.subscribe, topic, group=group, timeout_s=client.asks_s)
    for one in topics if len(topics) > 1 else ():
        is_polled = isinstance(one, str) and client.inbox.of(one).pushes is None
        if is_polled and not client.engine.is_member(one):
            yield partial(client.use_push, one, True)
    return None


def steps_of_run(client: RunningClient, handlers: Handlers, timeout_s: float | None) -> RunSteps:
    """All of `run`. Returns the exception of a handler that ends it."""
    failure = None
    with suppress(StoppedError):
        failure = yield from _turns(client, handlers, inf if timeout_s is None else timeout_s)
    if failure is None and client.until.is_over():
        client.until.heed()
    return failure


def _turns(client: RunningClient, handlers: Handlers, patience_s: float) -> RunSteps:
    """Handle topics in turn, until stopped or none has a message in time."""
    if not client.until.is_over():
        yield from _joined(client, handlers)
    last_s = client.now_s()
    while not (client.until.is_over() or handlers.are_none):
        left_s = max(last_s + patience_s - client.now_s(), 0.0)
        topic = yield partial(client.wait_any, handlers.in_turn(), left_s)
        if topic is None:
            return None
        handler, in_group = handlers.of(topic), client.engine.is_member(topic)
        if handler is None:
            continue
        loop, take = client.turn(topic)
        for _ in range(TURN_MESSAGES):
            message = yield take
            if message is None:
                break
            try:
                result = yield partial(handler.call, message)
            except Exception as error:
                failure = yield from _failed(client, handler, message, error, in_group=in_group)
                if failure is not None:
                    return failure
            else:
                check_finished(message, result)
            loop.note_handled()
            if client.until.is_over() or handlers.of(topic) is not handler:
                break
        last_s = client.now_s()
    return None


def _failed(
    client: RunningClient,
    handler: Handler,
    message: Message,
    error: Exception,
    *,
    in_group: bool,
) -> RunSteps:
    """Call the handler again until it returns, or the message has failed for good.

    In a group once: the message is given back, for any member, until it has died.
    """
    attempts = message.delivery_count if in_group else 1
    while True:
        pause_s = handler.pause_before(attempts)
        _warn(handler, message, error, attempts, pause_s)
        if pause_s is None and handler.on_failure == "stop":
            return error
        reason = reason_of(error, attempts)
        if in_group:
            yield partial(client.settle, client.engine.fail(message, pause_s, reason))
            return None
        if pause_s is None:
            yield partial(client.settle, client.engine.reject(message, reason))
            return None
        yield from _pause(client, message, pause_s)
        try:
            result = yield partial(handler.call, message)
        except Exception as again:
            error = again
            attempts += 1
        else:
            check_finished(message, result)
            return None


def _pause(client: RunningClient, message: Message, seconds: float) -> RunSteps:
    """Pause before a retry; a `stop` ends it, and the message is redelivered."""
    if client.inbox.of(message.topic).place.terms.lease_ms and not client.until.is_over():
        yield partial(client.settle, client.engine.keep_alive())
    while not client.until.is_over():
        if seconds <= 0:
            return None
        yield partial(client.sleep, min(seconds, LOOK_S))
        seconds -= LOOK_S
    raise StoppedError


def _warn(
    handler: Handler, message: Message, error: Exception, attempts: int, pause_s: float | None
) -> None:
    if pause_s is not None:
        then = f"again in {pause_s:g} s"
    else:
        then = "it is rejected" if handler.on_failure == "reject" else "`run` ends"
    _log.warning(
        "the handler of topic %r failed with %s at offset %d, message %s, attempt %d of %d; %s",
        *(message.topic, type(error).__name__, message.offset, message.message_id),
        *(attempts, handler.retries + 1, then),
        exc_info=error,
        extra={"topic": message.topic, "offset": message.offset, "message_id": message.message_id},
    )
