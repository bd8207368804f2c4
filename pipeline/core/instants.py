"""Points in time as a person writes them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_MILLISECONDS: Final = re.compile(r"[0-9]{1,15}\Z")


def instant_ns(text: str) -> int | None:
    """Nanoseconds since 1970 of an ISO 8601 time or of milliseconds; None for anything else.

    A time without zone is UTC: on a cluster the zone of a machine means nothing.
    """
    if _MILLISECONDS.match(text):
        return int(text) * 1_000_000
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    since = instant.replace(tzinfo=instant.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000
