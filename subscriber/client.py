"""`Subscriber`: gets each message of its topics once, in order, from where it subscribed."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common import names
from reliable_pubsub.common.batch import Message
from reliable_pubsub.common.errors import (
    InDoubtError,
    LostError,
    UsageError,
)
from reliable_pubsub.common.history_file import open_history
from reliable_pubsub.common.limits import BATCH_MESSAGES_MAX, LEASE_MS_MAX
from reliable_pubsub.common.messages import (
    Ack,
    AnyReply,
    BatchHeader,
    Get,
    History,
    Lost,
    MessageBatches,
    NoMessagesYet,
    PutAck,
    QoS,
    SessionKind,
    Start,
    Terms,
)
from reliable_pubsub.common.plan_mark import PlanMark
from reliable_pubsub.common.recorder import Call, Recorder, seen
from reliable_pubsub.common.retry import (
    Clock,
    RetryPolicy,
    Silence,
    Transport,
    poll_pause_s,
    unheard,
)
from reliable_pubsub.common.settings import SUBSCRIBER_ENDPOINT
from reliable_pubsub.common.start import Now, Position, at_offset, newest, start_of
from reliable_pubsub.common.state_file import ClientState, MemoryState, open_state
from reliable_pubsub.common.transport import ReqTransport, SystemClock

from .inbox import Changes, Inbox, direct_followers, messages_in
from .link import Asked, OnLogChanged, SubscriberLink
from .push_queue import PushCounts, PushTiming, Standing
from .pushing import Pushing, PushLink, ZmqPushLink
from .reader import stored_batches


class QoSWarning(UserWarning):
    """Messages come with a lower level than a subscription asked for."""


def lower_qos_in_words(topic: str, publisher: str, qos: int) -> str:
    """What it means that a publisher promises less than a subscription expects."""
    return (
        f"topic {topic!r}: {publisher!r} puts at QoS {qos}, so its messages may come twice here, "
        "although the subscription has QoS 2"
    )


def warn_of_lower_qos(topic: str, publisher: str, qos: int) -> None:
    """Tell a program, as Python tells it."""
    warnings.warn(lower_qos_in_words(topic, publisher, qos), QoSWarning, stacklevel=5)


class Reading(Struct, frozen=True):
    """The state of a topic at one moment: its newest message, and where to go on from there."""

    message: Message | None  # None: nothing is stored
    position: Position


CLEAN_LEASE_MS = 60_000  # of a clean session that names none
FETCH_AHEAD = 10  # times the messages asked for; those behind wait here, unacknowledged


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
        on_silence: Silence = unheard,
        on_lower_qos: Callable[[str, str, int], None] = warn_of_lower_qos,
        history: Path | str | Recorder | None = None,
        push_timing: PushTiming = PushTiming(),  # noqa: B008  (frozen)
        connect_push: Callable[[], PushLink] | None = None,
    ) -> None:
        """Lock and read the state; the proxy is asked at the first call.

        Args:
            client: 1 to 64 of `A-Z a-z 0-9 . -`; one running process for each id.
            on_log_changed: when the log of the proxy is not the one our place speaks of: stop
                with an error, rewind to its start (may repeat), or adopt its end (may miss).
            transport, clock, state: the world outside, where a test brings its own.
            on_silence: told of attempts that went unanswered, as they happen.
            on_lower_qos: told once of each topic and publisher whose messages have a lower level
                than the subscription.
            push_timing: when a topic that is pushed is pulled all the same.
            connect_push: makes a link for pushes, where a test brings its own.
            history: append to this file what is done and what is seen (docs/history.md); a
                recorder is for a test that brings its own.

        Raises:
            InvalidNameError, InUseError, DamagedError.
            ConfigurationError: the history cannot be opened.
        """
        self.client = names.client_id(client)
        self._recorder = open_history(history, self.client)
        self._state = state or open_state(state_dir, "subscriber", self.client)
        self.inbox = Inbox(self._state.load())
        self._transport = transport or ReqTransport(endpoint)
        self._clock = clock or SystemClock()
        self._link = SubscriberLink(
            self.client,
            self.inbox,
            self._state,
            transport=self._transport,
            clock=self._clock,
            retry=retry,
            on_log_changed=on_log_changed,
            recorder=self._recorder,
            on_silence=on_silence,
        )
        self._pushing = Pushing(
            connect_push or (lambda: ZmqPushLink(endpoint, self.client)),
            timing=push_timing,
            clock=self._clock,
        )
        self._fetched: dict[str, deque[Message]] = {}  # not yet handed over, from the cursor on
        self._lost: dict[str, int] = {}  # reported as gone up to here, and not yet passed
        self._on_lower_qos = on_lower_qos
        self._lower: set[tuple[str, str]] = set()  # topics and publishers that were told of
        self._in_hand: dict[str, Message] = {}  # the last message handed over, not acknowledged
        self._recorder.begin("subscriber", remembers=not isinstance(self._state, MemoryState))

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
            self._free(error)

    def close(self) -> None:
        """Acknowledge what is in hand, tell the proxy, and free socket and state.

        With state on disk an unreachable proxy is no matter: the place is kept, and the next
        process tells it.

        Raises:
            InDoubtError: without `state_dir`; the proxy may deliver messages again.
        """
        if not isinstance(self._state, MemoryState):
            self._link.retry = replace(self._link.retry, retries_max=0)  # telling it can wait
        try:
            for topic in list(self._in_hand):
                self._write(self._take_processed(topic))
            for topic, session in list(self._link.told.items()):
                place = self.inbox.places.get(topic)
                # What was sent ahead and not handed over is not to come again with a mark.
                ahead = isinstance(self._state, MemoryState) and self._fetched.get(topic)
                if place is not None and (place.cursor > session.told or ahead):
                    self._acknowledge_to_proxy(topic)
            self._link.bye()
        except InDoubtError as error:
            if isinstance(self._state, MemoryState):
                self._free(error)
                raise
        except BaseException as error:
            self._free(error)
            raise
        self._free(None)

    def abandon(self) -> None:
        """Free socket and state without acknowledging what is in hand: it will come again."""
        self._free(None)

    def _free(self, error: BaseException | None) -> None:
        close = getattr(self._transport, "close", None)
        if close is not None:
            close()
        self._pushing.close()
        self._state.close()
        self._recorder.end(error)

    # What a program calls.

    def subscribe(
        self,
        topic: str,
        *,
        start: Start | Position | None = None,
        qos: QoS = 2,
        session: SessionKind = "persistent",
        lease_s: float | None = None,
        push: bool = False,
    ) -> int:
        """Subscribe, from the end of the topic; a subscription that exists is resumed.

        Args:
            start: begin there instead, whatever was known: `Now`, `LastReceived`, `Earliest`,
                `at_offset(n)`, `newest(n)`, `at_time(t)`, `ago(age)`, or a `Position` that `read`
                gave: then nothing is missed between the two.
            qos: 2 delivers each message once. 1 writes nothing durably here but in `record`, so
                after power loss what was processed may come again. A message has the lower
                level of this and its publisher's.
            session: persistent outlives this process. clean ends with `close`, or when its lease
                does; it always begins anew, by default with what comes from now on.
            lease_s: silence that the proxy bears, above 0 to 30 days: after so long the
                subscription is suspended (seen in status), after twice as long it has expired: a
                clean one has ended, a persistent one holds nothing back any more. None: any (for a
                clean session 60 s). Every call but `history` and `read` ends the silence.
            push: see `use_push`.

        Returns:
            The cursor: the offset of the next message.

        Raises:
            InDoubtError: no definite answer; call again.
            TruncatedError: `start` is no longer stored; it names the first that is left.
            OutOfRangeError: `start` lies in the future; it names what can be asked for.
            FencedError, LogChangedError, LimitError: refused.
        """
        self._forget(topic)
        log = None
        if isinstance(start, Position):
            log = start.log
            start = _start_at(start, topic)
        if session == "clean" and start is None:
            start = Now
        terms = Terms(qos=qos, session=session, lease_ms=lease_ms_of(session, lease_s))
        self._link.subscribe(names.topic(topic), Asked(start=start, log=log, terms=terms))
        self.use_push(topic, push)
        return self.inbox.places[topic].cursor

    def use_push(self, topic: str, push: bool) -> None:
        """Be pushed to, or poll, from now on; at any time, and nothing is lost or doubled.

        A push is a hint: `get` gives the same messages in the same order with and without. With it
        waiting asks nobody, and a message is here as soon as it is durable. Needs a proxy or relay
        that pushes; while it does not, the topic is polled.
        """
        self._pushing.use(topic, push)

    def push_counts(self, topic: str) -> PushCounts:
        """What became of what was pushed of a topic for which push is on, in this process."""
        return self._pushing.counts(topic)

    def unsubscribe(self, topic: str) -> None:
        """End a subscription; what was not delivered is not delivered any more.

        Raises:
            InDoubtError, FencedError.
        """
        with self._recorder.call("unsubscribe", names.topic(topic)) as call:
            self._link.unsubscribe(topic, call)
            self.use_push(topic, False)
            self._forget(topic)
            self._state.write(self.inbox.unsubscribed(topic), durable=True)
            call.ok(epoch=self.inbox.epoch)

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
        _check_messages_max(max_messages)
        with self._recorder.call("get", topic) as call:
            done = self._take_processed(topic)
            fetched = self._fetched.get(topic)
            if not fetched:
                self._write(done)
                done = {}
                fetched = self._wait(topic, call, max_messages, timeout_s)
                if not fetched:
                    return []
            messages = list(islice(fetched, max_messages))
            handed = self._hand_over(topic, messages, done)
            if call.recorded:
                call.ok(epoch=self.inbox.epoch, messages=tuple(map(seen, handed)))
            for _ in messages:  # only now: had a write failed, they would still be the next ones
                fetched.popleft()
            self._in_hand[topic] = messages[-1]
            return handed

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

    def keep_alive(self) -> None:
        """End the silence of every subscription that has a lease, while a message takes long.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        for topic, place in self.inbox.places.items():
            if place.terms.lease_ms:
                self._acknowledge_to_proxy(topic)
                return  # the proxy counts the silence of a client, not of a topic

    def history(
        self, topic: str, start: int | Start = 0, *, max_messages: int = 100
    ) -> list[Message]:
        """Read stored messages; no subscription is needed or touched.

        Args:
            start: an offset, or `Earliest`, `newest(n)`, `at_time(t)`, `ago(age)`. For the next
                page give the offset behind the last message; for what was taken after a message
                and not with it, `at_time(message.timestamp_ns + 1)`.
            max_messages: at most so many, 1..65,536; fewer if they do not fit into one answer.

        Returns:
            Messages in offset order; none if there are none (yet).

        Raises:
            TruncatedError: `start` is no longer stored; it names the first that is left.
            LostError: an operator has given up what stood there. UsageError, InDoubtError.
        """
        request, reply, body = self._ask_history(topic, start_of(start), max_messages)
        return messages_in(topic, stored_batches(request, reply, body))[:max_messages]

    def read(self, topic: str) -> Reading:
        """The newest message, and the position behind it.

        `subscribe(topic, start=reading.position)` then gives everything that was put since, once:
        no message falls between the two (the race of P3Sub, reb00ted.org 2022-10-24).

        Raises:
            InDoubtError.
        """
        request, reply, body = self._ask_history(topic, newest(1), 1)
        messages = messages_in(topic, stored_batches(request, reply, body))
        assert isinstance(reply, MessageBatches | NoMessagesYet)
        log = None if reply.log is UNSET else reply.log
        message = messages[-1] if messages else None
        end = message.offset + 1 if message else reply.end
        return Reading(message, Position(topic, end, log))

    def record(self, topic: str, plan: PlanMark) -> None:
        """Write that what is in hand is processed, and the place in the plan, in one step."""
        with self._recorder.call("record", topic) as call:
            changes = self._take_processed(topic) | self.inbox.mark_plan(plan)
            self._state.write(changes, durable=True)  # the output goes with it, at any level
            place = self.inbox.places.get(topic)
            if place is not None:
                cursor = place.cursor
                self._link.durable[topic] = cursor
                call.ok(epoch=self.inbox.epoch, cursor=cursor)

    def mark_plan(self, plan: PlanMark) -> None:
        """Write the place in a plan where no message goes with it."""
        self._state.write(self.inbox.mark_plan(plan), durable=True)

    def connect(self) -> None:
        """Get an epoch now; the other calls do it when they need one."""
        self._link.connect()

    # How it is done.

    def _ask_history(
        self, topic: str, start: Start, messages_max: int
    ) -> tuple[History, AnyReply, bytes]:
        _check_messages_max(messages_max)
        request = History(
            **self._link.head(), topic=names.topic(topic), start=start, messages_max=messages_max
        )
        return request, *self._link.ask(request)

    def _wait(
        self, topic: str, call: Call, messages_max: int, timeout_s: float
    ) -> deque[Message] | None:
        """Fetch, asking again with growing pauses, until something comes or time is over."""
        deadline_s = self._clock.now_s() + timeout_s
        empty = 0
        asks = timeout_s <= 0
        while True:
            fetched = self._next(topic, call, messages_max, asks=asks)
            if fetched:
                self._fetched[topic] = fetched
                return fetched
            empty += 1
            left_s = deadline_s - self._clock.now_s()
            if left_s <= 0:
                return None
            if topic in self._pushing:
                lease_s = self.inbox.places[topic].terms.lease_ms / 1000
                asks = asks or lease_s > 0  # who has a lease is to be heard
                self._pushing.wait(topic, min(left_s, lease_s / 2) if lease_s else left_s)
            else:
                self._clock.sleep(min(poll_pause_s(empty), left_s))

    def _next(
        self, topic: str, call: Call, messages_max: int, *, asks: bool
    ) -> deque[Message] | None:
        """What was pushed; if nothing was, and a pull is due or `asks`, what a pull finds."""
        if topic not in self._pushing:
            return self._fetch(topic, call, messages_max)
        standing = self._standing(topic)
        pushed = self._pushing.take(topic, standing) if standing else None
        if pushed or (pushed is not None and not asks):
            headers, bodies = [h for h, _ in pushed], [body for _, body in pushed]
            return self._followers(topic, headers, b"".join(bodies))
        fetched = self._fetch(topic, call, messages_max)
        standing = self._standing(topic)
        assert standing is not None
        self._pushing.pulled(topic, standing, fetched[-1].offset + 1 if fetched else None)
        return fetched

    def _standing(self, topic: str) -> Standing | None:
        """Where we stand; None: the proxy of this moment has not confirmed it yet."""
        place, session = self.inbox.places.get(topic), self._link.told.get(topic)
        if place is None or session is None:
            return None
        return Standing(place.log, session.boot, place.cursor, session.told)

    def _followers(self, topic: str, headers: Sequence[BatchHeader], body: bytes) -> deque[Message]:
        """The messages of batches that follow our cursor directly."""
        place = self.inbox.places[topic]
        qos = place.terms.qos
        found = direct_followers(topic, place.cursor, headers, body, qos=qos)
        self._tell_lower_levels(qos, headers, topic)
        return deque(found)

    def _fetch(self, topic: str, call: Call, messages_max: int) -> deque[Message] | None:
        """One GET; it acknowledges what our durable state has as processed."""
        wanted = min(messages_max * FETCH_AHEAD, BATCH_MESSAGES_MAX)
        reply, body = self._link.ask_with_cursor(Get, topic, call, messages_max=wanted)
        if isinstance(reply, MessageBatches | NoMessagesYet):
            self._link.compare(topic, reply.end)
        match reply:
            case MessageBatches():
                return self._followers(topic, reply.batches, body)
            case NoMessagesYet():
                return None
            case Lost():
                # The place moves when the program comes back: else a kill now would silence it.
                self._lost[topic] = reply.end
                raise LostError(topic=topic, first=reply.first, end=reply.end)
            case _:
                self._link.refused(reply)

    def _tell_lower_levels(self, qos: int, batches: Sequence[BatchHeader], topic: str) -> None:
        """Say once of each publisher that what it puts has a lower level than was asked for."""
        for batch in batches:
            if batch.qos < qos and (topic, batch.publisher) not in self._lower:
                self._lower.add((topic, batch.publisher))
                self._on_lower_qos(topic, batch.publisher, batch.qos)

    def _acknowledge_to_proxy(self, topic: str) -> None:
        with self._recorder.call("acknowledge", topic) as call:
            before = self._link.told.get(topic)
            try:
                reply, _ = self._link.ask_with_cursor(Ack, topic, call)
            finally:
                if self._link.told.get(topic) is not before:
                    # Our place was confirmed anew, or moved; what waits behind it was not: the log
                    # may be another one there.
                    self._fetched.pop(topic, None)
            if not isinstance(reply, PutAck):
                self._link.refused(reply)
            call.ok(epoch=self.inbox.epoch, cursor=self.inbox.places[topic].cursor)

    def _take_processed(self, topic: str) -> Changes:
        """What is in hand is done; the changes are still to be written."""
        if topic not in self.inbox.places:  # a clean session that has ended, while we asked
            self._forget(topic)
            return {}
        message = self._in_hand.pop(topic, None)
        if topic in self._lost:
            return self.inbox.lost(topic, self._lost.pop(topic))
        if message is None:
            return {}
        return self.inbox.processed(topic, message.offset + 1, message.timestamp_ns)

    def _forget(self, topic: str) -> None:
        """What was fetched, and is in hand, belongs to a subscription that is no more."""
        self._fetched.pop(topic, None)
        self._in_hand.pop(topic, None)
        self._lost.pop(topic, None)

    def _write(self, changes: Changes) -> None:
        if changes:
            self._state.write(changes, durable=False)

    def _hand_over(self, topic: str, messages: list[Message], done: Changes) -> list[Message]:
        """Write that these go out now; mark those that went out before."""
        _, changes = self.inbox.handed_over(topic, messages[-1].offset + 1)
        self._state.write(done | changes, durable=False)
        place = self.inbox.places[topic]
        if len(place.in_hand) == 1 and place.in_hand[0][1] == 1:
            return messages
        return [replace(m, delivery_count=place.deliveries(m.offset)) for m in messages]


def _check_messages_max(max_messages: int) -> None:
    if not 1 <= max_messages <= BATCH_MESSAGES_MAX:
        raise UsageError(f"max_messages is {max_messages}, allowed is 1..{BATCH_MESSAGES_MAX}")


def _start_at(position: Position, topic: str) -> Start:
    if position.topic != topic:
        raise UsageError(f"the position is one of {position.topic!r}, not of {topic!r}")
    return at_offset(position.offset)


def lease_ms_of(session: SessionKind, lease_s: float | None) -> int:
    """A lease as the wire has it; 0: none.

    Raises:
        UsageError: not above 0, or above 30 days.
    """
    if lease_s is None:
        return CLEAN_LEASE_MS if session == "clean" else 0
    lease_ms = round(lease_s * 1000) if lease_s == lease_s else 0  # NaN is no number
    if not 1 <= lease_ms <= LEASE_MS_MAX:
        raise UsageError(
            f"lease_s is {lease_s:g}, allowed is above 0 (0.001) to {LEASE_MS_MAX // 1000:,} "
            "(30 days); leave it out for a subscription that never expires"
        )
    return lease_ms
