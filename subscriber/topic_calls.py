"""The calls of a blocking subscriber on its topics: subscribe, get, acknowledge, read."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Literal

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import Seconds, TimeoutS, checked, when_refused
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.dead_letter import MaxDeliveries
from reliable_pubsub.common.core.message_base import (
    Count,
    LeaseS,
    QoS,
    SessionKind,
    Start,
)
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.common.core.start import PositionToSeek, StartOrPosition
from reliable_pubsub.common.core.stopping import GRACE_S, until_stopped
from reliable_pubsub.common.gate import gated

from .core.reading import Reading, read_history, read_newest, start_of_reading
from .core.subscribe_call import SeekCall, SubscribeCall
from .life import SubscriberLife
from .loop import MessageLoop


class TopicCalls(SubscriberLife):
    """Gets each message of its topics once, in order, from where it subscribed."""

    @gated
    def subscribe(
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
        """Subscribe, from the end of the topic; an existing subscription resumes.

        With `match` to every topic that a pattern matches, now and later, each with a cursor of its
        own. The other calls take the pattern as a topic: `get(match)`, `unsubscribe(match)`.

        Subscriptions of one subscriber to the same topic share its cursor: a message is delivered
        once, by the first call that reads the topic, if any of them wants it.

        Args:
            match: `glob(...)`, `regex(...)` or `prefix(...)`, for topics that the key may read.
                `start` is of those that exist now, and no offset; not with `group`.
            where: with `match`, a condition on the headers of a message, as in `region = "eu" and
                level in ("warning", "error")` (docs/how-to/relay.md). Others count as read.
            start: where a new subscription begins: `Now`, `LastReceived`, `Earliest`,
                `at_offset(n)`, `newest(n)`, `at_time(t)`, `ago(age)`, or a `Position` from `read`.
                An existing one resumes at its position: see `seek`. Acknowledged messages are not
                redelivered, even after `unsubscribe`.
            qos: 2 delivers each message once. 1 writes durably only in `record`: after power loss
                processed messages may be redelivered. 0 delivers each at most once: nothing is kept
                for it, and each process begins with new messages. A message has the lower level of
                this and its publisher's.
            session: persistent outlives this process. clean ends with `close`, or when its lease
                does, and always begins again, by default with new messages.
            lease_s: allowed silence, above 0 to 30 days; every call but `history` and `read` ends
                it. After that the subscription is suspended, after twice that it expires: a clean
                one ends, a persistent one keeps no messages stored. None: no lease (clean: 60 s).
            push: see `use_push`.
            max_deliveries: a message that was delivered this often without being acknowledged (1 to
                1,000) goes to `<topic>.dead`. Messages are redelivered one at a time, so that only
                a failing one's count grows. Needs `state_dir`, where deliveries are counted (not
                with `group`). None: without limit.
            group: be a member of this group, whose members share one subscription: each message is
                with one of them at a time, and comes to another when its holder's lease ends. The
                first member makes it, and its `start` counts; lease, deliveries and order are as
                the last one said. Not with `qos`, `session` and `push`.
            ordered_by: with a group, "key": one message of each key is with a member at a time, in
                order, and none is overtaken when it is given back.

        Returns:
            The cursor: offset of the next message; of a pattern, how many topics it matches now.

        Raises:
            InDoubtError: no definite answer; call again.
            TruncatedError: `start` is no longer stored; the error has the first stored offset.
            OutOfRangeError: `start` is after the end; the error has the allowed range.
            FencedError, LogChangedError, LimitError: refused.
            UsageError: an argument is not possible here.
        """
        call = SubscribeCall(
            topic, match, where, start, qos, session, lease_s, push, max_deliveries, group,
            ordered_by,
        )  # fmt: skip
        begun = self._engine.begin(call, remembers=self._opened.remembers)
        return self._run(until_stopped(begun, self._stops.begin().is_over, GRACE_S))

    @gated
    def seek(
        self, topic: TopicName | Pattern, start: PositionToSeek, *, timeout_s: TimeoutS = None
    ) -> int:
        """Move an existing subscription to a start, whatever was acknowledged.

        Messages delivered before are redelivered, with `redelivered` set; skipped ones are not
        delivered. Messages in hand are not acknowledged. A pattern moves in all of its topics, and
        a group cannot be moved. `LastReceived` changes nothing. Returns as `subscribe`.

        Raises:
            NotSubscribedError, UsageError, TruncatedError, OutOfRangeError, InDoubtError.
        """
        return self._run(self._engine.seek(SeekCall(topic, start)))

    @gated
    def use_push(self, topic: TopicName | Pattern, push: bool) -> None:
        """Switch push on or off at any time, of a topic or of a pattern that is subscribed to.

        A push is a hint: `get` returns the same messages in the same order with and without. With
        it waiting sends no request, and a message arrives once it is durable. Needs a proxy or
        relay that pushes; while it does not, the topic is polled.
        """
        self._engine.use_push(topic, push)

    @gated
    def unsubscribe(
        self, topic: TopicName | Pattern, *, ends_group: bool = False, timeout_s: TimeoutS = None
    ) -> None:
        """End a subscription; undelivered messages will not be delivered.

        A member of a group leaves it: what is in hand is acknowledged, as by `get`, and the group
        stays, with its messages, until a member ends it.

        Args:
            ends_group: end the group, for all its members.

        A pattern ends with the subscriptions that it made, but for those that another pattern has.

        The proxy remembers what was acknowledged. Messages in hand are not: should a later
        subscription begin before them, they are redelivered.

        Raises:
            InDoubtError, FencedError.
        """
        return self._run(self._engine.unsubscribe(topic, ends_group=ends_group))

    @gated
    def get(
        self, topic: Topics, *, max_messages: Count = 1, timeout_s: Seconds = 0.0
    ) -> list[Message]:
        """Acknowledge the messages of the last `get`, and return the next ones.

        Args:
            topic: or a pattern that is subscribed to; then the messages are of one of its topics.
            max_messages: 1 to 65,536; fewer are returned if fewer are available.
            timeout_s: how long to wait for the first one; the last answer may take 2 s longer. 0
                does not wait; then an unreachable proxy is asked as often as `retry` says.

        Returns:
            Messages in offset order; none if there were none in time.

        Raises:
            NotSubscribedError: there is no subscription.
            LostError: messages are lost; the next get continues after them.
            DeadLetterRefusedError: a message has used up its deliveries, and the proxy refused
                its dead letter; the next get redelivers it.
            InDoubtError, FencedError, LogChangedError.
        """
        self._gate.patience.wait(timeout_s)
        return self._run(self._engine.get(topic, max_messages, timeout_s))

    @checked
    def messages(self, topic: Topics, *, timeout_s: Seconds | None = None) -> Iterator[Message]:
        """Yield messages one by one; the next step, a next call or `close` acknowledges each.

        Args:
            timeout_s: end after this long without a message; None waits until `stop`.

        Raises:
            NotSubscribedError, LostError, DeadLetterRefusedError, InDoubtError, FencedError,
            LogChangedError: at a step, as `get`.
        """
        wait_s = float("inf") if timeout_s is None else timeout_s
        return self._steps(MessageLoop(self._stops.begin()), topic, wait_s)

    def _steps(
        self, loop: MessageLoop, topic: Topics, wait_s: float
    ) -> Generator[Message, None, None]:
        """The steps of a loop over a topic."""
        return loop.over(lambda: self._take(loop, topic, wait_s))

    @gated
    def _take(self, loop: MessageLoop, topic: Topics, wait_s: float) -> None:
        """Settle what the loop has taken, and give it the next messages."""
        if wait_s:
            self._gate.patience.wait(wait_s, is_loop=self._opened.asks_forever)
        else:
            self._gate.patience.begin(loop.asks_s)
        loop.begin(*self._run(self._engine.take(topic, wait_s, loop.until)))
        loop.on_taken = self._engine.record_taken if self._opened.recorder.active else None
        self._gate.steps = loop

    @gated
    def acknowledge(self, topic: Topics, *, timeout_s: TimeoutS = None) -> None:
        """Acknowledge the delivered messages; returns when the proxy has stored the cursor.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        return self._run(self._engine.acknowledge(topic))

    def _keep(self, message: object = None, *_: object, **__: object) -> None:
        """A `reject` or `nack` failed: the next `get` does not acknowledge its message."""
        self._engine.keep(message)

    @gated
    @when_refused(_keep)
    def reject(self, message: Message, reason: str, *, timeout_s: TimeoutS = None) -> int:
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
        return self._run(self._engine.reject(message, reason))

    @gated
    def keep_alive(self, *, timeout_s: TimeoutS = None) -> None:
        """Renew the lease of every subscription, while a message takes long to process.

        Raises:
            InDoubtError, NotSubscribedError, FencedError, LogChangedError.
        """
        return self._run(self._engine.keep_alive())

    @gated
    def history(
        self,
        topic: TopicName,
        start: int | Start = 0,
        *,
        max_messages: Count = 100,
        timeout_s: TimeoutS = None,
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
    def read(self, topic: TopicName, *, timeout_s: TimeoutS = None) -> Reading:
        """The newest message, and the position after it.

        `subscribe(topic, start=reading.position)` then delivers every later message, once: no
        message is missed between the two (the race of P3Sub, reb00ted.org 2022-10-24).

        Raises:
            InDoubtError.
        """
        return self._run(read_newest(self._engine.session, names.exact(topic)))
