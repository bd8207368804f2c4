"""What comes next of each topic: pulled with GET, or taken from what was pushed."""

from __future__ import annotations

import logging
import sys
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from math import inf
from traceback import walk_stack

from msgspec import UNSET

from reliable_pubsub.common.batch import Message
from reliable_pubsub.common.errors import LostError
from reliable_pubsub.common.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.messages import BatchHeader, Get, Lost, MessageBatches, NoMessagesYet
from reliable_pubsub.common.recorder import Call
from reliable_pubsub.common.retry import poll_pause_s

from .inbox import Inbox, direct_followers
from .link import SubscriberLink
from .push_queue import Standing
from .pushing import Pushing

FETCH_AHEAD = 10  # times the messages asked for; those behind wait here, unacknowledged

OnLowerQoS = Callable[[str, str, int], None]  # topic, publisher, its level


class QoSWarning(UserWarning):
    """Messages come with a lower level than a subscription asked for."""


def lower_qos_in_words(topic: str, publisher: str, qos: int) -> str:
    """What it means that a publisher promises less than a subscription expects."""
    fate = "may come twice" if qos else "are kept nowhere, and those that do not arrive are lost"
    return (
        f"topic {topic!r}: {publisher!r} puts at QoS {qos}, so its messages {fate}, "
        "although the subscription has a higher level"
    )


def warn_of_lower_qos(topic: str, publisher: str, qos: int) -> None:
    """Tell a program, as Python tells it."""
    frames = (frame.f_globals["__name__"] for frame, _ in walk_stack(sys._getframe()))
    ours = sum(1 for _ in takewhile(lambda name: name.startswith("reliable_pubsub."), frames))
    warnings.warn(lower_qos_in_words(topic, publisher, qos), QoSWarning, stacklevel=ours + 1)


class Fetching:
    """Brings the direct followers of each cursor here, and keeps them until they are taken."""

    def __init__(
        self,
        link: SubscriberLink,
        inbox: Inbox,
        pushing: Pushing,
        *,
        on_lower_qos: OnLowerQoS,
    ) -> None:
        """Nothing was fetched."""
        self._link = link
        self._inbox = inbox
        self._pushing = pushing
        self._clock = link.asker.clock
        self._on_lower_qos = on_lower_qos
        self._lower: set[tuple[str, str]] = set()  # topics and publishers that were told of
        self._fetched: dict[str, deque[Message]] = {}  # not yet handed over, from the cursor on
        self._lost: dict[str, int] = {}  # reported as gone up to here, and not yet passed

    def ahead(self, topic: str) -> deque[Message] | None:
        """What was fetched and not handed over; the caller takes from it what it hands over."""
        return self._fetched.get(topic)

    def drop(self, topic: str) -> None:
        """What waits was not confirmed: the log may be another one there."""
        self._fetched.pop(topic, None)

    def begin_again(self) -> None:
        """Forget what waits; a call was broken off somewhere."""
        self._fetched.clear()
        self._lost.clear()

    def forget(self, topic: str) -> None:
        """The subscription is no more, and what was fetched or lost belongs to it."""
        self.drop(topic)
        self._lost.pop(topic, None)

    def lost_up_to(self, topic: str) -> int | None:
        """Up to where a loss was reported since the last time; None: there was none."""
        return self._lost.pop(topic, None)

    def wait(
        self, topic: str, call: Call, messages_max: int, timeout_s: float
    ) -> deque[Message] | None:
        """Fetch, asking again with growing pauses, until something comes or time is over.

        Raises:
            LostError: messages are gone; the next call goes on behind them.
        """
        deadline_s = self._clock.now_s() + timeout_s
        empty = 0
        asks = timeout_s <= 0
        while True:
            fetched = self._next(topic, call, messages_max, asks=asks)
            self._link.read_ring(topic, min(messages_max * FETCH_AHEAD, BATCH_MESSAGES_MAX))
            if fetched or self._link.rings.get(topic):
                self._fetched[topic] = fetched or deque()
                return fetched
            empty += 1
            left_s = deadline_s - self._clock.now_s()
            if left_s <= 0:
                return None
            if topic in self._pushing:
                self._pushing.wait(topic, left_s)
            else:
                self._clock.sleep(min(poll_pause_s(empty), left_s))

    def _next(
        self, topic: str, call: Call, messages_max: int, *, asks: bool
    ) -> deque[Message] | None:
        """What was pushed; if nothing was, and a pull is due or `asks`, what a pull finds."""
        if topic not in self._pushing:
            return self._pull(topic, call, messages_max)
        standing = self._standing(topic)
        pushed = self._pushing.take(topic, standing) if standing else None
        if pushed or (pushed is not None and not asks):
            headers, bodies = [h for h, _ in pushed], [body for _, body in pushed]
            return self._followers(topic, headers, b"".join(bodies))
        fetched = self._pull(topic, call, messages_max)
        standing = self._standing(topic)
        assert standing is not None
        self._pushing.pulled(topic, standing, fetched[-1].offset + 1 if fetched else None)
        return fetched

    def _standing(self, topic: str) -> Standing | None:
        """Where we stand; None: the proxy of this moment has not confirmed it yet."""
        place, session = self._inbox.places.get(topic), self._link.told.get(topic)
        if place is None or session is None:
            return None
        heard_s = place.terms.lease_ms / 2000 or inf
        return Standing(place.log, session.boot, place.cursor, session.told, heard_s)

    def _followers(self, topic: str, headers: Sequence[BatchHeader], body: bytes) -> deque[Message]:
        """The messages of batches that follow our cursor directly."""
        place = self._inbox.places[topic]
        qos = place.terms.qos
        found = direct_followers(topic, place.cursor, headers, body, qos=qos)
        self._tell_lower_levels(qos, headers, topic)
        return deque(found)

    def _pull(self, topic: str, call: Call, messages_max: int) -> deque[Message] | None:
        """One GET; it acknowledges what our durable state has as processed."""
        wanted = min(messages_max * FETCH_AHEAD, BATCH_MESSAGES_MAX)
        reply, body = self._link.ask_with_cursor(Get, topic, call, messages_max=wanted)
        if isinstance(reply, MessageBatches | NoMessagesYet):
            self._link.compare(topic, reply.end)
            self._link.rings[topic].hinted(reply.boot, reply.ring)
        match reply:
            case MessageBatches():
                return self._followers(topic, reply.batches, body)
            case NoMessagesYet():
                return None
            case Lost() if self._inbox.places[topic].terms.qos == 0:
                self._link.pass_lost(topic, reply)
                return self._pull(topic, call, messages_max)
            case Lost():
                # The place moves when the program comes back: else a kill now would silence it.
                self._lost[topic] = reply.end
                bound = None if reply.waiting_max is UNSET else reply.waiting_max
                raise LostError(topic=topic, first=reply.first, end=reply.end, waiting_max=bound)
            case _:
                self._link.refused(reply)

    def _tell_lower_levels(self, qos: int, batches: Sequence[BatchHeader], topic: str) -> None:
        """Say once of each publisher that what it puts has a lower level than was asked for."""
        for batch in batches:
            if batch.qos < qos:
                self.tell_lower_level(topic, batch.publisher, batch.qos)

    def tell_lower_level(self, topic: str, publisher: str, qos: int) -> None:
        """Say once of a publisher that its messages have this level, if more was asked for."""
        if (topic, publisher) not in self._lower and qos < self._inbox.places[topic].terms.qos:
            self._lower.add((topic, publisher))
            self._link.tell(logging.WARNING, lower_qos_in_words(topic, publisher, qos), topic)
            self._on_lower_qos(topic, publisher, qos)
