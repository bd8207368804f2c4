"""HELLO: epochs, by which a newer process replaces an older one (rule R11); who was heard when."""

from __future__ import annotations

from msgspec import UNSET

from reliable_pubsub.common.core.answers import Fenced, HelloAck, TopicPosition
from reliable_pubsub.common.core.limits import EPOCH_STEP_MAX
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requests import AnyRequest, Hello

from .forgetting import session_forgotten
from .records import Decision, Granted
from .replies import decided, echo, limit_reached
from .state import Record, State
from .subscriptions import Session


def heard(state: State, request: AnyRequest, now_s: float, *, renews: bool) -> None:
    """Renew the leases of a request's sender, if its epoch is current.

    Args:
        now_s: monotonic clock.
        renews: it is a request of a subscriber, by which its leases continue.
    """
    leases, client = state.leases, request.client
    leases.now_s = now_s
    if state.idle_sessions:
        for key in (("publisher", client), ("subscriber", client)):
            if key in state.idle_sessions:
                state.idle_sessions[key] = state.idle_sessions.pop(key)
    # Also without a lease: a SUB may create one, and an operator may revive one.
    if renews:
        session = state.sessions.get(("subscriber", client))
        if session is not None and session.epoch == request.epoch:
            leases.heard_s[client] = now_s


def fence(state: State, role: Role, request: AnyRequest) -> Session | Decision:
    """The sender's session, or FENCED if the request is not of its current epoch."""
    session = state.sessions.get((role, request.client))
    if session is not None and session.epoch == request.epoch:
        return session
    if session is None or not session.epoch:
        return _unknown(state, request)
    text = (
        f"epoch {request.epoch} of {request.client!r} is not the current one, {session.epoch}; "
        "a newer process uses this id"
    )
    return _fenced(state, request, session, text)


def without_session(state: State, role: Role, request: AnyRequest) -> Decision | None:
    """FENCED if the sender has no session; None if it has one, of any epoch."""
    return None if (role, request.client) in state.sessions else _unknown(state, request)


def _unknown(state: State, request: AnyRequest) -> Decision:
    text = f"this proxy does not know {request.client!r}; send HELLO first"
    return _fenced(state, request, None, text)


def _fenced(state: State, request: AnyRequest, session: Session | None, text: str) -> Decision:
    current, lsn = (session.epoch, session.lsn) if session else (0, 0)
    reply = Fenced(**echo(state, request), current_epoch=current, text=text)
    return Decision(reply, visible_at=lsn)


def hello(state: State, request: Hello, _body: bytes, _now_ns: int) -> Decision:
    """Grant a higher epoch; answer the retry of the current one (rule R11).

    An unknown id may have been forgotten: its epochs were then at or below the floor.
    """
    session = state.sessions.get((request.role, request.client))
    current = session.epoch if session else state.epoch_floor
    if session and request.epoch == current and request.nonce == session.nonce:
        newest = max((_position_lsn(state, request, topic) for topic in request.topics), default=0)
        return Decision(hello_ack(state, request), visible_at=max(session.lsn, newest))
    if not current < request.epoch <= current + EPOCH_STEP_MAX:
        text = (
            f"epoch {request.epoch} of {request.client!r} cannot be granted, only one above "
            f"{current}, by at most {EPOCH_STEP_MAX:,}"
        )
        if session is not None:
            return _fenced(state, request, session, text)
        forgotten = True if current else UNSET
        reply = Fenced(
            **echo(state, request), current_epoch=current, text=text, forgotten=forgotten
        )
        return Decision(reply, visible_at=state.epoch_floor_lsn)
    room: tuple[Record, ...] = ()
    if session is None and len(state.sessions) >= state.settings.clients_max:
        if not state.idle_sessions:
            return limit_reached(state, request, "clients_max")
        room = (*session_forgotten(state, *next(iter(state.idle_sessions))),)
    granted = Granted(request.role, request.client, request.epoch, request.nonce)
    return decided(state, hello_ack(state, request), *room, granted)


def hello_ack(state: State, request: Hello) -> HelloAck:
    """The epoch is granted; what is stored of the sender's numbering."""
    return HelloAck(
        **echo(state, request),
        positions=tuple(_position(state, request.client, topic) for topic in request.topics),
    )


def _position(state: State, publisher: str, topic: str) -> TopicPosition:
    log = state.topics.get(topic)
    mark = log.publishers.get(publisher) if log else None
    return TopicPosition(
        topic=topic,
        log=log.log if log else "",
        last_sequence=mark.last_sequence if mark else 0,
        offset=mark.base + mark.count - 1 if mark else None,
    )


def _position_lsn(state: State, request: Hello, topic: str) -> int:
    """The record that must be durable before a position may be shown."""
    log = state.topics.get(topic)
    mark = log.publishers.get(request.client) if log else None
    return max(log.lsn if log else 0, mark.lsn if mark else 0)
