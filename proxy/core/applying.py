"""Records change the state: `apply` when they are decided, `committed` when they are durable.

No other file changes what is or will be durable. The records are the same live, in the simulator
and in the store. Between the two steps the state has the change, but no client sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from reliable_pubsub.common.core.limits import NUMBER_MAX
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.names import is_unique_id

from .group_state import Group, next_due_s
from .pattern_index import RegisteredPattern
from .records import (
    Administered,
    Appended,
    Charged,
    ControlSeen,
    CursorMoved,
    DeadLettered,
    Expired,
    Forgotten,
    Granted,
    GroupChanged,
    GroupLetter,
    PatternEnded,
    PatternSubscribed,
    Record,
    Staged,
    Subscribed,
    TopicCreated,
    TopicDeleted,
    TransactionCommitted,
    Trimmed,
    Unstaged,
    Unsubscribed,
)
from .staging import LastTransaction
from .state import State
from .subscriptions import Session, Subscription
from .topic_log import TopicLog


def apply(state: State, records: Sequence[Record]) -> None:
    """Change the state by records, which get the next numbers."""
    for record in records:
        state.lsn += 1
        APPLIED[type(record)](state, record)
        state.undurable.append((state.lsn, record))


def committed(state: State, lsn: int) -> list[Appended]:
    """The store has every record up to number `lsn`; return the batches that become readable."""
    assert state.durable_lsn <= lsn <= state.lsn, (state.durable_lsn, lsn, state.lsn)
    state.durable_lsn = lsn
    batches: list[Appended] = []
    topics = state.topic_by_id
    while state.undurable and state.undurable[0][0] <= lsn:
        _, record = state.undurable.popleft()
        match record:
            case Appended():
                batches.append(record)
            case DeadLettered(letter, moved):
                batches.append(letter)
                _cursor_durable(state, moved)
            case GroupLetter(letter):
                batches.append(letter)
            case CursorMoved() | Subscribed() | GroupChanged():
                _cursor_durable(state, record)
            case Trimmed(topic_id):
                topics[topic_id].trims_durable(lsn)
            case Administered():
                state.administration.done.append(record)
    for batch in batches:
        topics[batch.topic_id].durable_end = batch.base + batch.count
        state.touched_topics.add(batch.topic_id)
        if state.patterns.of:
            state.patterns.has_come(batch.topic_id)
    return batches


def _cursor_durable(state: State, record: CursorMoved | Subscribed | GroupChanged) -> None:
    subscription = state.topic_by_id[record.topic_id].subscriptions.get(record.subscriber)
    # An operator may have forgotten it meanwhile.
    if (
        subscription is not None
        and subscription.generation == record.generation
        and (subscription.durable_cursor < record.cursor or not isinstance(record, GroupChanged))
    ):
        subscription.durable_cursor = max(subscription.durable_cursor, record.cursor)
        state.touched_topics.add(record.topic_id)


# One function for each record.


def create_topic(state: State, record: TopicCreated) -> None:
    retention = state.retention(record.topic)
    log = TopicLog(record.topic_id, record.topic, record.log, retention, lsn=state.lsn)
    state.topics[record.topic] = state.topic_by_id[record.topic_id] = log
    state.last_topic_id = record.topic_id
    state.patterns.add_topic(log)


def delete_topic(state: State, record: TopicDeleted) -> None:
    """Hide a topic, or show it again."""
    topic = state.topic_by_id[record.topic_id].topic
    (state.deleted_topics.discard if record.is_back else state.deleted_topics.add)(topic)
    state.index_charge("topic", topic)
    state.interest_changed()


def append(state: State, record: Appended) -> None:
    """Append a batch to its topic; it becomes readable when it is durable."""
    log = state.topic_by_id[record.topic_id]
    log.append(record, state.lsn, state.local_ns)
    state.newest_ns = max(state.newest_ns, record.timestamp_ns)
    state.accounts.stored(log.put_by, record.publisher, len(record.body))
    if record.qos == 1:
        state.index_ended(log)
        return
    if record.publisher not in state.numbered:
        state.numbered.add(record.publisher)
        state.index_session("publisher", record.publisher)
    topics = state.unique_numbers.get(record.publisher)
    if topics is not None:
        topics.add(record.topic_id)


def grant(state: State, record: Granted) -> None:
    """Begin a session."""
    session = Session(record.epoch, record.nonce, 0, state.lsn)
    state.sessions[record.role, record.client] = session
    if record.role == "publisher" and is_unique_id(record.client):
        state.unique_numbers.setdefault(record.client, set())
    state.index_session(record.role, record.client)


def subscribe(state: State, record: Subscribed) -> None:
    """Begin, resume or move a subscription."""
    log = state.topic_by_id[record.topic_id]
    held = log.subscriptions.get(record.subscriber)
    # Until this record is durable, retention keeps the messages above the old cursor.
    same = held is not None and held.active and held.generation == record.generation
    log.subscriptions[record.subscriber] = Subscription(
        record.generation,
        record.cursor,
        min(held.durable_cursor, record.cursor) if held and same else 0,
        True,
        state.lsn,
        record.shown,
        record.terms,
        before=held.before if held and same else record.shown,
        moved=record.moved,
        skipped=record.skipped,
    )
    if record.shown == record.cursor:  # nothing is in flight: it begins
        state.rings.forget(log.topic, record.subscriber)
    state.index_subscription(log, record.subscriber)
    see_control(state, record)


def unsubscribe(state: State, record: Unsubscribed) -> None:
    """End a subscription; its generation is remembered."""
    log = state.topic_by_id[record.topic_id]
    subscription = log.subscriptions[record.subscriber]
    subscription.active = subscription.expired = False
    if record.terms.session == "clean":
        subscription.moved = ""  # its row is gone, too
    subscription.shown = max(record.shown, record.cursor)
    subscription.lsn = state.lsn
    state.rings.forget(log.topic, record.subscriber)
    state.index_subscription(log, record.subscriber)
    state.touched_topics.add(record.topic_id)
    see_control(state, record)


def subscribe_pattern(state: State, record: PatternSubscribed) -> None:
    """Begin a pattern, or change its terms."""
    one = RegisteredPattern(record.terms, record.reader, state.lsn, record.epoch)
    state.patterns.add(record.subscriber, record.pattern, one, state.topics)
    see_control(state, record)
    state.index_patterns(record.subscriber)


def end_pattern(state: State, record: PatternEnded) -> None:
    """End a pattern."""
    state.patterns.remove(record.subscriber, record.pattern)
    see_control(state, record)
    state.index_patterns(record.subscriber)


def see_control(
    state: State,
    record: Subscribed | Unsubscribed | ControlSeen | PatternSubscribed | PatternEnded,
) -> None:
    """Remember the number of a subscriber's last control request (rule R12)."""
    session = state.sessions["subscriber", record.subscriber]
    session.control = record.control
    session.lsn = state.lsn


