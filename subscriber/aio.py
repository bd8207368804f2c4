"""`aio.Subscriber`: the subscriber for asyncio, over the engine of the blocking one."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from msgspec.structs import replace

from reliable_pubsub.common.aio import AioGate, AioShell, closing, gated
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import Seconds, checked, when_refused
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.dead_letter import MaxDeliveries, check_may_die, check_reason
from reliable_pubsub.common.core.errors import InDoubtError, PubSubError
from reliable_pubsub.common.core.messages import Count, LeaseS, QoS, SessionKind, Start
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.retry import RetryPolicy, Silence, unheard
from reliable_pubsub.common.core.start import Place
from reliable_pubsub.common.world import REAL, World

from .core.fetching import OnLowerQoS
from .core.push_queue import PushCounts, PushTiming
from .core.qos0_queue import UnstoredCounts
from .core.reading import Reading, read_history, read_newest, start_of_reading
from .core.subscribing import OnLogChanged, asked_of
from .loop import AioLoop
from .opening import open_subscriber
from .qos_warning import warn_of_lower_qos


class Subscriber:
    """Receives the messages of topics, each once, across its own crashes and the proxy's.

    The calls are those of the blocking `Subscriber`, awaited; a proxy that is away does not stop
    the event loop. One task at a time: a second one is refused while a call is open. A call that is
    cancelled counts as a crash of the client within its process: the next call begins with the
    stored state, and messages in hand are redelivered, marked.
    """

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
        self.client = names.client_id(client)
        self._opened = open_subscriber(
            self.client,
            endpoint,
            state_dir,
            retry,
            allow_plaintext=allow_plaintext,
            on_log_changed=on_log_changed,
            on_silence=on_silence,
            on_lower_qos=on_lower_qos,
            journal=journal,
            push_timing=push_timing,
            push_via=push_via,
            world=_world or REAL,
        )
        self._engine, asker = self._opened.engine, self._opened.asker
        self._inbox = self._engine.session.inbox
        self._run = AioShell(asker.transport, self._opened.state).run
        self._gate = AioGate(f"subscriber {self.client!r}", self._opened.begin_again, waits=False)
        self._opened.may_be_taken(lambda: self._gate.replace(lambda: self._free(None)))

    async def __aenter__(self) -> Subscriber:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self._close(error)

    @closing
    async def close(self) -> None:
        """Acknowledge the messages in hand, send the cursors, and close socket and state.

        Raises:
            InDoubtError: without `state_dir`; the proxy may deliver messages again.
        """
        if self._gate.closed:
            self._free(None)
            return
        opened = self._opened
        if opened.remembers:  # the cursors can be sent later
            opened.asker.retry = replace(opened.asker.retry, retries_max=0)
        try:
            self._gate.begin_again()
            await self._run(self._engine.leave(tells_ahead=not opened.remembers))
        except BaseException as error:
            self._free(error)
            if not opened.remembers or not isinstance(error, InDoubtError):
                raise
        else:
            self._free(None)

    async def abandon(self) -> None:
        """Close socket and state without acknowledging the messages in hand: redelivered later."""
        await self._close(None)

    @closing
    async def _close(self, error: BaseException | None) -> None:
        self._free(error)

    def _free(self, error: BaseException | None) -> None:
        self._gate.closed = True
        self._opened.close(error)

    @gated
    async def subscribe(
        self,
        topic: TopicName,
        *,
        start: Place = None,
        replay: bool = False,
        qos: QoS = 2,
        session: SessionKind = "persistent",
        lease_s: LeaseS | None = None,
        push: bool = False,
        max_deliveries: MaxDeliveries | None = None,
    ) -> int:
        """Subscribe; return the cursor. Arguments and errors are the blocking client's."""
        topic = names.exact(topic)
        asked = asked_of(
            topic,
            start=start,
            replay=replay,
            qos=qos,
            session=session,
            lease_s=lease_s,
            max_deliveries=max_deliveries,
            remembers=self._opened.remembers,
        )
        return await self._run(self._engine.subscribe(topic, asked, push=push))

    @gated
    async def use_push(self, topic: TopicName, push: bool) -> None:
        """Switch push on or off; no message is lost or duplicated."""
        self._engine.pushing.use(names.exact(topic), push)

    def is_pushed(self, topic: str) -> bool:
        """Whether push is on for a topic."""
        return topic in self._engine.pushing

    def push_counts(self, topic: str) -> PushCounts:
        """Counts of the pushes of a topic for which push is on, in this process."""
        return self._engine.pushing.counts(topic)

    def unstored_counts(self, topic: str) -> UnstoredCounts:
        """Counts of the QoS 0 messages of a topic, in this process."""
        queue = self._inbox.of(topic).qos0
        return UnstoredCounts() if queue is None else queue.counts

    @gated
    async def unsubscribe(self, topic: TopicName) -> None:
        """End a subscription; undelivered messages will not be delivered."""
        await self._run(self._engine.unsubscribe(names.exact(topic)))

    @gated
    async def get(
        self, topic: str, *, max_messages: Count = 1, timeout_s: Seconds = 0.0
    ) -> list[Message]:
        """Acknowledge the messages of the last `get`, and return the next ones.

        Await it in the task that processes the messages: what it returns counts as delivered, also
        to a task that was dropped.
        """
        return await self._run(self._engine.get(self._inbox.of(topic), max_messages, timeout_s))

    @checked
    def messages(self, topic: str, *, timeout_s: Seconds | None = None) -> AioLoop:
        """Iterate over messages with `async for`; each is acknowledged with the next step.

        Args:
            timeout_s: end after this long without a message; None waits forever.
        """
        wait_s = float("inf") if timeout_s is None else timeout_s
        return AioLoop(lambda loop: self._take(loop, topic, wait_s))

    @gated
    async def _take(self, loop: AioLoop, topic: str, wait_s: float) -> None:
        """Settle what the loop has taken, and give it the next messages."""
        subscription = self._inbox.of(topic)
        loop.begin(subscription, await self._run(self._engine.take(subscription, wait_s)))
        loop.on_taken = self._engine.record_taken if self._opened.recorder.active else None
        self._gate.steps = loop

    @gated
    async def acknowledge(self, topic: str) -> None:
        """Acknowledge the delivered messages; returns when the proxy has stored the cursor."""
        await self._run(self._engine.acknowledge(topic))

    def _keep(self, message: object = None, *_: object, **__: object) -> None:
        """A rejection failed: its message is not acknowledged by the next `get`."""
        if isinstance(message, Message) and type(message.offset) is int:
            self._inbox.of(message.topic).keep(message)

    @gated
    @when_refused(_keep)
    async def reject(self, message: Message, reason: str) -> int:
        """Reject a message: it goes to `<topic>.dead`; return the offset of the dead letter."""
        subscription = self._inbox.of(message.topic)
        try:
            check_reason(reason)
            check_may_die(message.topic)
            return await self._run(self._engine.reject(subscription, message, reason))
        except PubSubError:
            self._keep(message)
            raise

    @gated
    async def keep_alive(self) -> None:
        """Renew the lease of every subscription, while a message takes long to process."""
        await self._run(self._engine.keep_alive())

    @gated
    async def history(
        self, topic: TopicName, start: int | Start = 0, *, max_messages: Count = 100
    ) -> list[Message]:
        """Read stored messages; no subscription is needed or touched."""
        session, begin = self._engine.session, start_of_reading(start)
        return await self._run(read_history(session, names.exact(topic), begin, max_messages))

    @gated
    async def read(self, topic: TopicName) -> Reading:
        """The newest message, and the position after it."""
        return await self._run(read_newest(self._engine.session, names.exact(topic)))

    @gated
    async def connect(self) -> None:
        """Get an epoch now; the other calls do it when they need one."""
        await self._run(self._engine.session.connecting())
