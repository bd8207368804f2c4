"""Delivers messages to the program, and settles them when it has processed them."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Final

from msgspec.structs import replace

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import LogChangedError, NotSubscribedError, UsageError
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.core.recorder import Call, seen

from .core.place import Place
from .core.subscription import Running, Subscription
from .dead_letters import DeadLetters
from .fetching import Fetching
from .requests import Requests
from .session import SubscriberSession

FETCH_AHEAD: Final = 10  # times the requested messages; the rest wait here, unacknowledged


class HandOver:
    """Implements `get`, `reject` and `close` for one subscriber."""

    def __init__(
        self,
        session: SubscriberSession,
        requests: Requests,
        fetching: Fetching,
        dead_letters: DeadLetters,
    ) -> None:
        """Create it with no message in hand."""
        self._session = session
        self._requests = requests
        self._fetching = fetching
        self._dead_letters = dead_letters
        self._stored_first = True  # if both kinds of messages wait

    def settle(self, subscription: Subscription) -> None:
        """Count the messages in hand as processed; the caller writes the place."""
        if not subscription.is_subscribed:  # a clean session ended during the request
            subscription.drop()
            return
        if subscription.letter is not None:
            self._dead_letters.finish(subscription)
        subscription.settle()

    def get(self, subscription: Subscription, messages_max: int, timeout_s: float) -> list[Message]:
        """Settle the messages in hand, and deliver the next ones.

        Both are one write of the state. Only if the proxy must be asked, or nothing is available
        yet, the settled cursor is written first (decision 0036).
        """
        with self._session.recorder.call("get", subscription.topic) as call:
            wanted = min(messages_max * FETCH_AHEAD, BATCH_MESSAGES_MAX)
            self._find(subscription, call, wanted, timeout_s)
            return self._deliver(subscription, call, messages_max)

    def take(self, subscription: Subscription, timeout_s: float) -> Running | list[Message]:
        """Settle the messages in hand, and let a loop take the next ones.

        Returns:
            A run, where it costs one write for all messages; else one message, or none.
        """
        with self._session.recorder.call("get", subscription.topic) as call:
            if not subscription.fetched:
                subscription.look_ahead(self._session.asker.clock.now_s())
            self._find(subscription, call, subscription.ahead, timeout_s)
            place = subscription.place
            if (
                subscription.qos0
                or not subscription.fetched
                or (place.max_deliveries and place.deliveries(place.cursor))
                or not self._session.inbox.can_run(subscription)
            ):
                return self._deliver(subscription, call, 1)
            run = self._session.begin_run(subscription)
            run.messages[:] = _marked(subscription.place, run.messages)
            return run

    def record_taken(self, message: Message) -> None:
        """Record that a loop takes a message of its run."""
        with self._session.recorder.call("get", message.topic) as call:
            call.ok(epoch=self._session.inbox.epoch, messages=(seen(message),))

    def _find(self, subscription: Subscription, call: Call, wanted: int, timeout_s: float) -> None:
        """Settle the messages in hand, and wait for the next ones."""
        self.settle(subscription)
        self._dead_letters.bury(subscription)
        clock = self._session.asker.clock
        deadline_s = clock.now_s() + timeout_s if timeout_s else 0.0
        while not subscription.has_next and self._fetching.wait(
            subscription, call, wanted, timeout_s
        ):
            self._dead_letters.bury(subscription)
            timeout_s = max(deadline_s - clock.now_s(), 0.0) if timeout_s else 0.0

    def _deliver(self, subscription: Subscription, call: Call, messages_max: int) -> list[Message]:
        unstored = self._take_qos0(subscription, messages_max)
        messages = self._next(subscription, messages_max - len(unstored))
        before = subscription.place if messages else None
        try:
            handed = unstored + self.hand_over(subscription, messages)
            if call.recorded and handed:
                call.ok(epoch=self._session.inbox.epoch, messages=tuple(map(seen, handed)))
        except BaseException:
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

    def hand_over(self, subscription: Subscription, messages: list[Message]) -> list[Message]:
        """Write that these messages are delivered; mark redelivered ones."""
        if not messages:
            self._session.save(subscription)
            return []
        place, last = subscription.place, messages[-1]
        if place.terms.qos == 0:  # at most once: counted as processed before delivery
            subscription.move(place.moved(last.offset + 1, last.timestamp_ns))
            self._session.save(subscription)
            return messages
        place = place.handed_over(last.offset + 1)
        subscription.move(place)
        self._session.save(subscription)
        return _marked(place, messages)

    def reject(self, subscription: Subscription, message: Message, reason: str) -> int:
        """Reject a message in hand; return the offset of its dead letter."""
        letter = subscription.letter
        if letter is not None:
            offset = self._dead_letters.finish(subscription)
            if letter.message == message:
                return offset
        last = subscription.in_hand
        if last is None or not subscription.place.cursor <= message.offset <= last.offset:
            raise UsageError(
                f"message {message.message_id} at offset {message.offset} of "
                f"{subscription.topic!r} is not in hand: only what the last get gave can be "
                "rejected"
            )
        self._dead_letters.begin(subscription, message, reason)
        return self._dead_letters.finish(subscription)

    def tell_before_end(self, subscription: Subscription) -> None:
        """Send the cursor of a subscription that is about to end.

        The place here ends with it, so what only this client knows to be acknowledged would come
        again, unmarked, if a later subscription began before it. A GET leaves what is in hand
        counted as delivered; an ACK says that nothing is.
        """
        if not subscription.leaves_a_cursor():
            return
        with suppress(LogChangedError, NotSubscribedError):  # no cursor there to remember
            if subscription.in_hand is None:
                self._requests.acknowledge(subscription)
            else:
                self._requests.peek(subscription)

    def leave(self, *, tells_ahead: bool) -> None:
        """Settle the messages in hand, and send the cursors that the proxy does not know.

        Args:
            tells_ahead: also if it has sent messages that were not delivered.
        """
        subscriptions = list(self._session.inbox.subscriptions.values())
        for subscription in subscriptions:
            if subscription.in_hand is not None or subscription.letter is not None:
                self.settle(subscription)
                self._session.save(subscription)
        for subscription in [one for one in subscriptions if one.is_to_be_told(ahead=tells_ahead)]:
            self._requests.acknowledge(subscription)


def _marked(place: Place, messages: list[Message]) -> list[Message]:
    """These messages, which the place counts as delivered, each with its delivery count."""
    if place.is_first_delivery or place.terms.qos == 0:
        return messages
    return [
        replace(m, delivery_count=place.deliveries(m.offset) + (m.offset < place.shown))
        for m in messages
    ]
