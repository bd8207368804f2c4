"""ADMIN and CLIENTS: what operators look at and do (rule R28).

Each action is a function that returns its effect and its records, and changes nothing. A look is
the decision without the records. An action that is done is itself a record, `Administered`, in the
same commit as its effect; its number and nonce identify a copy of a request that was done.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.actions import (
    AdminAck,
    AdminRequest,
    DeleteTopic,
    Effect,
    EndSubscription,
    ForgetClient,
    Pause,
    Resume,
    SetCursor,
    Skip,
    Truncate,
)
from reliable_pubsub.common.core.answers import Busy, NotPossible, Stale
from reliable_pubsub.common.core.message_base import Role, Start
from reliable_pubsub.common.core.names import GROUP_PREFIX
from reliable_pubsub.common.core.requests import AnyRequest, History, Put
from reliable_pubsub.common.core.status import Clients, ClientsReport, ClientStatus
from reliable_pubsub.common.core.transaction_messages import Commit, Stage

from ..core.appending import begun_after
from ..core.batches import LogBatch
from ..core.feature import Arrival, Feature, Runtime
from ..core.forgetting import session_forgotten
from ..core.records import Decision, Forgotten, TopicDeleted, Trimmed, trimmed_to
from ..core.replies import decided, echo, malformed
from ..core.start_offset import start_offset
from ..core.state import Hooks, Record, State
from ..core.stored import Moved, StoredState
from ..core.subscription_records import unsubscribed
from ..core.subscriptions import Subscription
from ..core.topic_log import TopicLog
from ..groups.records import GroupChanged
from ..groups.state import GroupIndex, is_group, subscription_of_group
from ..patterns.index import PatternIndex
from ..transactions.staging import Staging
from .history import Administration, Deed, StoredAction, StoredPause, note_removed
from .records import ADMIN_ACTION, PAUSED, Administered

ROLES: Final[tuple[Role, ...]] = ("publisher", "subscriber")


class Planned(Struct, frozen=True):
    """What an action would do."""

    effect: Effect = Effect()
    records: tuple[Record, ...] = ()
    changes: bool = True  # False: there is nothing to do


NOTHING: Final = Planned(changes=False)
Plan = Planned | Decision  # a decision refuses the action


def admin(state: State, request: AdminRequest, _body: bytes, now_ns: int) -> Decision:
    """Look at an action, or do it once (rule R28)."""
    known = state.part(Administration)
    if request.number and request.nonce is None:
        return Decision(malformed(state, "an action that is done needs a nonce", request))
    done = known.newest.get(request.number)
    if done is not None and done.nonce == request.nonce:
        reply = _ack(state, request, done.number, done.effect, done=True, already=True)
        return Decision(reply, visible_at=known.lsn)
    number = known.last_number + 1
    if request.number not in (0, number):
        text = (
            f"action {number} is the next one, so another operator's came before this one; nothing "
            "was changed: look again"
        )
        return Decision(Stale(**echo(state, request), text=text), visible_at=known.lsn)
    plan = PLANS[type(request.do)](state, request, request.do, now_ns)
    if isinstance(plan, Decision):
        return replace(plan, visible_at=state.lsn)
    if not request.number or not plan.changes:
        nothing = not plan.changes
        reply = _ack(state, request, number, plan.effect, done=False, already=nothing)
        return Decision(reply, visible_at=state.lsn)
    assert request.nonce is not None
    record = Administered(
        number, request.nonce, now_ns, known.asker, request.client, request.do, plan.effect
    )
    reply = _ack(state, request, number, plan.effect, done=True, already=False)
    return decided(state, reply, record, *plan.records)


def _ack(
    state: State, request: AdminRequest, number: int, effect: Effect, *, done: bool, already: bool
) -> AdminAck:
    return AdminAck(
        **echo(state, request), number=number, done=done, already=already, effect=effect
    )


def _not_possible(state: State, request: AdminRequest, why: str) -> Decision:
    return Decision(NotPossible(**echo(state, request), text=f"{why}; nothing was changed"))


# Subscriptions.


def _subscription(
    state: State, request: AdminRequest, topic: str, subscriber: str
) -> tuple[TopicLog, Subscription] | Decision:
    log = state.topics.get(topic)
    one = log.subscriptions.get(subscriber) if log else None
    if log is None or one is None or not one.active:
        return _not_possible(
            state, request, f"{subscriber!r} is not subscribed to {topic!r} (see `admin list`)"
        )
    return log, one


def end_subscription(
    state: State, request: AdminRequest, do: EndSubscription, _now_ns: int
) -> Plan:
    """End a subscription; what it had acknowledged is remembered, as after UNSUB."""
    if do.topic not in state.topics:
        return _not_possible(state, request, f"there is no topic {do.topic!r}")
    found = _subscription(state, request, do.topic, do.subscriber)
    if isinstance(found, Decision):
        return NOTHING
    log, one = found
    effect = Effect(first=one.cursor, end=one.cursor, generation=one.generation, subscriptions=1)
    if is_group(do.subscriber):
        name = do.subscriber.removeprefix(GROUP_PREFIX)
        return Planned(effect, (_group_ended(state, log, name),))
    session = state.sessions["subscriber", do.subscriber]
    return Planned(effect, (unsubscribed(log.topic_id, do.subscriber, one, session),))


def skip(state: State, request: AdminRequest, do: Skip, _now_ns: int) -> Plan:
    """Move a cursor forward; the subscriber gets LOST."""
    found = _subscription(state, request, do.topic, do.subscriber)
    if isinstance(found, Decision):
        return found
    log, one = found
    first = max(one.cursor, log.start)
    end = _batch(state, log, first)[1] if do.end is None else do.end
    if end <= one.cursor:
        if do.end is None:
            why = f"there is nothing that {do.subscriber!r} has not acknowledged"
            return _not_possible(state, request, why)
        return Planned(Effect(first=one.cursor, end=one.cursor), changes=False)
    if end > log.durable_end:
        return _beyond(state, request, log, end)
    return _moved(state, log, do.subscriber, one, end, "skip")


def set_cursor(state: State, request: AdminRequest, do: SetCursor, now_ns: int) -> Plan:
    """Move a cursor to a place, back or forward."""
    found = _subscription(state, request, do.topic, do.subscriber)
    if isinstance(found, Decision):
        return found
    log, one = found
    place = _place(state, request, log, do.start, now_ns)
    if isinstance(place, Decision):
        return place
    if place < log.start:
        why = f"offset {place} of {do.topic!r} is no longer stored, the first is {log.start}"
        return _not_possible(state, request, why)
    return _moved(state, log, do.subscriber, one, place, "set")


def _moved(
    state: State, log: TopicLog, subscriber: str, one: Subscription, cursor: int, moved: Moved
) -> Planned:
    """Begin another generation, so the subscriber must subscribe again before it gets anything."""
    session = state.sessions["subscriber", subscriber]
    begun = begun_after(state, log, subscriber, session, one.terms, session.control, cursor)
    record = replace(begun, moved=moved, skipped=None)
    effect = Effect(first=one.cursor, end=cursor, generation=record.generation, subscriptions=1)
    return Planned(effect, (record,))


# Topics.


def truncate(state: State, request: AdminRequest, do: Truncate, now_ns: int) -> Plan:
    """Remove the batches that lie before a place, whether or not they were acknowledged."""
    log = state.topics.get(do.topic)
    if log is None:
        return _not_possible(state, request, f"there is no topic {do.topic!r}")
    place = _place(state, request, log, do.start, now_ns)
    if isinstance(place, Decision):
        return place
    start = min(place, _batch(state, log, place)[0])
    if start <= log.start:
        return Planned(Effect(first=log.start, end=log.start), changes=False)
    passed = sum(one.listens and one.cursor < start for one in log.subscriptions.values())
    effect = Effect(first=log.start, end=start, subscriptions=passed)
    return Planned(effect, (_trimmed(state, log, start),))


def delete_topic(state: State, request: AdminRequest, do: DeleteTopic, _now_ns: int) -> Plan:
    """Remove all messages of a topic and end its subscriptions; the numbers of publishers stay.

    The subscription of a pattern stays: it gets LOST for what is removed, and new messages if the
    topic is created again.
    """
    log = state.topics.get(do.topic)
    if log is None or do.topic in state.deleted_topics:
        return NOTHING
    if log.end > log.durable_end:
        why = f"messages are being put to {do.topic!r}: stop its publishers, or pause puts first"
        return _not_possible(state, request, why)
    records: list[Record] = [trimmed_to(log, log.end)] if log.start < log.end else []
    for name, one in log.subscriptions.items():
        if (
            one.active
            and not is_group(name)
            and not state.part(PatternIndex).wants(name, log.topic_id)
        ):
            session = state.sessions["subscriber", name]
            records.append(unsubscribed(log.topic_id, name, one, session))
    records += [_group_ended(state, log, name) for name in state.part(GroupIndex).in_topic(log)]
    subscriptions = len(records) - (log.start < log.end)
    effect = Effect(first=log.start, end=log.end, subscriptions=subscriptions)
    return Planned(effect, (*records, TopicDeleted(log.topic_id)))


def _group_ended(state: State, log: TopicLog, name: str) -> GroupChanged:
    group = state.part(GroupIndex).of[log.topic_id][name]
    known = log.subscriptions[subscription_of_group(name)]
    return GroupChanged(
        *(log.topic_id, name, known.generation, known.cursor, group.terms, group.runs, ()),
        ends=True,
    )


def _trimmed(state: State, log: TopicLog, start: int) -> Trimmed:
    """The trim at a batch, in the middle of a segment perhaps."""
    segment = next((one for one in log.segments if one.base < start < one.end), None)
    if segment is None:
        return trimmed_to(log, start)
    gone = [
        batch
        for batch in state.reader.read(
            log.topic_id, segment.base, messages_max=start - segment.base, bytes_max=2**62
        )
        if batch.base < start
    ]
    bytes_by: Counter[str] = Counter()
    for batch in gone:
        bytes_by[batch.publisher] += len(batch.body)
    cut_bytes = tuple(bytes_by.items())
    return replace(trimmed_to(log, start), cut_batches=len(gone), cut_bytes=cut_bytes)


def _batch(state: State, log: TopicLog, offset: int) -> tuple[int, int]:
    """Base and end of the durable batch that holds an offset; the offset itself without one."""
    if not log.start <= offset < log.durable_end:
        return offset, offset
    batches = state.reader.read(log.topic_id, offset, messages_max=1, bytes_max=0)
    if not batches or batches[0].end > log.durable_end:
        return offset, offset
    return min(batches[0].base, offset), batches[0].end


def _place(
    state: State, request: AdminRequest, log: TopicLog, start: Start, now_ns: int
) -> int | Decision:
    """The offset that a start names, of what is durable."""
    if start.at == "last":
        return Decision(malformed(state, "`last` names no place for an operator", request))
    if start.at == "offset":
        place: int | Decision = start.value
    else:
        reading = History(
            client=request.client,
            epoch=request.epoch,
            request=request.request,
            topic=log.topic,
            start=start,
        )
        place = start_offset(state, reading, log, start, log.durable_end, now_ns)
    if not isinstance(place, Decision) and place > log.durable_end:
        return _beyond(state, request, log, place)
    return place


def _beyond(state: State, request: AdminRequest, log: TopicLog, offset: int) -> Decision:
    why = f"offset {offset} of {log.topic!r} is beyond its end {log.durable_end}"
    return _not_possible(state, request, why)


# Clients.


def forget_client(state: State, request: AdminRequest, do: ForgetClient, _now_ns: int) -> Plan:
    """Remove everything about an id; its epochs and generations are never granted again."""
    if (do.role, do.of) not in state.sessions:
        return NOTHING
    if do.role == "subscriber":
        entries = [
            (log, one)
            for log in state.topics.values()
            if (one := log.subscriptions.get(do.of)) is not None
        ]
        session = state.sessions["subscriber", do.of]
        ended = [
            unsubscribed(log.topic_id, do.of, one, session) for log, one in entries if one.active
        ]
        floor = max((one.generation for _, one in entries), default=0)
        floor = max(floor, state.generation_floor)
        gone = [Forgotten("subscription", (log.topic_id, do.of), floor) for log, _ in entries]
        records: tuple[Record, ...] = (*ended, *gone)
    else:
        ended = []
        stored = sorted(_topics_with_numbers_in_use(state, do.of))
        if stored:
            why = (
                f"messages of publisher {do.of!r} are still stored in {', '.join(stored[:5])}: its "
                "numbers are compared as long as one of these is; truncate the topics first"
            )
            return _not_possible(state, request, why)
        is_unique = do.of in state.unique_numbers  # then they go with the session
        records = () if is_unique else tuple(_numbers_forgotten(state, do.of))
    effect = Effect(subscriptions=len(ended))
    return Planned(effect, (*records, *session_forgotten(state, do.role, do.of)))


def _topics_with_numbers_in_use(state: State, publisher: str) -> Iterator[str]:
    """The topics that still hold a message whose number would be free again."""
    for log in state.topics.values():
        mark = log.publishers.get(publisher)
        if mark is not None and mark.base + mark.count > log.start:
            yield log.topic
    last = state.part(Staging).last.get(publisher)
    for receipt in last.receipts if last else ():
        topic = state.topics.get(receipt.topic)
        if topic is not None and receipt.offset + receipt.count > topic.start:
            yield receipt.topic


def _numbers_forgotten(state: State, publisher: str) -> Iterator[Forgotten]:
    for log in state.topics.values():
        for qos, marks in ((2, log.publishers), (1, log.unnumbered)):
            if publisher in marks:
                yield Forgotten("publisher", (log.topic_id, publisher, qos))


def clients(state: State, request: Clients, _body: bytes, _now_ns: int) -> Decision:
    """One page of the known ids, in their order; those that are not durable are left out."""
    durable = {name for (_, name), one in state.sessions.items() if one.lsn <= state.durable_lsn}
    names = sorted(durable)
    first = bisect_right(names, request.after_client) if request.after_client else 0
    page = names[first : first + request.clients_max]
    report = ClientsReport(
        **echo(state, request),
        clients=tuple(
            ClientStatus(
                client=name,
                role=role,
                epoch=one.epoch,
                subscriptions=len(state.subscribed.get(name, ())) if role == "subscriber" else 0,
                numbered=role == "publisher" and name in state.numbered,
            )
            for name in page
            for role in ROLES
            if (one := state.sessions.get((role, name))) and one.lsn <= state.durable_lsn
        ),
        next_client=page[-1] if first + len(page) < len(names) else UNSET,
    )
    return Decision(report)


# Pausing.


def pause(state: State, request: AdminRequest, do: Pause | Resume, _now_ns: int) -> Plan:
    """Refuse puts from now on, or accept them again.

    It takes a number even if nothing changes: a copy of an earlier PAUSE is then too late.
    """
    if isinstance(do, Pause) and "\0" in do.reason:  # PostgreSQL cannot store it
        return _not_possible(state, request, "the reason of a pause has no NUL")
    return Planned()


PLANS: Final[Mapping[type[Any], Callable[[State, AdminRequest, Any, int], Plan]]] = {
    EndSubscription: end_subscription,
    ForgetClient: forget_client,
    Truncate: truncate,
    DeleteTopic: delete_topic,
    Skip: skip,
    SetCursor: set_cursor,
    Pause: pause,
    Resume: pause,
}


def with_asker(engine: Runtime, request: AnyRequest, arrival: Arrival) -> AnyRequest:
    """Note whose key asks, for the log of actions."""
    if isinstance(request, AdminRequest):
        state = engine.state
        state.part(Administration).asker = state.authority.name_of(arrival.key, request)
    return request


def judged(engine: Runtime, request: AnyRequest, decision: Decision) -> Decision:
    """Refuse to store messages while puts are paused; a DUPLICATE or COMMIT_ACK is still given."""
    reason = engine.state.part(Administration).paused
    if reason is None or not isinstance(request, Put | Stage | Commit):
        return decision
    why = f" ({reason})" if reason else ""
    text = (
        f"an operator has paused puts at this proxy{why}; nothing was stored. Gets continue, "
        "and puts after `reliable-pubsub admin resume`: ask again later"
    )
    return Decision(Busy(**echo(engine.state, request), text=text))


def restore(state: State, stored: StoredState) -> None:
    """Add the stored actions, in the order of their numbers, and a pause."""
    known = state.part(Administration)
    for one in stored.of(StoredAction):
        known.remember(one)
        note_removed(state, one)
    for paused in stored.of(StoredPause):
        known.paused = paused.reason


def show_deeds(engine: Runtime, _batches: Sequence[LogBatch]) -> None:
    """Let the audit log have the actions that have become durable."""
    done = engine.state.part(Administration).done
    while done:
        engine.outputs.append(Deed(done.popleft()))


FEATURE: Final = Feature(
    name="operators",
    verbs={AdminRequest: admin, Clients: clients},
    admit=with_asker,
    judge=judged,
    tables=(ADMIN_ACTION, PAUSED),
    visible=show_deeds,
    hooks=Hooks(restore=[restore]),
)
