"""Puts without a persistent numbering: QoS 1 and QoS 0. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from reliable_pubsub.common.core.answers import AnyReply, PutAck
from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.qos0_messages import Listeners, ListenersReport
from reliable_pubsub.common.core.recorder import Call, Recorder
from reliable_pubsub.common.core.requests import Put
from reliable_pubsub.relay.core.unstored import Offer, encode_offer

from ...core.outbox import Outbox
from ...core.receipt import Receipt
from ...core.session import PublisherSession
from .qos0_puts import Interest, OfferLink, QoS0Puts, Where

COUNT_BITS: Final = 32  # of a sequence: below the epoch, a count within the process
EPOCHS: Final = 2**31  # that a sequence tells apart


class LowerQoSPuts:
    """Puts whose sequences are unique without stored state: they begin with the epoch."""

    def __init__(
        self,
        session: PublisherSession,
        outbox: Outbox,
        *,
        recorder: Recorder,
        connect: Callable[[str], OfferLink],
        now_s: Callable[[], float],
    ) -> None:
        """Create it; the count begins at 0. The arguments are those of the engine."""
        self._session = session
        self._outbox = outbox
        self._recorder = recorder
        self._count = 0  # messages of this process
        patience_s = session.requester.retry.timeout_s
        self.qos0 = QoS0Puts(self.where, connect, now_s=now_s, patience_s=patience_s)

    def where(self, topic: str) -> Conversation[Where]:
        """The listeners of a topic, and the ingress endpoint."""
        request = Listeners(**self._session.head(), topic=topic)
        report = yield from self._session.asking(request)
        if not isinstance(report, ListenersReport):
            self._session.refused(report)
        return Where(report.ingress_endpoint, Interest(report.subscriptions, report.pushed))

    def interest(self, topic: str) -> Conversation[Interest]:
        """Ask the proxy for the listeners of a topic."""
        return (yield from self.where(topic)).interest

    def put(self, topic: str, batch: Batch, body: bytes) -> Conversation[Receipt]:
        """Send until the proxy has it; late copies are stored too (QoS 1)."""
        count = len(batch.payloads)
        with self._recorder.call("put", topic) as call:
            first = yield from self._begin(count)
            reply = yield from self._session.asking_as_known(
                lambda: self._send(topic, first, batch, body, call)
            )
            if not isinstance(reply, PutAck):
                self._session.refused(reply)
            durability = reply.durability
            call.ok(
                epoch=self._outbox.epoch,
                sequence=first,
                count=count,
                offset=reply.offset,
                durability=durability,
                qos=1,
            )
        client = self._session.client
        return Receipt(topic, client, first, count, reply.offset, durability, False, 1)

    def offer(self, topic: str, batch: Batch, body: bytes) -> Conversation[Receipt]:
        """Send once if there is a listener; there is no reply (QoS 0)."""
        count = len(batch.payloads)
        client = self._session.client
        with self._recorder.call("put", topic) as call:
            first = yield from self._begin(count)
            self._invoke(call, first, batch, qos=0)
            offer = Offer(
                publisher=client,
                epoch=self._outbox.epoch,
                first_sequence=first,
                count=count,
                crc=crc32(body),
            )
            fate = yield from self.qos0.offer(
                topic, count, lambda: encode_offer(topic, offer, body)
            )
            call.ok(epoch=self._outbox.epoch, sequence=first, count=count, qos=0)
        return Receipt(topic, client, first, count, None, "none", False, 0, fate)

    def _begin(self, count: int) -> Conversation[int]:
        if not self._session.connected:
            yield from self._session.connecting()
        first = (self._outbox.epoch % EPOCHS << COUNT_BITS) + self._count + 1
        self._count += count
        return first

    def _invoke(self, call: Call, first: int, batch: Batch, *, qos: int) -> None:
        if call.recorded:
            crcs = tuple(map(crc32, batch.payloads))
            call.invoke(epoch=self._outbox.epoch, sequence=first, crcs=crcs, qos=qos)

    def _send(
        self, topic: str, first: int, batch: Batch, body: bytes, call: Call
    ) -> Conversation[AnyReply]:
        self._invoke(call, first, batch, qos=1)
        put = Put(
            **self._session.head(),
            topic=topic,
            first_sequence=first,
            count=len(batch.payloads),
            crc=crc32(body),
            qos=1,
        )
        return (yield from self._session.asking(put, body))
