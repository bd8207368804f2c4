"""What a feature adds to the engine: one value, which the list in `features.py` names.

The engine loops over the rows that are registered for a request or a moment, and knows no feature.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from reliable_pubsub.common.access.core.attendance import Excess
from reliable_pubsub.common.core.message_base import Reply, Role
from reliable_pubsub.common.core.requests import AnyRequest

from .batches import LogBatch
from .local_time import LocalTime
from .records import Decision
from .schema import StoredTable
from .state import Hooks, Record, State
from .waiting_gets import WaitingGets, WaitKind


class Sender(Struct):
    """Who sent the request that is decided."""

    client: Any = None  # to whom the decision is charged; None: it is not charged
    role: Role = "subscriber"
    now_s: float = 0.0  # monotonic clock


class Runtime(Protocol):
    """What rows use of the engine."""

    outputs: deque[object]
    waiting: WaitingGets
    sender: Sender
    disk_hangs: bool
    has_turn_work: bool  # a row of `turn` has something to do
    requests_count: int
    malformed_count: int
    local: LocalTime

    @property
    def state(self) -> State:
        """The state, another one after a failed commit."""

    def answer(
        self,
        reply_to: Any,
        reply: Reply,
        body: bytes | None = None,
        visible_at: int = 0,
        now_s: float = 0.0,
    ) -> None:
        """Answer when record number `visible_at` is durable."""


# Decides a request: (state, request, body, now_ns). It changes nothing; the records do.
Verb = Callable[[State, Any, bytes, int], Decision]
# Adds to the answer of a verb: (engine, request, decision).
Complete = Callable[[Runtime, Any, Decision], Decision]
# Before a verb: return the request to decide, or None if it is answered.
Admit = Callable[[Runtime, AnyRequest, "Arrival"], AnyRequest | None]
# After a verb that makes records: return the decision, or a refusal in its place.
Judge = Callable[[Runtime, AnyRequest, Decision], Decision]
# Take frames that are no request of a client; return whether they were answered.
Foreign = Callable[[Runtime, Sequence[bytes], "Arrival"], bool]


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
    # Requests of a subscriber's process; True: its leases continue by them.
    of_subscribers: dict[type[Any], bool] = {}
    waits: dict[type[Any], WaitKind] = {}  # by type of a request that can wait
    completes: dict[type[Any], Complete] = {}
    tables: tuple[StoredTable, ...] = ()  # of the store
    admit: Admit | None = None
    judge: Judge | None = None
    foreign: Foreign | None = None
    begin: Callable[[State], None] | None = None  # what was read from the store, at the first tick
    due: Callable[[State], Sequence[Record]] | None = None  # records that are due by time
    # Topics with messages that time has freed.
    freed: Callable[[State], Sequence[str]] | None = None
    visible: Callable[[Runtime, Sequence[LogBatch]], None] | None = None  # batches may be read now
    turn: Callable[[Runtime], bool] | None = None  # at the end of a turn; whether there is more
    tick: Callable[[Runtime], None] | None = None
    governed: Callable[[Runtime, frozenset[str]], None] | None = None  # rights of keys changed
    hooks: Hooks = field(default_factory=Hooks)


class Tables(Struct):
    """The rows of all features of an engine, in the order of their list."""

    verbs: dict[type[Any], Verb] = field(default_factory=dict)
    endpoints: dict[type[Any], Role | None] = field(default_factory=dict)
    of_subscribers: dict[type[Any], bool] = field(default_factory=dict)
    waits: dict[type[Any], WaitKind] = field(default_factory=dict)
    completes: dict[type[Any], list[Complete]] = field(default_factory=dict)
    admit: list[Admit] = field(default_factory=list)
    judge: list[Judge] = field(default_factory=list)
    foreign: list[Foreign] = field(default_factory=list)
    begin: list[Callable[[State], None]] = field(default_factory=list)
    due: list[Callable[[State], Sequence[Record]]] = field(default_factory=list)
    freed: list[Callable[[State], Sequence[str]]] = field(default_factory=list)
    visible: list[Callable[[Runtime, Sequence[LogBatch]], None]] = field(default_factory=list)
    turn: list[Callable[[Runtime], bool]] = field(default_factory=list)
    tick: list[Callable[[Runtime], None]] = field(default_factory=list)
    governed: list[Callable[[Runtime, frozenset[str]], None]] = field(default_factory=list)
    tables: list[StoredTable] = field(default_factory=list)
    hooks: Hooks = field(default_factory=Hooks)


def tables_of(features: Sequence[Feature]) -> Tables:
    """Return the rows of these features, each verb once."""
    tables = Tables()
    for one in features:
        assert not tables.verbs.keys() & one.verbs.keys(), one.name
        for kind, complete in one.completes.items():
            tables.completes.setdefault(kind, []).append(complete)
        _add(tables, one)
        _add(tables.hooks, one.hooks)
    return tables


def schema_of(tables: Tables) -> str:
    """Return the SQL that creates the tables of a store."""
    return "".join(table.sql for table in tables.tables)


def _add(rows: Struct, more: Struct) -> None:
    """Add the tables of a feature to those of the same name, and its single functions to lists."""
    for name in rows.__struct_fields__:
        known, new = getattr(rows, name), getattr(more, name)
        if isinstance(known, list):
            known += new if isinstance(new, list | tuple) else [new] if new else []
        elif isinstance(known, dict) and name != "completes":
            known |= new
