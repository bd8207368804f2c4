"""SUB, UNSUB, BYE: subscriptions begin, resume, move and end (rule R12)."""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import ByeAck, Stale, SubAck, UnsubAck
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.pattern_messages import Match
from reliable_pubsub.common.core.requests import Bye, Sub, Unsub

from .appending import resumed, topic_for
from .changed_log import log_changed, witness_ns
from .reading import not_subscribed
from .records import Decision
from .replies import decided, echo, limit_reached, malformed, not_served
from .sessions import fence
from .start_offset import chosen_offset
from .state import Record, State
from .stored import Moved
from .subscription_records import ControlSeen, Subscribed, unsubscribed
from .subscriptions import Session, Subscription, skipped_by
from .topic_log import TopicLog


def sub(state: State, request: Sub, _body: bytes, now_ns: int) -> Decision:
    """Begin, resume or reposition a subscription (rules R12 to R14, R18)."""
    session = fence(state, "subscriber", request)
    if isinstance(session, Decision):
        return session
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(request.client) if log else None
    if request.control < session.control:
        return stale_control(state, request, session)
    if request.group is not UNSET:
        return _of_group(state, request, session, now_ns)
    active = known if known and known.active else None
    if (others := other_terms(state, request)) is not None:  # it takes nothing from them (R32)
        request = replace(request, terms=request.terms.joined(others))
    if request.control == session.control:
        if not (active and active.expired):
            return _repeated_sub(state, request, log, known, session)
        request = replace(request, start=None, cursor=None)  # a copy moves nothing
    refused = log_changed(
        state, request, state.topic_or_next(request.topic), request.cursor
    ) or refused_clean_session(state, request, known)
    if refused is not None:
        return refused
    if log and not active and log.live_count >= state.settings.subscriptions_per_topic_max:
        return limit_reached(state, request, "subscriptions_per_topic_max")
    found = topic_for(state, request, request.topic)
    if isinstance(found, Decision):
        return found
    log, created = found
    place = _place_of(state, request, log, known, now_ns)
    if isinstance(place, Decision):
        return place
    generation, cursor, moved = place
    subscribed = Subscribed(
        log.topic_id,
        request.client,
        generation,
        cursor,
        session.epoch,
        session.nonce,
        request.control,
        max(known.shown, cursor) if known else cursor,
        request.terms,
        moved,
        None if moved else skipped_by(known, cursor, by_start=request.start is not None),
    )
    then = Subscription(
        generation, cursor, cursor, True, 0, subscribed.shown, subscribed.terms, moved=moved
    )
    return decided(
        state, _sub_ack(state, request, log, then, already=active is not None), *created, subscribed
    )


def other_terms(state: State, request: Sub | Unsub) -> Terms | None:
    """Return the terms that a subscriber has in a topic besides its own SUB; None: it has none."""
    for terms in state.hooks.terms:
        if (found := terms(state, request.client, request.topic)) is not None:
            return found
    return None


def _of_group(state: State, request: Sub | Unsub, session: Session, now_ns: int) -> Decision:
    """Let the feature of groups decide the SUB or UNSUB of a member."""
    verb = state.hooks.of_groups.get(type(request))
    if verb is None:
        return Decision(not_served(state, request, "$.group"))
    decision: Decision = verb(state, request, session, now_ns)
    return decision


def _place_of(
    state: State, request: Sub, log: TopicLog, known: Subscription | None, now_ns: int
) -> tuple[int, int, Moved] | Decision:
    """The generation and the cursor of a subscription, and whether an operator chose them."""
    active = known if known and known.active else None
    generation = known.generation if known else state.generation_floor
    if active is not None and _goes_where_an_operator_put_it(active, request):
        return generation, active.cursor, active.moved
    if request.start is not None and (active is None or begins_again(active, request)):
        cursor = chosen_offset(state, request, log, known, request.start, now_ns)
        if isinstance(cursor, Decision):
            return cursor
        return generation + 1, cursor, _skipped_by_operator(known, request, cursor)
    if active is None:
        cursor = log.end if request.cursor is None else request.cursor
        if known is not None and known.moved and request.cursor is not None:
            cursor = max(cursor, known.cursor)
        return generation + 1, cursor, _skipped_by_operator(known, request, cursor)
    return generation, max(active.cursor, request.cursor or 0), ""


def begins_again(active: Subscription, request: Sub) -> bool:
    """Return whether a start moves an existing subscription (rule R33); else it resumes."""
    if request.start is None or request.start.at == "last":
        return False
    return (
        bool(request.seeks)
        or request.terms.qos == 0
        or "clean"
        in {
            request.terms.session,
            active.terms.session,
        }
    )


