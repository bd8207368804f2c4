"""`Subscriber`: gets each message of its topics once, in order, from where it subscribed."""

from __future__ import annotations

import random
import secrets
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn

from msgspec.structs import replace

from reliable_pubsub.common import names
from reliable_pubsub.common.batch import Message
from reliable_pubsub.common.errors import (
    FencedError,
    LimitError,
    LogChangedError,
    LostError,
    NotSubscribedError,
    ProxyUnreachableError,
    RefusedError,
    StaleError,
    TruncatedError,
    UsageError,
)
from reliable_pubsub.common.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.messages import (
    Ack,
    AnyReply,
    Fenced,
    Get,
    Hello,
    HelloAck,
    History,
    Limit,
    LogChanged,
    Lost,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    PutAck,
    Request,
    Stale,
    Sub,
    SubAck,
    Truncated,
    Unsub,
    UnsubAck,
)
from reliable_pubsub.common.plan_mark import PlanMark
from reliable_pubsub.common.retry import Clock, RetryPolicy, Transport, ask, poll_pause_s
from reliable_pubsub.common.settings import SUBSCRIBER_ENDPOINT
from reliable_pubsub.common.state_file import ClientState, MemoryState, open_state
from reliable_pubsub.common.transport import ReqTransport, SystemClock

from .inbox import Changes, Inbox, Place, direct_followers

FETCH_AHEAD = 10  # times the messages asked for; those behind wait here, unacknowledged

OnLogChanged = Literal["stop", "rewind", "adopt"]


class _Session:
    """What the proxy of this moment knows of one subscription."""

    __slots__ = ("boot", "generation", "told")

    def __init__(self, generation: int, boot: str, told: int) -> None:
        self.generation = generation
        self.boot = boot
        self.told = told  # the cursor that the proxy was told last


