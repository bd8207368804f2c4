"""QoS 0: what is taken into a ring, who reads it (RING), and whether anybody would (LISTENERS)."""

from __future__ import annotations

from typing import Literal

from reliable_pubsub.common.messages import (
    BatchHeader,
    Listeners,
    ListenersReport,
    MessageBatches,
    NoMessagesYet,
    Ring,
)
from reliable_pubsub.relay.unstored import OfferFrames

from .records import Decision
from .subscribing import Subscribing


class RingReading(Subscribing):
    """The rules for what is not stored (rule R19). They change no state, and rest on none."""

    def take_offer(
        self, offered: OfferFrames, *, is_wanted: bool, now_ns: int
    ) -> BatchHeader | Literal["refused", "unwanted"]:
        """Put an offer in the ring of its topic.

        Args:
            is_wanted: whether somebody listens to the topic, or is pushed to.

        Returns:
            Its header; or that its publisher has no such session, or that nobody wants it.
        """
        offer = offered.offer
        session = self.sessions.get(("publisher", offer.publisher))
        if session is None or session.epoch != offer.epoch:
            return "refused"
        if not is_wanted:
            return "unwanted"
        return self.rings.add(
            offered.topic,
            publisher=offer.publisher,
            first_sequence=offer.first_sequence,
            count=offer.count,
            crc=offer.crc,
            body=offered.body,
            now_ns=now_ns,
        )

    def _ring(self, request: Ring, _body: bytes, _now_ns: int) -> Decision:
        """Show what is in the ring; whoever asks knows what it has had."""
        found = self._confirmed(request)
        if isinstance(found, Decision):
            return found
        _, _, visible_at = found
        read = self.rings.read(
            request.topic,
            request.place,
            messages_max=request.messages_max,
            bytes_max=request.bytes_max,
        )
        if not read.headers:
            return Decision(
                NoMessagesYet(**self._echo(request), end=read.end), visible_at=visible_at
            )
        reply = MessageBatches(
            **self._echo(request), batches=read.headers, end=read.end, first=read.first
        )
        return Decision(reply, visible_at=visible_at, body=read.body)

    def _listeners(self, request: Listeners, _body: bytes, _now_ns: int) -> Decision:
        """Count the subscriptions that would get a message; only those that are durable."""
        log = self.topics.get(request.topic)
        count = sum(
            one.listens and one.lsn <= self.durable_lsn
            for one in (log.subscriptions.values() if log else ())
        )
        return Decision(
            ListenersReport(**self._echo(request), topic=request.topic, subscriptions=count)
        )