def move_cursor(state: State, record: CursorMoved) -> None:
    """Acknowledge what is below a cursor."""
    log = state.topic_by_id[record.topic_id]
    subscription = log.subscriptions[record.subscriber]
    if subscription.generation == record.generation:
        subscription.cursor = max(subscription.cursor, record.cursor)
        subscription.shown = record.shown
        if record.takes:
            subscription.moved = ""
            subscription.lsn = state.lsn
        if record.subscriber in state.patterns.of:
            state.patterns.index(log, record.subscriber)


def dead_letter(state: State, record: DeadLettered) -> None:
    """Append a dead letter and acknowledge its message."""
    append(state, record.letter)
    move_cursor(state, record.moved)


def change_group(state: State, record: GroupChanged) -> None:
    """Let a group begin, be as a record says, or end."""
    log = state.topic_by_id[record.topic_id]
    name = record.subscriber
    known = log.subscriptions.get(name)
    group = log.groups.get(record.group)
    if record.begins or known is None or group is None:
        known = log.subscriptions[name] = Subscription(
            record.generation, record.cursor, 0, True, state.lsn, record.cursor, Terms()
        )
        group = log.groups[record.group] = Group(record.terms, (), {})
        state.index_subscription(log, name)
    for offset in range(known.cursor, record.cursor) if group.keys else ():
        group.keys.pop(offset, None)
    known.cursor = known.shown = record.cursor
    known.lsn = state.lsn
    group.terms, group.runs, group.lost = record.terms, record.runs, record.lost
    members = {} if record.ends else {one.name: one for one in record.members}
    if record.member not in group.members or len(members) != len(group.members):
        for member in members.keys() - group.members.keys():
            state.index_member(member, 1)
        for member in group.members.keys() - members.keys():
            state.index_member(member, -1)
    group.members = members
    group.keys.update(record.keys)
    if record.ends:
        known.active = False
        del log.groups[record.group]
        state.touched_topics.add(record.topic_id)
    if record.ends or known.expired:
        known.expired = False
        state.index_subscription(log, name)
    due_s = next_due_s(record.runs, state.groups_seen_s)  # also of what is free from now on
    if due_s is not None:
        state.groups_due.add((record.topic_id, record.group), due_s)


