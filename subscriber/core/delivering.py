"""Delivers the messages of one subscription: settle what is in hand, find the next ones, hand them
over. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation, Sleep
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.core.recorder import seen
from reliable_pubsub.common.core.retry import poll_pause_s

from .dead_letters import DeadLetters
from .fetching import Fetching
from .place import marked, run_batches
from .pushing import Pushing
from .requests import Requests
from .session import SubscriberSession
from .states import SubscriptionEvent
from .subscription import Running, TopicSubscription

FETCH_AHEAD: Final = 10  # times the requested messages; the rest wait here, unacknowledged


class Delivering:
    """Delivers the messages of subscriptions to topics."""

    def __init__(
        self,
        session: SubscriberSession,
        requests: Requests,
        fetching: Fetching,
        dead_letters: DeadLetters,
        pushing: Pushing,
        *,
        now_s: Callable[[], float],
    ) -> None:
        self._inbox, self._recorder = session.inbox, session.recorder
        self._requests = requests
        self._fetching = fetching
        self._dead_letters = dead_letters
        self._pushing = pushing
        self._now_s = now_s
        self._stored_first = True  # if both kinds of messages wait

    def settle(self, subscription: TopicSubscription) -> Conversation[None]:
        """Count the messages in hand as processed; the caller saves the place."""
        if subscription.letter is not None and subscription.is_subscribed:
            yield from self._dead_letters.finish(subscription)
        subscription.settle()

    def come_back(self, subscription: TopicSubscription) -> Conversation[None]:
        """Settle the messages in hand, and write the place."""
        yield from self.settle(subscription)
        yield from self._inbox.save(subscription)

    def acknowledge(self, subscription: TopicSubscription) -> Conversation[None]:
        """Settle the messages in hand; return when the proxy has stored it."""
        subscription.is_kept = False
        yield from self.settle(subscription)
        yield from self._requests.acknowledge(subscription)

    def record(self, subscription: TopicSubscription, note: bytes) -> Conversation[None]:
        """Write durably that the messages in hand are processed, in one step with the note."""
        inbox = self._inbox
        with self._recorder.call("record", subscription.topic) as call:
            subscription.is_kept = False
            yield from self.settle(subscription)
            yield from inbox.save(subscription, durable=True, also=inbox.write_note(note))
            if subscription.is_subscribed:
                call.ok(epoch=inbox.epoch, cursor=subscription.place.cursor)

    def get(
        self, subscription: TopicSubscription, messages_max: int, timeout_s: float
    ) -> Conversation[list[Message]]:
        """Settle the messages in hand, and deliver the next ones.

        Both are one write of the state. Only if the proxy must be asked, or nothing is available
        yet, the settled cursor is written first (decision 0039).
        """
        wanted = min(messages_max * FETCH_AHEAD, BATCH_MESSAGES_MAX)
        yield from self.find(subscription, timeout_s, wanted=wanted)
        return (yield from self.deliver(subscription, messages_max))

    def take(
        self, subscription: TopicSubscription, timeout_s: float
    ) -> Conversation[Running | list[Message]]:
        """Settle the messages in hand, and let a loop take the next ones.

        Returns:
            A run, where it costs one write for all messages; else one message, or none.
        """
        yield from self.find(subscription, timeout_s)
        if not subscription.can_run or not self._inbox.can_run(subscription):
            return (yield from self.deliver(subscription, 1))
        slot = subscription.slot
        batches = run_batches(subscription.fetched)
        run = subscription.join_run(self._inbox.next_run(subscription), batches)
        try:
            yield from self._inbox.save(subscription)
        except PubSubError as error:  # nothing was delivered, and the row before still counts
            subscription.end_run()
            subscription.slot = slot
            self._failed(subscription, error)
            raise
        run.messages[:] = marked(subscription.place, run.messages)
        return run

    def find(
        self,
        subscription: TopicSubscription,
        timeout_s: float,
        *,
        wanted: int = 0,
        asks: bool = True,
    ) -> Conversation[None]:
        """Settle the messages in hand, and fetch until there are messages or time is over.

        Processed messages are written to the state before this asks or waits.

        Args:
            wanted: messages to ask for; whole batches come. 0: as many as a loop takes.
            asks: if no time is left, ask the proxy even if pushes are waited for.

        Raises:
            LostError: messages are lost; the next call continues after them.
        """
        fetching = self._fetching
        try:
            yield from self.settle(subscription)
            began_s = now_s = self._now_s()
            deadline_s, asks = now_s + timeout_s, asks and timeout_s <= 0
            fetches = 0
            while True:
                place, pushes = subscription.place, subscription.pushes
                if subscription.fetched and (place.max_deliveries or place.rejection):
                    yield from self._dead_letters.bury(subscription)
                if subscription.fetched or subscription.qos0.messages:
                    return
                if fetches and now_s >= deadline_s:
                    return
                if fetches:
                    yield from self._inbox.save(subscription)
                    if pushes is not None:
                        yield from self._pushing.wait([pushes], deadline_s - now_s)
                    elif (pause_s := min(began_s + poll_pause_s(fetches), deadline_s) - now_s) > 0:
                        yield Sleep(pause_s)  # else the proxy has held its answer
                began_s = self._now_s()
                some = wanted or subscription.pace.look_ahead(began_s)
                if pushes is None or not (yield from fetching.take_pushed(subscription, asks=asks)):
                    yield from fetching.pull(subscription, some, deadline_s - began_s)
                if subscription.qos0.is_missing:
                    yield from fetching.read_qos0(subscription, some)
                fetches += 1
                now_s = self._now_s()
                if not wanted:
                    subscription.pace.found(len(subscription.fetched), now_s)
        except PubSubError as error:
            self._failed(subscription, error)
            raise

    def deliver(
        self, subscription: TopicSubscription, messages_max: int
    ) -> Conversation[list[Message]]:
        """Hand over what was found; redelivered singly, so only a failing message's count grows."""
        before = subscription.place
        given: list[Message] = []
        try:
            if subscription.qos0.messages:
                given = self._take_qos0(subscription, messages_max)
                messages_max -= len(given)
            if before.max_deliveries and before.deliveries(before.cursor):
                messages_max = min(1, messages_max)
            messages = list(islice(subscription.fetched, messages_max))
            if messages:
                subscription.place, counted = before.handed_over(messages)
                given += counted
            yield from self._inbox.save(subscription)
            if given and self._recorder.active:
                call = self._recorder.call("get", subscription.topic)
                call.ok(epoch=self._inbox.epoch, messages=tuple(map(seen, given)))
        except PubSubError as error:  # they were not delivered, so the count is restored
            subscription.place = before
            self._failed(subscription, error)
            raise
        for _ in messages:  # only after the write: if it fails, they are still next
            subscription.fetched.popleft()
        if messages and before.terms.qos:
            subscription.happened(SubscriptionEvent.HAND_OVER, in_hand=messages[-1])
        return given

    def _failed(self, subscription: TopicSubscription, error: PubSubError) -> None:
        self._recorder.call("get", subscription.topic).failed(error)

    def _take_qos0(self, subscription: TopicSubscription, messages_max: int) -> list[Message]:
        """The QoS 0 messages; if stored messages wait too, they take turns."""
        self._stored_first = not self._stored_first
        if self._stored_first:
            messages_max = max(messages_max - len(subscription.fetched), 0)
        messages = subscription.qos0.hand_over(messages_max)
        if subscription.is_subscribed and subscription.place.terms.qos:
            for publisher in dict.fromkeys(message.publisher for message in messages):
                self._fetching.report_lower_qos(subscription, publisher, 0)
        return messages
