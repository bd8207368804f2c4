"""Planted faults of what operators do; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.actions import Admin
from reliable_pubsub.common.core.requests import Get
from reliable_pubsub.proxy.core.administering import admin, delete_topic, set_cursor, truncate
from reliable_pubsub.proxy.core.reading import cursor_moved, get
from reliable_pubsub.proxy.core.records import (
    Administered,
    CursorMoved,
    Decision,
    Forgotten,
    Subscribed,
    Trimmed,
)
from reliable_pubsub.proxy.core.state import State

from .simulated_store import SimulatedStore
from .simulation import Variant


def acknowledge_at_once(state: State, request: Admin, body: bytes, now_ns: int) -> Decision:
    """The operator hears that it is done before it is durable."""
    return replace(admin(state, request, body, now_ns), visible_at=0)


def do_each_copy(state: State, request: Admin, body: bytes, now_ns: int) -> Decision:
    """A copy of an action is done again, under the next number."""
    if request.number:
        request = replace(request, number=state.administration.last_number + 1)
    return admin(state, request, body, now_ns)


def move_untold(state: State, request: Admin, do: Any, now_ns: int) -> Any:
    """A cursor is set, and its subscriber is not told that its own place no longer counts."""
    plan = set_cursor(state, request, do, now_ns)
    if isinstance(plan, Decision):
        return plan
    records = tuple(
        replace(one, moved="") if isinstance(one, Subscribed) else one for one in plan.records
    )
    return replace(plan, records=records)


def truncate_too_much(state: State, request: Admin, do: Any, now_ns: int) -> Any:
    """More is removed than the operator was told."""
    plan = truncate(state, request, do, now_ns)
    if isinstance(plan, Decision):
        return plan
    log = state.topics[do.topic]
    records = tuple(
        log.trimmed_to(log.durable_end) if isinstance(one, Trimmed) else one for one in plan.records
    )
    return replace(plan, records=records)


def delete_with_numbers(state: State, request: Admin, do: Any, now_ns: int) -> Any:
    """The numbers of its publishers go with a topic that is deleted."""
    plan = delete_topic(state, request, do, now_ns)
    if isinstance(plan, Decision) or not plan.changes:
        return plan
    log = state.topics[do.topic]
    gone = [Forgotten("publisher", (log.topic_id, name, 2)) for name in log.publishers]
    return replace(plan, records=(*plan.records, *gone))


def skip_in_silence(state: State, request: Get, body: bytes, now_ns: int) -> Decision:
    """What an operator has skipped is not told as lost."""
    log = state.topics.get(request.topic)
    one = log.subscriptions.get(request.client) if log else None
    if one is not None and one.moved and one.generation == request.generation:
        request = replace(request, cursor=max(request.cursor, one.cursor))
    return get(state, request, body, now_ns)


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
    "admin: done before durable": Variant(rules={admin: acknowledge_at_once}),
    "admin: each copy is done": Variant(rules={admin: do_each_copy}),
    "admin: move not told": Variant(rules={set_cursor: move_untold}),
    "admin: more is removed than said": Variant(rules={truncate: truncate_too_much}),
    "admin: deleted with its numbers": Variant(rules={delete_topic: delete_with_numbers}),
    "admin: skipped in silence": Variant(rules={get: skip_in_silence}),
    "admin: moved again": Variant(rules={cursor_moved: take_lazily}),
    "admin: pause not stored": Variant(store=ForgetsPauses),
}
