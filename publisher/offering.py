"""Sends QoS 0 messages: an XPUB to the ingress of the proxy, which announces what is wanted.

A message without a listener is dropped here, before the network; one without room on the link is
dropped too, and the receipt says so. Nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import zmq
from msgspec import Struct

from reliable_pubsub.common.core.retry import Clock
from reliable_pubsub.common.transport import end_with
from reliable_pubsub.relay.core.unstored import LINKED, is_wanted
from reliable_pubsub.relay.sockets import DATA_MESSAGES_MAX, Context, connecting

from .core.outbox import Fate

LINGER_MS: Final = 1_000  # how long close waits to send the last messages
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


class ZmqOfferLink:
    """A link over ZeroMQ. Implements `OfferLink`."""

    def __init__(self, endpoint: str) -> None:
        """Connect in the background."""
        self._context: Context = zmq.Context()
        # No bound on received subscriptions: ZeroMQ drops them at a bound, and they are few.
        self._socket = connecting(
            self._context, zmq.XPUB, sent_max=DATA_MESSAGES_MAX, received_max=0
        )
        self._socket.setsockopt(zmq.XPUB_NODROP, 1)  # "no room" is an error, not a silence
        end_with(self, self._context, [self._socket])
        # When a connection ends its subscriptions end, and no message is queued for the next one.
        self._socket.setsockopt(zmq.IMMEDIATE, 1)
        self._socket.setsockopt(zmq.LINGER, LINGER_MS)
        self._socket.connect(endpoint)
        self._wanted: frozenset[bytes] = frozenset()

    def prefixes(self) -> frozenset[bytes]:
        """See `OfferLink`."""
        if self._socket.poll(0):
            wanted = set(self._wanted)
            while self._socket.poll(0):
                said = self._socket.recv()
                if said[:1] == b"\1":
                    wanted.add(said[1:])
                else:
                    wanted.discard(said[1:])
            self._wanted = frozenset(wanted)
        return self._wanted

    def send(self, frames: Sequence[bytes]) -> bool:
        """See `OfferLink`."""
        try:
            self._socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.Again:
            return False
        return True

    def wait(self, seconds: float) -> None:
        """See `OfferLink`."""
        self._socket.poll(max(int(seconds * 1000), 1))

    def close(self) -> None:
        """See `OfferLink`."""
        self._socket.close()
        self._context.term()  # for LINGER_MS at most


class Interest(Struct, frozen=True):
    """The listeners of a topic. False if there are none."""

    subscriptions: int  # active ones, including those of relays
    pushed: bool  # whether the push tree wants it, perhaps without a subscription

    def __bool__(self) -> bool:
        """Whether there is a listener."""
        return self.subscriptions > 0 or self.pushed


class OfferCounts(Struct, kw_only=True):
    """Counts of the QoS 0 messages of this process, by fate."""

    sent: int = 0
    unwanted: int = 0
    dropped: int = 0


class Where(Struct, frozen=True):
    """The proxy's answer for a topic."""

    endpoint: str  # of its ingress
    interest: Interest


class Offering:
    """The QoS 0 puts of one publisher."""

    def __init__(
        self,
        ask: Callable[[str], Where],
        connect: Callable[[str], OfferLink],
        *,
        clock: Clock,
        patience_s: float,
    ) -> None:
        """Create it without a link; the first message makes one.

        Args:
            ask: asks the proxy about a topic.
            connect: makes a link to an ingress.
            patience_s: how long the first message of a topic waits for the link.
        """
        self.counts = OfferCounts()
        self._ask = ask
        self._connect = connect
        self._clock = clock
        self._patience_s = patience_s
        self._link: OfferLink | None = None
        self._endpoint = ""
        self._met: set[str] = set()
        self._asked_at_s = float("-inf")

    def offer(self, topic: str, count: int, frames: Callable[[], Sequence[bytes]]) -> Fate:
        """Send a batch of `count` messages if it has a listener; frames are made only then."""
        if topic not in self._met:
            self.meet(topic)
        assert self._link is not None
        prefixes = self._link.prefixes()
        if LINKED not in prefixes and self._clock.now_s() >= self._asked_at_s + LOOK_AGAIN_S:
            self.meet(topic)  # the proxy may have restarted, at another port
            prefixes = self._link.prefixes()
        if LINKED not in prefixes:
            self.counts.dropped += count
            return "dropped"
        if not is_wanted(topic, prefixes):
            self.counts.unwanted += count
            return "unwanted"
        if not self._link.send(frames()):
            self.counts.dropped += count
            return "dropped"
        self.counts.sent += count
        return "sent"

    def meet(self, topic: str) -> Interest:
        """Ask for the listeners, and wait until the link has the same information.

        Raises:
            InDoubtError: no answer.
        """
        where = self._ask(topic)
        self._met.add(topic)
        self._asked_at_s = self._clock.now_s()
        if self._link is None or where.endpoint != self._endpoint:
            self.close()
            self._link, self._endpoint = self._connect(where.endpoint), where.endpoint
        deadline_s = self._asked_at_s + self._patience_s
        while not self._knows(topic, where):
            left_s = deadline_s - self._clock.now_s()
            if left_s <= 0:
                break
            self._link.wait(left_s)
        return where.interest

    def _knows(self, topic: str, where: Where) -> bool:
        assert self._link is not None
        prefixes = self._link.prefixes()
        return LINKED in prefixes and (not where.interest or is_wanted(topic, prefixes))

    def wait_for_interest(self, topic: str, timeout_s: float) -> Interest:
        """Wait until a topic has a listener; changes on the link trigger the next request."""
        deadline_s = self._clock.now_s() + timeout_s
        while True:
            found = self.meet(topic)
            left_s = deadline_s - self._clock.now_s()
            if found or left_s <= 0:
                return found
            assert self._link is not None
            self._link.wait(min(left_s, ASK_AGAIN_S))

    def close(self) -> None:
        """End the link."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def begin_again(self) -> None:
        """Drop the link and its state: a call was interrupted, perhaps within a message."""
        self.close()
        self._met.clear()
