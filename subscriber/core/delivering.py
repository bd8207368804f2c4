"""Delivers the messages of one subscription: settle what is in hand, find the next ones, hand them
over. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.core.recorder import Call, seen

from .dead_letters import DeadLetters
from .fetching import Fetching
from .place import marked
from .session import SubscriberSession
from .subscription import Running, Subscription

FETCH_AHEAD: Final = 10  # times the requested messages; the rest wait here, unacknowledged


class Delivering:
    """Delivers to the program of one subscriber."""

    def __init__(
        self,
        session: SubscriberSession,
        fetching: Fetching,
        dead_letters: DeadLetters,
        *,
        now_s: Callable[[], float],
    ) -> None:
        """Create it; no message is in hand."""
        self._session = session
        self._fetching = fetching
        self._dead_letters = dead_letters
        self._now_s = now_s
        self._stored_first = True  # if both kinds of messages wait

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
        with self._session.recorder.call("get", subscription.topic) as call:
            wanted = min(messages_max * FETCH_AHEAD, BATCH_MESSAGES_MAX)
            yield from self.find(subscription, call, wanted, timeout_s)
            return (yield from self._deliver(subscription, call, messages_max))

    def take(
        self, subscription: Subscription, timeout_s: float
    ) -> Conversation[Running | list[Message]]:
        """Settle the messages in hand, and let a loop take the next ones.

        Returns:
            A run, where it costs one write for all messages; else one message, or none.
        """
        with self._session.recorder.call("get", subscription.topic) as call:
            if not subscription.fetched:
                subscription.look_ahead(self._now_s())
            yield from self.find(subscription, call, subscription.ahead, timeout_s)
            if not subscription.can_run or not self._session.inbox.can_run(subscription):
                return (yield from self._deliver(subscription, call, 1))
            run = yield from self._session.begin_run(subscription)
            run.messages[:] = marked(subscription.place, run.messages)
            return run

    def find(
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
                call.ok(epoch=self._session.inbox.epoch, messages=tuple(map(seen, handed)))
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
            yield from self._session.save(subscription)
            return []
        place, last = subscription.place, messages[-1]
        if place.terms.qos == 0:  # at most once: counted as processed before delivery
            subscription.move(place.moved(last.offset + 1, last.timestamp_ns))
            yield from self._session.save(subscription)
            return messages
        place = place.handed_over(last.offset + 1)
        subscription.move(place)
        yield from self._session.save(subscription)
        return marked(place, messages)
