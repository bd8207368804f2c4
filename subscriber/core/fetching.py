"""Fetches the next messages of each topic: with GET, or from pushes. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from msgspec import UNSET

from reliable_pubsub.common.core.answers import Lost, MessageBatches, NoMessagesYet
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import LostError, MalformedError
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.qos0_messages import Ring
from reliable_pubsub.common.core.recorder import Call
from reliable_pubsub.common.core.requests import Get

from .direct_followers import direct_batches, messages_in
from .pattern_pushes import Taken
from .pushing import Pushing
from .requests import Requests
from .session import SubscriberSession
from .subscription import Subscription

OnLowerQoS = Callable[[str, str, int], None]  # topic, publisher, its level


def lower_qos_in_words(topic: str, publisher: str, qos: int) -> str:
    """Describe the effect of a publisher's QoS that is lower than the subscription's."""
    fate = "may come twice" if qos else "are kept nowhere, and those that do not arrive are lost"
    return (
        f"topic {topic!r}: {publisher!r} puts at QoS {qos}, so its messages {fate}, "
        "although the subscription has a higher level"
    )


class Fetching:
    """Fetches the messages after each cursor and keeps them until they are delivered."""

    def __init__(
        self,
        session: SubscriberSession,
        requests: Requests,
        pushing: Pushing,
        *,
        forgets: bool,
        now_s: Callable[[], float],
        on_lower_qos: OnLowerQoS,
    ) -> None:
        """Create a fetcher; nothing is fetched.

        Args:
            forgets: continue if the log no longer has the messages in hand at a crash.
            on_lower_qos: called once for each topic and publisher of a lower level.
        """
        self._session = session
        self._requests = requests
        self._pushing = pushing
        self._forgets = forgets
        self._now_s = now_s
        self._on_lower_qos = on_lower_qos
        self._may_wait = True  # until a proxy refuses a GET that waits

    def wait_s(self, subscription: Subscription, left_s: float) -> float:
        """How long the proxy may hold the answer to a GET; not where pushes are waited for.

        At most as long as an answer is waited for, so that a proxy that has died is noticed after
        twice that.
        """
        is_pushed, is_known = subscription.pushes is not None, subscription.confirmation is not None
        if left_s <= 0 or is_pushed or not is_known or not self._may_wait:
            return 0.0
        lease_s = subscription.place.terms.lease_ms / 1000 or inf
        patience_s = self._session.requester.retry.timeout_s
        return min(left_s, patience_s, lease_s / 3)  # a GET renews the lease

    def look(
        self, subscription: Subscription, call: Call, wanted: int, wait_s: float, *, asks: bool
    ) -> Conversation[None]:
        """Fetch once.

        Args:
            wait_s: the proxy may hold its answer so long.
            asks: pull, even if pushes are waited for.
        """
        pushes = subscription.pushes
        if pushes is None:
            yield from self._pull(subscription, call, wanted, wait_s)
        else:
            standing = subscription.standing
            pushed = self._pushing.take(pushes, standing) if standing else None
            if pushed:
                yield from self._take_pushed(subscription, pushed)
            elif pushed is None or asks:
                found = yield from self._pull(subscription, call, wanted)
                standing = subscription.standing
                assert standing is not None
                self._pushing.pulled(pushes, standing, found[-1].offset + 1 if found else None)
        if subscription.qos0 is not None and subscription.qos0.is_missing:
            yield from self._read_qos0(subscription, wanted)

    def take_pushed(self, taken: Taken, messages_max: int) -> Conversation[None]:
        """Take what was pushed of one topic of a pattern.

        Args:
            messages_max: of those at QoS 0 that were not pushed.
        """
        if taken.batches:
            yield from self._take_pushed(taken.subscription, taken.batches)
        yield from self._read_qos0(taken.subscription, messages_max)

    def _take_pushed(
        self, subscription: Subscription, pushed: Sequence[tuple[BatchHeader, bytes]]
    ) -> Conversation[None]:
        headers, bodies = [header for header, _ in pushed], [body for _, body in pushed]
        yield from self.received(subscription, headers, b"".join(bodies))

    def _pull(
        self, subscription: Subscription, call: Call, messages_max: int, wait_s: float = 0.0
    ) -> Conversation[Sequence[Message]]:
        """One GET; it acknowledges what the durable state has as processed.

        Args:
            wait_s: the proxy may hold the answer so long, until there is something.
        """
        more: dict[str, Any] = {"messages_max": messages_max}
        wait_ms = int(wait_s * 1000)
        if wait_ms:
            more["wait_ms"] = wait_ms
            if subscription.qos0 is not None:
                more["ring"] = subscription.qos0.place
        try:
            reply, body = yield from self._requests.asking(
                Get, subscription, call, wait_s=wait_s, **more
            )
        except MalformedError as error:
            if not (error.is_our_request and wait_s):
                raise
            self._may_wait = False  # an older proxy, which refuses a field that it does not know
            return (yield from self._pull(subscription, call, messages_max))
        if isinstance(reply, MessageBatches | NoMessagesYet):
            batches = reply.batches if isinstance(reply, MessageBatches) else ()
            found = yield from self.received(subscription, batches, body, end=reply.end)
            if reply.ring is not UNSET:
                assert subscription.qos0 is not None
                subscription.qos0.hinted(reply.boot, reply.ring)
            return found
        if not isinstance(reply, Lost):
            self._session.refused(reply)
        if subscription.place.terms.qos == 0:
            yield from self._pass_lost(subscription, reply)
            return (yield from self._pull(subscription, call, messages_max))
        subscription.lost(reply.end)
        raise LostError(
            topic=subscription.topic,
            first=reply.first,
            end=reply.end,
            waiting_max=None if reply.waiting_max is UNSET else reply.waiting_max,
            by_operator=reply.operator is True,
        )

    def received(
        self,
        subscription: Subscription,
        batches: Sequence[BatchHeader],
        body: bytes,
        *,
        end: int | None = None,
    ) -> Conversation[Sequence[Message]]:
        """Take the batches that follow the cursor directly.

        Args:
            end: durable end of the topic, which must be above what was in hand at a crash.
        """
        topic, place = subscription.topic, subscription.place
        if end is not None:
            place = place.compared(topic, end, forget=self._forgets)
            if place is not subscription.place:
                subscription.move(place)
                yield from self._session.save(subscription, durable=True)
        followers = direct_batches(topic, place.cursor, batches, body)
        found = messages_in(topic, followers, qos=place.terms.qos)
        subscription.fetched.extend(found)
        subscription.pace.found(len(found), self._now_s())
        self.report_lower_qos(subscription, batches)
        return found

    def _pass_lost(self, subscription: Subscription, reply: Lost) -> Conversation[None]:
        """At QoS 0, count lost messages and skip past them."""
        assert subscription.qos0 is not None
        subscription.qos0.counts.lost += reply.end - reply.first
        subscription.move(subscription.place.moved(reply.end, None))
        yield from self._session.save(subscription)

    def _read_qos0(self, subscription: Subscription, messages_max: int) -> Conversation[None]:
        """Read the QoS 0 messages that were not pushed."""
        queue, confirmation = subscription.qos0, subscription.confirmation
        while queue is not None and confirmation is not None and queue.is_missing:
            yield from self._session.save(subscription)
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

    def report_lower_qos(
        self, subscription: Subscription, some: Sequence[BatchHeader] | Sequence[Message]
    ) -> None:
        """Report once for each publisher that its messages have a lower level than asked for."""
        for one in some:
            if (
                one.qos < subscription.place.terms.qos
                and one.publisher not in subscription.lower_qos
            ):
                topic, publisher, qos = subscription.topic, one.publisher, one.qos
                subscription.lower_qos.add(publisher)
                told = lower_qos_in_words(topic, publisher, qos)
                self._session.tell(logging.WARNING, told, topic)
                self._on_lower_qos(topic, publisher, qos)
