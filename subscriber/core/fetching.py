"""Fetches the next messages of each topic: with GET, or from pushes. Pure."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from msgspec import UNSET

from reliable_pubsub.common.core.answers import Lost, MessageBatches, NoMessagesYet
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation, Pause
from reliable_pubsub.common.core.errors import LostError, MalformedError
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.recorder import Call
from reliable_pubsub.common.core.requests import Get, Ring
from reliable_pubsub.common.core.retry import poll_pause_s

from .direct_followers import direct_followers
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

    def wait(
        self, subscription: Subscription, call: Call, wanted: int, timeout_s: float
    ) -> Conversation[bool]:
        """Fetch, with growing pauses between requests, until there are messages or time is over.

        Processed messages are written to the state before this asks or waits.

        Args:
            wanted: messages to ask for; whole batches come.

        Returns:
            Whether there are messages to deliver.

        Raises:
            LostError: messages are lost; the next call continues after them.
        """
        deadline_s = self._now_s() + timeout_s
        empty = 0
        while True:
            began_s = self._now_s()
            wait_s = self._wait_s(subscription, deadline_s - began_s)
            if (yield from self.look(subscription, call, wanted, wait_s, asks=timeout_s <= 0)):
                return True
            empty += 1
            left_s = deadline_s - self._now_s()
            if left_s <= 0:
                return False
            yield from self._session.save(subscription)
            if subscription.pushes is not None:
                yield from self._pushing.wait([subscription.pushes], left_s)
            elif self._now_s() - began_s < wait_s / 2 or not wait_s:  # the proxy did not wait
                yield Pause(min(poll_pause_s(empty), left_s))

    def look(
        self, subscription: Subscription, call: Call, wanted: int, wait_s: float, *, asks: bool
    ) -> Conversation[bool]:
        """Fetch once; return whether there are messages to deliver.

        Args:
            wait_s: the proxy may hold its answer so long.
            asks: pull, even if pushes are waited for.
        """
        found = yield from self._next(subscription, call, wanted, wait_s, asks=asks)
        subscription.found(found, self._now_s())
        yield from self._read_qos0(subscription, wanted)
        return subscription.has_next

    def _wait_s(self, subscription: Subscription, left_s: float) -> float:
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

    def _next(
        self,
        subscription: Subscription,
        call: Call,
        messages_max: int,
        wait_s: float,
        *,
        asks: bool,
    ) -> Conversation[Sequence[Message]]:
        """Return pushed messages; if there are none and a pull is due or `asks`, pull."""
        pushes = subscription.pushes
        if pushes is None:
            try:
                return (yield from self._pull(subscription, call, messages_max, wait_s))
            except MalformedError as error:
                if not (error.is_our_request and wait_s):
                    raise
            self._may_wait = False  # an older proxy, which refuses a field that it does not know
            return (yield from self._pull(subscription, call, messages_max))
        standing = subscription.standing
        pushed = self._pushing.take(pushes, standing) if standing else None
        if pushed or (pushed is not None and not asks):
            return self._followers_of(subscription, pushed)
        found = yield from self._pull(subscription, call, messages_max)
        standing = subscription.standing
        assert standing is not None
        self._pushing.pulled(pushes, standing, found[-1].offset + 1 if found else None)
        return found

    def take_pushed(self, taken: Taken, messages_max: int) -> Conversation[None]:
        """Take what was pushed of one topic of a pattern.

        Args:
            messages_max: of those at QoS 0 that were not pushed.
        """
        subscription = taken.subscription
        if taken.batches:
            found = self._followers_of(subscription, taken.batches)
            subscription.found(found, self._now_s())
        yield from self._read_qos0(subscription, messages_max)

    def _followers_of(
        self, subscription: Subscription, pushed: Sequence[tuple[BatchHeader, bytes]]
    ) -> Sequence[Message]:
        headers, bodies = [header for header, _ in pushed], [body for _, body in pushed]
        return self._followers(subscription, headers, b"".join(bodies))

    def _followers(
        self, subscription: Subscription, headers: Sequence[BatchHeader], body: bytes
    ) -> Sequence[Message]:
        """The messages of batches that follow the cursor directly."""
        place = subscription.place
        qos = place.terms.qos
        found = direct_followers(subscription.topic, place.cursor, headers, body, qos=qos)
        for header in headers:
            self.report_lower_qos(subscription, header.publisher, header.qos)
        return found

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
        reply, body = yield from self._requests.asking(
            Get, subscription, call, wait_s=wait_s, **more
        )
        if isinstance(reply, MessageBatches | NoMessagesYet):
            yield from self._compare(subscription, reply.end)
            if reply.ring is not UNSET:
                assert subscription.qos0 is not None
                subscription.qos0.hinted(reply.boot, reply.ring)
        match reply:
            case MessageBatches():
                return self._followers(subscription, reply.batches, body)
            case NoMessagesYet():
                return ()
            case Lost() if subscription.place.terms.qos == 0:
                yield from self._pass_lost(subscription, reply)
                return (yield from self._pull(subscription, call, messages_max))
            case Lost():
                subscription.lost(reply.end)
                bound = None if reply.waiting_max is UNSET else reply.waiting_max
                raise LostError(
                    topic=subscription.topic,
                    first=reply.first,
                    end=reply.end,
                    waiting_max=bound,
                    by_operator=reply.operator is True,
                )
            case _:
                self._session.refused(reply)

    def received(
        self, subscription: Subscription, batches: Sequence[BatchHeader], end: int, body: bytes
    ) -> Conversation[None]:
        """Take batches from the cursor on that came with those of other topics.

        Args:
            end: durable end of the topic.
        """
        yield from self._compare(subscription, end)
        subscription.found(self._followers(subscription, batches, body), self._now_s())

    def _compare(self, subscription: Subscription, end: int) -> Conversation[None]:
        """Check that the log, which ends at `end`, still has what was in hand at a crash."""
        place = subscription.place.compared(subscription.topic, end, forget=self._forgets)
        if place is not subscription.place:
            subscription.move(place)
            yield from self._session.save(subscription, durable=True)

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

    def report_lower_qos(self, subscription: Subscription, publisher: str, qos: int) -> None:
        """Report once for each publisher that its messages have a lower level than asked for."""
        if qos < subscription.place.terms.qos and publisher not in subscription.lower_qos:
            subscription.lower_qos.add(publisher)
            topic = subscription.topic
            self._session.tell(logging.WARNING, lower_qos_in_words(topic, publisher, qos), topic)
            self._on_lower_qos(topic, publisher, qos)
