"""GroupIndex: SUB and UNSUB of a member, TAKE, SETTLE.

The members of a group share one subscription. A message is held by one member at a time, until it
is settled or its lease ends; then it may be granted to another. Grants and ends are durable before
a member learns of them, so a restart of the proxy loses neither. The proxy measures a lease on its
monotonic clock from its decision, the member from sending its request, which is earlier: so the
member stops first.

Source: SQS's visibility timeout, JetStream's AckWait, and Kafka's share groups (KIP-932);
decisions/0048.
"""

from __future__ import annotations

from math import inf, nextafter
from typing import Final

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import Limit, NotSub, Stale, SubAck, UnsubAck
from reliable_pubsub.common.core.dead_letter import dead_topic
from reliable_pubsub.common.core.group_messages import Settle, Settled, Take, Taken
from reliable_pubsub.common.core.limits import GROUP_MEMBERS_MAX
from reliable_pubsub.common.core.message_base import GroupTerms, Role
from reliable_pubsub.common.core.requests import Sub, Unsub

from ..core.appending import topic_for
from ..core.changed_log import log_changed, witness_ns
from ..core.feature import Feature
from ..core.records import Decision
from ..core.replies import decided, echo, limit_reached, malformed
from ..core.sessions import fence
from ..core.start_offset import chosen_offset
from ..core.state import Hooks, State
from ..core.stored import StoredState
from ..core.subscription_records import ControlSeen
from ..core.subscriptions import Session
from ..core.topic_log import TopicLog
from ..core.waiting_gets import WaitKind
from .change import Change
from .records import CONSUMER_GROUP, GroupChanged
from .state import (
    GroupIndex,
    GroupRun,
    Member,
    StoredGroup,
    begun,
    merged,
    next_due_s,
    restored,
    subscription_of_group,
)

_WHOLE: Final = GroupTerms()


def join(state: State, request: Sub, session: Session, now_ns: int) -> Decision:
    """Make a client a member of a group; the first member creates the group."""
    assert request.group is not UNSET
    name = request.group
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(subscription_of_group(name)) if log else None
    group = state.part(GroupIndex).in_topic(log).get(name)
    if request.control == session.control:
        if log is None or known is None or group is None or request.client not in group.members:
            ended = _not_sub(state, request, name, log)  # it was a member, and is told at once
            return replace(ended, visible_at=max(session.lsn, ended.visible_at))
        reply = _sub_ack(state, request, log, known.generation, known.cursor, already=True)
        return Decision(reply, visible_at=max(session.lsn, known.lsn))
    terms = request.group_terms if request.group_terms is not UNSET else None
    refused = _refused(state, request, terms) or log_changed(
        state, request, state.topic_or_next(request.topic), request.cursor
    )
    if refused is not None:
        return refused
    seen = ControlSeen(request.client, session.epoch, session.nonce, request.control)
    if log is None or known is None or group is None:
        return _begin(state, request, seen, terms or _WHOLE, now_ns)
    if terms is not None and terms.ordered_by != group.terms.ordered_by and group.runs:
        text = (
            f"the group {name!r} of {request.topic!r} has messages in hand, and would be ordered "
            "otherwise: let it settle them first, or end the group"
        )
        return _stale(state, request, text, known.lsn)
    members = {
        one.name: one
        for one in group.members.values()
        if len(group.members) < GROUP_MEMBERS_MAX or _is_needed(group.runs, one.name)
    }
    if request.client not in members and len(members) >= GROUP_MEMBERS_MAX:
        text = f"the group {name!r} has {GROUP_MEMBERS_MAX:,} members that hold messages"
        return Decision(Limit(**echo(state, request), limit=GROUP_MEMBERS_MAX, text=text))
    runs = group.runs
    before = members.get(request.client)
    if before is None or before.epoch != request.epoch:
        runs = _given_back(runs, request.client, state.leases.now_s)
        members[request.client] = Member(request.client, request.epoch)
    made = GroupChanged(
        log.topic_id,
        name,
        known.generation,
        known.cursor,
        terms or group.terms,
        runs,
        tuple(members.values()),
        group.lost,
        member=request.client,
        epoch=request.epoch,
    )
    reply = _sub_ack(state, request, log, known.generation, known.cursor, already=True)
    return decided(state, reply, made, seen)


def _begin(
    state: State, request: Sub, seen: ControlSeen, terms: GroupTerms, now_ns: int
) -> Decision:
    """Make a group, and its first member."""
    assert request.group is not UNSET
    log = state.topics.get(request.topic)
    key = subscription_of_group(request.group)
    if request.cursor is not None:
        return _not_sub(state, request, request.group, log)
    if log and log.live_count >= state.settings.subscriptions_per_topic_max:
        return limit_reached(state, request, "subscriptions_per_topic_max")
    found = topic_for(state, request, request.topic)
    if isinstance(found, Decision):
        return found
    log, created = found
    known = log.subscriptions.get(key)
    cursor = log.end
    if request.start is not None:
        place = chosen_offset(state, request, log, known, request.start, now_ns)
        if isinstance(place, Decision):
            return place
        cursor = place
    generation = (known.generation if known else state.generation_floor) + 1
    made = GroupChanged(
        log.topic_id,
        request.group,
        generation,
        cursor,
        terms,
        (),
        (Member(request.client, request.epoch),),
        member=request.client,
        epoch=request.epoch,
        begins=True,
    )
    reply = _sub_ack(state, request, log, generation, cursor, already=False)
    return decided(state, reply, *created, made, seen)


