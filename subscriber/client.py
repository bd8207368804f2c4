"""`Subscriber`: gets each message of its topics once, in order, from where it subscribed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import TracebackType

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common import names
from reliable_pubsub.common.arguments import Seconds, checked
from reliable_pubsub.common.asking import Asker
from reliable_pubsub.common.batch import Message
from reliable_pubsub.common.dead_letter import MaxDeliveries, check_may_die, check_reason
from reliable_pubsub.common.errors import (
    InDoubtError,
    RefusedError,
    UsageError,
)
from reliable_pubsub.common.gate import Gate, closing, gated, gated_after_close
from reliable_pubsub.common.history_file import open_history
from reliable_pubsub.common.messages import (
    Ack,
    AnyReply,
    Count,
    History,
    LeaseS,
    MessageBatches,
    NoMessagesYet,
    PutAck,
    QoS,
    SessionKind,
    Start,
    Terms,
)
from reliable_pubsub.common.names import TopicName
from reliable_pubsub.common.plan_mark import PlanMark
from reliable_pubsub.common.recorder import Call, Recorder, seen
from reliable_pubsub.common.retry import (
    Clock,
    RetryPolicy,
    Silence,
    Transport,
    unheard,
)
from reliable_pubsub.common.settings import Settings
from reliable_pubsub.common.start import (
    LastReceived,
    Now,
    Place,
    Position,
    at_offset,
    newest,
    start_of,
)
from reliable_pubsub.common.state_file import ClientState, MemoryState, StateFile, open_state
from reliable_pubsub.common.surroundings import client_here
from reliable_pubsub.relay.push import UnstoredFrames

from .fetching import Fetching, OnLowerQoS, warn_of_lower_qos
from .giving_up import GivingUp
from .inbox import Changes, Inbox, messages_in
from .link import Asked, OnLogChanged, SubscriberLink, lease_ms_of
from .push_queue import PushCounts, PushTiming
from .pushing import Pushing, PushLink, ZmqPushLink
from .reader import stored_batches
from .ring_queue import UnstoredCounts


class Reading(Struct, frozen=True):
    """The state of a topic at one moment: its newest message, and where to go on from there."""

    message: Message | None  # None: nothing is stored
    position: Position


class Subscriber:
    """Receives the messages of topics, each once, across its own crashes and the proxy's.

    Threads: one for each call; a second one is refused while a call is open. A forked child needs a
    client of its own. An exception that is not a `PubSubError` (Ctrl-C, an alarm) may leave a call
    and be caught: the next call begins as after a crash, and what was in hand comes again.

    A message is acknowledged when the program comes back for the next one,
    calls `acknowledge`, or leaves the `with` block without an error. With `state_dir` the place
    survives the process, and what was in hand when it died comes again with `redelivered` set.
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
        transport: Transport | None = None,
        clock: Clock | None = None,
        state: ClientState | None = None,
        on_silence: Silence = unheard,
        on_lower_qos: OnLowerQoS = warn_of_lower_qos,
        history: Path | str | Recorder | None = None,
        push_timing: PushTiming | None = None,
        push_via: str | None = None,
        connect_push: Callable[[], PushLink] | None = None,
    ) -> None:
        """Lock and read the state; the proxy is asked at the first call.

        Args:
            client: 1 to 64 of `A-Z a-z 0-9 . -`; one running process for each id.
            endpoint, state_dir, retry: what is not given here is taken from the settings
                (`reliable-pubsub config show CLIENT`): settings.json, the environment, a default.
                By default there is no state_dir, and the state is in memory.
            allow_plaintext: accept an endpoint outside this machine. Traffic is not encrypted.
            on_log_changed: when the log of the proxy is not the one our place speaks of: stop
                with an error, rewind to its start (may repeat), or adopt its end (may miss).
            transport, clock, state: the world outside, where a test brings its own; with a
                transport no settings are looked for.
            on_silence: told of attempts that went unanswered, as they happen.
            on_lower_qos: told once of each topic and publisher whose messages have a lower level
                than the subscription.
            push_timing: when a topic that is pushed is pulled all the same.
            push_via: where pushed data is found, if not where the proxy says: behind a tunnel.
            connect_push: makes a link for pushes, where a test brings its own.
            history: append to this file what is done and what is seen (docs/history.md); a
                recorder is for a test that brings its own.

        Raises:
            InvalidNameError, InUseError, DamagedError.
            ConfigurationError: a setting is wrong, an endpoint leaves this machine, or the history
                cannot be opened.
        """
        self.client = names.client_id(client)
        here = client_here(
            "subscriber",
            self.client,
            *(endpoint, state_dir, retry),
            allow_plaintext=allow_plaintext,
            push_via=push_via,
            looks=transport is None,
        )
        self._recorder = open_history(history, self.client)
        self._state = state or open_state(here.state_dir, "subscriber", self.client)
        self.inbox = Inbox(self._state.load())
        self._asker = Asker(
            self.client,
            here.endpoint,
            retry=here.retry,
            transport=transport,
            clock=clock,
            on_silence=on_silence,
            role="subscriber",
        )
        self._link = SubscriberLink(
            self._asker,
            self.inbox,
            self._state,
            on_log_changed=on_log_changed,
            recorder=self._recorder,
        )
        self._pushing = Pushing(
            connect_push
            or (lambda: ZmqPushLink(here.endpoint, self.client, here.settings.push_via)),
            timing=push_timing or _timing(here.settings),
            clock=self._asker.clock,
            on_unstored=self._take_unstored,
        )
        self._passing_first = True  # whose turn it is, when both sorts of messages wait
        self._fetching = Fetching(self._link, self.inbox, self._pushing, on_lower_qos=on_lower_qos)
        self._giving_up = GivingUp(
            self.client,
            self._link,
            self.inbox,
            self._fetching,
            state=self._state,
            recorder=self._recorder,
        )
        self._in_hand: dict[str, Message] = {}  # the last message handed over, not acknowledged
        self._gate = Gate(f"subscriber {self.client!r}", self._begin_again, threads=False)
        self._recorder.begin("subscriber", remembers=not isinstance(self._state, MemoryState))
        if isinstance(self._state, StateFile):
            self._state.may_be_taken(lambda: self._gate.replace(lambda: self._free(None)))

    def _begin_again(self) -> None:
        """Know what the state says, and nothing else: a call was broken off somewhere.

        What was in hand is not acknowledged: it comes again, marked.
        """
        self._asker.transport.reopen()
        self.inbox.reload(self._state.load())
        self._link.begin_again()
        self._fetching.begin_again()
        self._giving_up.begin_again()
        self._in_hand.clear()
        self._pushing.begin_again()
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
            self._close(error)

    @closing
    def close(self) -> None:
        """Acknowledge what is in hand, tell the proxy, and free socket and state.

        With state on disk an unreachable proxy is no matter: the place is kept, and the next
        process tells it.

        Raises:
            InDoubtError: without `state_dir`; the proxy may deliver messages again.
        """
        if self._gate.closed:
            self._free(None)
            return
        if not isinstance(self._state, MemoryState):
            self._asker.retry = replace(self._asker.retry, retries_max=0)  # telling it can wait
        try:
            self._gate.begin_again()
            for topic in {*self._in_hand, *self._giving_up.topics}:
                self._write(self._take_processed(topic))
            for topic, session in list(self._link.told.items()):
                place = self.inbox.places.get(topic)
                # What was sent ahead and not handed over is not to come again with a mark.
                ahead = isinstance(self._state, MemoryState) and self._fetching.ahead(topic)
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
        self._close(None)

    @closing
    def _close(self, error: BaseException | None) -> None:
        self._free(error)

    def _free(self, error: BaseException | None) -> None:
        self._gate.closed = True  # from here on it can only be freed, again if it is broken off
        self._asker.close()
        self._pushing.close()
        self._state.close()
        self._recorder.end(error)

    # What a program calls.

    @gated
    def subscribe(
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
        """Subscribe, from the end of the topic; a subscription that exists is resumed.

        Args:
            start: begin there instead: `Now`, `LastReceived`, `Earliest`, `at_offset(n)`,
                `newest(n)`, `at_time(t)`, `ago(age)`, or a `Position` that `read` gave: then
                nothing is missed between the two. What this subscriber has acknowledged does not
                come again, wherever `start` lies: `ago(age)` is "of the last hour, what was not
                delivered to me".
            replay: begin at `start` whatever was acknowledged; what comes again is marked
                `redelivered`. Not with `Now` and `LastReceived`.
            qos: 2 delivers each message once. 1 writes nothing durably here but in `record`, so
                after power loss what was processed may come again. 0 hands each message over at
                most once: nothing is kept for it, not even while this process is away, and each
                process begins with what comes from now on. A message has the lower level of this
                and its publisher's.
            session: persistent outlives this process. clean ends with `close`, or when its lease
                does; it always begins anew, by default with what comes from now on.
            lease_s: silence that the proxy bears, above 0 to 30 days: after so long the
                subscription is suspended (seen in status), after twice as long it has expired: a
                clean one has ended, a persistent one holds nothing back any more. None: any (for a
                clean session 60 s). Every call but `history` and `read` ends the silence.
            push: see `use_push`.
            max_deliveries: a message that was handed over so often without being acknowledged (1
                to 1,000) goes to `<topic>.dead` in place of being handed over again, and what
                comes again comes alone, so that its neighbours do not suffer for it. Needs
                `state_dir`, where deliveries are counted. None: it comes again for ever.

        Returns:
            The cursor: the offset of the next message.

        Raises:
            InDoubtError: no definite answer; call again.
            TruncatedError: `start` is no longer stored; it names the first that is left.
            OutOfRangeError: `start` lies in the future; it names what can be asked for.
            FencedError, LogChangedError, LimitError: refused.
            UsageError: a bound that cannot be.
        """
        topic = names.exact(topic)
        self._check_bound(topic, max_deliveries)
        _check_replay(start, replay)
        log = None
        if isinstance(start, Position):
            log = start.log
            start = _start_at(start, topic)
        if session == "clean" and start is None:
            start = Now
        terms = Terms(qos=qos, session=session, lease_ms=lease_ms_of(session, lease_s))
        asked = Asked(
            start=start, replay=replay, log=log, terms=terms, max_deliveries=max_deliveries
        )
        self._fetching.drop(topic)  # what is in hand stays, if this is refused
        self._link.subscribe(topic, asked)
        self._forget(topic)
        self._pushing.use(topic, push)
        return self.inbox.places[topic].cursor

    @gated
    def use_push(self, topic: str, push: bool) -> None:
        """Be pushed to, or poll, from now on; at any time, and nothing is lost or doubled.

        A push is a hint: `get` gives the same messages in the same order with and without. With it
        waiting asks nobody, and a message is here as soon as it is durable. Needs a proxy or relay
        that pushes; while it does not, the topic is polled.
        """
        self._pushing.use(topic, push)

    @gated_after_close
    def is_pushed(self, topic: str) -> bool:
        """Whether push is on for a topic, also while it does not work and the topic is polled."""
        return topic in self._pushing

    @gated_after_close
    def push_counts(self, topic: str) -> PushCounts:
        """What became of what was pushed of a topic for which push is on, in this process."""
        return self._pushing.counts(topic)

    @gated_after_close
    def unstored_counts(self, topic: str) -> UnstoredCounts:
        """What became of what was put at QoS 0 on a topic, in this process."""
        ring = self._link.rings.get(topic)
        return UnstoredCounts() if ring is None else ring.counts

    @gated
    def unsubscribe(self, topic: TopicName) -> None:
        """End a subscription; what was not delivered is not delivered any more.

        Raises:
            InDoubtError, FencedError.
        """
        topic = names.exact(topic)
        with self._recorder.call("unsubscribe", topic) as call:
            self._link.unsubscribe(topic, call)
            self._pushing.use(topic, False)
            self._forget(topic)
            self._state.write(self.inbox.unsubscribed(topic), durable=True)
            call.ok(epoch=self.inbox.epoch)

    @gated
    def get(
        self, topic: str, *, max_messages: Count = 1, timeout_s: Seconds = 0.0
    ) -> list[Message]:
        """Acknowledge what the last `get` gave, and give the next messages.

        Args:
            max_messages: at most so many, 1..65,536; fewer if fewer are there.
            timeout_s: wait so long for the first one; 0 asks once.

        Returns:
            Messages in offset order; none if there were none in time.

        Raises:
            NotSubscribedError: there is no subscription.
            LostError: messages are gone; the next get goes on behind them.
            DeadLetterRefusedError: a message has used up its deliveries, and the proxy will not
                store its letter; the next get gives it once more.
            InDoubtError, FencedError, LogChangedError.
        """
        return self._get(topic, max_messages, timeout_s)

    def _get(self, topic: str, max_messages: int, timeout_s: float) -> list[Message]:
        with self._recorder.call("get", topic) as call:
            done = self._take_processed(topic)
            fetched = self._giving_up.living(topic) or deque()
            if not (fetched or self._link.rings.get(topic)):
                self._write(done)
                done = {}
                fetched = self._wait(topic, call, max_messages, timeout_s)
            passing = self._hand_over_unstored(topic, max_messages, len(fetched))
            room = max_messages - len(passing)
            messages = list(islice(fetched, self._giving_up.how_many(topic, room)))
            place = self.inbox.places.get(topic)
            try:
                handed = passing + self._hand_over(topic, messages, done)
                if call.recorded and handed:
                    call.ok(epoch=self.inbox.epoch, messages=tuple(map(seen, handed)))
            except BaseException:
                if place is not None:  # they were not handed over, and are not counted as such
                    self.inbox.kept(topic, place)
                raise
            for _ in messages:  # only now: had a write failed, they would still be the next ones
                fetched.popleft()
            if messages and self.inbox.places[topic].terms.qos:
                self._in_hand[topic] = messages[-1]
            return handed

    @checked
    def messages(self, topic: str, *, timeout_s: Seconds | None = None) -> Iterator[Message]:
        """Give messages one by one; each is acknowledged when the loop comes back for the next.

        Args:
            timeout_s: end when nothing came for so long; None waits for ever.
        """
        wait_s = float("inf") if timeout_s is None else timeout_s
        return _Messages(self._gate, lambda: self._get(topic, 1, wait_s))

    @gated
    def acknowledge(self, topic: str) -> None:
        """What was handed over is processed; returns when the proxy has it durably too.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        self._write(self._take_processed(topic))
        self._acknowledge_to_proxy(topic)

    @gated
    def reject(self, message: Message, reason: str) -> int:
        """Give a message up: it goes to `<topic>.dead`, and never comes again.

        What was handed over before it is acknowledged with that; what was handed over with it and
        behind it stays in hand. Letter and cursor are one step at the proxy, so that a crash leaves
        both or none. The topic of dead letters is read like any other.

        Args:
            message: one that `get` gave last.
            reason: why, for people; 1 to 1,000 characters.

        Returns:
            The offset of the dead letter.

        Raises:
            UsageError: it is not in hand, or its topic has no dead letters.
            InDoubtError: no definite answer; again, the next call, or the next process with this
                state finishes it.
            DeadLetterRefusedError: the proxy will not store the letter (a LimitError); the message
                is not given up, and comes again with everything that was in hand.
            NotSubscribedError, FencedError, LogChangedError.
            StaleError: another place was chosen meanwhile (`on_log_changed`).
        """
        topic = message.topic
        check_reason(reason)
        check_may_die(topic)
        if topic in self._giving_up.topics:
            under_way = self._giving_up.is_under_way(message)
            offset = self._finish_letter(topic)
            if under_way:
                return offset
        place, last = self.inbox.places.get(topic), self._in_hand.get(topic)
        if place is None or last is None or not place.cursor <= message.offset <= last.offset:
            raise UsageError(
                f"message {message.message_id} at offset {message.offset} of {topic!r} is not in "
                "hand: only what the last get gave can be rejected"
            )
        self._giving_up.begin(message, reason)
        if message.offset == last.offset:
            del self._in_hand[topic]
        return self._finish_letter(topic)

    @gated
    def keep_alive(self) -> None:
        """End the silence of every subscription that has a lease, while a message takes long.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        for topic, place in self.inbox.places.items():
            if place.terms.lease_ms:
                self._acknowledge_to_proxy(topic)
                return  # the proxy counts the silence of a client, not of a topic

    @gated
    def history(
        self, topic: TopicName, start: int | Start = 0, *, max_messages: Count = 100
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
        topic = names.exact(topic)
        request, reply, body = self._ask_history(topic, start_of(start), max_messages)
        return messages_in(topic, stored_batches(request, reply, body))[:max_messages]

    @gated
    def read(self, topic: TopicName) -> Reading:
        """The newest message, and the position behind it.

        `subscribe(topic, start=reading.position)` then gives everything that was put since, once:
        no message falls between the two (the race of P3Sub, reb00ted.org 2022-10-24).

        Raises:
            InDoubtError.
        """
        topic = names.exact(topic)
        request, reply, body = self._ask_history(topic, newest(1), 1)
        messages = messages_in(topic, stored_batches(request, reply, body))
        assert isinstance(reply, MessageBatches | NoMessagesYet)
        log = None if reply.log is UNSET else reply.log
        message = messages[-1] if messages else None
        end = message.offset + 1 if message else reply.end
        return Reading(message, Position(topic, end, log))

    @gated
    def record(self, topic: str, plan: PlanMark) -> None:
        """Write that what is in hand is processed, and the place in the plan, in one step."""
        with self._recorder.call("record", topic) as call:
            self._take_processed(topic)
            place = self.inbox.places.get(topic)
            # All of the place: what was processed may stem from a call whose own write failed.
            changes = {} if place is None else self.inbox.restated(topic)
            changes |= self.inbox.mark_plan(plan)
            self._state.write(changes, durable=True)  # the output goes with it, at any level
            if place is not None:
                cursor = place.cursor
                self._link.durable[topic] = cursor
                call.ok(epoch=self.inbox.epoch, cursor=cursor)

    @gated
    def mark_plan(self, plan: PlanMark) -> None:
        """Write the place in a plan where no message goes with it."""
        self._state.write(self.inbox.mark_plan(plan), durable=True)

    @gated
    def connect(self) -> None:
        """Get an epoch now; the other calls do it when they need one."""
        self._link.connect()

    # How it is done.

    def _ask_history(
        self, topic: str, start: Start, messages_max: int
    ) -> tuple[History, AnyReply, bytes]:
        request = History(**self._link.head(), topic=topic, start=start, messages_max=messages_max)
        return request, *self._asker.ask(request)

    def _wait(self, topic: str, call: Call, max_messages: int, timeout_s: float) -> deque[Message]:
        """Fetch until there is something that is not given up, or time is over."""
        deadline_s = self._asker.clock.now_s() + timeout_s
        while self._fetching.wait(topic, call, max_messages, timeout_s) is not None:
            living = self._giving_up.living(topic)
            if living or self._link.rings.get(topic):
                return living or deque()
            timeout_s = max(deadline_s - self._asker.clock.now_s(), 0.0)
        return deque()

    def _take_unstored(self, push: UnstoredFrames) -> None:
        ring = self._link.rings.get(push.topic)
        if ring is not None:
            ring.pushed(push)

    def _hand_over_unstored(self, topic: str, messages_max: int, stored: int) -> list[Message]:
        """What was put at QoS 0; if stored messages wait too, they take turns."""
        ring = self._link.rings.get(topic)
        if not ring:
            return []
        self._passing_first = not self._passing_first
        room = messages_max - stored if self._passing_first else messages_max
        messages = ring.hand_over(max(room, 0))
        for message in messages:
            self._fetching.tell_lower_level(topic, message.publisher, 0)
        return messages

    def _check_bound(self, topic: str, max_deliveries: int | None) -> None:
        if max_deliveries is None:
            return
        check_may_die(topic)
        if isinstance(self._state, MemoryState):
            raise UsageError(
                "max_deliveries needs a state_dir: a process without one does not know how often "
                "a message was handed over before"
            )

    def _acknowledge_to_proxy(self, topic: str) -> None:
        with self._recorder.call("acknowledge", topic) as call:
            before = self._link.told.get(topic)
            try:
                reply, _ = self._link.ask_with_cursor(Ack, topic, call)
            finally:
                if self._link.told.get(topic) is not before:
                    self._fetching.drop(topic)  # our place was confirmed anew, or moved
            if not isinstance(reply, PutAck):
                self._link.refused(reply)
            call.ok(epoch=self.inbox.epoch, cursor=self.inbox.places[topic].cursor)

    def _take_processed(self, topic: str) -> Changes:
        """What is in hand is done; the changes are still to be written."""
        if topic not in self.inbox.places:  # a clean session that has ended, while we asked
            self._forget(topic)
            return {}
        if topic in self._giving_up.topics:
            self._finish_letter(topic)
        message = self._in_hand.pop(topic, None)
        lost_end = self._fetching.lost_up_to(topic)
        if lost_end is not None:
            return self.inbox.lost(topic, lost_end)
        if message is None:
            return {}
        return self.inbox.processed(topic, message.offset + 1, message.timestamp_ns)

    def _finish_letter(self, topic: str) -> int:
        """Send the letter that is under way; if it is refused, what is in hand comes again."""
        try:
            return self._giving_up.finish(topic)
        except RefusedError:
            if topic not in self._giving_up.topics:
                self._in_hand.pop(topic, None)
            raise

    def _forget(self, topic: str) -> None:
        """What was fetched, and is in hand, belongs to a subscription that is no more."""
        self._fetching.forget(topic)
        self._giving_up.forget(topic)
        self._in_hand.pop(topic, None)

    def _write(self, changes: Changes) -> None:
        if changes:
            self._state.write(changes, durable=False)

    def _hand_over(self, topic: str, messages: list[Message], done: Changes) -> list[Message]:
        """Write that these go out now; mark those that went out before."""
        if not messages:
            self._write(done)
            return []
        if self.inbox.places[topic].terms.qos == 0:  # at most once: it is done with before
            last = messages[-1]
            changes = self.inbox.processed(topic, last.offset + 1, last.timestamp_ns)
            self._write(done | changes)
            return messages
        _, changes = self.inbox.handed_over(topic, messages[-1].offset + 1)
        self._state.write(done | changes, durable=False)
        place = self.inbox.places[topic]
        if len(place.in_hand) == 1 and place.in_hand[0][1] == 1 and place.shown <= place.cursor:
            return messages
        return [
            replace(m, delivery_count=place.deliveries(m.offset) + (m.offset < place.shown))
            for m in messages
        ]


def _check_replay(start: Start | Position | None, replay: bool) -> None:
    if replay and (start is None or start in (Now, LastReceived)):
        raise UsageError(
            "replay needs a start that may lie below what was acknowledged: Earliest, "
            "at_offset(n), newest(n), at_time(t), ago(age) or a Position"
        )


class _Messages(Iterator[Message]):
    """Messages one by one; each step is a call of the subscriber."""

    def __init__(self, gate: Gate, get: Callable[[], list[Message]]) -> None:
        self._gate = gate
        self._get = get
        self._ended = False

    @gated
    def __next__(self) -> Message:
        """The next one; that is the word that the one before is done with."""
        found = [] if self._ended else self._get()
        if not found:
            self._ended = True
            raise StopIteration
        return found[0]


def _timing(settings: Settings) -> PushTiming:
    return PushTiming(
        silence_s_min=settings.push_silence_min, silence_s_max=settings.push_silence_max
    )


def _start_at(position: Position, topic: str) -> Start:
    if position.topic != topic:
        raise UsageError(f"the position is one of {position.topic!r}, not of {topic!r}")
    return at_offset(position.offset)
