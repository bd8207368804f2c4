"""Points in time as a person writes them. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from reliable_pubsub.common.core.start import at_time

MILLISECONDS_MIN: Final = 10**11  # of 1973; a smaller number is taken for seconds, and refused
_MILLISECONDS: Final = re.compile(r"[0-9]{1,15}\Z")


def instant_ns(text: str) -> int | None:
    """Return an ISO 8601 time or milliseconds as nanoseconds since 1970; None for other text.

    A time without zone is UTC: on a cluster the zone of a machine means nothing. Digits below
    `MILLISECONDS_MIN` are seconds, so they are none of these.
    """
    if _MILLISECONDS.match(text):
        time_ms = int(text)
        return None if 0 < time_ms < MILLISECONDS_MIN else time_ms * 1_000_000
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at_time(instant.replace(tzinfo=instant.tzinfo or UTC)).value