def leave(state: State, request: Unsub, session: Session, _now_ns: int) -> Decision:
    """Remove a member, and free what it holds; or end the group."""
    assert request.group is not UNSET
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(subscription_of_group(request.group)) if log else None
    group = state.part(GroupIndex).in_topic(log).get(request.group)
    ends = request.ends_group is True
    if (
        log is None
        or known is None
        or group is None
        or (request.client not in group.members and not ends)
    ):
        gone = UnsubAck(**echo(state, request), topic=request.topic, already=True)
        if request.control == session.control:
            return Decision(gone, visible_at=max(session.lsn, known.lsn if known else 0))
        seen = ControlSeen(request.client, session.epoch, session.nonce, request.control)
        return decided(state, gone, seen)
    if request.control == session.control:  # not a copy: the first one would have done it
        return _stale(state, request, "this control number is used", session.lsn)
    members = tuple(one for one in group.members.values() if one.name != request.client)
    made = GroupChanged(
        log.topic_id,
        request.group,
        known.generation,
        known.cursor,
        group.terms,
        _given_back(group.runs, request.client, state.leases.now_s),
        members,
        group.lost,
        member=request.client,
        epoch=request.epoch,
        ends=ends,
    )
    seen = ControlSeen(request.client, session.epoch, session.nonce, request.control)
    reply = UnsubAck(**echo(state, request), topic=request.topic, already=False)
    return decided(state, reply, made, seen)


def take(state: State, request: Take, _body: bytes, now_ns: int) -> Decision:
    """Settle, and grant the next messages."""
    found = _change_of(state, request, now_ns)
    if isinstance(found, Decision):
        return found
    change, visible_at = found
    member = change.member
    if request.request == member.request:
        _repeat(change, member)
        change.granted_before(request)
    else:
        refused = change.settle(request.outcomes)
        if refused is not None:
            return refused
        change.give_back(lambda run: run.take > request.received, counted=False)
        if request.fresh:
            change.give_back(lambda run: True, counted=True)
        else:
            change.heard(member.lost)
    change.forget_lost()
    if not change.grants:
        change.grant(request)
    answer = change.answer
    reply = Taken(
        **echo(state, request),
        grants=tuple(change.grants),
        batches=tuple([batch.header for batch in change.reading.batches]),
        refused=tuple(answer.refused),
        letters=tuple(answer.letters),
        lost=change.tell_lost(),
        lease_ms=change.lease_ms,
        unconfirmed=change.is_unconfirmed or UNSET,
    )
    records = change.records()
    if records:
        visible_at = state.lsn + len(records)
    is_empty = not (reply.grants or reply.refused or reply.letters or reply.lost)
    return Decision(reply, records, visible_at, change.reading.body, is_empty)


def settle(state: State, request: Settle, _body: bytes, now_ns: int) -> Decision:
    """Settle messages."""
    found = _change_of(state, request, now_ns)
    if isinstance(found, Decision):
        return found
    change, visible_at = found
    if request.request == change.member.request:
        _repeat(change, change.member)
    else:
        refused = change.settle(request.outcomes)
        if refused is not None:
            return refused
    answer = change.answer
    reply = Settled(
        **echo(state, request),
        refused=tuple(answer.refused),
        letters=tuple(answer.letters),
        lease_ms=change.lease_ms,
    )
    records = change.records()
    return decided(state, reply, *records) if records else Decision(reply, visible_at=visible_at)


def _repeat(change: Change, member: Member) -> None:
    """The request was decided before: answer the same."""
    change.answer.refused += member.refused
    change.answer.letters += member.letters


def _change_of(state: State, request: Take | Settle, now_ns: int) -> tuple[Change, int] | Decision:
    """The group of a request as a draft, and the record that its reply depends on."""
    session = fence(state, "subscriber", request)
    if isinstance(session, Decision):
        return session
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(subscription_of_group(request.group)) if log else None
    group = state.part(GroupIndex).in_topic(log).get(request.group)
    member = group.members.get(request.client) if group else None
    if (
        log is None
        or known is None
        or not known.listens
        or member is None
        or member.epoch != request.epoch
        or request.generation != known.generation
    ):
        return _not_sub(state, request, request.group, log)
    if request.request < member.request:
        text = f"request {request.request} of {request.client!r} came after {member.request}"
        return _stale(state, request, text, known.lsn)
    if dead_topic(request.topic) is None and any(o.how == "reject" for o in request.outcomes):
        text = f"topic {request.topic!r} has no dead letters; acknowledge the message"
        return Decision(malformed(state, text, request))
    change = Change(state, log, request, member, now_ns)
    return change, max(session.lsn, known.lsn)


