"""The engine of a subscriber: everything it decides, as conversations. Pure.

A message is acknowledged when the program comes back for the next one; what was processed is
durable here before the proxy learns of it. So a call settles the messages in hand, then fetches
what is missing, then delivers.

A shell carries out what the conversations ask for (`common/core/conversation.py`), one at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from msgspec.structs import replace

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import (
    LogChangedError,
    NotSubscribedError,
    PubSubError,
    UsageError,
)
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.recorder import Call, seen

from .dead_letters import DeadLetters
from .fetching import Fetching, OnLowerQoS
from .place import Place
from .pushing import Pushing
from .requests import Requests
from .session import SubscriberSession
from .subscribing import Asked, OnLogChanged, Subscribing
from .subscription import Running, Subscription

FETCH_AHEAD: Final = 10  # times the requested messages; the rest wait here, unacknowledged


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
        self._stored_first = True  # if both kinds of messages wait

    def begin_again(self, stored: Mapping[str, bytes]) -> None:
        """Drop what is not in the stored state: messages in hand are redelivered, marked."""
        self.session.inbox.reload(stored)
        self.session.begin_again()
        self.pushing.begin_again()

    def close(self) -> None:
        """End the link of pushes."""
        self.pushing.close()

    # Subscriptions.

    def subscribe(self, topic: str, asked: Asked, *, push: bool) -> Conversation[int]:
        """Begin or resume a subscription; return its cursor."""
        subscription = self.session.inbox.add(topic)
        subscription.drop_fetched()  # messages in hand stay in hand, if this is refused
        yield from self._subscribing.subscribe(subscription, asked)
        subscription.drop()
        self.pushing.use(topic, push)
        return subscription.place.cursor

    def unsubscribe(self, topic: str) -> Conversation[None]:
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

    def acknowledge(self, topic: str) -> Conversation[None]:
        """Settle the messages in hand; return when the proxy has stored the cursor."""
        subscription = self.session.inbox.of(topic)
        yield from self.settle(subscription)
        yield from self._requests.acknowledge(subscription)

    def keep_alive(self) -> Conversation[None]:
        """Renew the lease of every subscription."""
        for topic, place in self.session.inbox.places.items():
            if place.terms.lease_ms:
                yield from self._requests.acknowledge(self.session.inbox.of(topic))
                return  # the proxy counts the silence of a client, not of a topic

    def record(self, topic: str, plan: PlanMark) -> Conversation[None]:
        """Write that the messages in hand are processed, and the plan's position, in one step."""
        inbox = self.session.inbox
        with self.session.recorder.call("record", topic) as call:
            subscription = inbox.of(topic)
            yield from self.settle(subscription)
            # The output goes with it, so it is durable at any level.
            yield from self.session.save(subscription, durable=True, also=inbox.mark_plan(plan))
            if subscription.is_subscribed:
                call.ok(epoch=inbox.epoch, cursor=subscription.place.cursor)

    # Messages.

    def settle(self, subscription: Subscription) -> Conversation[None]:
        """Count the messages in hand as processed; the caller writes the place."""
        if not subscription.is_subscribed:  # a clean session ended during the request
            subscription.drop()
            return
        if subscription.letter is not None:
            yield from self._dead_letters.finish(subscription)
        subscription.settle()

    def come_back(self, subscription: Subscription) -> Conversation[None]:
        """Settle the messages in hand, or drop them if a rejection of one failed."""
        if subscription.is_kept:
            subscription.drop()
        else:
            yield from self.settle(subscription)

    def get(
        self, subscription: Subscription, messages_max: int, timeout_s: float
    ) -> Conversation[list[Message]]:
        """Settle the messages in hand, and deliver the next ones.

        Both are one write of the state. Only if the proxy must be asked, or nothing is available
        yet, the settled cursor is written first (decision 0036).
        """
        with self.session.recorder.call("get", subscription.topic) as call:
            wanted = min(messages_max * FETCH_AHEAD, BATCH_MESSAGES_MAX)
            yield from self._find(subscription, call, wanted, timeout_s)
            return (yield from self._deliver(subscription, call, messages_max))

    def take(
        self, subscription: Subscription, timeout_s: float
    ) -> Conversation[Running | list[Message]]:
        """Settle the messages in hand, and let a loop take the next ones.

        Returns:
            A run, where it costs one write for all messages; else one message, or none.
        """
        with self.session.recorder.call("get", subscription.topic) as call:
            if not subscription.fetched:
                subscription.look_ahead(self._now_s())
            yield from self._find(subscription, call, subscription.ahead, timeout_s)
            place = subscription.place
            if (
                subscription.qos0
                or not subscription.fetched
                or (place.max_deliveries and place.deliveries(place.cursor))
                or not self.session.inbox.can_run(subscription)
            ):
                return (yield from self._deliver(subscription, call, 1))
            run = yield from self.session.begin_run(subscription)
            run.messages[:] = _marked(subscription.place, run.messages)
            return run

    def record_taken(self, message: Message) -> None:
        """Record that a loop takes a message of its run."""
        with self.session.recorder.call("get", message.topic) as call:
            call.ok(epoch=self.session.inbox.epoch, messages=(seen(message),))

    def _find(
        self, subscription: Subscription, call: Call, wanted: int, timeout_s: float
    ) -> Conversation[None]:
        """Settle the messages in hand, and wait for the next ones."""
        yield from self.come_back(subscription)
        yield from self._dead_letters.bury(subscription)
        deadline_s = self._now_s() + timeout_s if timeout_s else 0.0
        while not subscription.has_next and (
            yield from self._fetching.wait(subscription, call, wanted, timeout_s)
        ):
            yield from self._dead_letters.bury(subscription)
            timeout_s = max(deadline_s - self._now_s(), 0.0) if timeout_s else 0.0

    def _deliver(
        self, subscription: Subscription, call: Call, messages_max: int
    ) -> Conversation[list[Message]]:
        unstored = self._take_qos0(subscription, messages_max)
        messages = self._next(subscription, messages_max - len(unstored))
        before = subscription.place if messages else None
        try:
            handed = unstored + (yield from self.hand_over(subscription, messages))
            if call.recorded and handed:
                call.ok(epoch=self.session.inbox.epoch, messages=tuple(map(seen, handed)))
        except PubSubError:
            if before is not None:  # they were not delivered, so the count is restored
                subscription.move(before)
            raise
        for _ in messages:  # only after the write: if it fails, they are still next
            subscription.fetched.popleft()
        if messages and subscription.place.terms.qos:
            subscription.handed_over(messages[-1])
        return handed

    def _next(self, subscription: Subscription, messages_max: int) -> list[Message]:
        """The fetched messages; redelivered singly, so only a failing message's count grows."""
        if not subscription.fetched:
            return []
        place = subscription.place
        if place.max_deliveries and place.deliveries(place.cursor):
            messages_max = min(1, messages_max)
        return list(islice(subscription.fetched, messages_max))

    def _take_qos0(self, subscription: Subscription, messages_max: int) -> list[Message]:
        """The QoS 0 messages; if stored messages wait too, they take turns."""
        if not subscription.qos0:
            return []
        self._stored_first = not self._stored_first
        if self._stored_first:
            messages_max = max(messages_max - len(subscription.fetched), 0)
        messages = subscription.qos0.hand_over(messages_max)
        for message in messages:
            self._fetching.report_lower_qos(subscription, message.publisher, 0)
        return messages

    def hand_over(
        self, subscription: Subscription, messages: list[Message]
    ) -> Conversation[list[Message]]:
        """Write that these messages are delivered; mark redelivered ones."""
        if not messages:
            yield from self.session.save(subscription)
            return []
        place, last = subscription.place, messages[-1]
        if place.terms.qos == 0:  # at most once: counted as processed before delivery
            subscription.move(place.moved(last.offset + 1, last.timestamp_ns))
            yield from self.session.save(subscription)
            return messages
        place = place.handed_over(last.offset + 1)
        subscription.move(place)
        yield from self.session.save(subscription)
        return _marked(place, messages)

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
                yield from self.come_back(subscription)
                yield from self.session.save(subscription)
        for subscription in [one for one in subscriptions if one.is_to_be_told(ahead=tells_ahead)]:
            yield from self._requests.acknowledge(subscription)
        yield from self._subscribing.bye()


def _marked(place: Place, messages: list[Message]) -> list[Message]:
    """These messages, which the place counts as delivered, each with its delivery count."""
    if place.is_first_delivery or place.terms.qos == 0:
        return messages
    return [
        replace(m, delivery_count=place.deliveries(m.offset) + (m.offset < place.shown))
        for m in messages
    ]