class Subscriber:
    """Receives the messages of topics, each once, across its own crashes and the proxy's.

    One thread at a time. A message is acknowledged when the program comes back for the next one,
    calls `acknowledge`, or leaves the `with` block without an error. With `state_dir` the place
    survives the process, and what was in hand when it died comes again with `redelivered` set.
    """

    def __init__(
        self,
        client: str,
        *,
        endpoint: str = SUBSCRIBER_ENDPOINT,
        state_dir: Path | str | None = None,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  (frozen)
        on_log_changed: OnLogChanged = "stop",
        transport: Transport | None = None,
        clock: Clock | None = None,
        state: ClientState | None = None,
    ) -> None:
        """Lock and read the state; the proxy is asked at the first call.

        Args:
            client: 1 to 64 of `A-Z a-z 0-9 . -`; one running process for each id.
            on_log_changed: when the log of the proxy is not the one our place speaks of: stop
                with an error, rewind to its start (may repeat), or adopt its end (may miss).
            transport, clock, state: the world outside, where a test brings its own.

        Raises:
            InvalidNameError, InUseError, DamagedError.
        """
        self.client = names.client_id(client)
        self._state = state or open_state(state_dir, "subscriber", self.client)
        self.inbox = Inbox(self._state.load())
        self._transport = transport or ReqTransport(endpoint)
        self._clock = clock or SystemClock()
        self._retry = retry
        self._on_log_changed = on_log_changed
        self._nonce = secrets.token_bytes(16)
        self._request = 0
        self._control = 0
        self._connected = False
        self._sessions: dict[str, _Session] = {}
        self._fetched: dict[str, deque[Message]] = {}  # not yet handed over, from the cursor on
        self._durable: dict[str, int] = {}  # cursors that are known to survive power loss
        self._in_hand: dict[str, Message] = {}  # the last message handed over, not acknowledged

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def close(self) -> None:
        """Acknowledge what is in hand, tell the proxy, and free socket and state.

        With state on disk an unreachable proxy is no matter: the place is kept, and the next
        process tells it.

        Raises:
            ProxyUnreachableError: without `state_dir`; the proxy may deliver messages again.
        """
        if not isinstance(self._state, MemoryState):
            self._retry = replace(self._retry, retries_max=0)  # telling the proxy can wait
        try:
            for topic in list(self._in_hand):
                self._write(self._take_processed(topic))
            for topic, session in self._sessions.items():
                place = self.inbox.places.get(topic)
                if place is not None and place.cursor > session.told:
                    self._acknowledge_to_proxy(topic)
        except ProxyUnreachableError:
            if isinstance(self._state, MemoryState):
                raise
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Free socket and state without acknowledging what is in hand: it will come again."""
        close = getattr(self._transport, "close", None)
        if close is not None:
            close()
        self._state.close()

    # What a program calls.

    def subscribe(self, topic: str) -> int:
        """Subscribe, from the end of the topic; a subscription that exists is resumed.

        Returns:
            The cursor: the offset of the next message.

        Raises:
            InDoubtError: no definite answer; call again.
            FencedError, LogChangedError, LimitError: refused.
        """
        self._fetched.pop(topic, None)
        self._in_hand.pop(topic, None)
        self._subscribe(names.topic(topic))
        return self.inbox.places[topic].cursor

    def unsubscribe(self, topic: str) -> None:
        """End a subscription; what was not delivered is not delivered any more.

        Raises:
            InDoubtError, FencedError.
        """
        names.topic(topic)
        self._control_request()
        reply = self._ask(Unsub(**self._head(), topic=topic, control=self._control))
        if self._is_forgotten(reply):
            self._control_request()
            reply = self._ask(Unsub(**self._head(), topic=topic, control=self._control))
        if not isinstance(reply, UnsubAck):
            self._refused(reply)
        self._sessions.pop(topic, None)
        self._fetched.pop(topic, None)
        self._in_hand.pop(topic, None)
        self._state.write(self.inbox.unsubscribed(topic), durable=True)

    def get(self, topic: str, *, max_messages: int = 1, timeout_s: float = 0.0) -> list[Message]:
        """Acknowledge what the last `get` gave, and give the next messages.

        Args:
            max_messages: at most so many, 1..65,536; fewer if fewer are there.
            timeout_s: wait so long for the first one; 0 asks once.

        Returns:
            Messages in offset order; none if there were none in time.

        Raises:
            NotSubscribedError: there is no subscription.
            LostError: messages are gone; the next get goes on behind them.
            InDoubtError, FencedError, LogChangedError.
        """
        if not 1 <= max_messages <= BATCH_MESSAGES_MAX:
            raise UsageError(f"max_messages is {max_messages}, allowed is 1..{BATCH_MESSAGES_MAX}")
        done = self._take_processed(topic)
        fetched = self._fetched.get(topic)
        if not fetched:
            self._write(done)
            done = {}
            fetched = self._wait(topic, max_messages, timeout_s)
            if not fetched:
                return []
        if max_messages == 1:
            messages = [fetched.popleft()]
        elif max_messages >= len(fetched):
            messages = list(fetched)
            fetched.clear()
        else:
            messages = [fetched.popleft() for _ in range(max_messages)]
        return self._hand_over(topic, messages, done)

    def messages(self, topic: str, *, timeout_s: float | None = None) -> Iterator[Message]:
        """Give messages one by one; each is acknowledged when the loop comes back for the next.

        Args:
            timeout_s: end when nothing came for so long; None waits for ever.
        """
        while True:
            wait_s = float("inf") if timeout_s is None else timeout_s
            found = self.get(topic, timeout_s=wait_s)
            if not found:
                return
            yield found[0]

    def acknowledge(self, topic: str) -> None:
        """What was handed over is processed; returns when the proxy has it durably too.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        self._write(self._take_processed(topic))
        self._acknowledge_to_proxy(topic)

    def history(self, topic: str, offset: int, *, max_messages: int = 100) -> list[Message]:
        """Read stored messages from an offset on; no subscription is needed or touched.

        Raises:
            TruncatedError: `offset` is no longer stored. InDoubtError.
        """
        self._request += 1
        request = History(
            client=self.client,
            epoch=self.inbox.epoch,
            request=self._request,
            topic=names.topic(topic),
            offset=offset,
            messages_max=max_messages,
        )
        reply, body = self._ask_with_body(request)
        match reply:
            case MessageBatches():
                return direct_followers(topic, offset, reply.batches, body)[:max_messages]
            case NoMessagesYet():
                return []
            case Truncated():
                raise TruncatedError(topic=topic, offset=offset, start=reply.start)
            case Lost():
                raise LostError(topic=topic, first=reply.first, end=reply.end)
            case _:
                self._refused(reply)

    def record(self, topic: str, plan: PlanMark) -> None:
        """Write that what is in hand is processed, and the place in the plan, in one step."""
        changes = self._take_processed(topic) | self.inbox.mark_plan(plan)
        self._state.write(changes, durable=True)
        if topic in self.inbox.places:
            self._durable[topic] = self.inbox.places[topic].cursor

    def mark_plan(self, plan: PlanMark) -> None:
        """Write the place in a plan where no message goes with it."""
        self._state.write(self.inbox.mark_plan(plan), durable=True)

    # How it is done.

    def connect(self) -> None:
        """Get an epoch; whatever older process has this id is fenced from now on (rule R11)."""
        epoch = self.inbox.epoch + 1
        while True:
            self._request += 1
            reply = self._ask(
                Hello(
                    client=self.client,
                    epoch=epoch,
                    request=self._request,
                    role="subscriber",
                    nonce=self._nonce,
                )
            )
            if isinstance(reply, HelloAck):
                break
            if not isinstance(reply, Fenced):
                self._refused(reply)
            epoch = max(reply.current_epoch, epoch) + 1
        self._state.write(self.inbox.granted(epoch), durable=False)
        self._connected = True
        self._control = 0
        self._sessions.clear()

    def _subscribe(self, topic: str) -> None:
        """Begin or resume a subscription, with our own place as evidence (rules R13, R14)."""
        place = self.inbox.places.get(topic)
        seek = False
        reply = self._ask_sub(topic, place)
        if self._is_forgotten(reply):
            self._connected = False
            reply = self._ask_sub(topic, place)
        if isinstance(reply, LogChanged):
            if self._on_log_changed == "stop":
                raise LogChangedError(reply.text)
            cursor = reply.start if self._on_log_changed == "rewind" else reply.end
            seek = True
            reply = self._ask_sub(topic, None, seek=cursor)
        if not isinstance(reply, SubAck):
            self._refused(reply)
        if seek:
            changes = self.inbox.repositioned(reply)
        else:
            changes = self.inbox.subscribed(reply, adopt=self._on_log_changed == "adopt")
        if changes:
            self._state.write(changes, durable=True)
            self._fetched.pop(topic, None)
        self._sessions[topic] = _Session(reply.generation, reply.boot, reply.cursor)

    def _ask_sub(self, topic: str, place: Place | None, seek: int | None = None) -> AnyReply:
        self._control_request()
        return self._ask(
            Sub(
                **self._head(),
                topic=topic,
                control=self._control,
                log=place.log if place else None,
                cursor=place.cursor if place else seek,
                witness_ns=place.witness_ns if place else None,
            )
        )

    def _control_request(self) -> None:
        """Number a SUB or UNSUB, in a session of our own (rule R12)."""
        if not self._connected:
            self.connect()
        self._control += 1

    def _head(self) -> dict[str, Any]:
        self._request += 1
        return {"client": self.client, "epoch": self.inbox.epoch, "request": self._request}

    def _wait(self, topic: str, messages_max: int, timeout_s: float) -> deque[Message] | None:
        """Fetch, asking again with growing pauses, until something comes or time is over."""
        deadline_s = self._clock.now_s() + timeout_s
        empty = 0
        while True:
            fetched = self._fetch(topic, messages_max)
            if fetched:
                self._fetched[topic] = fetched
                return fetched
            empty += 1
            left_s = deadline_s - self._clock.now_s()
            if left_s <= 0:
                return None
            self._clock.sleep(min(poll_pause_s(empty), left_s))

    def _fetch(self, topic: str, messages_max: int) -> deque[Message] | None:
        """One GET; it acknowledges what our durable state has as processed."""
        wanted = min(messages_max * FETCH_AHEAD, BATCH_MESSAGES_MAX)
        reply, body = self._with_subscription(Get, topic, messages_max=wanted)
        match reply:
            case MessageBatches():
                cursor = self.inbox.places[topic].cursor
                return deque(direct_followers(topic, cursor, reply.batches, body))
            case NoMessagesYet():
                return None
            case Lost():
                self._state.write(self.inbox.lost(topic, reply.end), durable=True)
                raise LostError(topic=topic, first=reply.first, end=reply.end)
            case _:
                self._refused(reply)

    def _acknowledge_to_proxy(self, topic: str) -> None:
        reply, _ = self._with_subscription(Ack, topic)
        if not isinstance(reply, PutAck):
            self._refused(reply)

    def _with_subscription(
        self, kind: type[Get | Ack], topic: str, **more: Any
    ) -> tuple[AnyReply, bytes]:
        """Ask with our cursor; confirm the subscription first where the proxy needs it."""
        names.topic(topic)
        if topic not in self.inbox.places:
            raise NotSubscribedError(f"{self.client!r} is not subscribed to {topic!r}; subscribe")
        for _ in range(3):
            if topic not in self._sessions:
                self._subscribe(topic)
            session = self._sessions[topic]
            cursor = self.inbox.places[topic].cursor
            if cursor > max(session.told, self._durable.get(topic, 0)):
                # Durable here before the proxy hears of it (rule R9).
                self._state.write(self.inbox.restated(topic), durable=True)
                self._durable[topic] = cursor
            reply, body = self._ask_with_body(
                kind(
                    **self._head(),
                    topic=topic,
                    generation=session.generation,
                    boot=session.boot,
                    cursor=cursor,
                    **more,
                )
            )
            session.told = cursor
            if isinstance(reply, Stale | NotSub | LogChanged) or self._is_forgotten(reply):
                # The proxy has restarted, or has forgotten us: our own place is the evidence.
                del self._sessions[topic]
                continue
            return reply, body
        self._refused(reply)

    def _take_processed(self, topic: str) -> Changes:
        """What is in hand is done; the changes are still to be written."""
        message = self._in_hand.pop(topic, None)
        if message is None:
            return {}
        return self.inbox.processed(topic, message.offset + 1, message.timestamp_ns)

    def _write(self, changes: Changes) -> None:
        if changes:
            self._state.write(changes, durable=False)

    def _hand_over(self, topic: str, messages: list[Message], done: Changes) -> list[Message]:
        """Write that these go out now; mark those that went out before."""
        again_end = self.inbox.places[topic].in_hand_end
        deliveries, changes = self.inbox.handed_over(topic, messages[-1].offset + 1)
        self._state.write(done | changes, durable=False)
        self._in_hand[topic] = messages[-1]
        if deliveries == 1:
            return messages
        return [
            replace(message, delivery_count=deliveries) if message.offset < again_end else message
            for message in messages
        ]

    def _ask(self, request: Request) -> AnyReply:
        return self._ask_with_body(request)[0]

    def _ask_with_body(self, request: Request) -> tuple[AnyReply, bytes]:
        return ask(
            request,
            None,
            transport=self._transport,
            clock=self._clock,
            retry=self._retry,
            chance=random.random,
        )

    def _is_forgotten(self, reply: AnyReply) -> bool:
        """Whether the proxy knows less of our session than it granted; then begin a new one."""
        forgotten = isinstance(reply, Fenced) and reply.current_epoch < self.inbox.epoch
        if forgotten:
            self._connected = False
        return forgotten

    def _refused(self, reply: AnyReply) -> NoReturn:
        """Raise what an answer means."""
        match reply:
            case Fenced():
                raise FencedError(
                    client=self.client, epoch=self.inbox.epoch, current_epoch=reply.current_epoch
                )
            case LogChanged():
                raise LogChangedError(reply.text)
            case NotSub():
                raise NotSubscribedError(reply.text)
            case Stale():
                raise StaleError(reply.text)
            case Limit():
                raise LimitError(reply.text)
            case _:
                raise RefusedError(f"the proxy answered {type(reply).__name__} to a subscriber")