def _goes_where_an_operator_put_it(active: Subscription, request: Sub) -> bool:
    """Whether a subscription stays where an operator moved it, whatever the request names.

    It does until the subscriber has read from there, or sends a `start` without a cursor.
    """
    if not active.moved:
        return False
    if request.cursor is None:
        return request.start is None or request.start.at == "last"
    return active.moved == "set" or request.cursor < active.cursor


def _skipped_by_operator(known: Subscription | None, request: Sub, cursor: int) -> Moved:
    """Return the operator's move of a subscription that ended before its subscriber saw it.

    Otherwise it would pass over what was skipped, and GET would report no loss.
    """
    if known is None or request.cursor is None:
        return ""
    return known.moved if request.cursor < cursor == known.cursor else ""


def _repeated_sub(
    state: State, request: Sub, log: TopicLog | None, known: Subscription | None, session: Session
) -> Decision:
    """Answer a repeat of the last SUB; if its clean session has ended, do not begin another."""
    if log is None or known is None:
        # The number was for another topic, or its subscription has ended and was removed. For a
        # clean session the reply is the same as before the removal.
        if request.terms.session == "clean":
            return not_subscribed(state, request, None)
        return stale_control(state, request, session)
    if not known.active:
        return not_subscribed(state, request, known)
    return Decision(_sub_ack(state, request, log, known, already=True), visible_at=known.lsn)


def refused_clean_session(
    state: State, request: Sub, known: Subscription | None
) -> Decision | None:
    """Refuse a clean session without a lease, or the resumption of one that has ended."""
    if request.terms.session != "clean":
        return None
    if not request.terms.lease_ms:
        text = "a clean session needs a lease: without one the proxy cannot know when it has ended"
        return Decision(malformed(state, text, request))
    goes_on = request.cursor is not None and request.start is None
    if goes_on and (known is None or not known.active):
        return not_subscribed(state, request, known)
    return None


def _sub_ack(
    state: State, request: Sub, log: TopicLog, subscription: Subscription, *, already: bool
) -> SubAck:
    return SubAck(
        **echo(state, request),
        topic=request.topic,
        generation=subscription.generation,
        log=log.log,
        cursor=subscription.cursor,
        already=already,
        witness_ns=witness_ns(state, log, subscription.cursor),
        terms=subscription.terms,
        shown=subscription.shown,
        moved=True if subscription.moved else UNSET,
    )


def unsub(state: State, request: Unsub, _body: bytes, now_ns: int) -> Decision:
    """End a subscription (rule R12)."""
    session = fence(state, "subscriber", request)
    if isinstance(session, Decision):
        return session
    if request.control < session.control:
        return stale_control(state, request, session)
    if request.group is not UNSET:
        return _of_group(state, request, session, now_ns)
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(request.client) if log else None
    if log is None or known is None or not known.active:
        gone = UnsubAck(**echo(state, request), topic=request.topic, already=True)
        if request.control == session.control:
            return Decision(gone, visible_at=session.lsn)
        seen = ControlSeen(request.client, session.epoch, session.nonce, request.control)
        return decided(state, gone, seen)
    if request.control == session.control:  # not a copy: the first one would have ended it
        return stale_control(state, request, session)
    terms = other_terms(state, request)
    if terms is None:
        ends: Record = unsubscribed(log.topic_id, request.client, known, session, request.control)
    else:  # it still has it by others (rule R32)
        ends = resumed(state, log, request.client, session, terms, request.control)
    reply = UnsubAck(**echo(state, request), topic=request.topic, already=False)
    return decided(state, reply, ends)


def bye(state: State, request: Bye, _body: bytes, _now_ns: int) -> Decision:
    """End the clean sessions of a subscriber; nothing of them is kept."""
    session = fence(state, "subscriber", request)
    if isinstance(session, Decision):
        return session
    ended = [
        unsubscribed(log.topic_id, request.client, one, session)
        for log in map(state.topic_by_id.__getitem__, state.subscribed.get(request.client, ()))
        if (one := log.subscriptions[request.client]).terms.session == "clean"
    ]
    reply = ByeAck(**echo(state, request), ended=len(ended))
    return decided(state, reply, *ended) if ended else Decision(reply, visible_at=session.lsn)


def stale_control(state: State, request: Sub | Unsub | Match, session: Session) -> Decision:
    """Refuse a late copy of a control request (rule R12)."""
    return Decision(
        Stale(
            **echo(state, request),
            text=f"control request {request.control} of {request.client!r} came after number "
            f"{session.control} was used; it has no effect",
        ),
        visible_at=session.lsn,
    )
