"""Planted faults of groups: messages with two holders, late ends that count, messages passed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from reliable_pubsub.common.core.group_messages import Outcome
from reliable_pubsub.proxy.core.state import State
from reliable_pubsub.proxy.groups.records import GroupChanged, GroupLetter
from reliable_pubsub.proxy.groups.state import (
    GroupRun,
    RunState,
    begun,
    held,
    may_settle,
    settled,
    without_ended,
)
from reliable_pubsub.proxy.groups.verbs import take
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.groups.core.group_feature import GroupFeature
from reliable_pubsub.subscriber.groups.core.membership import Membership

from .faulty_parts import before_durable, with_decision
from .simulated_store import SimulatedStore
from .simulation import Variant


class ForgetsHolders(SimulatedStore):
    """What is held is not stored: after a restart it is free."""

    def _write_of_group(self, record: GroupLetter | GroupChanged) -> None:
        if isinstance(record, GroupChanged):
            runs = tuple(
                GroupRun(run.first, run.end, "free", run.delivered) if run.is_held else run
                for run in record.runs
            )
            record = replace(record, runs=runs)
        super()._write_of_group(record)


def leases_end_with_the_proxy(runs: Iterable[GroupRun], now_s: float) -> tuple[GroupRun, ...]:
    """Leases that were restored are over."""
    return tuple(replace(run, until_s=now_s) for run in runs)


def given_back_has_ended(
    outcome: Outcome, run: GroupRun, *, now_s: float, lease_ms: int
) -> GroupRun:
    """What a member gives back comes to no other."""
    if outcome.how == "nack":
        return GroupRun(run.first, run.end, "ended")
    return settled(outcome, run, now_s=now_s, lease_ms=lease_ms)


def passes_what_is_held(runs: Sequence[GroupRun], cursor: int) -> tuple[int, tuple[GroupRun, ...]]:
    """The cursor goes past messages that have not ended, if a later one has."""
    ended = [index for index, run in enumerate(runs) if run.how == "ended"]
    if not ended:
        return cursor, tuple(runs)
    return runs[ended[-1]].end, tuple(runs[ended[-1] + 1 :])


def short_leases(
    run: GroupRun, *more: Any, now_s: float, lease_ms: int, how: RunState = "held"
) -> GroupRun:
    """The proxy gives a message to another while its member still counts on its lease."""
    return held(run, *more, now_s=now_s, lease_ms=lease_ms // 3, how=how)


def counts_what_it_grants(
    run: GroupRun, *more: Any, how: RunState = "held", **time: Any
) -> GroupRun:
    """A grant is a delivery, whether it came or not."""
    return held(run, *more, **time)


class TrustsGrants(Membership):
    """Hands messages over that it has not confirmed."""

    def taken(self, *reply: Any) -> None:
        super().taken(*reply)
        self.is_unconfirmed = False


class MemberThatTrustsGrants(Subscriber):
    """A member whose death by a message does not count."""

    def __init__(self, client: str, **more: Any) -> None:
        super().__init__(client, **more)
        self._engine.feature(GroupFeature).groups.new_membership = TrustsGrants


def repeats_at_once(_state: State, _request: Any, decision: Any) -> Any:
    """A second copy of a TAKE is answered while the commit of the first is under way (R6)."""
    return decision if decision.records else replace(decision, visible_at=0)


FAULTS_OF_GROUPS: Final[Mapping[str, Variant]] = {
    "group: holders not stored": Variant(store=ForgetsHolders),
    "group: leases end with the proxy": Variant(rules={begun: leases_end_with_the_proxy}),
    "group: granted before durable": Variant(rules=before_durable(take)),
    "group: a repeat before durable": Variant(rules=with_decision(take, repeats_at_once)),
    # Also where another member holds the message.
    "group: a late end counts": Variant(rules={may_settle: lambda run, *_: run.is_held}),
    "group: given back is gone": Variant(rules={settled: given_back_has_ended}),
    "group: passes what is held": Variant(rules={without_ended: passes_what_is_held}),
    "group: leases too short": Variant(rules={held: short_leases}),
    "group: unseen grants count": Variant(rules={held: counts_what_it_grants}),
    "group: handed over unconfirmed": Variant(subscriber=MemberThatTrustsGrants),
}
