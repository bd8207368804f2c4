"""`Subscriber`: gets each message of its topics once, in order, from where it subscribed."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

from msgspec.structs import replace

from reliable_pubsub.common.conversing import Shell
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import Seconds, checked, when_refused
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.dead_letter import MaxDeliveries, check_may_die, check_reason
from reliable_pubsub.common.core.errors import InDoubtError, PubSubError
from reliable_pubsub.common.core.messages import Count, LeaseS, QoS, SessionKind, Start
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.retry import RetryPolicy, Silence, unheard
from reliable_pubsub.common.core.start import Place
from reliable_pubsub.common.gate import Gate, closing, gated, gated_after_close
from reliable_pubsub.common.world import REAL, World

from .core.fetching import OnLowerQoS
from .core.push_queue import PushCounts, PushTiming
from .core.qos0_queue import UnstoredCounts
from .core.reading import Reading, read_history, read_newest, start_of_reading
from .core.subscribing import OnLogChanged, asked_of
from .loop import Loop
from .opening import open_subscriber
from .qos_warning import warn_of_lower_qos


class Subscriber:
    """Receives the messages of topics, each once, across its own crashes and the proxy's.

    Threads: one for each call; a second one is refused while a call is open. A forked child needs a
    client of its own. An exception that is not a `PubSubError` (Ctrl-C, an alarm) may interrupt a
    call and be caught: the next call begins as after a crash, and messages in hand are redelivered.

    A message is acknowledged when the program comes back for the next one,
    calls `acknowledge`, or leaves the `with` block without an error. With `state_dir` the position
    survives the process, and messages in hand when it died are redelivered, with `redelivered` set.
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
        """Lock and read the state; the proxy is asked at the first call.

        Args:
            client: 1 to 64 of `A-Z a-z 0-9 . -`; one running process for each id.
            endpoint, state_dir, retry: what is not given here is taken from the settings
                (`reliable-pubsub config show CLIENT`): settings.json, the environment, a default.
                By default there is no state_dir, and the state is in memory.
            allow_plaintext: accept an endpoint outside this machine. Traffic is not encrypted.
            on_log_changed: if the proxy's log is not the one of the stored position: stop with an
                error, rewind to its start (may repeat), or adopt its end (may miss).
            on_silence: called for each attempt that goes unanswered.
            on_lower_qos: called once for each topic and publisher whose messages have a lower level
                than the subscription.
            push_timing: when a pushed topic is pulled nevertheless.
            push_via: endpoint of pushed data, if it differs from the one that the proxy announces,
                for example because of a tunnel.
            journal: append operations and their results to this file (docs/journal.md).
            _world: private.

        Raises:
            InvalidNameError, InUseError, DamagedError.
            ConfigurationError: a setting is wrong, an endpoint leaves this machine, or the journal
                cannot be opened.
        """
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
        self.inbox = self._engine.session.inbox
        self._run = Shell(asker.transport, asker.clock, self._opened.state).run
        self._gate = Gate(f"subscriber {self.client!r}", self._begin_again, threads=False)
        self._opened.may_be_taken(lambda: self._gate.replace(lambda: self._free(None)))

    def _begin_again(self) -> None:
        """Reset to the stored state, after a call that was interrupted by a foreign exception.

        Messages in hand are not acknowledged: they are redelivered, marked.
        """
        self._opened.begin_again()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self._close(error)

    @closing
    def close(self) -> None:
        """Acknowledge the messages in hand, send the cursors, and close socket and state.

        With state on disk an unreachable proxy is not an error: the position is kept, and the next
        process sends it.

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
            # Messages that were prefetched but not delivered must not come again marked.
            self._run(self._engine.leave(tells_ahead=not opened.remembers))
        except BaseException as error:
            self._free(error)
            if not opened.remembers or not isinstance(error, InDoubtError):
                raise
        else:
            self._free(None)

    def abandon(self) -> None:
        """Close socket and state without acknowledging the messages in hand: redelivered later."""
        self._close(None)

    @closing
    def _close(self, error: BaseException | None) -> None:
        self._free(error)

    def _free(self, error: BaseException | None) -> None:
        self._gate.closed = True  # now it can only be closed, again if that is interrupted
        self._opened.close(error)

    # Public calls.

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
                nothing is missed between the two. Acknowledged messages do not come again,
                wherever `start` is: `ago(age)` means "of the last hour, what was not delivered to
                me".
            replay: begin at `start` whatever was acknowledged; what comes again is marked
                `redelivered`. Not with `Now` and `LastReceived`.
            qos: 2 delivers each message once. 1 writes nothing durably here but in `record`, so
                after power loss processed messages may be redelivered. 0 delivers each message at
                most once: nothing is kept for it, not even while this process is down, and each
                process begins with new messages. A message has the lower level of this and its
                publisher's.
            session: persistent outlives this process. clean ends with `close`, or when its lease
                does; it always begins again, by default with new messages.
            lease_s: allowed silence, above 0 to 30 days: after that time the subscription is
                suspended (shown in status), after twice that time it expires: a clean one ends, a
                persistent one no longer keeps messages stored. None: no lease (for a clean session
                60 s). Every call but `history` and `read` ends the silence.
            push: see `use_push`.
            max_deliveries: a message that was delivered this often without being acknowledged (1 to
                1,000) goes to `<topic>.dead` instead of being redelivered. Messages are redelivered
                one at a time, so that only a failing one's count grows. Needs `state_dir`, where
                deliveries are counted. None: it is redelivered without limit.

        Returns:
            The cursor: the offset of the next message.

        Raises:
            InDoubtError: no definite answer; call again.
            TruncatedError: `start` is no longer stored; the error has the first stored offset.
            OutOfRangeError: `start` is after the end; the error has the allowed range.
            FencedError, LogChangedError, LimitError: refused.
            UsageError: an argument is not possible here.
        """
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
        return self._run(self._engine.subscribe(topic, asked, push=push))

    @gated
    def use_push(self, topic: TopicName, push: bool) -> None:
        """Switch push on or off; possible at any time, no message is lost or duplicated.

        A push is a hint: `get` returns the same messages in the same order with and without. With
        it waiting sends no request, and a message arrives once it is durable. Needs a proxy or
        relay that pushes; while it does not, the topic is polled.
        """
        self._engine.pushing.use(names.exact(topic), push)

    @gated_after_close
    def is_pushed(self, topic: str) -> bool:
        """Whether push is on for a topic, also while it does not work and the topic is polled."""
        return topic in self._engine.pushing

    @gated_after_close
    def push_counts(self, topic: str) -> PushCounts:
        """Counts of the pushes of a topic for which push is on, in this process."""
        return self._engine.pushing.counts(topic)

    @gated_after_close
    def unstored_counts(self, topic: str) -> UnstoredCounts:
        """Counts of the QoS 0 messages of a topic, in this process."""
        queue = self.inbox.of(topic).qos0
        return UnstoredCounts() if queue is None else queue.counts

    @gated
    def unsubscribe(self, topic: TopicName) -> None:
        """End a subscription; undelivered messages will not be delivered.

        The proxy remembers what was acknowledged. Messages in hand are not: should a later
        subscription begin before them, they are redelivered.

        Raises:
            InDoubtError, FencedError.
        """
        self._run(self._engine.unsubscribe(names.exact(topic)))

    @gated
    def get(
        self, topic: str, *, max_messages: Count = 1, timeout_s: Seconds = 0.0
    ) -> list[Message]:
        """Acknowledge the messages of the last `get`, and return the next ones.

        Args:
            max_messages: 1 to 65,536; fewer are returned if fewer are available.
            timeout_s: how long to wait for the first one; 0 asks once.

        Returns:
            Messages in offset order; none if there were none in time.

        Raises:
            NotSubscribedError: there is no subscription.
            LostError: messages are lost; the next get continues after them.
            DeadLetterRefusedError: a message has used up its deliveries, and the proxy refused
                its dead letter; the next get redelivers it.
            InDoubtError, FencedError, LogChangedError.
        """
        return self._run(self._engine.get(self.inbox.of(topic), max_messages, timeout_s))

    @checked
    def messages(self, topic: str, *, timeout_s: Seconds | None = None) -> Iterator[Message]:
        """Yield messages one by one; each is acknowledged when the loop asks for the next.

        Args:
            timeout_s: end after this long without a message; None waits forever.
        """
        wait_s = float("inf") if timeout_s is None else timeout_s
        loop = Loop()
        return loop.over(self._steps(loop, topic, wait_s))

    def _steps(self, loop: Loop, topic: str, wait_s: float) -> Generator[Message, None, None]:
        """The steps of a loop: a call for each run, and an assignment for each message."""
        while True:
            loop.is_in_call = True
            self._take(loop, topic, wait_s)
            messages, marks, slot, mark = loop.messages, loop.marks, loop.slot, loop.first
            if not messages:
                return
            is_recorded = loop.is_run and self._opened.recorder.active
            try:
                for message in messages:
                    mark += 1
                    marks[slot] = mark
                    if is_recorded:
                        self._engine.record_taken(message)
                    yield message
            except GeneratorExit:  # the program has left the loop, with a message in hand
                loop.has_left = True
                raise

    @gated
    def _take(self, loop: Loop, topic: str, wait_s: float) -> None:
        """Settle what the loop has taken, and give it the next messages."""
        subscription = self.inbox.of(topic)
        loop.begin(subscription, self._run(self._engine.take(subscription, wait_s)))
        self._gate.steps = loop

    @gated
    def acknowledge(self, topic: str) -> None:
        """Acknowledge the delivered messages; returns when the proxy has stored the cursor.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        self._run(self._engine.acknowledge(topic))

    def _keep(self, message: object = None, *_: object, **__: object) -> None:
        """A rejection failed: its message is not acknowledged by the next `get`."""
        if isinstance(message, Message) and type(message.offset) is int:  # it may have been altered
            self.inbox.of(message.topic).keep(message)

    @gated
    @when_refused(_keep)
    def reject(self, message: Message, reason: str) -> int:
        """Reject a message: it goes to `<topic>.dead`, and is not redelivered.

        Messages delivered before it are acknowledged too; later messages of the same `get` stay in
        hand. The proxy stores dead letter and cursor together, so that a crash leaves both or none.
        The topic of dead letters is read like any other.

        Args:
            message: one of the last `get`.
            reason: a text of 1 to 1,000 characters.

        Returns:
            The offset of the dead letter.

        Raises:
            UsageError: it is not in hand, or the reason or its topic allow no dead letter. What is
                in hand can be rejected again or acknowledged; else the next `get` redelivers it.
            InDoubtError: no definite answer; again, the next call, or the next process with this
                state finishes it.
            DeadLetterRefusedError: the proxy refused the dead letter (a LimitError); the message is
                not rejected, and is redelivered with all messages in hand.
            NotSubscribedError, FencedError, LogChangedError.
            StaleError: the position was changed meanwhile (`on_log_changed`).
        """
        subscription = self.inbox.of(message.topic)
        try:
            check_reason(reason)
            check_may_die(message.topic)
            return self._run(self._engine.reject(subscription, message, reason))
        except PubSubError:
            self._keep(message)
            raise

    @gated
    def keep_alive(self) -> None:
        """Renew the lease of every subscription, while a message takes long to process.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        self._run(self._engine.keep_alive())

    @gated
    def history(
        self, topic: TopicName, start: int | Start = 0, *, max_messages: Count = 100
    ) -> list[Message]:
        """Read stored messages; no subscription is needed or touched.

        Args:
            start: an offset, or `Earliest`, `newest(n)`, `at_time(t)`, `ago(age)`. For the next
                page pass the offset after the last message; for messages stored after the batch of
                a message, `at_time(message.timestamp_ns + 1)`.
            max_messages: 1 to 65,536; fewer are returned if they do not fit into one reply.

        Returns:
            Messages in offset order; none if there are none (yet).

        Raises:
            TruncatedError: `start` is no longer stored; the error has the first stored offset.
            LostError: an operator has discarded damaged messages there.
            UsageError: `start` is `LastReceived` or `Now`. InDoubtError.
        """
        session, begin = self._engine.session, start_of_reading(start)
        return self._run(read_history(session, names.exact(topic), begin, max_messages))

    @gated
    def read(self, topic: TopicName) -> Reading:
        """The newest message, and the position after it.

        `subscribe(topic, start=reading.position)` then delivers every later message, once: no
        message is missed between the two (the race of P3Sub, reb00ted.org 2022-10-24).

        Raises:
            InDoubtError.
        """
        return self._run(read_newest(self._engine.session, names.exact(topic)))

    @gated
    def record(self, topic: str, plan: PlanMark) -> None:
        """Write that the messages in hand are processed, and the plan's position, in one step."""
        self._run(self._engine.record(topic, plan))

    @gated
    def mark_plan(self, plan: PlanMark) -> None:
        """Write the position in a plan when no message belongs to it."""
        self._opened.state.write(self.inbox.mark_plan(plan), durable=True)

    @gated
    def connect(self) -> None:
        """Get an epoch now; the other calls do it when they need one."""
        self._run(self._engine.session.connecting())
