"""The engine of a subscriber: everything it decides, as conversations. Pure.

A message is acknowledged when the program comes back for the next one; what was processed is
durable here before the proxy learns of it. So a call settles the messages in hand, then fetches
what is missing, then delivers.

A shell carries out what the conversations ask for (`common/core/conversation.py`), one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec.structs import replace

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.dead_letter import check_may_die, check_reason
from reliable_pubsub.common.core.errors import (
    LogChangedError,
    NotSubscribedError,
    PubSubError,
    StoppedError,
    UsageError,
)
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.core.recorder import seen
from reliable_pubsub.common.core.stopping import Until, until_stopped

from .dead_letters import DeadLetters
from .delivering import Delivering, PushSource
from .feature import Opening, Origin, SubscriberFeature
from .fetching import Fetching, OnLowerQoS
from .requests import Requests
from .restoring import Running
from .session import SubscriberSession
from .subscribe_call import SeekCall, SubscribeCall, plain
from .subscribing import Asked, OnLogChanged, Subscribing
from .subscription import TopicSubscription
from .topic_source import TopicSource

F = TypeVar("F", bound=SubscriberFeature)
MakeFeature = Callable[["SubscriberEngine", Opening], SubscriberFeature]


class SubscriberEngine:
    """Gets each message of its subscriptions once, across kills of either side."""

    def __init__(
        self,
        session: SubscriberSession,
        stored: Mapping[str, bytes],
        *,
        on_log_changed: OnLogChanged,
        on_lower_qos: OnLowerQoS,
        now_s: Callable[[], float],
        features: Sequence[MakeFeature] = (),
        opening: Opening | None = None,
    ) -> None:
        """Create it with no message in hand.

        Args:
            stored: the state.
            on_log_changed: what to do if the proxy's log is not the one of the stored place.
            on_lower_qos: called once for each topic and publisher of a lower level.
            now_s: the monotonic clock.
            opening: how the subscriber was opened, for its features.
        """
        self.session = session
        self.now_s = now_s
        self.subscribing = Subscribing(session, on_log_changed=on_log_changed)
        self.requests = Requests(session, self.subscribing)
        self.fetching = Fetching(
            session, self.requests, forgets=on_log_changed != "stop", on_lower_qos=on_lower_qos
        )
        self.dead_letters = DeadLetters(session, self.requests)
        self.delivering = Delivering(now_s=now_s)
        self.topics = TopicSource(
            session, self.requests, self.fetching, self.dead_letters, now_s=now_s
        )
        self._features: list[SubscriberFeature] = []
        for make in features:
            assert opening is not None
            self._features.append(make(self, opening))
        for one in self._features:
            one.load(stored)
        finding = [
            one for one in self._features if type(one).source is not SubscriberFeature.source
        ]
        self._sources = [one.source for one in finding]

    def feature(self, kind: type[F]) -> F:
        """A feature of this subscriber.

        Raises:
            UsageError: it runs without.
        """
        for one in self._features:
            if isinstance(one, kind):
                return one
        raise UsageError(f"this subscriber runs without {kind.name}")

    def deliver_pushes(self, pushes: PushSource) -> None:
        """Take messages from a source of pushes, too."""
        self.delivering.pushes = self.fetching.pushes = pushes

    def begin_again(self, stored: Mapping[str, bytes]) -> None:
        """Continue from the stored state; what calls that returned have delivered is in hand."""
        self.session.inbox.reload(stored)
        for one in self._features:
            one.load(stored)
        self.session.begin_again()
        for one in self._features:
            one.begin_again()

    def close(self) -> None:
        """End the links of features."""
        for one in self._features:
            one.close()

    # Subscriptions.

    def begin(self, call: SubscribeCall, *, remembers: bool) -> Conversation[int]:
        """Check the arguments of `subscribe`; return the conversation that subscribes.

        Args:
            remembers: the state is on disk.

        Raises:
            UsageError: arguments that do not go together; the text names one.
        """
        call.check(self.session.client, remembers=remembers)
        for one in self._features:
            if (begun := one.subscribe(call)) is not None:
                return begun
        topic = call.exact_topic()
        return self._subscribe(topic, call.of_topic(topic), push=call.push)

    def _subscribe(self, topic: str, asked: Asked, *, push: bool) -> Conversation[int]:
        """Begin or resume a subscription; return its cursor."""
        for one in self._features:
            one.check_plain(topic, "subscribe")
        subscription = self.session.inbox.add(topic)
        for one in self._features:
            asked = replace(asked, terms=one.joined(topic, asked.terms))
        subscription.drop_fetched()  # messages in hand stay in hand, if this is refused
        yield from self.subscribing.subscribe(subscription, asked)
        subscription.drop()
        self.set_push(topic, push)
        return subscription.place.cursor

    def is_member(self, topic: Topics, group: str | None = None) -> bool:
        """Whether a topic is read as a member of a group."""
        return any(one.is_member(topic, group) for one in self._features)

    def use_push(self, topic: Topics, push: bool) -> None:
        """Switch push on or off.

        Raises:
            UsageError: the messages of a group are not pushed.
            NotSubscribedError: a pattern that is not subscribed to.
        """
        for one in self._features:
            one.check_push(topic, push)
        self.set_push(topic, push)

    def set_push(self, topic: Topics, push: bool) -> None:
        """Switch push on or off for what is subscribed to."""
        for one in self._features:
            one.set_push(topic, push)

    def is_pushed(self, topic: Topics) -> bool:
        """Whether push is on, even while it fails and the topic is polled."""
        return any(one.is_pushed(topic) for one in self._features)

    def seek(self, call: SeekCall) -> Conversation[int]:
        """Check the start; return the conversation that moves a subscription, to its cursor.

        Raises:
            UsageError: the start is not one of this topic, or of no pattern.
        """
        for one in self._features:
            if (begun := one.seek(call)) is not None:
                return begun
        return self._seek(*call.of_topic())

    def _seek(self, topic: str, log: str | None, start: Start) -> Conversation[int]:
        for one in self._features:
            one.check_plain(topic, "seek")
        subscription = self.session.inbox.of(topic)
        place = subscription.place
        if not subscription.is_subscribed:
            self.requests.refuse(topic)
        asked = Asked(
            start=start, seeks=True, log=log, terms=place.terms, max_deliveries=place.max_deliveries
        )
        yield from self.tell_before_end(subscription)
        subscription.drop_fetched()  # messages in hand stay in hand, if this is refused
        yield from self.subscribing.subscribe(subscription, asked)
        subscription.drop()
        return subscription.place.cursor

    def unsubscribe(self, topic: Topics, *, ends_group: bool = False) -> Conversation[None]:
        """End a subscription, the membership of a group, or a pattern with its subscriptions."""
        for one in self._features:
            if (ending := one.unsubscribe(topic, ends_group=ends_group)) is not None:
                yield from ending
                return
        topic = names.exact(plain(topic))
        if ends_group:
            raise UsageError(f"topic {topic!r}: no member of a group that could be ended")
        subscription = self.session.inbox.of(topic)
        yield from self.tell_before_end(subscription)
        with self.session.recorder.call("unsubscribe", topic) as call:
            yield from self.subscribing.unsubscribe(subscription, call)
            self.set_push(topic, False)
            subscription.drop()
            yield from self.subscribing.ended(subscription)
            call.ok(epoch=self.session.inbox.epoch)

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
                yield from self.requests.acknowledge(subscription)
            else:
                yield from self.requests.peek(subscription)
        except (LogChangedError, NotSubscribedError):
            pass  # there is no cursor that it could remember

    # Messages.

    def of(self, topic: Topics) -> Origin:
        """Return the source of a topic's messages, and its state of that topic."""
        for source in self._sources:
            if (found := source(topic)) is not None:
                return found
        return self.topics, self.session.inbox.of(plain(topic))

    def get(self, topic: Topics, count: int, timeout_s: float) -> Conversation[list[Message]]:
        """Settle the messages in hand, and deliver the next ones."""
        return self.delivering.get(*self.of(topic), count, timeout_s)

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
        taking = self.delivering.take(source, state, wait_s)
        if until is None:
            return state, (yield from taking)
        if not until.is_over():
            try:
                return state, (yield from until_stopped(taking, until.is_over))
            except StoppedError:
                pass
        yield from self.delivering.settle_in_hand(source, state)
        until.heed()
        return state, []

    def record(self, topic: Topics, note: bytes) -> Conversation[None]:
        """Write durably that the messages in hand are processed, in one step with the note."""
        for one in self._features:
            if (writing := one.record(topic, note)) is not None:
                return writing
        source, state = self.of(topic)
        return source.record(state, note)

    def keep_alive(self) -> Conversation[None]:
        """Renew the lease of every subscription, and of what is in hand of groups."""
        for one in self._features:
            yield from one.keep_alive()
        for topic, place in self.session.inbox.places.items():
            if place.terms.lease_ms:
                yield from self.requests.acknowledge(self.session.inbox.of(topic))
                return  # the proxy counts the silence of a client, not of a topic

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
            for one in self._features:
                if (rejecting := one.reject(message, reason)) is not None:
                    return (yield from rejecting)
            subscription = self.session.inbox.of(message.topic)
            return (yield from self.dead_letters.reject(subscription, message, reason))
        except PubSubError:
            self.keep(message)
            raise

    def keep(self, message: object) -> None:
        """Until `reject` or `nack` is done, the next call does not count a message as processed.

        Args:
            message: as the program gave it, perhaps altered or none; then all in hand are kept.
        """
        known = message if isinstance(message, Message) and type(message.offset) is int else None
        for one in self._features:
            one.keep(known)
        if known is not None:
            self.session.inbox.of(known.topic).keep(known)
            return
        for subscription in self.session.inbox.subscriptions.values():
            if subscription.in_hand is not None:
                subscription.keep(subscription.in_hand)

    def fail(self, message: Message, pause_s: float | None, reason: str) -> Conversation[None]:
        """Give back a message whose handler has failed; see `SubscriberFeature.fail`."""
        for one in self._features:
            yield from one.fail(message, pause_s, reason)

    @property
    def has_members(self) -> bool:
        """Whether the proxy would otherwise wait for the end of a lease."""
        return any(one.has_members for one in self._features)

    def break_off(self, *, tells_cursors: bool) -> Conversation[None]:
        """End without the messages in hand: they are redelivered, marked; groups have them back.

        Args:
            tells_cursors: send those that the proxy does not know, because no state keeps them.
        """
        for subscription in list(self.session.inbox.subscriptions.values()) * tells_cursors:
            if self.session.connected:
                yield from self.tell_before_end(subscription)
        for one in self._features:
            yield from one.leave(fails=True)

    def leave(self, *, tells_ahead: bool) -> Conversation[None]:
        """Settle the messages in hand, send the cursors that the proxy does not know, and leave.

        Args:
            tells_ahead: also if it has sent messages that were not delivered.
        """
        subscriptions = list(self.session.inbox.subscriptions.values())
        for subscription in subscriptions:
            if subscription.in_hand is not None or subscription.letter is not None:
                yield from self.delivering.settle_in_hand(self.topics, subscription)
        for subscription in [one for one in subscriptions if one.is_to_be_told(ahead=tells_ahead)]:
            yield from self.requests.acknowledge(subscription)
        if (yield from self.subscribing.bye(also=any(one.has_clean() for one in self._features))):
            for one in self._features:
                yield from one.said_bye()
        for one in self._features:
            yield from one.leave(fails=False)
