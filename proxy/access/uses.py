"""What each key uses of its quotas, and its bounds: for STATUS and metrics. Pure."""

from __future__ import annotations

from collections.abc import Generator
from heapq import nsmallest

from msgspec import UNSET, Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.limits import STATUS_ACCOUNTS_MAX
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.common.core.rights import NOTHING, QUOTAS, Quota
from reliable_pubsub.common.core.status import AccountStatus, QuotaUse, Status, StatusReport

from ..core.state import State
from .accounts import Accounts
from .quotas import Quotas, counted_at_once


class KeyUses(Struct, frozen=True):
    """The keys that use something, or have a bound."""

    rows: tuple[AccountStatus, ...] = ()  # nearest to a bound first
    left_out: int = 0


def key_uses(
    state: State, *, only: str | None = None, rows_max: int = STATUS_ACCOUNTS_MAX
) -> Generator[None, None, KeyUses]:
    """Count what keys use; yield after each piece of bounded cost.

    Args:
        only: the name of the one key that is shown; None: all.
    """
    quotas = state.kept(Quotas)
    connections = quotas.connections()
    clients = state.authority.clients_by_name()
    if not clients:
        return KeyUses()
    rows: list[AccountStatus] = []
    for name in dict.fromkeys((*clients, *state.part(Accounts).of)) if only is None else [only]:
        client = clients.get(name)
        rights = client.rights if client else NOTHING
        found: dict[Quota, int] = yield from quotas.uses(state, name, rights)
        if rights.connections_max is not UNSET:
            found["connections_max"] = connections.get(name, 0)
        if rights.has_quotas or any(found.values()):
            uses = tuple(
                QuotaUse(quota=quota, used=found[quota], most=getattr(rights, quota))
                for quota in QUOTAS
                if quota in found
            )
            rows.append(AccountStatus(key=name, uses=uses))
        yield
    first = nsmallest(rows_max, rows, key=lambda one: (-one.fullest, one.key))
    return KeyUses(tuple(first), len(rows) - len(first))


def with_uses(
    request: AnyRequest, report: StatusReport, uses: Generator[None, None, KeyUses]
) -> StatusReport:
    """The first page of a STATUS with what keys use, counted in one go."""
    if not isinstance(request, Status) or request.after_topic or not request.rows_max:
        return report
    found = counted_at_once(uses)
    return replace(report, accounts=found.rows or UNSET, accounts_left_out=found.left_out or UNSET)
