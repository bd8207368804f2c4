"""QoS 0: adding messages to a ring, reading it (RING), counting its readers (LISTENERS).

Nothing here changes or needs the durable state (rule R19).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

from msgspec.structs import replace

from reliable_pubsub.common.core.answers import MessageBatches, NoMessagesYet, Refusal
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.qos0_messages import Listeners, ListenersReport, Ring
from reliable_pubsub.relay.core.unstored import OfferFrames

from ..core.feature import Feature
from ..core.reading import subscription_of
from ..core.records import Decision
from ..core.replies import echo
from ..core.state import State

BecameOfOffer = Literal["taken", "unwanted", "refused"]


def patterns_listening(state: State, topic: str) -> Sequence[Pattern]:
    """Return the patterns that match a topic, even an unstored one, and may read it."""
    if not len(state.patterns):
        return ()
    log = state.topics.get(topic)
    patterns = state.patterns
    matching = patterns.patterns_of(log.topic_id) if log else patterns.matching(topic)
    return [
        one
        for one in matching
        if any(
            state.authority.may_read(each.reader, topic) for each in patterns.subscribers_of(one)
        )
    ]


def take_offer(
    state: State, offered: OfferFrames, *, is_wanted: bool, now_ns: int
) -> BatchHeader | Literal["refused", "unwanted"]:
    """Put an offer in the ring of its topic.

    Args:
        is_wanted: whether the topic has a subscription or a push link.

    Returns:
        Its header, or the reason to drop it: no such session, or no listener.
    """
    offer = offered.offer
    session = state.sessions.get(("publisher", offer.publisher))
    if session is None or session.epoch != offer.epoch:
        return "refused"
    if not is_wanted:
        return "unwanted"
    return state.rings.add(
        offered.topic,
        publisher=offer.publisher,
        first_sequence=offer.first_sequence,
        count=offer.count,
        crc=offer.crc,
        body=offered.body,
        now_ns=now_ns,
    )


def ring(state: State, request: Ring, _body: bytes, _now_ns: int) -> Decision:
    """Read the ring; readers track their own position."""
    found = subscription_of(state, request)
    if isinstance(found, Decision):
        return found
    _, _, visible_at = found
    read = state.rings.read(
        request.topic,
        request.place,
        messages_max=request.messages_max,
        bytes_max=request.bytes_max,
    )
    if not read.headers:
        return Decision(NoMessagesYet(**echo(state, request), end=read.end), visible_at=visible_at)
    reply = MessageBatches(
        **echo(state, request), batches=read.headers, end=read.end, first=read.first
    )
    return Decision(reply, visible_at=visible_at, body=read.body)


def listeners(state: State, request: Listeners, _body: bytes, _now_ns: int) -> Decision:
    """Count the durable subscriptions that would get a message."""
    log = state.topics.get(request.topic)
    listening = {
        name
        for name, one in (log.subscriptions.items() if log else ())
        if one.listens and one.lsn <= state.durable_lsn
    }
    if log is None:
        for pattern in patterns_listening(state, request.topic):
            listening |= state.patterns.names_of(pattern)
    count = len(listening)
    return Decision(
        ListenersReport(**echo(state, request), topic=request.topic, subscriptions=count)
    )


def ring_asked(engine: Any, request: Ring, decision: Decision) -> Decision:
    """Note how far a reader has come; nothing of it is durable."""
    if not isinstance(decision.reply, Refusal):
        engine.state.rings.asked(request.topic, request.client, request.place)
    return decision


def with_push(engine: Any, _request: Listeners, decision: Decision) -> Decision:
    """Add to a report whether the topic is pushed to a link, and where offers go."""
    report = decision.reply
    assert isinstance(report, ListenersReport)
    is_pushed = engine.pushes.is_wanted(report.topic)
    report = replace(report, pushed=is_pushed, ingress_endpoint=engine.ingress_endpoint)
    return replace(decision, reply=report)


FEATURE: Final = Feature(
    name="QoS 0",
    verbs={Ring: ring, Listeners: listeners},
    endpoints={Listeners: "publisher"},
    completes={Ring: ring_asked, Listeners: with_push},
)
