"""`aio.Subscriber`: the subscriber for asyncio, over the engine of the blocking one."""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType
from typing import Literal

from reliable_pubsub.common.aio import AioClient, closing, gated
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import Seconds, TimeoutS, checked, when_refused
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.dead_letter import MaxDeliveries
from reliable_pubsub.common.core.errors import InDoubtError
from reliable_pubsub.common.core.message_base import (
    Count,
    DelayS,
    LeaseS,
    Natural,
    QoS,
    SessionKind,
    Start,
)
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.common.core.retry import RetryPolicy, Silence, unheard
from reliable_pubsub.common.core.start import PositionToSeek, StartOrPosition
from reliable_pubsub.common.core.stopping import GRACE_S, StopSignal, until_stopped
from reliable_pubsub.common.opened import CLOSE_S
from reliable_pubsub.common.world import World, world_here

from .aio_handling import Awaiting, run
from .core.engine import SubscriberEngine
from .core.fetching import OnLowerQoS
from .core.handlers import AioHandles, Handlers, OnFailure, PauseS
from .core.pull_timer import PushCounts, PushTiming
from .core.qos0_queue import UnstoredCounts
from .core.reading import Reading, read_history, read_newest, start_of_reading
from .core.subscribe_call import SeekCall, SubscribeCall
from .core.subscribing import OnLogChanged
from .life import UNSENT
from .loop import AioLoop
from .opening import open_subscriber
from .qos_warning import warn_of_lower_qos


