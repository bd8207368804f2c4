"""Delivers the messages of one subscription: settle what is in hand, find the next ones, hand them
over. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation, Pause
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.core.recorder import Call, seen
from reliable_pubsub.common.core.retry import poll_pause_s

from .dead_letters import DeadLetters
from .fetching import Fetching
from .place import marked
from .pushing import Pushing
from .qos0_queue import QoS0Queue
from .requests import Requests
from .session import SubscriberSession
from .subscription import Running, Subscription

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
        """Create it; no message is in hand."""
        self._session = session
        self._requests = requests
        self._fetching = fetching
        self._dead_letters = dead_letters
        self._pushing = pushing
        self._now_s = now_s
        self._stored_first = True  # if both kinds of messages wait

    def settle(self, subscription: Subscription) -> Conversation[None]:
        """Count the messages in hand as processed; the caller writes the place.

        They are dropped if a rejection of one failed, or a clean session ended during the request.
        """
        if subscription.is_kept or not subscription.is_subscribed:
            subscription.drop()
            return
        if subscription.letter is not None:
            yield from self._dead_letters.finish(subscription)
        subscription.settle()

    def come_back(self, subscription: Subscription) -> Conversation[None]:
        """Settle the messages in hand, and write the place."""
        yield from self.settle(subscription)
        yield from self._session.save(subscription)

    def acknowledge(self, subscription: Subscription) -> Conversation[None]:
        """Settle the messages in hand; return when the proxy has stored it."""
        subscription.is_kept = False
        yield from self.settle(subscription)
        yield from self._requests.acknowledge(subscription)

    def record(self, subscription: Subscription, note: bytes) -> Conversation[None]:
        """Write durably that the messages in hand are processed, in one step with the note."""
        inbox = self._session.inbox
        with self._session.recorder.call("record", subscription.topic) as call:
            subscription.is_kept = False
            yield from self.settle(subscription)
            yield from self._session.save(subscription, durable=True, also=inbox.write_note(note))
            if subscription.is_subscribed:
                call.ok(epoch=inbox.epoch, cursor=subscription.place.cursor)

    def get(
        self, subscription: Subscription, messages_max: int, timeout_s: float
    ) -> Conversation[list[Message]]:
        """Settle the messages in hand, and deliver the next ones.

        Both are one write of the state. Only if the proxy must be asked, or nothing is available
        yet, the settled cursor is written first (decision 0036).
        """
        with self._session.recorder.call("get", subscription.topic) as call:
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
        with self._session.recorder.call("get", subscription.topic) as call:
            yield from self._find(subscription, call, 0, timeout_s)
            if not subscription.can_run or not self._session.inbox.can_run(subscription):
                return (yield from self._deliver(subscription, call, 1))
            run = yield from self._session.begin_run(subscription)
            run.messages[:] = marked(subscription.place, run.messages)
            return run

    def find(
        self, subscription: Subscription, timeout_s: float, *, asks: bool = True
    ) -> Conversation[None]:
        """Settle the messages in hand, and wait until a loop can take the next ones."""
        with self._session.recorder.call("get", subscription.topic) as call:
            yield from self._find(subscription, call, 0, timeout_s, asks=asks)

    def _find(
        self,
        subscription: Subscription,
        call: Call,
        wanted: int,
        timeout_s: float,
        *,
        asks: bool = True,
    ) -> Conversation[None]:
        """Settle the messages in hand, and fetch until there are messages or time is over.

        Processed messages are written to the state before this asks or waits.

        Args:
            wanted: messages to ask for; whole batches come. 0: as many as a loop takes.

        Raises:
            LostError: messages are lost; the next call continues after them.
        """
        yield from self.settle(subscription)
        deadline_s, asks = self._now_s() + timeout_s, asks and timeout_s <= 0
        empty = 0
        while True:
            if subscription.fetched:
                yield from self._dead_letters.bury(subscription)
            if subscription.has_next:
                return
            began_s = self._now_s()
            wait_s = self._fetching.wait_s(subscription, deadline_s - began_s)
            some = wanted or subscription.pace.look_ahead(began_s)
            yield from self._fetching.look(subscription, call, some, wait_s, asks=asks)
            if subscription.has_next:
                continue
            left_s = deadline_s - self._now_s()
            if left_s <= 0:
                return
            empty += 1
            yield from self._session.save(subscription)
            if subscription.pushes is not None:
                yield from self._pushing.wait([subscription.pushes], left_s)
            elif not wait_s or self._now_s() - began_s < wait_s / 2:  # the proxy did not wait
                yield Pause(min(poll_pause_s(empty), left_s))

    def _deliver(
        self, subscription: Subscription, call: Call, messages_max: int
    ) -> Conversation[list[Message]]:
        """Hand over what was found; redelivered singly, so only a failing message's count grows."""
        unstored: list[Message] = []
        if subscription.qos0 is not None and subscription.qos0.messages:
            unstored = self._take_qos0(subscription, subscription.qos0, messages_max)
            messages_max -= len(unstored)
        before = subscription.place
        if before.max_deliveries and before.deliveries(before.cursor):
            messages_max = min(1, messages_max)
        messages = list(islice(subscription.fetched, messages_max))
        try:
            handed = unstored + (yield from self.hand_over(subscription, messages))
            if call.recorded and handed:
                call.ok(epoch=self._session.inbox.epoch, messages=tuple(map(seen, handed)))
        except PubSubError:
            if messages:  # they were not delivered, so the count is restored
                subscription.move(before)
            raise
        for _ in messages:  # only after the write: if it fails, they are still next
            subscription.fetched.popleft()
        if messages and before.terms.qos:
            subscription.handed_over(messages[-1])
        return handed

    def _take_qos0(
        self, subscription: Subscription, queue: QoS0Queue, messages_max: int
    ) -> list[Message]:
        """The QoS 0 messages; if stored messages wait too, they take turns."""
        self._stored_first = not self._stored_first
        if self._stored_first:
            messages_max = max(messages_max - len(subscription.fetched), 0)
        messages = queue.hand_over(messages_max)
        self._fetching.report_lower_qos(subscription, messages)
        return messages

    def hand_over(
        self, subscription: Subscription, messages: list[Message]
    ) -> Conversation[list[Message]]:
        """Write that these messages are delivered; mark redelivered ones."""
        place = subscription.place
        if messages:
            last = messages[-1]
            if place.terms.qos == 0:  # at most once: counted as processed before delivery
                place = place.moved(last.offset + 1, last.timestamp_ns)
            else:
                place = place.handed_over(last.offset + 1)
            subscription.move(place)
        yield from self._session.save(subscription)
        return marked(place, messages)
