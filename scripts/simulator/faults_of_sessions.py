"""Planted faults of levels, starts and sessions; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.answers import SubAck
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.message_base import Start, StartAt
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.core.requests import Ack, AnyRequest, Bye, Get, History, Put, Sub
from reliable_pubsub.lab.variants import Rule, append_again
from reliable_pubsub.proxy.core.forgetting import trims_due
from reliable_pubsub.proxy.core.lease_ends import lease_ends_s
from reliable_pubsub.proxy.core.publishing import put
from reliable_pubsub.proxy.core.records import Decision, Trimmed
from reliable_pubsub.proxy.core.sessions import fence, heard
from reliable_pubsub.proxy.core.start_offset import (
    first_offset,
    named_offset,
    own_offset,
    start_offset,
    truncated,
)
from reliable_pubsub.proxy.core.state import State
from reliable_pubsub.proxy.core.subscribing import begins_again, bye, refused_clean_session, sub
from reliable_pubsub.proxy.core.subscription_records import Subscribed
from reliable_pubsub.proxy.core.subscriptions import Subscription
from reliable_pubsub.proxy.core.topic_log import TopicLog
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.core.subscribing import Subscribing
from reliable_pubsub.subscriber.core.subscription import TopicSubscription

from .faults_of_clients import with_parts
from .faulty_parts import with_decision, with_request
from .simulation import Variant

# Levels.


def no_deduplication_when_mixed(state: State, request: Put, *more: Any) -> Decision:
    """A publisher that has put at QoS 1 to a topic is not compared there any more."""
    log = state.topics.get(request.topic)
    session = fence(state, "publisher", request)
    if log and request.client in log.unnumbered and not isinstance(session, Decision):
        return append_again(state, request, *more)
    return put(state, request, *more)


def acknowledge_level_1_unstored(_state: State, request: Put, decision: Decision) -> Decision:
    """At QoS 1 the answer does not wait for the disk."""
    return decision if request.qos == 2 else replace(decision, visible_at=0)


class RecordsLevel1Lazily(Subscriber):
    """At QoS 1 the output is cut, after power loss, below the cursor that the proxy has."""

    def record(self, topic: Topics, note: bytes) -> None:
        assert isinstance(topic, str)
        place = self.inbox.places.get(topic)
        if place is None or place.terms.qos == 2:
            super().record(topic, note)
            return
        subscription = self.inbox.of(topic)
        self._run(self._engine.topics.settle(subscription))
        self._run(self.inbox.save(subscription, also=self.inbox.write_note(note)))


# Where a subscription begins.


def _misplaced(at: StartAt, by: int) -> Mapping[Rule, Rule]:
    """One kind of start is another place."""

    def misplace(
        state: State, request: Sub | History, log: TopicLog, start: Start, end: int, now_ns: int
    ) -> int | Decision:
        place = start_offset(state, request, log, start, end, now_ns)
        if start.at != at or isinstance(place, Decision):
            return place
        return min(max(place + by, log.start), end)

    return {start_offset: misplace}


def last_is_the_end(
    state: State, request: Sub, log: TopicLog, known: Subscription | None, start: Start, now_ns: int
) -> int | Decision:
    """What was put while the subscriber was not subscribed is left out."""
    place = first_offset(state, request, log, known, start, now_ns)
    return log.end if start.at == "last" and known is not None else place


def seek_keeps_generation(state: State, request: Sub, decision: Decision) -> Decision:
    """A place of its own does not make another subscription."""
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(request.client) if log else None
    if known is None or not known.active or not isinstance(decision.reply, SubAck):
        return decision
    records = tuple(
        replace(one, generation=known.generation) if isinstance(one, Subscribed) else one
        for one in decision.records
    )
    reply = replace(decision.reply, generation=known.generation)
    return replace(decision, reply=reply, records=records)


def forget_what_was_sent(_state: State, request: Sub, decision: Decision) -> Decision:
    """A subscription that begins elsewhere does not say what was sent before."""
    if request.start is None or not isinstance(decision.reply, SubAck):
        return decision
    return replace(decision, reply=replace(decision.reply, shown=decision.reply.cursor))


class SeekIsNotMarked(Subscribing):
    """What a client with a place of its own reads again looks like new."""

    def _take(self, subscription: TopicSubscription, sub: Any, reply: SubAck) -> Conversation[None]:
        return super()._take(
            subscription, replace(sub, before=None), replace(reply, shown=reply.cursor)
        )


def truncate_the_first(
    state: State, request: Sub | History, log: TopicLog, offset: int, end: int
) -> int | Decision:
    """The first offset that is left counts as removed."""
    if offset <= log.start and isinstance(request, Sub):
        return truncated(state, request, log, f"offset {offset} is no longer stored")
    return named_offset(state, request, log, offset, end)


# Sessions.


def one_lease(state: State, key: tuple[int, str]) -> float | None:
    """A subscription expires after one lease, not after two."""
    ends_s = lease_ends_s(state, key)
    if ends_s is None:
        return None
    return ends_s - state.topic_by_id[key[0]].subscriptions[key[1]].terms.lease_ms / 1000


def _hear_all_but(kind: type[AnyRequest]) -> Mapping[Rule, Rule]:
    """Requests of one kind are no sign of life."""

    def hear(state: State, request: AnyRequest, now_s: float, *, renews: bool) -> None:
        if not isinstance(request, kind):
            heard(state, request, now_s, renews=renews)

    return {heard: hear}


def hear_replaced_processes(
    state: State, request: AnyRequest, now_s: float, *, renews: bool
) -> None:
    """Late copies of requests of any epoch keep a lease."""
    heard(state, request, now_s, renews=renews)
    if isinstance(request, Get | Ack | Sub):
        state.leases.heard_s[request.client] = now_s


def trim_for_suspended(state: State) -> Sequence[Trimmed]:
    """What a suspended subscription has not read may be removed already."""
    suspended = [
        one
        for log in state.topic_by_id.values()
        for name, one in log.subscriptions.items()
        if not one.expired and state.leases.state_of(name, one) == "suspended"
    ]
    for one in suspended:
        one.expired = True
    try:
        return trims_due(state)
    finally:
        for one in suspended:
            one.expired = False


def at_the_first_stored(state: State, request: Sub) -> Sub:
    """A subscriber that comes back too late continues at the first stored message."""
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(request.client) if log else None
    if log and known and known.expired and request.cursor is not None:
        return replace(request, cursor=max(request.cursor, log.start), witness_ns=None)
    return request


def bye_ends_persistent_ones(state: State, request: Bye, *more: Any) -> Decision:
    """BYE ends every subscription."""
    kept = [
        (one, one.terms)
        for log in state.topics.values()
        if (one := log.subscriptions.get(request.client)) is not None
    ]
    for one, terms in kept:
        one.terms = replace(terms, session="clean")
    try:
        return bye(state, request, *more)
    finally:
        for one, terms in kept:
            one.terms = terms


def clean_continues_old_messages(
    state: State, request: Sub, log: TopicLog, known: Subscription | None, *more: Any
) -> int | Decision:
    """A clean session begins where the one before it ended."""
    if known is not None and request.terms.session == "clean" and known.cursor >= log.start:
        return known.cursor
    return first_offset(state, request, log, known, *more)


def late_sub_moves_expired(state: State, request: Sub, *more: Any) -> Decision:
    """The same SUB once more begins again, once its subscription has expired."""
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(request.client) if log else None
    session = state.sessions.get(("subscriber", request.client))
    if known and known.expired and session and session.control == request.control:
        session.control -= 1
        try:
            return sub(state, request, *more)
        finally:
            session.control += 1
    return sub(state, request, *more)


FAULTS_OF_SESSIONS: Mapping[str, Variant] = {
    # Numbers of QoS 1 are compared with those of QoS 2.
    "level 1 deduplicated": Variant(
        rules=with_request(put, lambda _, request: replace(request, qos=2))
    ),
    "no dedup where levels mix": Variant(rules={put: no_deduplication_when_mixed}),
    "level 1 ack before durable": Variant(rules=with_decision(put, acknowledge_level_1_unstored)),
    "level 1 recorded lazily": Variant(subscriber=RecordsLevel1Lazily),
    "earliest is one too late": Variant(rules=_misplaced("earliest", 1)),
    "newest counts wrong": Variant(rules=_misplaced("newest", 1)),
    "time is one too late": Variant(rules=_misplaced("time", 1)),
    "offset is one too early": Variant(rules=_misplaced("offset", -1)),
    "last begins at the end": Variant(rules={first_offset: last_is_the_end}),
    "a start moves what exists": Variant(rules={begins_again: lambda *_: True}),
    "seek keeps its generation": Variant(rules=with_decision(sub, seek_keeps_generation)),
    # A start counts as it is, also where the client has acknowledged more.
    "start below the cursor": Variant(rules={own_offset: lambda *_: 0}),
    "sent before, not reported": Variant(rules=with_decision(sub, forget_what_was_sent)),
    "seek not marked": Variant(subscriber=with_parts(subscribing=SeekIsNotMarked)),
    "first offset is truncated": Variant(rules={named_offset: truncate_the_first}),
    "expires after one lease": Variant(rules={lease_ends_s: one_lease}),
    "GET keeps no lease": Variant(rules=_hear_all_but(Get)),
    "keep-alive keeps no lease": Variant(rules=_hear_all_but(Ack)),
    "replaced processes are heard": Variant(rules={heard: hear_replaced_processes}),
    "suspended does not guard": Variant(rules={trims_due: trim_for_suspended}),
    "expired moved in silence": Variant(rules=with_request(sub, at_the_first_stored)),
    "BYE ends persistent ones": Variant(rules={bye: bye_ends_persistent_ones}),
    "clean continues old messages": Variant(rules={first_offset: clean_continues_old_messages}),
    "clean ends in silence": Variant(rules={refused_clean_session: lambda *_: None}),
    "late SUB moves the expired": Variant(rules={sub: late_sub_moves_expired}),
}
