"""QoS 1 and 0 in the calls of a publisher."""

from __future__ import annotations

from collections.abc import Sequence

from reliable_pubsub.common.core.conversation import Conversation, Save
from reliable_pubsub.relay.above import reachable

from ..core.engine import PublisherEngine
from ..core.feature import PublisherFeature, PublisherOpening
from ..core.puts import WaitingPut, joined
from .core.lower_qos_puts import LowerQoSPuts
from .offer_link import ZmqOfferLink


class QoS0Feature(PublisherFeature):
    """Puts at QoS 1 and 0."""

    name = "QoS 1 and 0"

    def __init__(self, engine: PublisherEngine, opening: PublisherOpening) -> None:
        endpoint = opening.endpoint
        self._outbox = engine.outbox
        self.lower_qos = LowerQoSPuts(
            engine.session,
            engine.outbox,
            recorder=opening.recorder,
            connect=opening.connect_data or (lambda at: ZmqOfferLink(reachable(at, endpoint))),
            now_s=opening.now_s,
        )

    def begin_again(self) -> None:
        self.lower_qos.qos0.begin_again()

    def close(self) -> None:
        self.lower_qos.qos0.close()

    def put(self, puts: Sequence[WaitingPut]) -> Conversation[None] | None:
        return self._put(puts)

    def _put(self, puts: Sequence[WaitingPut]) -> Conversation[None]:
        """Put them at QoS 1 or 0; a note is written after its put, which is alone."""
        first, lower_qos = puts[0], self.lower_qos
        put = lower_qos.put if first.qos else lower_qos.offer
        batch, encoded = joined(puts)
        receipt = yield from put(encoded.topic, batch, encoded.body)
        if first.note is not None:
            yield Save(self._outbox.write_note(first.note))
        for one in puts:
            one.outcome = receipt
