"""Which topics and patterns are pushed, over one link to the node above for all of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from msgspec import UNSET

from reliable_pubsub.common.core.conversation import Conversation, Listen
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.patterns.matching import is_of
from reliable_pubsub.common.core.patterns.pattern import Pattern, Topics
from reliable_pubsub.relay.core.push import AnyPush, UnstoredFrames

from ...core.inbox import Inbox
from ...core.place import Standing
from ...core.push_timing import PushTiming
from ...core.subscription import TopicSubscription
from .pattern_pushes import PatternPushes, PushesTaken
from .pull_timer import PullTimer, PushCounts
from .push_queue import PushQueue

if TYPE_CHECKING:
    from ...patterns.core.pattern_subscription import PatternSubscription


class PushLink(Protocol):
    """A link to the node above, with a name of its own."""

    @property
    def is_refused(self) -> bool:
        """Whether the node above refuses what is wanted; it is asked again later."""

    def want(self, patterns: frozenset[Pattern]) -> None:
        """Want these topics."""

    def turn(self, now_s: float) -> bool:
        """Do what is due; return whether the upstream node sends the wanted topics."""

    def doubt(self, now_s: float) -> None:
        """A push is missing: ask the upstream node soon whether it still has our interest."""

    def receive(self) -> Sequence[AnyPush]:
        """The pushes that have arrived."""

    def wait(self, seconds: float) -> None:
        """Wait until a push arrives, or something is due."""

    def close(self) -> None:
        """Close it; pushes in flight are discarded."""


class Pushing:
    """The topics and patterns of one subscriber that are pushed; all of them over one link."""

    def __init__(
        self,
        inbox: Inbox,
        connect: Callable[[], PushLink],
        *,
        timing: PushTiming,
        now_s: Callable[[], float],
    ) -> None:
        self._inbox = inbox
        self._connect = connect
        self._timing = timing
        self._now_s = now_s
        self._link: PushLink | None = None
        self._topics: dict[str, TopicSubscription] = {}  # pushed as single topics

    def __contains__(self, topic: Topics) -> bool:
        """Whether a topic or a pattern is pushed."""
        return self._pushes_of(topic) is not None

    def use(self, topic: Topics, is_used: bool) -> None:
        """Begin or end pushing; queued batches are pulled again, so none is lost."""
        timer = PullTimer(self._timing)
        if isinstance(topic, Pattern):
            pattern = self._inbox.patterns.get(topic)
            if pattern is not None:
                pattern.pushes = PatternPushes(timer) if is_used else None
        elif is_used:
            self._topics[topic] = self._inbox.add(topic)
            self._topics[topic].pushes = PushQueue(timer)
        elif topic in self._topics:
            self._topics.pop(topic).pushes = None
        self._want()

    def counts(self, topic: Topics) -> PushCounts:
        """Counts of the pushes of a topic or a pattern.

        Raises:
            UsageError: push is not on for it.
        """
        pushes = self._pushes_of(topic)
        if pushes is None:
            raise UsageError(f"push is not on for {_in_words(topic)}; see use_push")
        return pushes.timer.counts

    def is_polled(self, topic: Topics) -> bool:
        """Whether pushing of a topic or a pattern does not work, so that it is polled."""
        pushes = self._pushes_of(topic)
        return pushes is not None and pushes.timer.is_polled

    @property
    def is_refused(self) -> bool:
        """Whether the node above refuses to push, as where the key may not get all of a pattern."""
        return self._link is not None and self._link.is_refused

    def _pushes_of(self, topic: Topics) -> PushQueue | PatternPushes | None:
        if isinstance(topic, Pattern):
            pattern = self._inbox.patterns.get(topic)
            return None if pattern is None else pattern.pushes
        return self._inbox.of(topic).pushes

    def take(self, queue: PushQueue, standing: Standing) -> list[tuple[BatchHeader, bytes]] | None:
        """The batches after the cursor; empty: none yet; None: pull."""
        queue.stand(standing)
        self._collect(queue.timer)
        if not queue.pull_due_in_s(self._now_s()):
            return None
        return queue.take()

    def take_of(self, one: PatternSubscription) -> list[PushesTaken] | None:
        """The same of a pattern that is pushed: what follows the cursors of its topics."""
        assert one.pushes is not None
        self._collect(one.pushes.timer)
        lease_ms = one.asked.terms.lease_ms
        if one.pushes.is_pull_due(self._now_s(), has_moved=one.has_moved, lease_ms=lease_ms):
            return None
        return one.pushes.take(self._inbox.of)

    def pulled(self, queue: PushQueue, standing: Standing, end: int | None) -> None:
        """A pull was answered; see `PushQueue.pulled`."""
        queue.stand(standing)
        self._doubt(queue.pulled(end, self._now_s()))

    def pulled_of(
        self, one: PatternSubscription, shown: Sequence[TopicSubscription], *, is_full: bool
    ) -> None:
        """A FETCH was answered; see `PatternPushes.pulled`."""
        if one.pushes is not None:
            self._doubt(one.pushes.pulled(shown, self._now_s(), is_full=is_full))

    def _doubt(self, is_miss: bool) -> None:
        if is_miss and self._link is not None:
            self._link.doubt(self._now_s())

    def wait(
        self, pushed: Sequence[PushQueue | PatternPushes], seconds: float
    ) -> Conversation[None]:
        """Wait until any push arrives, or a pull is due for one of these."""
        assert self._link is not None
        due_s = min(one.wait_s(self._now_s()) for one in pushed)
        if due_s > 0:
            yield Listen(self._link, min(seconds, due_s))

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def begin_again(self) -> None:
        """Use a new link, and empty the queues, after a call interrupted by a foreign exception."""
        self.close()
        for subscription in self._topics.values():
            assert subscription.pushes is not None
            subscription.pushes = PushQueue(self._continued(subscription.pushes.timer))
        for pattern in self._patterns():
            assert pattern.pushes is not None
            pattern.pushes = PatternPushes(self._continued(pattern.pushes.timer))
        self._want()

    def _continued(self, old: PullTimer) -> PullTimer:
        return PullTimer(self._timing, old.counts)

    def _patterns(self) -> list[PatternSubscription]:
        """The patterns that are pushed."""
        return [one for one in self._inbox.patterns.values() if one.pushes is not None]

    def _timers(self) -> Iterator[PullTimer]:
        topics: Iterable[TopicSubscription | PatternSubscription] = self._topics.values()
        for one in chain(topics, self._patterns()):
            assert one.pushes is not None
            yield one.pushes.timer

    def _want(self) -> None:
        """Ask for what is to be pushed; make a link if there is none for it."""
        wanted = {Pattern("exact", topic) for topic in self._topics}
        wanted |= {one.pattern for one in self._patterns()}
        if wanted and self._link is None:
            self._link = self._connect()
        if self._link is not None:
            self._link.want(frozenset(wanted))

    def _collect(self, timer: PullTimer) -> None:
        now_s = self._now_s()
        if timer.wants_new_link(now_s):
            self._renew()
        assert self._link is not None
        is_linked = self._link.turn(now_s)
        for one in self._timers():
            one.linked(is_linked)
        patterns = self._patterns()
        for push in self._link.receive():
            self._arrived(push, [one for one in patterns if is_of(one.pattern, push.topic)], now_s)

    def _arrived(
        self, push: AnyPush, patterns: Sequence[PatternSubscription], now_s: float
    ) -> None:
        subscription = self._inbox.of(push.topic)
        if isinstance(push, UnstoredFrames):
            self._unstored_arrived(subscription, push, patterns)
            return
        if subscription.pushes is not None:
            subscription.pushes.pushed(push, now_s)
        for one in patterns:
            assert one.pushes is not None
            one.pushes.pushed(subscription, push, now_s)

    def _unstored_arrived(
        self,
        subscription: TopicSubscription,
        push: UnstoredFrames,
        patterns: Sequence[PatternSubscription],
    ) -> None:
        """Take a QoS 0 push; for a pattern, its topic may be unstored."""
        boot, header = push.pushed.boot, push.pushed.batch
        queue = subscription.qos0
        knows_start = any(one.ring is not None and one.ring.boot == boot for one in patterns)
        if not queue.is_confirmed and knows_start:
            queue = self._inbox.add(push.topic).qos0
            queue.confirmed(boot, header.base, is_new=True)
        if queue.is_confirmed:
            queue.pushed(push)
        is_taken = queue.has(boot, header)
        is_read_alone = queue.is_missing and subscription.confirmation is not None
        for one in patterns:
            assert one.pushes is not None
            if is_taken or is_read_alone:
                one.pushes.pushed_unstored(push.topic)
            else:
                one.is_ring_missing = True
                one.pushes.timer.missing()
            if is_taken and push.pushed.next is not UNSET:
                one.pushed_unstored(boot, push.pushed.next)

    def _renew(self) -> None:
        """Use a new link with a new name; pushes of the old one are discarded."""
        self.close()
        self._want()
        for timer in self._timers():
            timer.relinked()


def _in_words(topic: Topics) -> str:
    return f"the pattern {topic}" if isinstance(topic, Pattern) else f"topic {topic!r:.80}"
