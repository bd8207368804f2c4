"""The way of what is put at QoS 0: an XPUB to the ingress of the proxy, which says what is wanted.

What nobody wants ends here, before the network; what the link has no room for is dropped, and the
caller is told. Nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import zmq
from msgspec import Struct

from reliable_pubsub.common.retry import Clock
from reliable_pubsub.common.transport import end_with
from reliable_pubsub.relay.sockets import DATA_MESSAGES_MAX, Context, connecting
from reliable_pubsub.relay.unstored import LINKED, is_wanted

from .outbox import Fate

LINGER_MS: Final = 1_000  # what was put just before the end may still leave
ASK_AGAIN_S: Final = 1.0  # who waits for interest asks so often, whatever the link says
LOOK_AGAIN_S: Final = 5.0  # the proxy is asked where its ingress is, if the link is down


class OfferLink(Protocol):
    """A link to the ingress of a proxy."""

    def prefixes(self) -> frozenset[bytes]:
        """What the proxy wants now, by the first frame; `LINKED` is among it while it is there."""

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
        # No bound on what is said to us: ZeroMQ drops subscriptions at it; they are few.
        self._socket = connecting(
            self._context, zmq.XPUB, sent_max=DATA_MESSAGES_MAX, received_max=0
        )
        self._socket.setsockopt(zmq.XPUB_NODROP, 1)  # "no room" is an error, not a silence
        end_with(self, self._context, [self._socket])
        # A connection that ends takes what it wanted with it, and nothing waits for the next one.
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
    """Who would get what is put on a topic now. False if nobody would."""

    subscriptions: int  # that are active, those behind relays included
    pushed: bool  # whether somebody in the push tree wants it, perhaps without a subscription

    def __bool__(self) -> bool:
        """Whether somebody listens."""
        return self.subscriptions > 0 or self.pushed


class OfferCounts(Struct, kw_only=True):
    """What became of the messages that were put at QoS 0, in this process."""

    sent: int = 0
    unwanted: int = 0
    dropped: int = 0


class Where(Struct, frozen=True):
    """What the proxy says of a topic."""

    endpoint: str  # of its ingress
    interest: Interest


class Offering:
    """What one publisher puts at QoS 0."""

    def __init__(
        self,
        ask: Callable[[str], Where],
        connect: Callable[[str], OfferLink],
        *,
        clock: Clock,
        patience_s: float,
    ) -> None:
        """Nothing is connected yet.

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
        """Send a batch of `count` messages if anybody wants it; its frames are made only then."""
        if topic not in self._met:
            self.meet(topic)
        assert self._link is not None
        prefixes = self._link.prefixes()
        if LINKED not in prefixes and self._clock.now_s() >= self._asked_at_s + LOOK_AGAIN_S:
            self.meet(topic)  # the proxy may have begun anew, at another port
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
        """Ask about a topic, and wait until the link knows what the proxy does.

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
        """Wait until somebody wants a topic; what the link hears says when to ask again."""
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
        """Forget what was learned; a call was broken off, perhaps in the middle of a message."""
        self.close()
        self._met.clear()
