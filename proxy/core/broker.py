"""What every decision passes: what is due by time, and a disk that is full or does not respond.

A verb is a function `(state, request, body, now_ns) -> Decision`. It changes nothing: the records
of its decision do. Each feature registers its verbs (`features.py`). A planted fault replaces one
of these functions (`lab/variants.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from reliable_pubsub.common.core.answers import Busy, StorageFull
from reliable_pubsub.common.core.message_base import Reply
from reliable_pubsub.common.core.requests import AnyRequest

from .feature import Tables
from .records import Decision
from .replies import echo
from .state import Record, State

_HANGS: Final = (
    "the disk of the proxy is not responding; gets of what is stored are served, ask again later"
)


def due(state: State, tables: Tables, *, now_s: float) -> Sequence[Record]:
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
        for begin in tables.begin:
            begin(state)
    return [record for rows in tables.due for record in rows(state)]


def without_waiting(state: State, request: AnyRequest, decision: Decision) -> Decision:
    """While the disk does not respond: serve what needs no disk, answer the rest with BUSY.

    Records are not applied, so memory does not grow until the disk responds again.
    """
    if _is_in_memory(decision):
        return decision
    if decision.visible_at > state.durable_lsn:
        return Decision(not_yet(state, request))
    return replace(decision, records=())


def without_storage(state: State, request: AnyRequest, decision: Decision) -> Decision:
    """While the disk is full: serve what stores no message."""
    if not state.is_storage_full or not decision.records or _is_in_memory(decision):
        return decision
    stores = any(record.batch is not None for record in decision.records)
    if state.storage_full_until_s is None and not stores:
        return decision  # it may use what is kept free for this (rule R37)
    if not any(record.urgent for record in decision.records):
        return replace(decision, records=())
    text = f"{state.storage_full_why}; gets are served, puts are refused until then"
    return Decision(StorageFull(**echo(state, request), text=text))


def _is_in_memory(decision: Decision) -> bool:
    """Return whether a decision has records, and the store writes none of them."""
    return bool(decision.records) and not any(one.is_stored for one in decision.records)


def not_stored(state: State, reply: Reply) -> StorageFull:
    """The reply that replaces one whose records could not be written to a full disk."""
    text = f"{state.storage_full_why}; the request was not stored, ask again later"
    return StorageFull(**echo(state, reply), text=text)


def not_yet(state: State, reply: Reply | AnyRequest) -> Busy:
    """The reply that replaces one that has waited too long for the disk."""
    return Busy(**echo(state, reply), text=_HANGS)
