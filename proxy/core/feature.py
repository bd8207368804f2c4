"""What a feature adds to the engine: one value, which the list in `features.py` names.

The engine loops over the rows that are registered for a request or a moment, and knows no feature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct, field

from reliable_pubsub.common.access.core.attendance import Excess
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requests import AnyRequest

from .records import Decision
from .state import Record, State

# Decides a request: (state, request, body, now_ns). It changes nothing; the records do.
Verb = Callable[[State, Any, bytes, int], Decision]
# Adds to the answer of a verb what the engine knows besides the state: (engine, request, decision).
Complete = Callable[[Any, Any, Decision], Decision]
# Before a verb: return the request to decide, or None if the engine has answered it.
Admit = Callable[[Any, AnyRequest, "Arrival"], AnyRequest | None]
# After a verb that makes records: return the decision, or a refusal in its place.
Judge = Callable[[Any, AnyRequest, Decision], Decision]
# Take frames that are no request of a client; return whether they were answered.
Foreign = Callable[[Any, Sequence[bytes], "Arrival"], bool]


class Arrival(Struct, kw_only=True):
    """How a request came."""

    reply_to: Any
    role: Role  # of the endpoint that received it
    key: str  # public key of the connection; "": it has none
    excess: Excess | None = None  # the key has too many connections
    is_here: bool = False  # it belongs to this endpoint
    now_s: float
    now_ns: int


class Feature(Struct, frozen=True, kw_only=True):
    """The rows of one feature."""

    name: str
    verbs: dict[type[Any], Verb] = {}  # by type of the request
    # The endpoint of a verb, where it is not that of subscribers; None: it belongs to both.
    endpoints: dict[type[Any], Role | None] = {}
    completes: dict[type[Any], Complete] = {}
    admit: Admit | None = None
    judge: Judge | None = None
    foreign: Foreign | None = None
    begin: Callable[[State], None] | None = None  # what was read from the store, at the first tick
    due: Callable[[State], Sequence[Record]] | None = None  # records that are due by time
    # Topics with messages that time has freed.
    freed: Callable[[State], Sequence[str]] | None = None


class Tables(Struct):
    """The rows of all features of an engine, in the order of their list."""

    verbs: dict[type[Any], Verb] = field(default_factory=dict)
    endpoints: dict[type[Any], Role | None] = field(default_factory=dict)
    completes: dict[type[Any], Complete] = field(default_factory=dict)
    admit: list[Admit] = field(default_factory=list)
    judge: list[Judge] = field(default_factory=list)
    foreign: list[Foreign] = field(default_factory=list)
    begin: list[Callable[[State], None]] = field(default_factory=list)
    due: list[Callable[[State], Sequence[Record]]] = field(default_factory=list)
    freed: list[Callable[[State], Sequence[str]]] = field(default_factory=list)


def tables_of(features: Sequence[Feature]) -> Tables:
    """Return the rows of these features, each verb once."""
    tables = Tables()
    for one in features:
        assert not tables.verbs.keys() & one.verbs.keys(), one.name
        tables.verbs |= one.verbs
        tables.endpoints |= one.endpoints
        tables.completes |= one.completes
        tables.admit += [one.admit] if one.admit else []
        tables.judge += [one.judge] if one.judge else []
        tables.foreign += [one.foreign] if one.foreign else []
        tables.begin += [one.begin] if one.begin else []
        tables.due += [one.due] if one.due else []
        tables.freed += [one.freed] if one.freed else []
    return tables
