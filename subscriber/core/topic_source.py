"""The messages of subscriptions to single topics, for `Delivering`. Pure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.core.recorder import seen

from .dead_letters import DeadLetters
from .delivering import A_LOOP, Source
from .fetching import Fetching
from .place import marked, run_batches
from .requests import Requests
from .restoring import Running
from .session import SubscriberSession
from .states import SubscriptionEvent
from .subscription import TopicSubscription

FETCH_AHEAD: Final = 10  # times the requested messages; the rest wait here, unacknowledged


class TopicSource(Source[TopicSubscription]):
    """Subscriptions to topics."""

    def __init__(
        self,
        session: SubscriberSession,
        requests: Requests,
        fetching: Fetching,
        dead_letters: DeadLetters,
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._inbox, self._recorder = session.inbox, session.recorder
        self._requests = requests
        self._fetching = fetching
        self._dead_letters = dead_letters
        self._now_s = now_s
        self._stored_first = True  # if both kinds of messages wait

    # What is unacknowledged.

    def settle(self, subscription: TopicSubscription) -> Conversation[None]:
        """Count the messages in hand as processed; the caller saves the place."""
        if subscription.letter is not None and subscription.is_subscribed:
            yield from self._dead_letters.finish(subscription)
        subscription.settle()

    # What has arrived.

    def ready(self, subscription: TopicSubscription) -> Conversation[bool]:
        """Send dead letters for messages that were delivered too often."""
        place = subscription.place
        if subscription.fetched and (place.max_deliveries or place.rejection):
            yield from self._dead_letters.reject_exhausted(subscription)
        return subscription.has_next

    def arrived(
        self, subscription: TopicSubscription, count: int, *, asks: bool
    ) -> Conversation[bool]:
        if subscription.pushes is None:
            return False
        wanted = self._wanted(subscription, count)
        has_arrived = yield from self._fetching.take_pushed(subscription, asks=asks)
        if has_arrived:
            yield from self._fetched(subscription, count, wanted)
        return has_arrived

    # What to request.

    def request(
        self, subscription: TopicSubscription, count: int, left_s: float
    ) -> Conversation[None]:
        """GET; whole batches come."""
        wanted = self._wanted(subscription, count)
        yield from self._fetching.pull(subscription, wanted, left_s)
        yield from self._fetched(subscription, count, wanted)

    def _wanted(self, subscription: TopicSubscription, count: int) -> int:
        if count == A_LOOP:
            return subscription.pace.look_ahead(self._now_s())
        return min(count * FETCH_AHEAD, BATCH_MESSAGES_MAX)

    def _fetched(
        self, subscription: TopicSubscription, count: int, wanted: int
    ) -> Conversation[None]:
        if subscription.qos0.is_missing:
            yield from self._fetching.read_qos0(subscription, wanted)
        if count == A_LOOP:
            subscription.pace.found(len(subscription.fetched), self._now_s())

    # What is handed over.

    def hand_over(self, subscription: TopicSubscription, count: int) -> Conversation[list[Message]]:
        """Deliver redelivered messages singly, so that only a failing one's count grows."""
        before = subscription.place
        given: list[Message] = []
        try:
            if subscription.qos0.messages:
                given = self._take_qos0(subscription, count)
                count -= len(given)
            if before.max_deliveries and before.deliveries(before.cursor):
                count = min(1, count)
            messages = list(islice(subscription.fetched, count))
            if messages:
                subscription.place, counted = before.handed_over(messages)
                given += counted
            yield from self._inbox.save(subscription)
            if given and self._recorder.active:
                call = self._recorder.call("get", subscription.topic)
                call.ok(epoch=self._inbox.epoch, messages=tuple(map(seen, given)))
        except PubSubError as error:  # they were not delivered, so the count is restored
            subscription.place = before
            self.failed(subscription, error)
            raise
        for _ in messages:  # only after the write: if it fails, they are still next
            subscription.fetched.popleft()
        if messages and before.terms.qos:
            subscription.transition(SubscriptionEvent.HAND_OVER, in_hand=messages[-1])
        return given

    def _take_qos0(self, subscription: TopicSubscription, count: int) -> list[Message]:
        """The QoS 0 messages; if stored messages wait too, they take turns."""
        self._stored_first = not self._stored_first
        if self._stored_first:
            count = max(count - len(subscription.fetched), 0)
        messages = subscription.qos0.hand_over(count)
        if subscription.is_subscribed and subscription.place.terms.qos:
            for publisher in dict.fromkeys(message.publisher for message in messages):
                self._fetching.report_lower_qos(subscription, publisher, 0)
        return messages

    def begin_run(self, subscription: TopicSubscription) -> Conversation[Running | None]:
        if not subscription.can_run or not self._inbox.can_run(subscription):
            return None
        slot = subscription.slot
        batches = run_batches(subscription.fetched)
        run = subscription.join_run(self._inbox.next_run(subscription), batches)
        try:
            yield from self._inbox.save(subscription)
        except PubSubError as error:  # nothing was delivered, and the row before still counts
            subscription.end_run()
            subscription.slot = slot
            self.failed(subscription, error)
            raise
        run.messages[:] = marked(subscription.place, run.messages)
        return run

    # What to report.

    def write(self, subscription: TopicSubscription) -> Conversation[None]:
        return self._inbox.save(subscription)

    def acknowledge(self, subscription: TopicSubscription) -> Conversation[None]:
        subscription.is_kept = False
        yield from self.settle(subscription)
        yield from self._requests.acknowledge(subscription)

    def record(self, subscription: TopicSubscription, note: bytes) -> Conversation[None]:
        inbox = self._inbox
        with self._recorder.call("record", subscription.topic) as call:
            subscription.is_kept = False
            yield from self.settle(subscription)
            yield from inbox.save(subscription, durable=True, also=inbox.write_note(note))
            if subscription.is_subscribed:
                call.ok(epoch=inbox.epoch, cursor=subscription.place.cursor)

    def failed(self, subscription: TopicSubscription, error: PubSubError) -> None:
        self._recorder.call("get", subscription.topic).failed(error)
