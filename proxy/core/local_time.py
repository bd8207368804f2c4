"""Local time: how much time has passed here, whatever the wall clock shows (rule R36).

A wall clock may be wrong, and be set forward or back. Timestamps follow it, because they describe.
Retention, lags and `ago` do not: they count the time that the monotonic clock of this process has
measured. Local time is in nanoseconds, and equals the wall clock where a process starts.

A start is the only moment at which the wall clock counts, because the monotonic clock of the
process before it is gone. The first reading may age the store by at most an hour; the rest counts
when the proxy has run for an hour in which the clock was not set.
"""

from __future__ import annotations

from typing import Final

from .state import State
from .topic_log import SET_NS_MIN

GAP_NS_MAX: Final = 3600 * 10**9  # by which a start may age what is stored
STEADY_S: Final = 3600.0  # without a step, before a start's whole gap counts


class LocalTime:
    """The local time of one process; each method passes it on to the state."""

    def __init__(self) -> None:
        self.steps = 0  # how often the wall clock was set while the process ran
        self.step_s = 0.0  # the last step; below 0: it was set back
        self.ahead_s = 0.0  # by which the newest timestamp is ahead of the wall clock
        self._local_ns = self._wall_ns = 0  # at the last reading
        self._gap_ns = 0  # of the start, as far as it does not count yet
        self._begun_ns: int | None = None  # local time of the first one
        self._now_s = self._steady_since_s = 0.0
        self._gap_is_counted = False

    def pass_to(self, state: State, now_s: float, wall_ns: int) -> None:
        """Let local time pass.

        Args:
            now_s: monotonic clock.
            wall_ns: wall clock; only the first reading sets local time.
        """
        if self._begun_ns is None:
            self._now_s = self._steady_since_s = now_s
            newest_ns = state.newest_ns
            believed_ns = min(wall_ns, newest_ns + GAP_NS_MAX) if newest_ns else wall_ns
            self._begun_ns = believed_ns
            self._local_ns = believed_ns
            self._wall_ns = wall_ns
            self._gap_ns = wall_ns - believed_ns
            self.begin(state)
        state.local_ns = self._local_ns + max(int((now_s - self._now_s) * 1e9), 0)

    def begin(self, state: State) -> None:
        """Use a state that was read from the store."""
        state.local_ns = self._local_ns
        state.age_from(self._local_ns)
        state.begun_ns, state.gap_ns = self._begun_ns or 0, self._gap_ns

    def look(self, state: State, now_s: float, wall_ns: int) -> None:
        """Let local time pass, and compare the two clocks."""
        self.pass_to(state, now_s, wall_ns)
        assert state.local_ns is not None
        step_s = (wall_ns - self._wall_ns) / 1e9 - (now_s - self._now_s)
        self._local_ns, self._now_s, self._wall_ns = state.local_ns, now_s, wall_ns
        self.ahead_s = max(state.newest_ns - wall_ns, 0) / 1e9
        if abs(step_s) * 1e9 >= SET_NS_MIN:
            self.steps += 1
            self.step_s = step_s
            self._steady_since_s = now_s
        if not self._gap_is_counted and now_s - self._steady_since_s >= STEADY_S:
            self._gap_is_counted = True
            state.age_from(state.begun_ns, max(wall_ns - self._local_ns, 0))
            state.gap_ns = self._gap_ns = 0
