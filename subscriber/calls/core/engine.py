"""The engine of a subscriber: everything it decides, as conversations. Pure.

A message is acknowledged when the program comes back for the next one; what was processed is
durable here before the proxy learns of it. So a call settles the messages in hand, then fetches
what is missing, then delivers.

A shell carries out what the conversations ask for (`common/core/conversation.py`), one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeGuard

from msgspec.structs import replace

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation, Save, Sleep
from reliable_pubsub.common.core.dead_letter import check_may_die, check_reason
from reliable_pubsub.common.core.errors import (
    LogChangedError,
    NotSubscribedError,
    PubSubError,
    StoppedError,
    UsageError,
)
from reliable_pubsub.common.core.message_base import Start, Terms
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.common.core.recorder import seen
from reliable_pubsub.common.core.retry import poll_pause_s
from reliable_pubsub.common.core.stopping import Until, until_stopped

from ...core.dead_letters import DeadLetters
from ...core.delivering import Delivering, Source
from ...core.fetching import Fetching, OnLowerQoS
from ...core.requests import Requests
from ...core.session import SubscriberSession
from ...core.subscribing import Asked, OnLogChanged, Subscribing
from ...core.subscription import Running, TopicSubscription
from ...core.topic_source import TopicSource
from ...groups.core.groups import Groups
from ...groups.core.membership import JoinTerms
from ...patterns.core.pattern_fetching import PatternFetching
from ...patterns.core.pattern_source import PatternSource
from ...patterns.core.pattern_subscribing import PatternSubscribing
from ...patterns.core.pattern_subscription import AskedPattern, PatternSubscription
from ...push.core.pushing import Pushing


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
            on_lower_qos=on_lower_qos,
        )
        self._dead_letters = DeadLetters(session, self._requests)
        self._delivering = Delivering(pushing, now_s=now_s)
        self._topics = TopicSource(
            session, self._requests, self._fetching, self._dead_letters, now_s=now_s
        )
        self.groups = Groups(session, on_log_changed=on_log_changed, now_s=now_s)
        self._patterns = PatternSubscribing(session, pushing)
        pattern_fetching = PatternFetching(
            session,
            self._subscribing,
            self._patterns,
            self._topics,
            self._fetching,
            pushing,
            now_s=now_s,
        )
        self._pattern_source = PatternSource(
            session, self._patterns, self._delivering, self._topics, pattern_fetching
        )

    def begin_again(self, stored: Mapping[str, bytes]) -> None:
        """Continue from the stored state; what calls that returned have delivered is in hand."""
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
        if topic in self.groups.members:
            raise UsageError(f"topic {topic!r}: a member of a group; unsubscribe first")
        subscription = self.session.inbox.add(topic)
        for one in self._patterns.covering(topic):  # it takes nothing from them (rule R32)
            asked = replace(asked, terms=asked.terms.joined(one.asked.terms))
        subscription.drop_fetched()  # messages in hand stay in hand, if this is refused
        yield from self._subscribing.subscribe(subscription, asked)
        subscription.drop()
        self.pushing.use(topic, push)
        return subscription.place.cursor

    def is_member(self, topic: Topics) -> bool:
        """Whether a topic is read as a member of a group."""
        return isinstance(topic, str) and topic in self.groups.members

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
            self._patterns.of(topic)
        elif self.is_member(names.exact(topic)) and push:
            raise UsageError(f"topic {topic!r}: the messages of a group are not pushed")
        self.pushing.use(topic, push)

    def match(self, asked: AskedPattern, start: Start | None, *, push: bool) -> Conversation[int]:
        """Begin or resume a pattern; return how many topics it matches now."""
        topics = yield from self._patterns.subscribe(asked, start)
        self.pushing.use(asked.pattern, push)
        return topics

    def seek(self, topic: str, start: Start, log: str | None) -> Conversation[int]:
        """Move an existing subscription; return its cursor."""
        if topic in self.groups.members:
            raise UsageError(
                f"topic {topic!r}: a group cannot be moved, because its messages end in any order; "
                "end it (ends_group), and subscribe again with the `start` you want"
            )
        subscription = self.session.inbox.of(topic)
        place = subscription.place
        if not subscription.is_subscribed:
            self._requests.refuse(topic)
        asked = Asked(
            start=start, seeks=True, log=log, terms=place.terms, max_deliveries=place.max_deliveries
        )
        yield from self.tell_before_end(subscription)
        subscription.drop_fetched()  # messages in hand stay in hand, if this is refused
        yield from self._subscribing.subscribe(subscription, asked)
        subscription.drop()
        return subscription.place.cursor

    def seek_all(self, pattern: Pattern, start: Start) -> Conversation[int]:
        """Move the subscriptions of a pattern; return how many topics it matches now."""
        one = self._patterns.of(pattern)
        return (yield from self._patterns.seek(one, start, self.tell_before_end))

    def join(self, topic: str, asked: JoinTerms) -> Conversation[int]:
        """Become a member of a group; return its cursor."""
        if self.session.inbox.of(topic).is_subscribed:
            raise UsageError(f"topic {topic!r} has a plain subscription here; unsubscribe first")
        return self.groups.join(topic, asked)

    def unsubscribe(self, topic: Topics, *, ends_group: bool = False) -> Conversation[None]:
        """End a subscription, the membership of a group, or a pattern with its subscriptions."""
        if isinstance(topic, Pattern):
            yield from self._patterns.unsubscribe(topic, self.tell_before_end)
            self.pushing.use(topic, False)
            return
        topic = names.exact(topic)
        if topic in self.groups.members:
            yield from self.groups.leave(topic, ends_group=ends_group)
            return
        if ends_group:
            raise UsageError(f"topic {topic!r}: no member of a group that could be ended")
        subscription = self.session.inbox.of(topic)
        covering = self._patterns.covering(topic)
        if covering:
            yield from self._leave_to_patterns(subscription, covering)
            return
        yield from self.tell_before_end(subscription)
        with self.session.recorder.call("unsubscribe", topic) as call:
            yield from self._subscribing.unsubscribe(subscription, call)
            self.pushing.use(topic, False)
            subscription.drop()
            yield from self._subscribing.ended(subscription)
            call.ok(epoch=self.session.inbox.epoch)

    def _leave_to_patterns(
        self, subscription: TopicSubscription, covering: Sequence[PatternSubscription]
    ) -> Conversation[None]:
        """End a subscription to a topic that patterns still have: it stays where it is."""
        topic, place = subscription.topic, subscription.place
        if place.terms.by_pattern or not subscription.is_subscribed:
            pattern = covering[0].pattern
            raise UsageError(
                f"topic {topic!r} belongs to the pattern {pattern}; unsubscribe the pattern"
            )
        terms = reduce(Terms.joined, [one.asked.terms for one in covering])
        asked = Asked(terms=terms, max_deliveries=covering[0].asked.max_deliveries)
        yield from self._subscribing.subscribe(subscription, asked)
        self.pushing.use(topic, False)

    def tell_before_end(self, subscription: TopicSubscription) -> Conversation[None]:
        """Send the cursor of a subscription that is about to end, or to be moved.

        The place here ends with it. Without the cursor, messages that only this client knows to be
        acknowledged would be redelivered, unmarked, to a later subscription. After a GET the
        messages in hand count as delivered; after an ACK none do.
        """
        if (
            not subscription.is_subscribed
            or subscription.is_clean
            or subscription.place.terms.qos == 0
            or (subscription.confirmation and not subscription.is_to_be_told(ahead=False))
        ):
            return  # the proxy remembers no cursor, or has ours
        try:
            if subscription.in_hand is None:
                yield from self._requests.acknowledge(subscription)
            else:
                yield from self._requests.peek(subscription)
        except (LogChangedError, NotSubscribedError):
            pass  # there is no cursor that it could remember

    # Messages.

    def of(self, topic: Topics) -> tuple[Source[Any], Any]:
        """Return the source of a topic's messages, of its group's or a pattern's; and its state."""
        if isinstance(topic, Pattern):
            return self._pattern_source, self._patterns.of(topic)
        member = self.groups.members.get(topic)
        if member is not None:
            return self.groups, member
        return self._topics, self.session.inbox.of(topic)

    def get(self, topic: Topics, count: int, timeout_s: float) -> Conversation[list[Message]]:
        """Settle the messages in hand, and deliver the next ones."""
        return self._delivering.get(*self.of(topic), count, timeout_s)

    def acknowledge(self, topic: Topics) -> Conversation[None]:
        """Settle the messages in hand; return when the proxy has stored it."""
        source, state = self.of(topic)
        return source.acknowledge(state)

    def take(
        self, topic: Topics, wait_s: float, until: Until | None
    ) -> Conversation[tuple[Any, Running | list[Message]]]:
        """Take a step of a loop: settle what it has taken, and find its next messages.

        Args:
            until: the loop is stopped; None: it is not of that kind.

        Returns:
            The state that they are of; and no messages where the loop ends.
        """
        source, state = self.of(topic)
        taking = self._delivering.take(source, state, wait_s)
        if until is None:
            return state, (yield from taking)
        if not until.is_over():
            try:
                return state, (yield from until_stopped(taking, until.is_over))
            except StoppedError:
                pass
        yield from self._delivering.settle_in_hand(source, state)
        until.heed()
        return state, []

    def record(self, topic: Topics, note: bytes) -> Conversation[None]:
        """Write durably that the messages in hand are processed, in one step with the note."""
        inbox = self.session.inbox
        if isinstance(topic, Pattern) and topic not in inbox.patterns:  # it was unsubscribed
            yield Save(inbox.write_note(note), True)
            return
        source, state = self.of(topic)
        yield from source.record(state, note)

    def keep_alive(self) -> Conversation[None]:
        """Renew the lease of every subscription, and of what is in hand of groups."""
        yield from self.groups.keep_alive()
        for topic, place in self.session.inbox.places.items():
            if place.terms.lease_ms:
                yield from self._requests.acknowledge(self.session.inbox.of(topic))
                return  # the proxy counts the silence of a client, not of a topic

    def wait_any(self, topics: Sequence[Topics], timeout_s: float) -> Conversation[Topics | None]:
        """Settle the messages in hand of each, and wait until one has messages to deliver.

        Returns:
            The first one that has some; None if the time is over.
        """
        found = [(topic, *self.of(topic)) for topic in topics]
        deadline_s = self._now_s() + timeout_s
        for _, source, state in found:
            yield from self._delivering.settle_in_hand(source, state)
        if len(found) == 1:
            ((topic, source, state),) = found
            return topic if (yield from self._delivering.find(source, state, timeout_s)) else None
        empty = 0
        while True:
            for topic, source, state in found:
                if (yield from self._delivering.find(source, state, 0.0, asks=False)):
                    return topic
            left_s = deadline_s - self._now_s()
            if left_s <= 0:
                return None
            empty += 1
            pushed = [state.pushes for *_, state in found if state.pushes is not None]
            if len(pushed) == len(found):
                yield from self.pushing.wait(pushed, left_s)
            else:
                yield Sleep(min(poll_pause_s(empty), left_s))

    def record_taken(self, message: Message) -> None:
        """Record that a loop takes a message of its run."""
        with self.session.recorder.call("get", message.topic) as call:
            call.ok(epoch=self.session.inbox.epoch, messages=(seen(message),))

    def reject(self, message: Message, reason: str) -> Conversation[int]:
        """Reject a message in hand; return the offset of its dead letter."""
        self.keep(message)
        try:
            check_reason(reason)
            check_may_die(message.topic)
            subscription = self.session.inbox.of(message.topic)
            member = self.groups.members.get(message.topic)
            is_held = subscription.letter is not None or subscription.has_in_hand(message)
            # A pattern may have the topic of a group, too.
            if member is not None and (message.offset in member.in_hand or not is_held):
                return (yield from self.groups.reject(message, reason))
            return (yield from self._dead_letters.reject(subscription, message, reason))
        except PubSubError:
            self.keep(message)
            raise

    def keep(self, message: object) -> None:
        """Until `reject` or `nack` is done, the next call does not count a message as processed.

        Args:
            message: as the program gave it, perhaps altered or none; then all in hand are kept.
        """
        if isinstance(message, Message) and type(message.offset) is int:
            self.groups.keep(message)
            self.session.inbox.of(message.topic).keep(message)
            return
        self.groups.keep_all()
        for subscription in self.session.inbox.subscriptions.values():
            if subscription.in_hand is not None:
                subscription.keep(subscription.in_hand)

    def nack(self, message: Message, delay_ms: int) -> Conversation[None]:
        """Give a message of a group back."""
        self.keep(message)
        yield from self.groups.settle_one(message, "nack", delay_ms)

    def break_off(self, *, tells_cursors: bool) -> Conversation[None]:
        """End without the messages in hand: they are redelivered, marked; groups have them back.

        Args:
            tells_cursors: send those that the proxy does not know, because no state keeps them.
        """
        for subscription in list(self.session.inbox.subscriptions.values()) * tells_cursors:
            if self.session.connected:
                yield from self.tell_before_end(subscription)
        yield from self.groups.leave_all(fails=True)

    def leave(self, *, tells_ahead: bool) -> Conversation[None]:
        """Settle the messages in hand, send the cursors that the proxy does not know, and leave.

        Args:
            tells_ahead: also if it has sent messages that were not delivered.
        """
        subscriptions = list(self.session.inbox.subscriptions.values())
        for subscription in subscriptions:
            if subscription.in_hand is not None or subscription.letter is not None:
                yield from self._delivering.settle_in_hand(self._topics, subscription)
        for subscription in [one for one in subscriptions if one.is_to_be_told(ahead=tells_ahead)]:
            yield from self._requests.acknowledge(subscription)
        clean = [one for one in self.session.inbox.patterns.values() if one.is_clean]
        if (yield from self._subscribing.bye(also=bool(clean))):
            for one in clean:
                yield from self._patterns.ended(one)
        yield from self.groups.leave_all()
