"""What is pushed of the topics of a pattern: a queue for each topic, one pull for all. Pure.

A queue begins at the cursor of a confirmed subscription. So what is pushed of a topic that is new
here only makes a pull due: its FETCH says under which terms and from which offset the proxy has
subscribed this client to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, islice
from math import inf
from typing import Final, NamedTuple

from reliable_pubsub.common.core.limits import FETCH_TOPICS_MAX
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.relay.core.push import PushFrames

from ...core.subscription import TopicSubscription
from .pull_timer import PullTimer
from .push_queue import PushQueue

TAKEN_MAX: Final = FETCH_TOPICS_MAX  # topics at once: their rows are one write


class PushesTaken(NamedTuple):
    """What was pushed of one topic; perhaps only messages at QoS 0, which it has already."""

    subscription: TopicSubscription
    batches: list[tuple[BatchHeader, bytes]]


class PatternPushes:
    """The pushed batches of all topics of one pattern."""

    def __init__(self, timer: PullTimer) -> None:
        self.timer = timer
        self._queues: dict[str, PushQueue] = {}
        self._waiting: dict[str, None] = {}  # topics with something; the longest waiting first
        self._held: dict[str, None] = {}  # likewise, of which other messages are fetched
        self._tell_s = inf  # longest time from a pull to the next request

    # Events.

    def pushed(self, subscription: TopicSubscription, push: PushFrames, now_s: float) -> None:
        """A push of a topic of the pattern has arrived."""
        queue = self._queue_of(subscription)
        if queue is None:
            self.timer.counts.beginnings += 1
            self.timer.missing()
            return
        queue.pushed(push, now_s)
        if queue.has_batches:
            self._waiting[push.topic] = None

    def pushed_unstored(self, topic: str) -> None:
        """Messages at QoS 0 of a topic can be delivered, or read from its ring."""
        self._waiting[topic] = None

    def _queue_of(self, subscription: TopicSubscription) -> PushQueue | None:
        topic, standing = subscription.topic, subscription.standing
        if topic not in self._queues and standing is not None:
            self._queues[topic] = queue = PushQueue(self.timer)
            queue.stand(standing)
        return self._queues.get(topic)

    def pulled(self, shown: Iterable[TopicSubscription], now_s: float, *, is_full: bool) -> bool:
        """A FETCH was answered; see `PullTimer.pulled`.

        Args:
            shown: the topics of which it had messages; these are fetched now.
            is_full: there may be more than one answer can hold, or than one request can tell.
        """
        is_new, is_empty = False, True
        for each in shown:
            is_empty = False
            queue, standing = self._queue_of(each), each.standing
            if queue is not None and standing is not None:
                queue.stand(standing)
                end = each.fetched[-1].offset + 1 if each.fetched else None
                is_new |= queue.pulled_to(end)
        is_miss = self.timer.pulled(now_s, is_new=is_new, is_empty=is_empty)
        if is_full:
            self.timer.missing()
        return is_miss

    # Consequences.

    def is_pull_due(self, now_s: float, *, has_moved: bool, lease_ms: int) -> bool:
        """Whether to pull now, although something may be queued.

        Args:
            has_moved: the proxy does not know all cursors.
            lease_ms: of the pattern; 0: none.
        """
        moved_s = self.timer.timing.tell_s if has_moved else inf
        self._tell_s = min(moved_s, lease_ms / 2000 or inf)
        return not self._due_in_s(now_s)

    def _due_in_s(self, now_s: float) -> float:
        return self.timer.due_in_s(now_s, self._tell_s, has_batches=bool(self._waiting))

    def wait_s(self, now_s: float) -> float:
        """Seconds until there is something to do, if no push comes."""
        return 0.0 if self._waiting else self._due_in_s(now_s)

    def take(self, subscription_of: Callable[[str], TopicSubscription]) -> list[PushesTaken]:
        """Take what follows the cursors, of some topics."""
        found: list[PushesTaken] = []
        waiting = list(islice(chain(self._waiting, self._held), TAKEN_MAX))
        for topic in waiting:
            self._waiting.pop(topic, None)
            self._held.pop(topic, None)
            each = subscription_of(topic)
            queue, standing = self._queues.get(topic), each.standing
            if standing is None and not each.has_next:
                self.timer.missing()
            elif each.fetched:
                self._held[topic] = None
                found.append(PushesTaken(each, []))
            elif queue is None or standing is None:
                found.append(PushesTaken(each, []))
            else:
                queue.stand(standing)
                found.append(PushesTaken(each, queue.take()))
        return found
