"""What each key uses of its quotas, as rows of the page. Pure."""

from __future__ import annotations

from msgspec import Struct

from reliable_pubsub.common.core.rights import Quota
from reliable_pubsub.common.core.status import StatusReport


class QuotaRow(Struct, frozen=True, kw_only=True):
    """One quota of a key."""

    key: str
    quota: Quota
    used: int
    most: int | None  # None: it has no such bound


def quota_rows(status: StatusReport) -> tuple[QuotaRow, ...]:
    """The quotas that are bounded or in use; the keys nearest to a bound of theirs first."""
    return tuple(
        QuotaRow(
            key=account.key,
            quota=use.quota,
            used=use.used,
            most=use.most if isinstance(use.most, int) else None,
        )
        for account in (status.accounts if isinstance(status.accounts, tuple) else ())
        for use in account.noted
    )
