"""Fetches the next messages of each topic: with GET, or from pushes. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from msgspec import UNSET

from reliable_pubsub.common.core.answers import Lost, MessageBatches, NoMessagesYet
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import LostError, MalformedError
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.qos0_messages import Ring
from reliable_pubsub.common.core.requests import Get
from reliable_pubsub.common.core.wire import direct_batches

from .delivering import PushSource
from .requests import Requests
from .session import SubscriberSession
from .states import SubscriptionEvent
from .subscription import TopicSubscription

OnLowerQoS = Callable[[str, str, int], None]  # topic, publisher, its level


def lower_qos_in_words(topic: str, publisher: str, qos: int) -> str:
    """Describe the effect of a publisher's QoS that is lower than the subscription's."""
    fate = "may come twice" if qos else "are kept nowhere, and those that do not arrive are lost"
    return (
        f"topic {topic!r}: {publisher!r} puts at QoS {qos}, so its messages {fate}, "
        "although the subscription has a higher level"
    )


def patience_s(session: SubscriberSession, left_s: float, lease_ms: int) -> float:
    """How long the proxy may hold an answer, of the time that is left; a request renews a lease.

    At most as long as an answer is waited for, so that a proxy that has died is noticed after
    twice that.
    """
    return max(min(left_s, session.requester.retry.timeout_s, lease_ms / 3000 or inf), 0.0)


class Fetching:
    """Fetches the messages after each cursor and keeps them until they are delivered."""

    pushes: PushSource  # set by the feature that pushes

    def __init__(
        self,
        session: SubscriberSession,
        requests: Requests,
        *,
        forgets: bool,
        on_lower_qos: OnLowerQoS,
    ) -> None:
        """Create a fetcher; nothing is fetched.

        Args:
            forgets: continue if the log no longer has the messages in hand at a crash.
            on_lower_qos: called once for each topic and publisher of a lower level.
        """
        self._session = session
        self._requests = requests
        self._forgets = forgets
        self._on_lower_qos = on_lower_qos
        self._may_wait = True  # until a proxy refuses a GET that waits

    def take_pushed(self, subscription: TopicSubscription, *, asks: bool) -> Conversation[bool]:
        """Take what was pushed; return False if a pull is due.

        Args:
            asks: also if nothing was pushed.
        """
        pushes, standing = subscription.pushes, subscription.standing
        if pushes is None or standing is None:
            return False
        pushed = self.pushes.take(pushes, standing)
        if pushed:
            yield from self.received_pushes(subscription, pushed)
        return bool(pushed) or (pushed is not None and not asks)

    def received_pushes(
        self, subscription: TopicSubscription, pushed: Sequence[tuple[BatchHeader, bytes]]
    ) -> Conversation[None]:
        """Take pushed batches."""
        headers, bodies = [header for header, _ in pushed], [body for _, body in pushed]
        yield from self.received(subscription, headers, b"".join(bodies))

    def pull(
        self, subscription: TopicSubscription, messages_max: int, left_s: float = 0.0
    ) -> Conversation[None]:
        """Ask the proxy: one GET; it acknowledges what the durable state has as processed.

        Args:
            messages_max: to ask for; whole batches come.
            left_s: how long the proxy may hold the answer, until there is a message; not where
                pushes are waited for.
        """
        pushes, wait_s = subscription.pushes, 0.0
        more: dict[str, Any] = {"messages_max": messages_max}
        if left_s > 0 and pushes is None and self._may_wait and subscription.confirmation:
            wait_s = patience_s(self._session, left_s, subscription.place.terms.lease_ms)
            if wait_ms := int(wait_s * 1000):
                more |= {"wait_ms": wait_ms, "ring": subscription.qos0.place}
        try:
            reply, body = yield from self._requests.asking(Get, subscription, wait_s=wait_s, **more)
        except MalformedError as error:
            if not (error.is_our_request and wait_s):
                raise
            self._may_wait = False  # an older proxy, which refuses a field that it does not know
            yield from self.pull(subscription, messages_max)
            return
        match reply:
            case MessageBatches():
                batches = reply.batches
            case NoMessagesYet():
                batches = ()
            case Lost():
                yield from self._lost(subscription, reply)
                yield from self.pull(subscription, messages_max)
                return
            case _:
                self._session.refused(reply)
        yield from self.received(subscription, batches, body, end=reply.end)
        if reply.ring is not UNSET:
            subscription.qos0.hinted(reply.boot, reply.ring)
        if pushes is not None:
            standing, fetched = subscription.standing, subscription.fetched
            assert standing is not None
            self.pushes.pulled(pushes, standing, fetched[-1].offset + 1 if fetched else None)

    def _lost(self, subscription: TopicSubscription, reply: Lost) -> Conversation[None]:
        """At QoS 0, count lost messages and skip past them.

        Raises:
            LostError: at a higher level; the next call skips them.
        """
        if subscription.place.terms.qos == 0:
            subscription.qos0.counts.lost += reply.end - reply.first
            subscription.move(subscription.place.moved(reply.end, None))
            yield from self._session.inbox.save(subscription)
            return
        subscription.transition(SubscriptionEvent.LOSE, lost_end=reply.end)
        raise LostError(
            topic=subscription.topic,
            first=reply.first,
            end=reply.end,
            waiting_max=None if reply.waiting_max is UNSET else reply.waiting_max,
            by_operator=reply.operator is True,
        )

    def received(
        self,
        subscription: TopicSubscription,
        batches: Sequence[BatchHeader],
        body: bytes,
        *,
        end: int | None = None,
    ) -> Conversation[None]:
        """Take the batches that follow the cursor directly.

        Args:
            end: durable end of the topic, which must be above what was in hand at a crash.
        """
        topic, place = subscription.topic, subscription.place
        if end is not None and (place.in_hand or place.cursor > end):
            place = place.compared(topic, end, forget=self._forgets)
            if place is not subscription.place:
                subscription.move(place)
                yield from self._session.inbox.save(subscription, durable=True)
        for found in direct_batches(topic, place.cursor, batches, body):
            subscription.fetched += found.messages(topic, qos=place.terms.qos)
        for batch in batches:
            if batch.qos < place.terms.qos:
                self.report_lower_qos(subscription, batch.publisher, batch.qos)

    def read_qos0(self, subscription: TopicSubscription, messages_max: int) -> Conversation[None]:
        """Read the QoS 0 messages that were not pushed."""
        queue, confirmation = subscription.qos0, subscription.confirmation
        while confirmation is not None and queue.is_missing and queue.has_room:
            yield from self._session.inbox.save(subscription)
            reply, body = yield from self._session.requester.asking(
                Ring(
                    **self._session.head(),
                    topic=subscription.topic,
                    generation=confirmation.generation,
                    boot=confirmation.boot,
                    place=queue.place,
                    messages_max=messages_max,
                )
            )
            match reply:
                case MessageBatches(first=int() as first):
                    queue.read(subscription.topic, first, reply.batches, body)
                    if queue.place >= reply.end:
                        queue.emptied()
                case NoMessagesYet():
                    queue.emptied()
                case _:
                    subscription.forgotten()  # the next request reports the problem
                    return

    def report_lower_qos(self, subscription: TopicSubscription, publisher: str, qos: int) -> None:
        """Report once for each publisher that its messages have a lower level than asked for."""
        if publisher not in subscription.lower_qos:
            subscription.lower_qos.add(publisher)
            topic = subscription.topic
            text = lower_qos_in_words(topic, publisher, qos)
            self._session.tell(logging.INFO, text, topic)
            self._on_lower_qos(topic, publisher, qos)
