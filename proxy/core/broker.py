"""The broker: every decision of the proxy, as a table of verbs over one state.

A verb is a function `(state, request, body, now_ns) -> Decision`. It changes nothing: the records
of its decision do, in `applying.py`. The rules of docs/protocol.md are decided in these files:

    sessions        HELLO                    qos0              RING, LISTENERS, offers
    publishing      PUT                      dead_letters      DEAD
    subscribing     SUB, UNSUB, BYE          transactions      STAGE, COMMIT, ABORT
    groups          TAKE, SETTLE
    reading         GET, ACK, HISTORY        delivery_status   DELIVERY
    patterns        MATCH, FETCH
    administering   ADMIN, CLIENTS           status_report     STATUS
    interests       SUBSCRIPTIONS
    leases, forgetting                       what is due by time

A planted fault replaces one of these functions (`lab/variants.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from reliable_pubsub.common.core.actions import AdminRequest
from reliable_pubsub.common.core.answers import Busy, StorageFull
from reliable_pubsub.common.core.group_messages import Settle, Take
from reliable_pubsub.common.core.interest_messages import Subscriptions
from reliable_pubsub.common.core.message_base import Reply, Request, Role
from reliable_pubsub.common.core.pattern_messages import Fetch, Match
from reliable_pubsub.common.core.qos0_messages import Listeners, Ring
from reliable_pubsub.common.core.requests import (
    Ack,
    AnyRequest,
    Bye,
    Dead,
    DeliveryRequest,
    Get,
    Hello,
    History,
    Put,
    Sub,
    Unsub,
)
from reliable_pubsub.common.core.status import Clients, Status
from reliable_pubsub.common.core.transaction_messages import Abort, Commit, Stage

from .administering import admin, clients
from .dead_letters import dead
from .delivery_status import delivery
from .forgetting import forgotten, trims_due
from .groups import begin_leases, settle, take
from .interests import subscriptions
from .lease_ends import ended_leases, ended_patterns
from .patterns import fetch, match
from .publishing import put
from .qos0 import listeners, ring
from .reading import ack, get, history
from .records import Decision
from .replies import echo
from .sessions import hello
from .state import Record, State
from .status_report import status
from .subscribing import bye, sub, unsub
from .transactions import abort, commit, idle_stages, stage

VERBS: Final[Mapping[type[Any], Callable[[State, Any, bytes, int], Decision]]] = {
    Hello: hello,
    Put: put,
    Stage: stage,
    Commit: commit,
    Abort: abort,
    DeliveryRequest: delivery,
    Get: get,
    Ack: ack,
    Dead: dead,
    Take: take,
    Match: match,
    Fetch: fetch,
    Settle: settle,
    Sub: sub,
    Unsub: unsub,
    Bye: bye,
    History: history,
    Ring: ring,
    Listeners: listeners,
    Subscriptions: subscriptions,
    Status: status,
    Clients: clients,
    AdminRequest: admin,
}
_HANGS: Final = (
    "the disk of the proxy is not responding; gets of what is stored are served, ask again later"
)


# The endpoint of a verb; that of HELLO depends on its role, other verbs belong to subscribers.
ENDPOINTS: Final[Mapping[type[Request], Role | None]] = {
    Status: None,  # both
    Put: "publisher",
    Stage: "publisher",
    Commit: "publisher",
    Abort: "publisher",
    Listeners: "publisher",
    Subscriptions: "publisher",
    DeliveryRequest: "publisher",
}


def due(state: State, *, now_s: float) -> Sequence[Record]:
    """Return the records that are due by time: expired leases, and what retention removes.

    Args:
        now_s: monotonic clock.
    """
    if state.storage_full_until_s is not None and now_s >= state.storage_full_until_s:
        state.storage_full_until_s = None  # what stores no message is tried again
    if now_s < state.trim_at_s or state.storage_full_until_s is not None:
        return ()
    state.trim_at_s = now_s + state.settings.trim_interval_s
    if state.leases.since_s is None:
        begin_leases(state)
    return [
        *ended_leases(state),
        *ended_patterns(state),
        *trims_due(state, state.local_ns or 0),
        *idle_stages(state),
        *forgotten(state),
    ]


def without_waiting(state: State, request: AnyRequest, decision: Decision) -> Decision:
    """While the disk does not respond: serve what needs no disk, answer the rest with BUSY.

    Records are not applied, so memory does not grow until the disk responds again.
    """
    if isinstance(request, Stage | Abort):  # in memory; their COMMIT is put off
        return decision
    if decision.visible_at > state.durable_lsn:
        return Decision(not_yet(state, request))
    return replace(decision, records=())


def without_storage(state: State, request: AnyRequest, decision: Decision) -> Decision:
    """While puts are paused, or the disk is full: serve what stores no message."""
    if not decision.records:
        return decision
    paused = state.administration.paused
    if paused is not None and isinstance(request, Put | Stage | Commit):
        return Decision(_paused(state, request, paused))
    if not state.is_storage_full or isinstance(request, Stage | Abort):
        return decision  # what is staged is in memory; its COMMIT is refused
    stores = any(record.batch is not None for record in decision.records)
    if state.storage_full_until_s is None and not stores:
        return decision  # it may use what is kept free for this (rule R37)
    if not any(record.urgent for record in decision.records):
        return replace(decision, records=())
    text = f"{state.storage_full_why}; gets are served, puts are refused until then"
    return Decision(StorageFull(**echo(state, request), text=text))


def _paused(state: State, request: AnyRequest, reason: str) -> Busy:
    """Puts are paused; what was stored before is still answered DUPLICATE or COMMIT_ACK."""
    why = f" ({reason})" if reason else ""
    text = (
        f"an operator has paused puts at this proxy{why}; nothing was stored. Gets continue, "
        "and puts after `reliable-pubsub admin resume`: ask again later"
    )
    return Busy(**echo(state, request), text=text)


def not_stored(state: State, reply: Reply) -> StorageFull:
    """The reply that replaces one whose records could not be written to a full disk."""
    text = f"{state.storage_full_why}; the request was not stored, ask again later"
    return StorageFull(**echo(state, reply), text=text)


def not_yet(state: State, reply: Reply | AnyRequest) -> Busy:
    """The reply that replaces one that has waited too long for the disk."""
    return Busy(**echo(state, reply), text=_HANGS)
