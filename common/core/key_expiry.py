"""Which keys have expired, which will soon, and when that changes next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from .rights import KnownKey

WARNING: Final = timedelta(days=14)  # before a key expires


def unexpired(clients: Mapping[str, KnownKey], now: datetime) -> dict[str, KnownKey]:
    """Return the keys that may connect."""
    return {key: one for key, one in clients.items() if not one.expires or now < one.expires}


def next_change(dates: Mapping[str, datetime | None], now: datetime) -> datetime | None:
    """Return when the next key expires, or is to be warned of; None: never.

    Args:
        dates: when each key expires, by name.
    """
    moments = [moment for at in dates.values() if at for moment in (at - WARNING, at)]
    return min((moment for moment in moments if moment > now), default=None)


def expiry_warnings(dates: Mapping[str, datetime | None], now: datetime) -> Iterator[str]:
    """Give a warning for each key that has expired or will soon."""
    for name, at in dates.items():
        if at and at - WARNING <= now:
            when = "expired" if at <= now else "expires"
            yield (
                f"the key {name} {when} on {at:%Y-%m-%d}: replace it (docs/how-to/rotate-keys.md)"
            )