def store_group_letter(state: State, record: GroupLetter) -> None:
    """Append a dead letter."""
    append(state, record.letter)


def expire(state: State, record: Expired) -> None:
    """End a lease; a clean subscription ends with it."""
    log = state.topic_by_id[record.topic_id]
    subscription = log.subscriptions[record.subscriber]
    if subscription.generation == record.generation:
        subscription.expired = True
        subscription.active = record.terms.session == "persistent"
        if not subscription.active:
            subscription.moved = ""
        subscription.lsn = state.lsn
        state.index_subscription(log, record.subscriber)
        state.touched_topics.add(record.topic_id)


def forget(state: State, record: Forgotten) -> None:
    """Remove an entry that can no longer have an effect."""
    key: Any = record.key
    if record.kind == "session":
        del state.sessions[key]
        state.idle_sessions.pop(key, None)
        state.index_charge(*key)
        if key[0] == "subscriber":
            state.leases.forget(key[1])
        else:
            state.numbered.discard(key[1])
            state.unique_numbers.pop(key[1], None)
            state.staging.drop_up_to(key[1], NUMBER_MAX)
        if record.floor > state.epoch_floor:
            state.epoch_floor, state.epoch_floor_lsn = record.floor, state.lsn
        return
    if record.kind == "transaction":
        del state.last_transactions[key[0]]
        return
    if record.kind == "charge":
        state.accounts.ended.pop(key, None)
        return
    log = state.topic_by_id[key[0]]
    if record.kind == "subscription":
        del log.subscriptions[key[1]]
        log.index_subscription(key[1])
        state.generation_floor = max(state.generation_floor, record.floor)
    else:
        del (log.unnumbered if key[2] == 1 else log.publishers)[key[1]]
    state.index_ended(log)


def trim(state: State, record: Trimmed) -> None:
    """Remove the oldest messages of a topic."""
    log = state.topic_by_id[record.topic_id]
    for publisher, size_bytes in log.bytes_going(record).items():
        if not state.accounts.stored(log.put_by, publisher, -size_bytes):
            state.index_charge(log.put_by, publisher)
    log.trim(record, state.lsn)


def charge(state: State, record: Charged) -> None:
    """Charge an id or a topic to a key."""
    state.accounts.charge(record)
    state.index_charge(record.kind, record.name)


def administer(state: State, record: Administered) -> None:
    """Remember an operator's action; its effects, except a pause, are separate records."""
    state.administration.add(record, state.lsn)


def stage(state: State, record: Staged) -> None:
    """Keep a batch of a transaction."""
    state.staging.add(record)
    state.index_session("publisher", record.client)


def unstage(state: State, record: Unstaged) -> None:
    """Drop the batches of a transaction."""
    state.staging.drop(record.client, record.transaction)
    state.index_session("publisher", record.client)


def commit_transaction(state: State, record: TransactionCommitted) -> None:
    """Remember the last transaction of a publisher; its batches are separate records."""
    state.last_transactions[record.client] = LastTransaction(
        record.transaction, record.digest, record.receipts, state.lsn
    )
    state.numbered.add(record.client)
    state.index_session("publisher", record.client)
    state.staging.drop_up_to(record.client, record.transaction)


APPLIED: Final[Mapping[type[Any], Callable[[State, Any], None]]] = {
    TopicCreated: create_topic,
    Appended: append,
    Granted: grant,
    Subscribed: subscribe,
    Unsubscribed: unsubscribe,
    ControlSeen: see_control,
    PatternSubscribed: subscribe_pattern,
    PatternEnded: end_pattern,
    CursorMoved: move_cursor,
    Charged: charge,
    Forgotten: forget,
    DeadLettered: dead_letter,
    GroupChanged: change_group,
    TopicDeleted: delete_topic,
    GroupLetter: store_group_letter,
    Expired: expire,
    Trimmed: trim,
    Administered: administer,
    Staged: stage,
    Unstaged: unstage,
    TransactionCommitted: commit_transaction,
}