def _refused(state: State, request: Sub, terms: GroupTerms | None) -> Decision | None:
    """Refuse terms that a group cannot have."""
    if request.terms.session == "clean" or request.terms.lease_ms or request.terms.qos != 2:
        text = "SUB: a group has no $.terms, but $.group_terms"
        return Decision(malformed(state, text, request))
    if terms is not None and terms.max_deliveries and dead_topic(request.topic) is None:
        text = f"topic {request.topic!r} has no dead letters, so no max_deliveries"
        return Decision(malformed(state, text, request))
    return None


def _is_needed(runs: tuple[GroupRun, ...], member: str) -> bool:
    return any(run.is_held and run.member == member for run in runs)


def _given_back(runs: tuple[GroupRun, ...], member: str, now_s: float) -> tuple[GroupRun, ...]:
    """Free what a member holds; what it has confirmed may have been delivered."""
    return tuple(
        merged(
            GroupRun(run.first, run.end, "free", run.delivered, until_s=now_s)
            if run.is_held and run.member == member
            else run
            for run in runs
        )
    )


def _sub_ack(
    state: State, request: Sub, log: TopicLog, generation: int, cursor: int, *, already: bool
) -> SubAck:
    return SubAck(
        **echo(state, request),
        topic=request.topic,
        generation=generation,
        log=log.log,
        cursor=cursor,
        already=already,
        witness_ns=witness_ns(state, log, cursor),
        shown=cursor,
    )


def _stale(
    state: State, request: Sub | Unsub | Take | Settle, text: str, visible_at: int
) -> Decision:
    text = f"{text}; it has no effect"
    return Decision(Stale(**echo(state, request), text=text), visible_at=visible_at)


def _not_sub(
    state: State, request: Sub | Take | Settle, group: str, log: TopicLog | None
) -> Decision:
    known = log.subscriptions.get(subscription_of_group(group)) if log else None
    text = (
        f"{request.client!r} is no longer a member of a group {group!r} of {request.topic!r}, or "
        "the group has ended; subscribe again"
    )
    reply = NotSub(**echo(state, request), text=text)
    return Decision(reply, visible_at=known.lsn if known else 0)


def nothing_taken(state: State, request: Take) -> Taken:
    """Answer a TAKE whose sender has asked again, and would never learn what it was granted."""
    return Taken(**echo(state, request))


# At moments of the core.


def restore(state: State, stored: StoredState) -> None:
    """Add the stored groups, and count their members."""
    groups = state.part(GroupIndex)
    for one in stored.of(StoredGroup):
        groups.of.setdefault(one.topic_id, {})[one.group] = restored(one)
        for member in one.members:
            groups.count(member.name, 1)


def is_member(state: State, role: Role, client: str) -> bool:
    """Return whether a session is a member of a group."""
    return role == "subscriber" and client in state.part(GroupIndex).members


def begin_leases(state: State) -> None:
    """Begin the leases and delays that were read from the store."""
    now_s = state.leases.now_s
    for topic_id, groups in state.part(GroupIndex).of.items():
        for name, group in groups.items():
            group.runs = begun(group.runs, now_s)
            watch(state, topic_id, name, now_s)


def watch(state: State, topic_id: int, name: str, now_s: float) -> None:
    """Note when the next lease or delay of a group is over."""
    groups = state.part(GroupIndex)
    group = groups.of.get(topic_id, {}).get(name)
    due_s = next_due_s(group.runs, now_s) if group else None
    if due_s is not None:
        groups.due.add((topic_id, name), due_s)


def topics_due(state: State) -> list[str]:
    """The topics in which messages of a group have become free by time."""
    groups = state.part(GroupIndex)
    if not groups.due:
        return []
    now_s = state.leases.now_s

    def number(key: tuple[int, str]) -> float | None:
        group = groups.of.get(key[0], {}).get(key[1])
        return next_due_s(group.runs, groups.seen_s) if group else None

    keys = groups.due.take_below(nextafter(now_s, inf), number)
    groups.seen_s = now_s
    for topic_id, name in keys:
        watch(state, topic_id, name, now_s)
    return [state.topic_by_id[topic_id].topic for topic_id, _ in keys]


FEATURE: Final = Feature(
    name="groups",
    verbs={Take: take, Settle: settle},
    of_subscribers={Take: False, Settle: False},
    waits={Take: WaitKind(lambda request: request.topic, nothing=nothing_taken)},
    tables=(CONSUMER_GROUP,),
    begin=begin_leases,
    freed=topics_due,
    hooks=Hooks(restore=[restore], holds=[is_member], of_groups={Sub: join, Unsub: leave}),
)
