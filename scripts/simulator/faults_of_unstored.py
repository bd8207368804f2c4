"""Planted faults of QoS 0; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec.structs import replace

from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.requests import Put
from reliable_pubsub.proxy.core.state import State
from reliable_pubsub.proxy.features import TABLES
from reliable_pubsub.proxy.qos0.ring import Read, Rings
from reliable_pubsub.proxy.qos0.verbs import BecameOfOffer, offered, take_offer
from reliable_pubsub.relay.core.push import UnstoredFrames
from reliable_pubsub.relay.core.unstored import OfferFrames, decode_offer
from reliable_pubsub.subscriber.core.qos0_queue import QoS0Queue
from reliable_pubsub.subscriber.core.subscription import TopicSubscription

from .faults_of_clients import with_parts
from .simulated_proxy import SimulatedProxy
from .simulation import Variant


class TakesRepeats(QoS0Queue):
    """A push that comes again is a message again."""

    def pushed(self, push: UnstoredFrames) -> BatchHeader | None:
        header = replace(push.pushed.batch, base=self.place)
        return super().pushed(replace(push, pushed=replace(push.pushed, batch=header)))


class TakesWhatIsFound(QoS0Queue):
    """A batch that a pattern reads again is a message again."""

    def found(self, topic: str, boot: str, header: BatchHeader, body: bytes) -> bool:
        return super().found(topic, boot, replace(header, base=self.place), body)


class BeginsBelow(QoS0Queue):
    """Each process reads the ring from its begin, also what an earlier one handed over."""

    def confirmed(self, boot: str, end: int, *, is_new: bool) -> None:
        super().confirmed(boot, end, is_new=False)


class OfRepeats(TopicSubscription):
    """A subscriber with this queue."""

    new_qos0_queue = TakesRepeats


class OfWhatIsFound(TopicSubscription):
    """A subscriber with this queue."""

    new_qos0_queue = TakesWhatIsFound


class OfWhatWasBefore(TopicSubscription):
    """A subscriber with this queue."""

    new_qos0_queue = BeginsBelow


class ReadsAgain(Rings):
    """A ring is read from the oldest on, whatever the reader has had."""

    def read(self, topic: str, place: int, *, messages_max: int, bytes_max: int) -> Read:
        found = super().read(topic, 0, messages_max=messages_max, bytes_max=bytes_max)
        ahead = place - found.first
        headers = tuple(replace(header, base=header.base + ahead) for header in found.headers)
        return replace(found, headers=headers, first=place)


class OfANewRing(SimulatedProxy):
    """Gives its rings another reader."""

    def start(self) -> None:
        super().start()
        if self.engine is not None:
            self.engine.state.kept(Rings).__class__ = ReadsAgain


def number_again(
    state: State, offered: OfferFrames, *, is_wanted: bool, now_ns: int
) -> BatchHeader | Literal["refused", "unwanted"]:
    """A batch in a ring has the place for its number."""
    offer = replace(offered.offer, first_sequence=state.kept(Rings).ends.get(offered.topic, 0) + 1)
    return take_offer(state, replace(offered, offer=offer), is_wanted=is_wanted, now_ns=now_ns)


def store_it(
    engine: Any, frames: Sequence[bytes], *, now_ns: int, key: str = ""
) -> BecameOfOffer | None:
    """What comes at QoS 0 is put, too."""
    became = offered(engine, frames, now_ns=now_ns, key=key)
    found = decode_offer(frames)
    offer = found.offer
    put = Put(
        client=offer.publisher,
        epoch=offer.epoch,
        request=1,
        topic=found.topic,
        first_sequence=offer.first_sequence,
        count=offer.count,
        crc=offer.crc,
        qos=1,
    )
    engine._apply(TABLES.verbs[Put](engine.state, put, found.body, now_ns).records)
    return became


FAULTS_OF_UNSTORED: Mapping[str, Variant] = {
    "QoS 0: a repeat is a message": Variant(subscriber=with_parts(subscription=OfRepeats)),
    "QoS 0: a pattern takes it again": Variant(subscriber=with_parts(subscription=OfWhatIsFound)),
    "QoS 0: begins below its subscription": Variant(
        subscriber=with_parts(subscription=OfWhatWasBefore)
    ),
    "QoS 0: the ring is read again": Variant(proxy=OfANewRing),
    "QoS 0: another number": Variant(rules={take_offer: number_again}),
    "QoS 0: stored, too": Variant(rules={offered: store_it}),
}
