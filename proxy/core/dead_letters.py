"""DEAD: a subscriber rejects a message. The dead letter and the moved cursor are one record.

A dead letter has the next sequence of its subscriber, which acts as its publisher.
"""

from __future__ import annotations

from reliable_pubsub.common.core.answers import DeadAck, Stale
from reliable_pubsub.common.core.dead_letter import dead_topic
from reliable_pubsub.common.core.requests import Dead

from .appending import topic_for
from .changed_log import not_this_log
from .reading import subscription_of
from .records import CursorMoved, DeadLettered, Decision
from .replies import decided, echo, malformed
from .state import State
from .subscriptions import Subscription
from .topic_log import PublisherMark, TopicLog


def dead(state: State, request: Dead, body: bytes, now_ns: int) -> Decision:
    """Append the letter and move the cursor past its message, once (rule R4)."""
    topic = dead_topic(request.topic)
    if topic is None:
        text = f"topic {request.topic!r} has no dead letters; acknowledge the message"
        return Decision(malformed(state, text, request))
    found = subscription_of(state, request)
    if isinstance(found, Decision):
        return found
    log, subscription, visible_at = found
    letters = state.topics.get(topic)
    mark = letters.publishers.get(request.client) if letters else None
    if request.cursor < subscription.cursor:
        return _repeated_dead(state, request, subscription, mark, visible_at)
    if request.cursor == log.durable_end:
        return not_this_log(state, request, log, f"there is no message at offset {request.cursor}")
    return _store_letter(state, request, body, now_ns, log, subscription, topic)


def _repeated_dead(
    state: State,
    request: Dead,
    subscription: Subscription,
    mark: PublisherMark | None,
    visible_at: int,
) -> Decision:
    """Answer a repeat of the last dead letter with success; anything else is too late."""
    is_last = mark is not None and request.crc == mark.crc and not subscription.moved
    if mark and is_last and request.cursor == subscription.cursor - 1:
        reply = DeadAck(**echo(state, request), offset=mark.base, already=True)
        return Decision(reply, visible_at=max(visible_at, mark.lsn))
    text = (
        f"{request.client!r} has acknowledged {request.topic!r} up to "
        f"{subscription.cursor - 1}: offset {request.cursor} cannot become a dead letter any "
        "more; nothing was stored"
    )
    return Decision(Stale(**echo(state, request), text=text), visible_at=visible_at)


def _store_letter(
    state: State,
    request: Dead,
    body: bytes,
    now_ns: int,
    log: TopicLog,
    subscription: Subscription,
    topic: str,
) -> Decision:
    place = topic_for(state, request, topic, compares=True, count=1, body_bytes=len(body))
    if isinstance(place, Decision):
        return place
    letters, before = place
    step_ns = state.timestamp_step_ns
    letter = letters.next_batch(
        request, body, count=1, crc=request.crc, now_ns=now_ns, step_ns=step_ns
    )
    cursor = request.cursor + 1
    moved = CursorMoved(
        log.topic_id,
        request.client,
        subscription.generation,
        cursor,
        True,
        max(subscription.shown, cursor),
        subscription.terms,
        bool(subscription.moved),
    )
    reply = DeadAck(**echo(state, request), offset=letter.base, already=False)
    return decided(state, reply, *before, DeadLettered(letter, moved))
