"""Puts at QoS 0: each is sent once to the ingress of the proxy, if it has a listener. Pure.

A message without a listener is dropped here, before the network; one without room on the link is
dropped too, and the receipt says so. Nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec import Struct

from reliable_pubsub.common.core.conversation import Conversation, Listen
from reliable_pubsub.relay.core.unstored import LINKED, is_wanted, marks_of, topic_frame

from ...core.receipt import Fate, OfferCounts

ASK_AGAIN_S: Final = 1.0  # interval of requests while waiting for interest
LOOK_AGAIN_S: Final = 5.0  # interval of requests for the ingress endpoint while the link is down


class OfferLink(Protocol):
    """A link to the ingress of a proxy."""

    def prefixes(self) -> frozenset[bytes]:
        """The first frames that the proxy wants; includes `LINKED` while it is connected."""

    def send(self, frames: Sequence[bytes]) -> bool:
        """Send once; False: there is no room."""

    def wait(self, seconds: float) -> None:
        """Wait until what is wanted changes."""

    def close(self) -> None:
        """End it."""


class Interest(Struct, frozen=True):
    """The listeners of a topic. False if there are none."""

    subscriptions: int  # active ones, including those of relays
    pushed: bool  # whether the push tree wants it, perhaps without a subscription

    def __bool__(self) -> bool:
        """Whether there is a listener."""
        return self.subscriptions > 0 or self.pushed


class Where(Struct, frozen=True):
    """The proxy's answer for a topic."""

    endpoint: str  # of its ingress
    interest: Interest


class QoS0Puts:
    """The QoS 0 puts of one publisher."""

    def __init__(
        self,
        ask: Callable[[str], Conversation[Where]],
        connect: Callable[[str], OfferLink],
        *,
        now_s: Callable[[], float],
        patience_s: float,
    ) -> None:
        """Create it without a link; the first message makes one.

        Args:
            ask: asks the proxy about a topic.
            connect: makes a link to an ingress.
            now_s: the monotonic clock.
            patience_s: how long the first message of a topic waits for the link.
        """
        self.counts = OfferCounts()
        self._ask = ask
        self._connect = connect
        self._now_s = now_s
        self._patience_s = patience_s
        self._link: OfferLink | None = None
        self._endpoint = ""
        # By topic: the marks of patterns when it was asked about, and whether it had a listener.
        self._asked: dict[str, tuple[frozenset[bytes], bool]] = {}
        self._asked_at_s = float("-inf")

    def offer(
        self, topic: str, count: int, frames: Callable[[], Sequence[bytes]]
    ) -> Conversation[Fate]:
        """Send a batch of `count` messages if it has a listener; frames are made only then."""
        if topic not in self._asked:
            yield from self.meet(topic)
        assert self._link is not None
        prefixes = self._link.prefixes()
        if LINKED not in prefixes and self._now_s() >= self._asked_at_s + LOOK_AGAIN_S:
            yield from self.meet(topic)  # the proxy may have restarted, at another port
            prefixes = self._link.prefixes()
        if LINKED not in prefixes:
            self.counts.dropped += count
            return "dropped"
        listens = is_wanted(topic, prefixes)
        if listens and topic_frame(topic) not in prefixes:  # a prefix includes more than a pattern
            marks = marks_of(prefixes)
            if self._asked.get(topic, (None, False))[0] != marks:
                yield from self.meet(topic)
            listens = self._asked[topic][1]
        if not listens:
            self.counts.unwanted += count
            return "unwanted"
        if not self._link.send(frames()):
            self.counts.dropped += count
            return "dropped"
        self.counts.sent += count
        return "sent"

    def meet(self, topic: str, until_s: float = float("inf")) -> Conversation[Where]:
        """Ask for the listeners, and wait until the link has the same information.

        Args:
            until_s: on the monotonic clock; the wait ends then, or when the patience is over.

        Raises:
            InDoubtError: no answer.
        """
        marks = marks_of(self._link.prefixes()) if self._link is not None else frozenset()
        where = yield from self._ask(topic)
        self._asked[topic] = marks, bool(where.interest)
        self._asked_at_s = self._now_s()
        if self._link is None or where.endpoint != self._endpoint:
            self.close()
            self._link, self._endpoint = self._connect(where.endpoint), where.endpoint
        deadline_s = min(until_s, self._asked_at_s + self._patience_s)
        while not self._knows(topic, where):
            left_s = deadline_s - self._now_s()
            if left_s <= 0:
                break
            yield Listen(self._link, left_s)
        return where

    def _knows(self, topic: str, where: Where) -> bool:
        assert self._link is not None
        prefixes = self._link.prefixes()
        return LINKED in prefixes and (not where.interest or is_wanted(topic, prefixes))

    def wait_for_interest(self, topic: str, timeout_s: float) -> Conversation[Interest]:
        """Wait until a topic has a listener; changes on the link trigger the next request."""
        deadline_s = self._now_s() + timeout_s
        while True:
            where = yield from self.meet(topic, deadline_s)
            left_s = deadline_s - self._now_s()
            if left_s <= 0 or (where.interest and self._knows(topic, where)):
                return where.interest
            assert self._link is not None
            yield Listen(self._link, min(left_s, ASK_AGAIN_S))

    def close(self) -> None:
        """End the link."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def begin_again(self) -> None:
        """Drop the link and its state: a call was interrupted, perhaps within a message."""
        self.close()
        self._asked.clear()
