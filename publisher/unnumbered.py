"""Puts without a persistent numbering: QoS 1 and QoS 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.messages import AnyReply, Put, PutAck
from reliable_pubsub.common.core.recorder import Call, Recorder
from reliable_pubsub.relay.core.unstored import Offer, encode_offer

from .core.outbox import Outbox, Receipt
from .link import PublisherLink
from .offering import Interest, Offering, OfferLink, Where

UNNUMBERED_BITS: Final = 32  # of a sequence: below the epoch, a count within the process
EPOCHS: Final = 2**31  # that a sequence tells apart


class Unnumbered:
    """Puts whose sequences are unique without stored state: they begin with the epoch."""

    def __init__(
        self,
        link: PublisherLink,
        outbox: Outbox,
        *,
        recorder: Recorder,
        connect_offers: Callable[[str], OfferLink],
    ) -> None:
        """Create it; the count begins at 0."""
        self._link = link
        self._outbox = outbox
        self._recorder = recorder
        self._count = 0  # messages of this process
        asker = link.asker
        self.offering = Offering(
            self.where, connect_offers, clock=asker.clock, patience_s=asker.retry.timeout_s
        )

    def where(self, topic: str) -> Where:
        """The listeners of a topic, and the ingress endpoint."""
        report = self._link.listeners(topic)
        return Where(report.ingress_endpoint, Interest(report.subscriptions, report.pushed))

    def put_at_least_once(self, topic: str, batch: Batch, body: bytes) -> Receipt:
        """Send until the proxy has it; late copies are stored too (QoS 1)."""
        count = len(batch.payloads)
        with self._recorder.call("put", names.topic(topic)) as call:
            first = self._begin(count)
            reply = self._link.ask_as_known(lambda: self._send(topic, first, batch, body, call))
            if not isinstance(reply, PutAck):
                self._link.refused(reply)
            durability = reply.durability
            call.ok(
                epoch=self._outbox.epoch,
                sequence=first,
                count=count,
                offset=reply.offset,
                durability=durability,
                qos=1,
            )
        client = self._link.client
        return Receipt(topic, client, first, count, reply.offset, durability, False, 1)

    def offer(self, topic: str, batch: Batch, body: bytes) -> Receipt:
        """Send once if there is a listener; there is no reply (QoS 0)."""
        count = len(batch.payloads)
        client = self._link.client
        with self._recorder.call("put", names.topic(topic)) as call:
            first = self._begin(count)
            self._invoke(call, first, batch, qos=0)
            offer = Offer(
                publisher=client,
                epoch=self._outbox.epoch,
                first_sequence=first,
                count=count,
                crc=crc32(body),
            )
            fate = self.offering.offer(topic, count, lambda: encode_offer(topic, offer, body))
            call.ok(epoch=self._outbox.epoch, sequence=first, count=count, qos=0)
        return Receipt(topic, client, first, count, None, "none", False, 0, fate)

    def _begin(self, count: int) -> int:
        if not self._link.connected:
            self._link.connect()
        first = (self._outbox.epoch % EPOCHS << UNNUMBERED_BITS) + self._count + 1
        self._count += count
        return first

    def _invoke(self, call: Call, first: int, batch: Batch, *, qos: int) -> None:
        if call.recorded:
            crcs = tuple(map(crc32, batch.payloads))
            call.invoke(epoch=self._outbox.epoch, sequence=first, crcs=crcs, qos=qos)

    def _send(self, topic: str, first: int, batch: Batch, body: bytes, call: Call) -> AnyReply:
        self._invoke(call, first, batch, qos=1)
        return self._link.ask(
            Put(
                **self._link.head(),
                topic=topic,
                first_sequence=first,
                count=len(batch.payloads),
                crc=crc32(body),
                qos=1,
            ),
            body,
        )
