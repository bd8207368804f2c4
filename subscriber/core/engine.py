"""The engine of a subscriber: everything it decides, as conversations. Pure.

A message is acknowledged when the program comes back for the next one; what was processed is
durable here before the proxy learns of it. So a call settles the messages in hand, then fetches
what is missing, then delivers.

A shell carries out what the conversations ask for (`common/core/conversation.py`), one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeGuard

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation, Pause, Save
from reliable_pubsub.common.core.dead_letter import check_may_die, check_reason
from reliable_pubsub.common.core.errors import (
    LogChangedError,
    NotSubscribedError,
    PubSubError,
    UsageError,
)
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.pattern import Pattern, Topics
from reliable_pubsub.common.core.recorder import seen
from reliable_pubsub.common.core.retry import poll_pause_s

from .dead_letters import DeadLetters
from .delivering import Delivering
from .fetching import Fetching, OnLowerQoS
from .groups import Groups
from .membership import JoinTerms, Membership
from .pattern_run import begin_run, save_all, unwritten
from .pattern_subscription import AskedPattern, Condition, PatternSubscription
from .patterns import Patterns
from .pushing import Pushing
from .requests import Requests
from .session import SubscriberSession
from .subscribing import Asked, OnLogChanged, Subscribing
from .subscription import Running, Subscription

Holder = Subscription | Membership | PatternSubscription


class SubscriberEngine:
    """Gets each message of its subscriptions once, across kills of either side."""

    def __init__(
        self,
        session: SubscriberSession,
        pushing: Pushing,
        *,
        on_log_changed: OnLogChanged,
        on_lower_qos: OnLowerQoS,
        now_s: Callable[[], float],
    ) -> None:
        """Create it with no message in hand.

        Args:
            on_log_changed: what to do if the proxy's log is not the one of the stored place.
            on_lower_qos: called once for each topic and publisher of a lower level.
            now_s: the monotonic clock.
        """
        self.session = session
        self.pushing = pushing
        self._now_s = now_s
        self._subscribing = Subscribing(session, on_log_changed=on_log_changed)
        self._requests = Requests(session, self._subscribing)
        self._fetching = Fetching(
            session,
            self._requests,
            pushing,
            forgets=on_log_changed != "stop",
            now_s=now_s,
            on_lower_qos=on_lower_qos,
        )
        self._dead_letters = DeadLetters(session, self._requests)
        self._delivering = Delivering(
            session, self._fetching, self._dead_letters, pushing, now_s=now_s
        )
        self.groups = Groups(session, on_log_changed=on_log_changed, now_s=now_s)
        self.patterns = Patterns(session, self._subscribing, self._fetching, pushing, now_s=now_s)

    def begin_again(self, stored: Mapping[str, bytes]) -> None:
        """Drop what is not in the stored state: messages in hand are redelivered, marked."""
        self.session.inbox.reload(stored)
        self.session.begin_again()
        self.pushing.begin_again()
        self.groups.begin_again()

    def close(self) -> None:
        """End the link of pushes."""
        self.pushing.close()

    # Subscriptions.

    def subscribe(self, topic: str, asked: Asked, *, push: bool) -> Conversation[int]:
        """Begin or resume a subscription; return its cursor."""
        if self.groups.of(topic) is not None:
            raise UsageError(f"topic {topic!r}: a member of a group; unsubscribe first")
        subscription = self.session.inbox.add(topic)
        subscription.drop_fetched()  # messages in hand stay in hand, if this is refused
        yield from self._subscribing.subscribe(subscription, asked)
        subscription.drop()
        self.pushing.use(topic, push)
        return subscription.place.cursor

    def is_member(self, topic: Topics) -> bool:
        """Whether a topic is read as a member of a group."""
        return isinstance(topic, str) and self.groups.of(topic) is not None

    def is_to_be_pushed(self, topic: Topics) -> TypeGuard[str]:
        """Whether handlers of several topics need the pushes of this one, and push is not on."""
        if isinstance(topic, Pattern):
            return False
        return not self.is_member(topic) and topic not in self.pushing

    def use_push(self, topic: Topics, push: bool) -> None:
        """Switch push on or off.

        Raises:
            UsageError: the messages of a group are not pushed.
            NotSubscribedError: a pattern that is not subscribed to.
        """
        if isinstance(topic, Pattern):
            self.patterns.of(topic)
        elif self.is_member(names.exact(topic)) and push:
            raise UsageError(f"topic {topic!r}: the messages of a group are not pushed")
        self.pushing.use(topic, push)

    def match(self, asked: AskedPattern, start: Start | None, *, push: bool) -> Conversation[int]:
        """Begin or resume a pattern; return how many topics it matches now."""
        topics = yield from self.patterns.subscribe(asked, start)
        self.pushing.use(asked.pattern, push)
        return topics

    def join(self, topic: str, asked: JoinTerms) -> Conversation[int]:
        """Become a member of a group; return its cursor."""
        if self.session.inbox.of(topic).is_subscribed:
            raise UsageError(f"topic {topic!r} has a plain subscription here; unsubscribe first")
        return self.groups.join(topic, asked)

    def unsubscribe(self, topic: Topics, *, ends_group: bool = False) -> Conversation[None]:
        """End a subscription, the membership of a group, or a pattern with its subscriptions."""
        if isinstance(topic, Pattern):
            yield from self.patterns.unsubscribe(topic, self.tell_before_end)
            self.pushing.use(topic, False)
            return
        topic = names.exact(topic)
        if self.groups.of(topic) is not None:
            yield from self.groups.leave(topic, ends_group=ends_group)
            return
        pattern = self.patterns.covering(topic)
        if pattern is not None:
            raise UsageError(f"topic {topic!r} is of the pattern {pattern}; unsubscribe that")
        if ends_group:
            raise UsageError(f"topic {topic!r}: no member of a group that could be ended")
        subscription = self.session.inbox.of(topic)
        yield from self.tell_before_end(subscription)
        with self.session.recorder.call("unsubscribe", topic) as call:
            yield from self._subscribing.unsubscribe(subscription, call)
            self.pushing.use(topic, False)
            subscription.drop()
            yield from self._subscribing.ended(subscription)
            call.ok(epoch=self.session.inbox.epoch)

    def tell_before_end(self, subscription: Subscription) -> Conversation[None]:
        """Send the cursor of a subscription that is about to end.

        The place here ends with it, so what only this client knows to be acknowledged would come
        again, unmarked, if a later subscription began before it. A GET leaves what is in hand
        counted as delivered; an ACK says that nothing is.
        """
        if not subscription.leaves_a_cursor():
            return
        try:
            if subscription.in_hand is None:
                yield from self._requests.acknowledge(subscription)
            else:
                yield from self._requests.peek(subscription)
        except (LogChangedError, NotSubscribedError):
            pass  # there is no cursor that it could remember

    def acknowledge(self, topic: Topics) -> Conversation[None]:
        """Settle the messages in hand; return when the proxy has stored it."""
        if isinstance(topic, Pattern):
            one = self.patterns.of(topic)
            if one.current is not None:
                one.current.is_kept = False
                yield from self._delivering.settle(one.current)
            yield from self.patterns.save(one)
            for moved in list(one.moved):
                yield from self.acknowledge(moved)
            return
        member = self.groups.of(topic)
        if member is not None:
            yield from self.groups.acknowledge(member)
            return
        subscription = self.session.inbox.of(topic)
        subscription.is_kept = False
        yield from self._delivering.settle(subscription)
        yield from self._requests.acknowledge(subscription)

    def keep_alive(self) -> Conversation[None]:
        """Renew the lease of every subscription, and of what is in hand of groups."""
        yield from self.groups.keep_alive()
        for topic, place in self.session.inbox.places.items():
            if place.terms.lease_ms:
                yield from self._requests.acknowledge(self.session.inbox.of(topic))
                return  # the proxy counts the silence of a client, not of a topic

    def record(self, topic: Topics, note: bytes) -> Conversation[None]:
        """Write that the messages in hand are processed, and the note, in one step."""
        inbox = self.session.inbox
        if isinstance(topic, Pattern):
            one = inbox.patterns.get(topic)  # None: it was unsubscribed
            if one is not None:
                yield from self.patterns.save(one)
            topic = one.current.topic if one is not None and one.current is not None else ""
        if self.groups.of(topic) is not None:  # acknowledged later, so a crash repeats, never loses
            yield Save(inbox.write_note(note), True)
            return
        with self.session.recorder.call("record", topic) as call:
            subscription = inbox.of(topic)
            subscription.is_kept = False
            yield from self._delivering.settle(subscription)
            # The output goes with it, so it is durable at any level.
            yield from self.session.save(subscription, durable=True, also=inbox.write_note(note))
            if subscription.is_subscribed:
                call.ok(epoch=inbox.epoch, cursor=subscription.place.cursor)

    # Messages.

    def get_of(
        self, topic: Topics, messages_max: int, timeout_s: float
    ) -> Conversation[list[Message]]:
        """The next messages of a topic, by a group or by a subscription of its own."""
        if isinstance(topic, Pattern):
            return self._get_of_pattern(topic, messages_max, timeout_s)
        member = self.groups.of(topic)
        if member is not None:
            return self.groups.get(member, messages_max, timeout_s)
        return self._delivering.get(self.session.inbox.of(topic), messages_max, timeout_s)

    def _get_of_pattern(
        self, pattern: Pattern, messages_max: int, timeout_s: float
    ) -> Conversation[list[Message]]:
        """The next messages of one topic of a pattern that fulfil its condition."""
        deadline_s = self._now_s() + timeout_s
        while True:
            left_s = max(deadline_s - self._now_s(), 0.0)
            found = yield from self._next_of(pattern, left_s)
            if found is None:
                return []
            messages = yield from self._delivering.get(found, messages_max, 0.0)
            matches = self.patterns.of(pattern).matches
            wanted = [one for one in messages if matches is None or matches(one)]
            if wanted:
                return wanted

    def _next_of(
        self, pattern: Pattern, timeout_s: float, *, loops: bool = False
    ) -> Conversation[Subscription | None]:
        """Settle what is in hand of a pattern, and wait for messages of one of its topics."""
        one = self.patterns.of(pattern)
        current = one.current
        if current is not None:
            yield from self._delivering.settle(current)
            self.session.save_with_next(current)
        return (yield from self.patterns.next(one, timeout_s, loops=loops))

    def _take_of_pattern(
        self, pattern: Pattern, timeout_s: float
    ) -> Conversation[Running | list[Message]]:
        one, deadline_s = self.patterns.of(pattern), self._now_s() + timeout_s
        while True:
            left_s = max(deadline_s - self._now_s(), 0.0)
            found = yield from self._next_of(pattern, left_s, loops=True)
            if found is None:
                return []
            run = yield from begin_run(self.session, one)
            messages = [] if run else (yield from self._delivering.get(found, 1, 0.0))
            if run or messages:
                return run or messages

    def take_of(self, topic: Topics, timeout_s: float) -> Conversation[Running | list[Message]]:
        """The next messages of a topic, for a loop."""
        if isinstance(topic, Pattern):
            return (yield from self._take_of_pattern(topic, timeout_s))
        member = self.groups.of(topic)
        if member is not None:
            return (yield from self.groups.take(member, timeout_s))
        return (yield from self._delivering.take(self.session.inbox.of(topic), timeout_s))

    def wait_any(self, topics: Sequence[Topics], timeout_s: float) -> Conversation[Topics | None]:
        """Settle the messages in hand of each, and wait until one has messages to deliver.

        Returns:
            The first one that has some; None if the time is over.
        """
        holders = {topic: self.holder_of(topic) for topic in topics}
        subscriptions = [one for one in holders.values() if isinstance(one, Subscription)]
        deadline_s = self._now_s() + timeout_s
        for subscription in subscriptions:
            yield from self._delivering.settle(subscription)
            yield from self.session.save(subscription)
        for one in [one for one in holders.values() if isinstance(one, PatternSubscription)]:
            if one.current is not None:
                yield from self._delivering.settle(one.current)
            yield from save_all(unwritten(self.session, one), durable=False)
        if len(topics) == 1:
            yield from self._wait(holders[topics[0]], timeout_s)
            return topics[0] if self.has_next(topics[0]) else None
        empty = 0
        while True:
            for topic, holder in holders.items():
                yield from self._look(holder)
                if self.has_next(topic):
                    return topic
            left_s = deadline_s - self._now_s()
            if left_s <= 0:
                return None
            empty += 1
            pushed = [one.pushes for one in holders.values() if not isinstance(one, Membership)]
            waited = [one for one in pushed if one is not None]
            if len(waited) == len(holders):
                yield from self.pushing.wait(waited, left_s)
            else:
                yield Pause(min(poll_pause_s(empty), left_s))

    def _wait(self, holder: Holder, timeout_s: float) -> Conversation[None]:
        """Wait until there is something to deliver."""
        if isinstance(holder, PatternSubscription):
            yield from self.patterns.next(holder, timeout_s, loops=True)
            return
        if isinstance(holder, Membership):
            yield from self.groups.get(holder, 0, timeout_s, loops=True)
            return
        with self.session.recorder.call("get", holder.topic) as call:
            yield from self._delivering.find(holder, call, holder.pace.ahead, timeout_s)

    def _look(self, holder: Holder) -> Conversation[None]:
        """Find what is there now; of a subscription that is pushed, without asking the proxy."""
        if isinstance(holder, PatternSubscription):
            yield from self.patterns.next(holder, 0.0, loops=True, asks=False)
            return
        if isinstance(holder, Membership):
            yield from self.groups.get(holder, 0, 0.0, loops=True)
            return
        with self.session.recorder.call("get", holder.topic) as call:
            if not holder.fetched:
                holder.pace.look_ahead(self._now_s())
            wanted = holder.pace.ahead
            yield from self._dead_letters.bury(holder)
            if not holder.has_next:
                yield from self._fetching.look(holder, call, wanted, 0, asks=False)

    def has_next(self, topic: Topics) -> bool:
        """Whether messages are here that can be delivered."""
        if isinstance(topic, Pattern):
            return self.patterns.of(topic).next() is not None
        return self.holder(topic).has_next

    def condition(self, topic: Topics) -> Condition | None:
        """What a message must fulfil to be delivered; None: nothing."""
        return self.patterns.of(topic).matches if isinstance(topic, Pattern) else None

    def holder_of(self, topic: Topics) -> Holder:
        """What a loop over a topic gives its run back to."""
        return self.patterns.of(topic) if isinstance(topic, Pattern) else self.holder(topic)

    def holder(self, topic: str) -> Subscription | Membership:
        """The membership of a group, or the subscription, to a topic."""
        return self.groups.of(topic) or self.session.inbox.of(topic)

    def record_taken(self, message: Message) -> None:
        """Record that a loop takes a message of its run."""
        with self.session.recorder.call("get", message.topic) as call:
            call.ok(epoch=self.session.inbox.epoch, messages=(seen(message),))

    def reject_of(self, message: Message, reason: str) -> Conversation[int]:
        """Reject a message in hand; return the offset of its dead letter."""
        try:
            check_reason(reason)
            check_may_die(message.topic)
            if self.groups.of(message.topic) is not None:
                return (yield from self.groups.reject(message, reason))
            subscription = self.session.inbox.of(message.topic)
            return (yield from self.reject(subscription, message, reason))
        except PubSubError:
            self.keep(message)
            raise

    def keep(self, message: Message) -> None:
        """A `reject` or `nack` failed: the next call does not count its message as processed."""
        self.groups.keep(message)
        self.session.inbox.of(message.topic).keep(message)

    def keep_all(self) -> None:
        """As `keep`, of a call that named no message: none in hand counts as processed."""
        self.groups.keep_all()
        for subscription in self.session.inbox.subscriptions.values():
            if subscription.in_hand is not None:
                subscription.keep(subscription.in_hand)

    def nack(self, message: Message, delay_ms: int) -> Conversation[None]:
        """Give a message of a group back."""
        try:
            yield from self.groups.settle(message, "nack", delay_ms)
        except UsageError:
            self.keep(message)
            raise

    def reject(
        self, subscription: Subscription, message: Message, reason: str
    ) -> Conversation[int]:
        """Reject a message in hand; return the offset of its dead letter."""
        letter = subscription.letter
        if letter is not None:
            offset = yield from self._dead_letters.finish(subscription)
            if letter.message == message:
                return offset
        last = subscription.in_hand
        if last is None or not subscription.place.cursor <= message.offset <= last.offset:
            raise UsageError(
                f"message {message.message_id} at offset {message.offset} of "
                f"{subscription.topic!r} is not in hand: only what the last get gave can be "
                "rejected"
            )
        yield from self._dead_letters.begin(subscription, message, reason)
        return (yield from self._dead_letters.finish(subscription))

    def leave(self, *, tells_ahead: bool) -> Conversation[None]:
        """Settle the messages in hand, send the cursors that the proxy does not know, and leave.

        Args:
            tells_ahead: also if it has sent messages that were not delivered.
        """
        subscriptions = list(self.session.inbox.subscriptions.values())
        for subscription in subscriptions:
            if subscription.in_hand is not None or subscription.letter is not None:
                yield from self._delivering.settle(subscription)
                yield from self.session.save(subscription)
        for subscription in [one for one in subscriptions if one.is_to_be_told(ahead=tells_ahead)]:
            yield from self._requests.acknowledge(subscription)
        clean = [one for one in self.session.inbox.patterns.values() if one.is_clean]
        if (yield from self._subscribing.bye(also=bool(clean))):
            for one in clean:
                yield from self.patterns.ended(one)
        yield from self.groups.leave_all()