class Subscriber(AioClient[SubscriberEngine]):
    """Receives the messages of topics, each once, across its own crashes and the proxy's.

    The calls are those of the blocking `Subscriber`, awaited, with the same arguments and errors.
    Neither an unreachable proxy nor a hung disk stops the event loop. One task at a time: a second
    one is refused while a call is open. A cancelled call undoes at most the deliveries that it made
    itself: messages of earlier calls stay in hand, so `asyncio.wait_for(subscriber.get(...), 1)` is
    a way to limit a wait.
    """

    _role = "subscriber"

    @checked
    def __init__(
        self,
        client: str,
        *,
        endpoint: str | None = None,
        state_dir: Path | str | None = None,
        retry: RetryPolicy | None = None,
        allow_plaintext: bool = False,
        on_log_changed: OnLogChanged = "stop",
        on_silence: Silence = unheard,
        on_lower_qos: OnLowerQoS = warn_of_lower_qos,
        journal: Path | str | None = None,
        push_timing: PushTiming | None = None,
        push_via: str | None = None,
        _world: World | None = None,
    ) -> None:
        """Lock and read the state; see the blocking `Subscriber` for arguments and errors."""
        client = names.client_id(client)
        opened = open_subscriber(
            client,
            *(endpoint, state_dir, retry),
            allow_plaintext=allow_plaintext,
            on_log_changed=on_log_changed,
            on_silence=on_silence,
            on_lower_qos=on_lower_qos,
            journal=journal,
            push_timing=push_timing,
            push_via=push_via,
            world=_world or world_here(),
        )
        self._inbox = opened.engine.session.inbox
        self._handlers = Handlers()
        self._stops = StopSignal()
        super().__init__(client, opened, waits=False)
        self._gate.undo = self._inbox.undo
        if opened.remembers:
            _ = opened.state.marks  # made here, and not in the event loop

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
        has_to_tell = not self._opened.remembers or self._engine.groups.members
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

    @gated
    async def subscribe(
        self,
        topic: TopicName | None = None,
        *,
        match: Pattern | None = None,
        where: str = "",
        start: StartOrPosition = None,
        qos: QoS = 2,
        session: SessionKind = "persistent",
        lease_s: LeaseS | None = None,
        push: bool = False,
        max_deliveries: MaxDeliveries | None = None,
        group: str | None = None,
        ordered_by: Literal["key"] | None = None,
        timeout_s: TimeoutS = None,
    ) -> int:
        """Subscribe; return the cursor. Arguments and errors are the blocking client's."""
        call = SubscribeCall(
            topic=topic, match=match, where=where, start=start, qos=qos,
            session=session, lease_s=lease_s, push=push, max_deliveries=max_deliveries,
            group=group, ordered_by=ordered_by,
        )  # fmt: skip
        begun = call.begin(self._engine, remembers=self._opened.remembers)
        return await self._run(until_stopped(begun, self._stops.begin().is_over, GRACE_S))

    @gated
    async def seek(
        self, topic: TopicName | Pattern, start: PositionToSeek, *, timeout_s: TimeoutS = None
    ) -> int:
        """Move an existing subscription; arguments and errors are the blocking client's."""
        return await self._run(SeekCall(topic, start).begin(self._engine))

    @gated
    async def use_push(self, topic: TopicName | Pattern, push: bool) -> None:
        """Switch push on or off; no message is lost or duplicated."""
        self._engine.use_push(topic, push)

    def is_pushed(self, topic: Topics) -> bool:
        """Whether push is on for a topic."""
        return topic in self._engine.pushing

    def push_counts(self, topic: Topics) -> PushCounts:
        """Counts of the pushes of a topic for which push is on, in this process."""
        return self._engine.pushing.counts(topic)

    def unstored_counts(self, topic: str) -> UnstoredCounts:
        """Counts of the QoS 0 messages of a topic, in this process."""
        return self._inbox.of(topic).qos0.counts

    @gated
    async def unsubscribe(
        self, topic: TopicName | Pattern, *, ends_group: bool = False, timeout_s: TimeoutS = None
    ) -> None:
        """End a subscription; undelivered messages will not be delivered."""
        await self._run(self._engine.unsubscribe(topic, ends_group=ends_group))

    @gated
    async def get(
        self, topic: Topics, *, max_messages: Count = 1, timeout_s: Seconds = 0.0
    ) -> list[Message]:
        """Acknowledge the messages of the last `get`, and return the next ones.

        Await it in the task that processes the messages: what it returns counts as delivered, also
        to a task that was dropped.
        """
        delivers, state = self._engine.of(topic)
        self._gate.patience.wait(timeout_s)
        return await self._run(delivers.get(state, max_messages, timeout_s))

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
    def off(self, topic: TopicName | Pattern) -> bool:
        """Remove the handler of a topic or pattern; return whether it had one.

        The subscription stays. A `run` that has no handler left ends.
        """
        return self._handlers.remove(topic)

    @checked
    async def run(self, *, timeout_s: Seconds | None = None) -> None:
        """Handle messages of the topics of `on`, until `stop`; see the blocking client.

        If it is cancelled, the message that is being handled is not acknowledged.
        """
        await run(Awaiting(self), self._handlers, timeout_s)

    def stop(self) -> None:
        """End `run` and loops over `messages`, or the next one; see the blocking client."""
        self._stops.set()

    @gated
    async def acknowledge(self, topic: Topics, *, timeout_s: TimeoutS = None) -> None:
        """Acknowledge the delivered messages; returns when the proxy has stored the cursor."""
        delivers, state = self._engine.of(topic)
        await self._run(delivers.acknowledge(state))

    def _keep(self, message: object = None, *_: object, **__: object) -> None:
        """A `reject` or `nack` failed: the next `get` does not acknowledge its message."""
        self._engine.keep(message)

    @gated
    @when_refused(_keep)
    async def reject(self, message: Message, reason: str, *, timeout_s: TimeoutS = None) -> int:
        """Reject a message: it goes to `<topic>.dead`; return the offset of the dead letter."""
        return await self._run(self._engine.reject(message, reason))

    @gated
    async def ack(self, message: Message, *, timeout_s: TimeoutS = None) -> None:
        """Acknowledge a message of a group, in any order; returns when the proxy has stored it."""
        await self._run(self._engine.groups.settle(message, "ack"))

    @gated
    @when_refused(_keep)
    async def nack(
        self, message: Message, *, delay_s: DelayS = 0.0, timeout_s: TimeoutS = None
    ) -> None:
        """Give a message of a group back: it comes again, to any member, as redelivered."""
        await self._run(self._engine.nack(message, round(delay_s * 1000)))

    @gated
    async def extend(self, message: Message, *, timeout_s: TimeoutS = None) -> None:
        """Begin the lease of a message of a group again, while it takes long to process."""
        await self._run(self._engine.groups.settle(message, "extend"))

    @gated
    async def keep_alive(self, *, timeout_s: TimeoutS = None) -> None:
        """Renew the lease of every subscription, while a message takes long to process."""
        await self._run(self._engine.keep_alive())

    @gated
    async def history(
        self,
        topic: TopicName,
        start: int | Start = 0,
        *,
        max_messages: Count = 100,
        timeout_s: TimeoutS = None,
    ) -> list[Message]:
        """Read stored messages; no subscription is needed or touched."""
        session, begin = self._engine.session, start_of_reading(start)
        return await self._run(read_history(session, names.exact(topic), begin, max_messages))

    @gated
    async def read(self, topic: TopicName, *, timeout_s: TimeoutS = None) -> Reading:
        """The newest message, and the position after it."""
        return await self._run(read_newest(self._engine.session, names.exact(topic)))

    @gated
    async def connect(self, *, timeout_s: TimeoutS = None) -> None:
        """Get an epoch now; the other calls do it when they need one."""
        await self._run(self._engine.session.connecting())
