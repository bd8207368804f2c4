"""Faulty parts that several planted faults share: of a rule, and of a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.lab.variants import Rule
from reliable_pubsub.proxy.core.state import State
from reliable_pubsub.proxy.core.stored import StoredState

from .simulated_store import SimulatedStore

Rules = dict[Rule, Rule]  # by the sound one: what is put in its place


def before_durable(rule: Rule) -> Rules:
    """What a crash can still take back is answered at once."""
    return {rule: lambda *given: replace(rule(*given), visible_at=0)}


def with_request(rule: Rule, change: Callable[[State, Any], Any]) -> Rules:
    """A rule sees another request than the one that came."""
    return {rule: lambda state, request, *more: rule(state, change(state, request), *more)}


def with_decision(rule: Rule, change: Callable[[State, Any, Any], Any]) -> Rules:
    """What a rule decides is changed; `change` is given state, request and decision."""

    def decide(state: State, request: Any, *more: Any) -> Any:
        return change(state, request, rule(state, request, *more))

    return {rule: decide}


def store_that_forgets(change: Callable[[StoredState], StoredState]) -> type[SimulatedStore]:
    """Something lives in the memory of the proxy only, and is gone when it starts again."""

    class Forgetful(SimulatedStore):
        def state(self) -> StoredState:
            return change(super().state())

    return Forgetful
