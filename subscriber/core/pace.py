"""How many messages a loop fetches at once: as many as it takes in a short time. Pure.

What is fetched is unacknowledged meanwhile, and of a group no other member can have it. So a fast
loop reads a log of single messages in few requests, and a slow one fetches few messages.
"""

from __future__ import annotations

from typing import Final

AHEAD_S: Final = 0.1


class Pace:
    """How fast a program takes what was fetched for it."""

    def __init__(self, least: int, most: int) -> None:
        """Nothing was fetched; a loop begins with `least` messages."""
        self._least, self._most = least, most
        self.ahead = least  # messages to fetch for a loop
        self._found, self._found_at_s = 0, 0.0  # messages in the last answer, and when it came

    def found(self, count: int, now_s: float) -> None:
        """So many messages were received."""
        if count:
            self._found, self._found_at_s = count, now_s

    def look_ahead(self, now_s: float) -> int:
        """A loop needs more: fetch what it takes in `AHEAD_S`, as fast as it took the last ones."""
        took_s = max(now_s - self._found_at_s, 1e-6)
        self.ahead = min(max(int(self._found * AHEAD_S / took_s), self._least), self._most)
        return self.ahead
