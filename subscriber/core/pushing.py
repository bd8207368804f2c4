"""Which topics are pushed, over one link to the node above for all of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from reliable_pubsub.common.core.conversation import Conversation, Listen
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.relay.core.push import AnyPush, UnstoredFrames

from .inbox import Inbox
from .push_queue import PushCounts, PushQueue, PushTiming, Standing
from .subscription import Subscription


class PushLink(Protocol):
    """A link to the node above, with a name of its own."""

    def want(self, topics: frozenset[str]) -> None:
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
    """The topics of one subscriber that are pushed; all of them over one link."""

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

    def __contains__(self, topic: str) -> bool:
        """Whether a topic is pushed."""
        return self._inbox.of(topic).pushes is not None

    def use(self, topic: str, is_used: bool) -> None:
        """Begin or end pushing of a topic; queued batches are pulled again, so none is lost."""
        if is_used:
            self._inbox.add(topic).pushes = PushQueue(self._timing)
        else:
            self._inbox.of(topic).pushes = None
        self._want()

    def counts(self, topic: str) -> PushCounts:
        """Counts of the pushes of a topic.

        Raises:
            UsageError: push is not on for it.
        """
        queue = self._inbox.of(topic).pushes
        if queue is None:
            raise UsageError(f"push is not on for topic {topic!r:.80}; see use_push")
        return queue.counts

    def is_polled(self, topic: str) -> bool:
        """Whether pushing of a topic does not work, so that it is polled."""
        queue = self._inbox.of(topic).pushes
        return queue is not None and queue.is_polled

    def take(self, queue: PushQueue, standing: Standing) -> list[tuple[BatchHeader, bytes]] | None:
        """The batches after the cursor; empty: none yet; None: pull."""
        queue.stand(standing)
        self._collect(queue)
        if not queue.pull_due_in_s(self._now_s()):
            return None
        return queue.take()

    def pulled(self, queue: PushQueue, standing: Standing, end: int | None) -> None:
        """A pull was answered; see `PushQueue.pulled`."""
        now_s = self._now_s()
        queue.stand(standing)
        misses = queue.counts.misses
        queue.pulled(end, now_s)
        if queue.counts.misses > misses and self._link is not None:
            self._link.doubt(now_s)

    def wait(self, queue: PushQueue, seconds: float) -> Conversation[None]:
        """Wait until a push arrives for any topic, or a pull is due for this one."""
        yield from self.wait_any([queue], seconds)

    def wait_any(self, queues: Sequence[PushQueue], seconds: float) -> Conversation[None]:
        """Wait until a push arrives for any topic, or a pull is due for one of these."""
        assert self._link is not None
        due_s = min(queue.wait_s(self._now_s()) for queue in queues)
        if due_s > 0:
            yield Listen(self._link, min(seconds, due_s))

    def close(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def begin_again(self) -> None:
        """Use a new link, and empty the queues, after a call interrupted by a foreign exception."""
        self.close()
        for subscription in self._pushed():
            counts = subscription.pushes.counts if subscription.pushes else PushCounts()
            subscription.pushes = PushQueue(self._timing)
            subscription.pushes.counts = counts
        self._want()

    def _pushed(self) -> list[Subscription]:
        subscriptions = self._inbox.subscriptions.values()
        return [one for one in subscriptions if one.pushes is not None]

    def _want(self) -> None:
        """Ask for the topics that are pushed; make a link if there is none for them."""
        topics = frozenset(one.topic for one in self._pushed())
        if topics and self._link is None:
            self._link = self._connect()
        if self._link is not None:
            self._link.want(topics)

    def _collect(self, queue: PushQueue) -> None:
        now_s = self._now_s()
        if queue.wants_new_link(now_s):
            self._renew()
        assert self._link is not None
        is_linked = self._link.turn(now_s)
        for one in self._pushed():
            assert one.pushes is not None
            one.pushes.linked(is_linked)
        for push in self._link.receive():
            subscription = self._inbox.of(push.topic)
            if isinstance(push, UnstoredFrames):
                if subscription.qos0 is not None:
                    subscription.qos0.pushed(push)
            elif subscription.pushes is not None:
                subscription.pushes.pushed(push, now_s)

    def _renew(self) -> None:
        """Use a new link with a new name; pushes of the old one are discarded."""
        self.close()
        self._want()
        for subscription in self._pushed():
            assert subscription.pushes is not None
            subscription.pushes.relinked()
