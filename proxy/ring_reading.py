"""RING and LISTENERS: who reads what was put at QoS 0, and whether anybody would."""

from __future__ import annotations

from reliable_pubsub.common.messages import (
    Listeners,
    ListenersReport,
    MessageBatches,
    NoMessagesYet,
    Ring,
)

from .records import Decision
from .subscribing import Subscribing


class RingReading(Subscribing):
    """The rules for what is not stored (rule R19). They change nothing, and rest on nothing."""

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
