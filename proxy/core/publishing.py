"""PUT: stored once and in order, or refused with the reason."""

from __future__ import annotations

from reliable_pubsub.common.core.answers import Busy, Conflict, Duplicate, Gap, PutAck
from reliable_pubsub.common.core.dead_letter import DEAD_SUFFIX
from reliable_pubsub.common.core.requests import Put
from reliable_pubsub.common.core.transaction_messages import Stage

from .appending import next_batch, topic_for
from .records import Decision
from .replies import echo, malformed
from .sessions import fence
from .state import State
from .topic_log import PublisherMark, TopicLog


def put(state: State, request: Put, body: bytes, now_ns: int) -> Decision:
    """Append the next batch of a publisher, once (rule R4)."""
    session = fence(state, "publisher", request)
    if isinstance(session, Decision):
        return session
    if request.topic.endswith(DEAD_SUFFIX):
        return for_subscribers_only(state, request)
    log = state.topics.get(request.topic)
    if request.qos == 2:
        mark = log.publishers.get(request.client) if log else None
        expected = mark.first_sequence + mark.count if mark else 1
        if log and mark and request.first_sequence < expected:
            return repeated_put(state, request, log, mark)
        if request.first_sequence != expected:
            return gap(state, request, expected, mark)
    found = topic_for(
        state,
        request,
        request.topic,
        compares=request.qos == 2,
        count=request.count,
        body_bytes=len(body),
    )
    if isinstance(found, Decision):
        return found
    log, before = found
    batch = next_batch(
        state,
        log,
        request,
        body,
        count=request.count,
        crc=request.crc,
        now_ns=now_ns,
        first_sequence=request.first_sequence,
        qos=request.qos,
    )
    reply = PutAck(
        client=request.client,
        epoch=request.epoch,
        request=request.request,
        boot=state.boot,
        durability=state.durability,
        offset=batch.base,
    )
    return Decision(reply, (*before, batch), state.lsn + len(before) + 1)


def for_subscribers_only(state: State, request: Put | Stage) -> Decision:
    """Refuse a put to a topic of dead letters, which only subscribers make."""
    text = f"topic {request.topic!r} takes dead letters of subscribers only; put elsewhere"
    return Decision(malformed(state, text, request))


def repeated_put(state: State, request: Put, log: TopicLog, mark: PublisherMark) -> Decision:
    """Answer used sequences: success if it is the same batch, else a conflict."""
    last = request.first_sequence + request.count - 1
    if last > mark.last_sequence:
        return gap(state, request, mark.last_sequence + 1, mark)
    if request.first_sequence == mark.first_sequence:
        known = (mark.count, mark.crc, mark.base)
        lsn = mark.lsn
    else:
        stored = state.reader.find(log.topic_id, request.client, request.first_sequence)
        lsn = 0
        if stored is not None:
            same_place = stored.first_sequence == request.first_sequence
            known = (stored.count if same_place else 0, stored.crc, stored.base)
        elif mark.lsn > state.durable_lsn:
            text = "an earlier batch of this publisher is not yet durable; ask again"
            return Decision(Busy(**echo(state, request), text=text))
        else:
            return Decision(Duplicate(**echo(state, request), offset=None))
    count, crc, base = known
    if (count, crc) == (request.count, request.crc):
        return Decision(Duplicate(**echo(state, request), offset=base), visible_at=lsn)
    text = (
        f"topic {request.topic!r}: sequences {request.first_sequence} to {last} of "
        f"{request.client!r} are stored with another content; nothing was changed. Either "
        "two programs use this id (give each its own), or its state is older than what it "
        "sent: --on-log-changed adopt (on_log_changed) puts it under the next number"
    )
    reply = Conflict(
        **echo(state, request),
        first_sequence=request.first_sequence,
        count=request.count,
        text=text,
    )
    return Decision(reply, visible_at=lsn)


def gap(state: State, request: Put, expected: int, mark: PublisherMark | None) -> Decision:
    """Refuse a sequence that is not the next one."""
    text = (
        f"topic {request.topic!r}: {request.client!r} sent sequence {request.first_sequence}, "
        f"but {expected} is next; nothing was stored"
    )
    reply = Gap(**echo(state, request), expected=expected, text=text)
    return Decision(reply, visible_at=mark.lsn if mark else 0)
