"""Planted faults of the broker, for publishers; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from reliable_pubsub.common.core.answers import Busy, Conflict, Duplicate, Full, Gap
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requests import AnyRequest, Dead, Hello, Put
from reliable_pubsub.common.core.transaction_messages import Commit
from reliable_pubsub.lab.variants import append_again, deduplicate_last_only
from reliable_pubsub.proxy.core.appending import make_room
from reliable_pubsub.proxy.core.publishing import put, repeated_put
from reliable_pubsub.proxy.core.records import Appended, Decision, Granted, append
from reliable_pubsub.proxy.core.replies import decided, echo
from reliable_pubsub.proxy.core.sessions import fence, hello, hello_ack
from reliable_pubsub.proxy.core.state import Record, State
from reliable_pubsub.proxy.core.subscriptions import Session
from reliable_pubsub.proxy.core.topic_log import PublisherMark, TopicLog

from .faulty_parts import before_durable, with_request
from .simulation import Variant


def no_deduplication(state: State, request: Put, *more: Any) -> Decision:
    """Every copy of a put is a message."""
    decision = put(state, request, *more)
    if isinstance(decision.reply, Duplicate | Conflict | Busy):
        return append_again(state, request, *more)
    return decision


def wrong_duplicate_offset(
    state: State, request: Put, log: TopicLog, mark: PublisherMark
) -> Decision:
    """A retry is answered with the end of the topic, not with the place of the message."""
    decision = repeated_put(state, request, log, mark)
    return replace(decision, reply=replace(decision.reply, offset=log.end - 1))


def conflict_is_duplicate(
    state: State, request: Put, log: TopicLog, mark: PublisherMark
) -> Decision:
    """Numbers only are compared: other content under a used number counts as stored."""
    decision = repeated_put(state, request, log, mark)
    if not isinstance(decision.reply, Conflict):
        return decision
    stored = state.reader.find(log.topic_id, request.client, request.first_sequence)
    base = stored.base if stored else mark.base
    return replace(decision, reply=Duplicate(**echo(state, request), offset=base))


def accept_gap(state: State, request: Put, *more: Any) -> Decision:
    """Any number above the last one is taken."""
    decision = put(state, request, *more)
    refused = decision.reply
    if not isinstance(refused, Gap) or request.topic not in state.topics:
        return decision
    if request.first_sequence < refused.expected:
        return decision
    return append_again(state, request, *more)


def full_after_apply(
    state: State, request: Put | Commit | Dead, log: TopicLog, count: int, body_bytes: int
) -> Decision | tuple[Record, ...]:
    """FULL is the answer when the batch has its place in memory already."""
    room = make_room(state, request, log, count, body_bytes)
    if isinstance(room, Decision) and not isinstance(request, Commit):
        assert isinstance(room.reply, Full)
        log.end += count
    return room


def time_of_the_clock(state: State, request: Put, body: bytes, now_ns: int) -> Decision:
    """Timestamps go back when the clock does."""
    decision = put(state, request, body, now_ns)
    records = tuple(
        replace(record, timestamp_ns=now_ns) if isinstance(record, Appended) else record
        for record in decision.records
    )
    return replace(decision, records=records)


def append_in_any_order(state: State, record: Appended) -> None:
    """A timestamp that goes back is taken."""
    state.topic_by_id[record.topic_id].timestamp_ns = record.timestamp_ns - 1
    append(state, record)


def no_fencing(state: State, role: Role, request: AnyRequest) -> Session | Decision:
    """Every epoch counts."""
    return state.sessions.get((role, request.client)) or fence(state, role, request)


def grant_late_hello(state: State, request: Hello, *more: Any) -> Decision:
    """Any epoch is granted: a late copy brings a dead process back."""
    session = state.sessions.get((request.role, request.client))
    if session and (session.epoch, session.nonce) == (request.epoch, request.nonce):
        return hello(state, request, *more)
    granted = Granted(request.role, request.client, request.epoch, request.nonce)
    return decided(state, hello_ack(state, request), granted)


def of_any_nonce(state: State, request: Hello) -> Hello:
    """The nonce is not compared: two processes may hold one epoch."""
    session = state.sessions.get((request.role, request.client))
    if session and session.epoch == request.epoch:
        return replace(request, nonce=session.nonce)
    return request


FAULTS_OF_PUBLISHING: Final[Mapping[str, Variant]] = {
    "no dedup": Variant(rules={put: no_deduplication}),
    "dedup by last id only": Variant(rules={put: deduplicate_last_only}),
    "duplicate before durable": Variant(rules=before_durable(repeated_put)),
    "wrong offset for a duplicate": Variant(rules={repeated_put: wrong_duplicate_offset}),
    "conflict taken for a duplicate": Variant(rules={repeated_put: conflict_is_duplicate}),
    "gap accepted": Variant(rules={put: accept_gap}),
    "FULL after the batch was taken": Variant(rules={make_room: full_after_apply}),
    "time follows the clock": Variant(rules={put: time_of_the_clock, append: append_in_any_order}),
    "no fencing": Variant(rules={fence: no_fencing}),
    "late HELLO is granted": Variant(rules={hello: grant_late_hello}),
    "HELLO before durable": Variant(rules=before_durable(hello)),
    "no nonce": Variant(rules=with_request(hello, of_any_nonce)),
}
