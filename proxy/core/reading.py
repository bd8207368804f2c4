"""GET, ACK, HISTORY: batches are shown, and only their subscriber moves its cursor (rule R7)."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from reliable_pubsub.common.core.answers import (
    Lost,
    MessageBatches,
    NoMessagesYet,
    NotSub,
    PutAck,
    Stale,
)
from reliable_pubsub.common.core.qos0_messages import Ring
from reliable_pubsub.common.core.requests import Ack, Dead, Get, History, Sub

from .changed_log import log_changed, not_this_log
from .records import Decision
from .replies import decided, echo, malformed
from .sessions import fence
from .start_offset import start_offset
from .state import State
from .subscription_records import CursorMoved
from .subscriptions import Subscription
from .topic_log import TopicLog


def get(state: State, request: Get, _body: bytes, _now_ns: int) -> Decision:
    """Show what follows the cursor; only the cursor in the request moves it."""
    found = subscription_of(state, request)
    if isinstance(found, Decision):
        return found
    log, subscription, visible_at = found
    cursor, shown, body = request.cursor, 0, None
    reply: Lost | NoMessagesYet | MessageBatches
    if subscription.moved and cursor < subscription.cursor:
        end = subscription.cursor
        reply = Lost(**echo(state, request), first=cursor, end=end, operator=True)
    elif cursor < log.start:
        removed = True if cursor < log.removed_to else UNSET
        reply = Lost(**echo(state, request), first=cursor, end=log.start, operator=removed)
        visible_at = max(visible_at, log.trim_lsn)
    elif cursor < (kept_from := log.kept_from):
        bound = log.retention.waiting_messages_max
        reply = Lost(**echo(state, request), first=cursor, end=kept_from, waiting_max=bound)
    elif cursor == log.durable_end:
        reply = NoMessagesYet(**echo(state, request), end=cursor)
    else:
        reply, body = batches_from(state, request, log, cursor)
        if isinstance(reply, MessageBatches):
            last = reply.batches[-1]
            shown = last.base + last.count
    moves = cursor_moved(request, log, subscription, urgent=False, shown=shown)
    if moves and moves[0].takes:  # what is shown now must not come again after a crash
        visible_at = state.lsn + len(moves)
    return Decision(reply, moves, visible_at, body, isinstance(reply, NoMessagesYet))


def ack(state: State, request: Ack, _body: bytes, _now_ns: int) -> Decision:
    """Move the cursor durably."""
    found = subscription_of(state, request)
    if isinstance(found, Decision):
        return found
    log, subscription, visible_at = found
    moves = cursor_moved(request, log, subscription, urgent=True)
    cursor = moves[0].cursor if moves else subscription.durable_cursor
    reply = PutAck(**echo(state, request), offset=cursor)
    return decided(state, reply, *moves) if moves else Decision(reply, visible_at=visible_at)


def history(state: State, request: History, _body: bytes, now_ns: int) -> Decision:
    """Read stored batches; nothing is remembered."""
    log = state.topic_or_next(request.topic)
    start = request.start
    if start.at == "last":
        text = "HISTORY has no subscriber, so `last` says no place; ask from an offset"
        return Decision(malformed(state, text, request))
    if request.log is not None:
        cursor = start.value if start.at == "offset" else None
        changed = log_changed(state, request, log, cursor)
        if changed is not None:
            return changed
    first = start_offset(state, request, log, start, log.durable_end, now_ns)
    if isinstance(first, Decision):
        return first
    if first >= log.durable_end:
        known = log.log if request.topic in state.topics else UNSET
        reply = NoMessagesYet(**echo(state, request), end=log.durable_end, log=known)
        return Decision(reply, visible_at=log.lsn)
    found, body = batches_from(state, request, log, first, first=first, log=log.log)
    return Decision(found, body=body)


def batches_from(
    state: State, request: Get | History, topic: TopicLog, offset: int, **more: Any
) -> tuple[MessageBatches | Lost, bytes | None]:
    """Whole durable batches from an offset, and their bodies.

    Args:
        more: further fields of the reply.
    """
    end = topic.durable_end
    batches = state.reader.read(
        topic.topic_id, offset, messages_max=request.messages_max, bytes_max=request.bytes_max
    )
    # The store may hold batches whose commit was not reported yet: they are not visible.
    batches = [batch for batch in batches if batch.base + batch.count <= end]
    if not batches or batches[0].base > offset:  # a loss that an operator has accepted
        found = batches[0].base if batches else end
        return Lost(**echo(state, request), first=offset, end=found), None
    headers = tuple([batch.header for batch in batches])
    reply = MessageBatches(**echo(state, request), batches=headers, end=end, **more)
    body = batches[0].body if len(batches) == 1 else b"".join([b.body for b in batches])
    return reply, body


def cursor_moved(
    request: Get | Ack,
    log: TopicLog,
    subscription: Subscription,
    *,
    urgent: bool,
    shown: int = 0,
) -> tuple[CursorMoved, ...]:
    """The record that moves a cursor, if there is anything to move.

    Args:
        urgent: the reply waits for it (ACK).
        shown: the end of what the reply shows.
    """
    # The reply to an ACK needs a durable cursor, even if a lazy record has already moved it.
    held = subscription.durable_cursor if urgent else subscription.cursor
    cursor = max(request.cursor, subscription.cursor)
    if urgent and cursor == request.cursor:
        # After an ACK nothing is in flight; but messages below `before` may have been sent.
        shown = max(cursor, subscription.before)
    else:
        shown = max(shown, cursor, subscription.shown)
    takes = bool(subscription.moved) and request.cursor >= subscription.cursor
    if request.cursor <= held and shown == subscription.shown and not takes:
        return ()
    generation, terms = subscription.generation, subscription.terms
    is_urgent = urgent or takes
    moved = CursorMoved(
        log.topic_id, request.client, generation, cursor, is_urgent, shown, terms, takes
    )
    return (moved,)


def subscription_of(
    state: State, request: Get | Ack | Dead | Ring
) -> tuple[TopicLog, Subscription, int] | Decision:
    """The live subscription of a request, and the record its reply depends on."""
    session = fence(state, "subscriber", request)
    if isinstance(session, Decision):
        return session
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(request.client) if log else None
    if log is None or known is None or not known.active:
        return not_subscribed(state, request, known)
    is_current = request.generation == known.generation and request.boot == state.boot
    if known.expired or not is_current:
        why = ", because an operator has moved it" if known.moved else ""
        text = (
            f"subscription {request.generation} of {request.client!r} to {request.topic!r} is "
            f"to be confirmed{why}; the current one is {known.generation}: subscribe again"
        )
        return Decision(Stale(**echo(state, request), text=text), visible_at=known.lsn)
    if not isinstance(request, Ring) and request.cursor > log.durable_end:
        why = f"offset {request.cursor} is beyond its end {log.durable_end}"
        return not_this_log(state, request, log, why)
    return log, known, max(session.lsn, known.lsn)


def not_subscribed(
    state: State, request: Get | Ack | Dead | Ring | Sub, known: Subscription | None
) -> Decision:
    """Refuse a request without a subscription, or whose subscription has ended."""
    text = f"{request.client!r} is not subscribed to {request.topic!r}; subscribe first"
    if known is not None:
        why = "expired, because it was silent for too long" if known.expired else "has ended"
        text += f" (subscription {known.generation} {why})"
    reply = NotSub(**echo(state, request), text=text)
    return Decision(reply, visible_at=known.lsn if known else 0)
