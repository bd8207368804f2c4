"""How long the processes of a run could work: on a busy machine, less than the time that passed."""

from __future__ import annotations

from collections.abc import Mapping


class WorkingTime:
    """Seconds, without those in which a process of the run waited for a core."""

    def __init__(self, now_s: float) -> None:
        self.seconds = 0.0
        self._seen_s = now_s
        self._waited_s: Mapping[tuple[str, int], float] = {}

    def advance(self, now_s: float, waited_s: Mapping[tuple[str, int], float]) -> float:
        """Add the time that has passed, and return the sum.

        Args:
            waited_s: by name and life of a process, how long it has waited for a core in it.
        """
        waits = (total - self._waited_s.get(one, 0.0) for one, total in waited_s.items())
        self.seconds += max(now_s - self._seen_s - max(waits, default=0.0), 0.0)
        self._seen_s, self._waited_s = now_s, waited_s
        return self.seconds
