"""The ingress: where messages at QoS 0 come in, from publishers that know what is wanted.

An XSUB, to which publishers connect an XPUB. What is wanted here is told to them as ZeroMQ
subscriptions, so that a message which nobody wants ends in its publisher. They are few (a cap), and
no high-water mark is between them and the publishers (decision 0013), so none is dropped. What
comes in is put in the ring of its topic and pushed on, once; nothing waits for a disk.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import Final

import zmq

from reliable_pubsub.common.endpoint import any_port_beside
from reliable_pubsub.common.errors import ConfigurationError, MalformedError
from reliable_pubsub.common.limits import BODY_BYTES_MAX, INGRESS_PATTERNS_MAX
from reliable_pubsub.common.messages import IngressStatus
from reliable_pubsub.relay.interest_table import Capped
from reliable_pubsub.relay.pattern import Kinds, Pattern
from reliable_pubsub.relay.sockets import NO_BOUND, Context, Listening, Receiver, listening
from reliable_pubsub.relay.unstored import decode_offer, offer_prefixes

from .push import Push, PushSettings
from .records import Expired, Record, Subscribed, Unsubscribed
from .ring_reading import RingReading
from .rules import Rules

TURN_MAX: Final = 64  # batches that one turn of the loop takes


class Ingress:
    """Belongs to the loop thread."""

    def __init__(self, context: Context, settings: PushSettings, push: Push) -> None:
        """Bind.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        listener = self._bind(context, settings)
        self.socket, self.connections = listener.socket, listener.connections
        self._receiver = Receiver(self.socket)
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._push = push
        self._kinds = Kinds()
        self._capped = Capped(INGRESS_PATTERNS_MAX)
        self._subscribed: set[str] = set()  # topics with a subscription that listens
        self._asked: frozenset[bytes] = frozenset()  # prefixes that publishers were told
        self._is_dirty = True
        self._taken = self._unwanted = self._refused = 0

    def _bind(self, context: Context, settings: PushSettings) -> Listening:
        if settings.is_default:
            with suppress(ConfigurationError):
                return self._listening(context, settings.endpoint)
            return self._listening(context, any_port_beside(settings.endpoint))
        return self._listening(context, settings.endpoint)

    def _listening(self, context: Context, endpoint: str) -> Listening:
        return listening(
            context,
            zmq.XSUB,
            endpoint,
            "ingress",
            sent_max=NO_BOUND,
            frame_bytes_max=BODY_BYTES_MAX,
        )

    # What is wanted.

    def look_at_all(self, broker: Rules) -> None:
        """Learn anew which topics have subscriptions."""
        self._subscribed = {name for name, log in broker.topics.items() if log.listening}
        self._is_dirty = True

    def look_at(self, broker: Rules, records: Iterable[Record]) -> None:
        """Subscriptions may have begun or ended."""
        for record in records:
            if not isinstance(record, Subscribed | Unsubscribed | Expired):
                continue
            log = broker.topic_with(record.topic_id)
            if isinstance(record, Unsubscribed) or (
                isinstance(record, Subscribed) and record.shown == record.cursor
            ):
                broker.rings.forget(log.topic, record.subscriber)
            if log.listening:
                self._subscribed.add(log.topic)
            else:
                self._subscribed.discard(log.topic)
            self._is_dirty = True

    def tell(self) -> None:
        """Tell publishers what is wanted, if that has changed: first what is new."""
        if not (self._push.has_changed() or self._is_dirty):
            return
        self._is_dirty = False
        exact = (Pattern("exact", topic) for topic in self._subscribed)
        patterns = self._capped.take(frozenset(exact) | self._push.wanted())
        prefixes = offer_prefixes(patterns, self._kinds)
        self._say(b"\1", prefixes - self._asked)
        self._say(b"\0", self._asked - prefixes)
        self._asked = prefixes

    def _say(self, mark: bytes, prefixes: Collection[bytes]) -> None:
        for prefix in prefixes:
            self.socket.send(mark + prefix)

    # What comes.

    def turn(self, broker: RingReading) -> None:
        """Take what has come; what is left waits for the next turn."""
        for _ in range(TURN_MAX):
            try:
                taken = self._receiver.take()
            except zmq.Again:
                return
            if taken is None:
                return
            first, frames = taken
            speaker = self.connections.heard(first)
            if not self._take(frames, broker) and speaker is not None:
                self.connections.cut(speaker)

    def close(self) -> None:
        """Unbind."""
        self.connections.close()
        self.socket.close()

    def _take(self, frames: list[bytes], broker: RingReading) -> bool:
        """Take a message; False if it is no offer."""
        try:
            offered = decode_offer(frames)
        except MalformedError:
            self._refused += 1  # there is nobody to answer to
            return False
        is_pushed = self._push.is_wanted(offered.topic)
        is_wanted = is_pushed or offered.topic in self._subscribed
        taken = broker.take_offer(offered, is_wanted=is_wanted, now_ns=time.time_ns())
        if taken == "refused":
            self._refused += 1
        elif taken == "unwanted":
            self._unwanted += 1
        else:
            self._taken += 1
            if is_pushed:
                self._push.send_unstored(offered.topic, taken, offered.body)
        return True

    def status(self) -> IngressStatus:
        """What to tell an operator."""
        return IngressStatus(
            endpoint=self.endpoint,
            patterns=len(self._asked),
            taken=self._taken,
            unwanted=self._unwanted,
            refused=self._refused,
        )
