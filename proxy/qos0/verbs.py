"""QoS 0: adding messages to a ring, reading it (RING), counting its readers (LISTENERS).

Nothing here changes or needs the durable state (rule R19).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import MessageBatches, NoMessagesYet, Refusal, SubAck
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.qos0_messages import Listeners, ListenersReport, Ring
from reliable_pubsub.common.core.requests import Get, Sub
from reliable_pubsub.relay.core.unstored import OfferFrames, decode_offer

from ..core.feature import Feature, Runtime
from ..core.reading import subscription_of
from ..core.records import Decision
from ..core.replies import echo
from ..core.state import Hooks, State
from ..core.topic_log import TopicLog
from ..patterns.index import PatternIndex
from ..push.pushes import Pushes
from .interest import Wanted
from .ring import Rings

BecameOfOffer = Literal["taken", "unwanted", "refused"]


def patterns_listening(state: State, topic: str) -> Sequence[Pattern]:
    """Return the patterns that match a topic, even an unstored one, and may read it."""
    patterns = state.part(PatternIndex)
    if not len(patterns):
        return ()
    log = state.topics.get(topic)
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
    return state.kept(Rings).add(
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
    read = state.kept(Rings).read(
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
            listening |= state.part(PatternIndex).names_of(pattern)
    count = len(listening)
    return Decision(
        ListenersReport(**echo(state, request), topic=request.topic, subscriptions=count)
    )


def ring_asked(engine: Runtime, request: Ring, decision: Decision) -> Decision:
    """Note how far a reader has come; nothing of it is durable."""
    if not isinstance(decision.reply, Refusal):
        engine.state.kept(Rings).asked(request.topic, request.client, request.place)
    return decision


def with_push(engine: Runtime, _request: Listeners, decision: Decision) -> Decision:
    """Add to a report whether the topic is pushed to a link, and where offers go."""
    report = decision.reply
    assert isinstance(report, ListenersReport)
    state = engine.state
    is_pushed = state.kept(Pushes).is_wanted(report.topic)
    report = replace(report, pushed=is_pushed, ingress_endpoint=state.kept(Wanted).endpoint)
    return replace(decision, reply=report)


def offered(
    engine: Runtime, frames: Sequence[bytes], *, now_ns: int, key: str = ""
) -> BecameOfOffer | None:
    """Take a QoS 0 message: push it and keep it in its ring; no record is made.

    Returns:
        The outcome; None if the frames are not an offer.
    """
    try:
        found = decode_offer(frames)
    except MalformedError:
        return None
    state = engine.state
    denial = state.authority.denial_of_offer(key, found.offer.publisher, found.topic)
    if denial is not None:
        engine.outputs.append(denial)
        return "refused"
    pushes = state.kept(Pushes)
    is_pushed = pushes.is_wanted(found.topic)
    patterns = patterns_listening(state, found.topic)
    is_wanted = is_pushed or bool(patterns) or found.topic in state.listened_topics
    taken = take_offer(state, found, is_wanted=is_wanted, now_ns=now_ns)
    if taken == "refused" or taken == "unwanted":
        return taken
    engine.waiting.has_come(found.topic, *patterns, to_ring=True)
    if is_pushed:
        number = state.kept(Rings).number
        engine.outputs.append(pushes.unstored(found.topic, taken, found.body, number))
    return "taken"


# At moments of the core.


def with_ring(engine: Runtime, request: Get, decision: Decision) -> Decision:
    """Add to the answer of a GET where the ring of its topic ends; do not wait if it has more."""
    ends = engine.state.kept(Rings).ends
    reply = decision.reply
    if request.topic not in ends or not isinstance(reply, NoMessagesYet | MessageBatches):
        return decision
    end = ends[request.topic]
    is_empty = decision.is_empty and (request.ring is UNSET or request.ring >= end)
    return replace(decision, reply=replace(reply, ring=end), is_empty=is_empty)


def with_place(engine: Runtime, request: Sub, decision: Decision) -> Decision:
    """Add to a subscription where the ring of its topic ends."""
    end = engine.state.kept(Rings).ends.get(request.topic, 0)
    if not end or request.group is not UNSET or not isinstance(decision.reply, SubAck):
        return decision
    return replace(decision, reply=replace(decision.reply, ring=end))


def forget_lost(state: State, log: TopicLog, subscriber: str) -> None:
    """Reset what a subscriber lost, as its subscription begins with nothing in flight, or ends."""
    if not state.is_restored:
        return
    one = log.subscriptions[subscriber]
    if not one.active or (one.shown == one.cursor and not one.expired):
        state.kept(Rings).forget(log.topic, subscriber)


def announce(engine: Runtime) -> None:
    """Announce to publishers what has a listener now."""
    want = engine.state.kept(Wanted).changes(engine.state)
    if want is not None:
        engine.outputs.append(want)


FEATURE: Final = Feature(
    name="QoS 0",
    verbs={Ring: ring, Listeners: listeners},
    endpoints={Listeners: "publisher"},
    of_subscribers={Ring: True},
    completes={Ring: ring_asked, Listeners: with_push, Get: with_ring, Sub: with_place},
    tick=announce,
    hooks=Hooks(subscribed=[forget_lost]),
)
