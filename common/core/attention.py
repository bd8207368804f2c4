"""Attention: the time by which a process judges the silence of its peers (rule R30). Pure.

A process that was stopped, or whose turn came late, could not be reached meanwhile. So its own
pause is no silence of its peers: the time that leases are measured by stands still during the
pause, and afterwards for as long as a client may take to ask again.
"""

from __future__ import annotations

from math import inf
from typing import Final

from .retry import RetryPolicy

TICK_S: Final = 0.1  # a loop that turns looks at least this often
TICKS: Final = 3  # a look that comes later than this many ticks ends a pause
RETURN_S_MAX: Final = RetryPolicy().pause_s_max  # after a long pause clients ask again within this


class Attention:
    """Seconds of the monotonic clock in which peers could be heard."""

    def __init__(self, tick_s: float = TICK_S, return_s_max: float = RETURN_S_MAX) -> None:
        """Begin; the first look sets the time.

        Args:
            tick_s: longest time between two looks of a loop that turns; `inf`: it is never paused.
            return_s_max: longest time after a pause in which peers are still expected to return.
        """
        self._tick_s = tick_s
        self._return_s_max = return_s_max
        self._looked_s = -inf
        self._time_s = 0.0
        self._returned_s = -inf  # when peers have returned after the last pause
        self._owed_s = 0.0  # of the turn that follows a pause, so that late turns cannot stop time

    def at(self, now_s: float) -> float:
        """Return the time by which silence is judged.

        Args:
            now_s: monotonic clock, at this look.
        """
        gap_s = now_s - self._looked_s
        if gap_s == inf:
            self._time_s = now_s
        elif gap_s > TICKS * self._tick_s:
            self._time_s += self._owed_s
            self._owed_s = self._tick_s
            self._returned_s = now_s + min(gap_s, self._return_s_max)
        elif gap_s > 0:
            self._time_s += min(gap_s, max(now_s - self._returned_s, 0.0))
        self._looked_s = max(now_s, self._looked_s)
        return self._time_s
