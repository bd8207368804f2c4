"""Planted faults of the broker, for subscribers; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from reliable_pubsub.common.core.answers import Lost, NoMessagesYet, PutAck, SubAck
from reliable_pubsub.common.core.qos0_messages import Ring
from reliable_pubsub.common.core.requests import Ack, Dead, Get, History, Sub, Unsub
from reliable_pubsub.lab.variants import move_cursor_on_send
from reliable_pubsub.proxy.core.changed_log import log_changed, not_this_log
from reliable_pubsub.proxy.core.forgetting import trims_due
from reliable_pubsub.proxy.core.reading import (
    ack,
    batches_from,
    cursor_moved,
    get,
    subscription_of,
)
from reliable_pubsub.proxy.core.records import Appended, Decision, Trimmed, append, trimmed_to
from reliable_pubsub.proxy.core.replies import echo
from reliable_pubsub.proxy.core.state import State
from reliable_pubsub.proxy.core.subscribing import sub, unsub
from reliable_pubsub.proxy.core.subscription_records import CursorMoved
from reliable_pubsub.proxy.core.subscriptions import Subscription
from reliable_pubsub.proxy.core.topic_log import TopicLog

from .faulty_parts import before_durable, with_decision, with_request
from .simulated_store import SimulatedStore
from .simulation import Variant

Control = TypeVar("Control", Sub, Unsub)

# What is shown.


def readable_at_once(state: State, record: Appended) -> None:
    """A batch can be read when it is in memory (hole H30)."""
    append(state, record)
    state.topic_by_id[record.topic_id].durable_end = record.end


def read_from_memory(
    state: State, request: Get | History, topic: TopicLog, offset: int, **more: Any
) -> tuple[Any, bytes | None]:
    """What is in memory is shown."""
    undurable = [r for _, r in state.undurable if isinstance(r, Appended)]
    here = [r for r in undurable if r.topic_id == topic.topic_id and r.end > offset]
    reader = state.reader
    if here and here[0].base <= offset:
        state.reader = _Memory(here)
    try:
        return batches_from(state, request, topic, offset, **more)
    finally:
        state.reader = reader


class _Memory(SimulatedStore):
    """Reads batches that are not on disk."""

    def __init__(self, batches: Sequence[Appended]) -> None:
        super().__init__(lambda records: None)
        self.memory = batches

    def read(
        self, topic_id: int, offset: int, *, messages_max: int, bytes_max: int
    ) -> Sequence[Appended]:
        return self.memory[:1]


def as_new(state: State, request: Control) -> Control:
    """No control numbers: a late SUB or UNSUB has an effect."""
    session = state.sessions.get(("subscriber", request.client))
    newest = session.control if session else 0
    return replace(request, control=max(request.control, newest + 1))


def resume_at_the_end(state: State, request: Sub, decision: Decision) -> Decision:
    """A second SUB begins at the end of the topic."""
    if isinstance(decision.reply, SubAck) and decision.reply.already:
        end = state.topics[request.topic].end
        return replace(decision, reply=replace(decision.reply, cursor=end))
    return decision


def subscribe_at_durable_end(state: State, request: Sub, *more: Any) -> Decision:
    """A subscription begins below messages that were called before it."""
    log = state.topics.get(request.topic)
    end = log.end if log else 0
    if log and request.cursor is None:
        log.end = max(log.start, log.durable_end - 1)
    try:
        return sub(state, request, *more)
    finally:
        if log:
            log.end = end


def trim_unread(state: State) -> Sequence[Trimmed]:
    """Retention looks at age only, not at cursors."""
    trims_due(state)
    records = []
    for log in state.topic_by_id.values():
        oldest = log.segments[0] if log.segments else None
        if log.retention.history_s == 0 and oldest and oldest.end <= log.durable_end:
            records.append(trimmed_to(log, oldest.end))
    return records


def report_too_few_lost(_state: State, _request: Get, decision: Decision) -> Decision:
    """The report of a loss leaves out the last message that was removed."""
    reply = decision.reply
    if isinstance(reply, Lost) and reply.end > reply.first + 1:
        return replace(decision, reply=replace(reply, end=reply.end - 1))
    return decision


# Who may move a cursor, and which.


def any_epoch_acknowledges(state: State, request: Ack, *more: Any) -> Decision:
    """The epoch of an ACK is not compared."""
    session = state.sessions.get(("subscriber", request.client))
    if session is None:
        return ack(state, request, *more)
    decision = ack(state, replace(request, epoch=session.epoch), *more)
    return replace(decision, reply=replace(decision.reply, epoch=request.epoch))


def of_any_generation(state: State, request: Get | Ack | Dead | Ring) -> Get | Ack | Dead | Ring:
    """Generation and boot are not compared: a position is never confirmed."""
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(request.client) if log else None
    if known and not isinstance(request, Ring):
        return replace(request, generation=known.generation, boot=state.boot)
    return request


def ack_rests_on_lazy_cursor(
    request: Get | Ack, log: TopicLog, subscription: Subscription, *, urgent: bool, **more: Any
) -> tuple[CursorMoved, ...]:
    """An ACK is answered at once if a GET has moved the cursor before, durable or not."""
    if urgent and request.cursor <= subscription.cursor:
        return ()
    return cursor_moved(request, log, subscription, urgent=urgent, **more)


def resume_forgets_cursor(state: State, request: Sub, *more: Any) -> Decision:
    """A subscriber that comes back without a place begins at the first message."""
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(request.client) if log else None
    if log and known and known.active and request.cursor is None and request.start is None:
        held, known.cursor = known.cursor, log.start
        try:
            return sub(state, request, *more)
        finally:
            known.cursor = held
    return sub(state, request, *more)


def answer_for_any_log(state: State, request: Any, log: TopicLog, why: str) -> Decision:
    """A position beyond the end is not reported."""
    if isinstance(request, Ack):
        return Decision(PutAck(**echo(state, request), offset=request.cursor))
    nothing = NoMessagesYet(**echo(state, request), end=log.durable_end)
    return Decision(nothing, is_empty=True)


FAULTS_OF_SUBSCRIBING: Final[Mapping[str, Variant]] = {
    "serves undurable offsets": Variant(
        rules={append: readable_at_once, batches_from: read_from_memory}
    ),
    "cursor moves on send": Variant(rules={get: move_cursor_on_send}),
    "late SUB resurrects": Variant(rules=with_request(sub, as_new) | with_request(unsub, as_new)),
    "SUB before durable": Variant(rules=before_durable(sub)),
    "UNSUB before durable": Variant(rules=before_durable(unsub)),
    "resume resets the cursor": Variant(rules=with_decision(sub, resume_at_the_end)),
    "resume forgets the cursor": Variant(rules={sub: resume_forgets_cursor}),
    "subscribes too early": Variant(rules={sub: subscribe_at_durable_end}),
    "epoch not compared in ACK": Variant(rules={ack: any_epoch_acknowledges}),
    "generation not compared": Variant(rules=with_request(subscription_of, of_any_generation)),
    "ACK rests on a lazy cursor": Variant(rules={cursor_moved: ack_rests_on_lazy_cursor}),
    # What is removed.
    "trims unread messages": Variant(rules={trims_due: trim_unread}),
    "LOST one message too short": Variant(rules=with_decision(get, report_too_few_lost)),
    # A log that was set back.
    "LOG_CHANGED never sent": Variant(
        rules={log_changed: lambda *_: None, not_this_log: answer_for_any_log}
    ),
    # The end of the log alone is compared, not the message before the cursor.
    "witness not compared": Variant(
        rules=with_request(sub, lambda _, request: replace(request, witness_ns=None))
    ),
}
