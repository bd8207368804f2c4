"""Planted faults of what operators do; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.actions import AdminRequest
from reliable_pubsub.common.core.requests import Get
from reliable_pubsub.proxy.core.reading import cursor_moved, get
from reliable_pubsub.proxy.core.records import Decision, Forgotten, Trimmed, trimmed_to
from reliable_pubsub.proxy.core.state import State
from reliable_pubsub.proxy.core.subscription_records import CursorMoved, Subscribed
from reliable_pubsub.proxy.operators.history import Administration
from reliable_pubsub.proxy.operators.records import Administered
from reliable_pubsub.proxy.operators.verbs import admin, delete_topic, set_cursor, truncate

from .faulty_parts import before_durable, with_decision, with_request
from .simulated_store import SimulatedStore
from .simulation import Variant


def as_a_new_one(state: State, request: AdminRequest) -> AdminRequest:
    """A copy of an action is done again, under the next number."""
    if request.number:
        return replace(request, number=state.part(Administration).last_number + 1)
    return request


def move_untold(_state: State, _request: AdminRequest, plan: Any) -> Any:
    """A cursor is set, and no answer says to its subscriber that its own place no longer counts."""
    if isinstance(plan, Decision):
        return plan
    records = tuple(
        replace(one, moved="") if isinstance(one, Subscribed) else one for one in plan.records
    )
    return replace(plan, records=records)


def truncate_too_much(state: State, request: Any, plan: Any) -> Any:
    """More is removed than the operator was shown."""
    if isinstance(plan, Decision):
        return plan
    log = state.topics[request.do.topic]
    records = tuple(
        trimmed_to(log, log.durable_end) if isinstance(one, Trimmed) else one
        for one in plan.records
    )
    return replace(plan, records=records)


def delete_with_numbers(state: State, request: Any, plan: Any) -> Any:
    """The numbers of its publishers go with a topic that is deleted."""
    if isinstance(plan, Decision) or not plan.changes:
        return plan
    log = state.topics[request.do.topic]
    gone = [Forgotten("publisher", (log.topic_id, name, 2)) for name in log.publishers]
    return replace(plan, records=(*plan.records, *gone))


def past_what_was_skipped(state: State, request: Get) -> Get:
    """What an operator has skipped is not reported as lost."""
    log = state.topics.get(request.topic)
    one = log.subscriptions.get(request.client) if log else None
    if one is not None and one.moved and one.generation == request.generation:
        return replace(request, cursor=max(request.cursor, one.cursor))
    return request


def take_lazily(*arguments: Any, **more: Any) -> tuple[CursorMoved, ...]:
    """That a subscriber has taken its new place is not written: after a crash it is moved again."""
    moved = cursor_moved(*arguments, **more)
    return tuple(replace(one, takes=False) for one in moved)


class ForgetsPauses(SimulatedStore):
    """A pause ends with the process of the proxy."""

    def _administer(self, record: Administered) -> None:
        super()._administer(record)
        self._paused = None


FAULTS_OF_ADMINISTRATION: Mapping[str, Variant] = {
    "admin: done before durable": Variant(rules=before_durable(admin)),
    "admin: each copy is done": Variant(rules=with_request(admin, as_a_new_one)),
    "admin: move not reported": Variant(rules=with_decision(set_cursor, move_untold)),
    "admin: more is removed than said": Variant(rules=with_decision(truncate, truncate_too_much)),
    "admin: deleted with its numbers": Variant(
        rules=with_decision(delete_topic, delete_with_numbers)
    ),
    "admin: skipped in silence": Variant(rules=with_request(get, past_what_was_skipped)),
    "admin: moved again": Variant(rules={cursor_moved: take_lazily}),
    "admin: pause not stored": Variant(store=ForgetsPauses),
}
