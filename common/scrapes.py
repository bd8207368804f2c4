"""Scrapes: how a thread that serves metrics gets figures from a loop, which it never delays.

The two share no lock. A scrape that finds no fresh figures leaves a queue of its own, and wakes the
loop; the loop makes the figures when it has a turn for it, and puts them into the queues. Figures
are frozen, and are given to every scrape while they are fresh, so however many ask, the loop makes
them at most once in that time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from . import threads

FRESH_S: Final = 1.0  # how long figures are used again
PATIENCE_S: Final = 1.0  # that a scrape waits for the loop; then it gets the figures before
ASKED_MAX: Final = 64  # scrapes that wait, of a loop that does not turn
BEAT_S_MAX: Final = 10.0  # since the loop turned; above, it counts as hung

F = TypeVar("F")


class Scrapes(Generic[F]):
    """The figures of one loop, and whether it turns."""

    def __init__(
        self,
        wake: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """No figures yet, and not ready.

        Args:
            wake: wakes the loop; safe from any thread.
            clock: in seconds; never goes back.
            patience_s: how long a scrape waits for the loop.
        """
        self._wake = wake
        self._clock = clock
        self._patience_s = patience_s
        self.asked: deque[SimpleQueue[F]] = deque(maxlen=ASKED_MAX)  # scrapes that wait for `give`
        self._figures: F | None = None
        self._fresh_until_s = 0.0
        self._beat_s = self._clock()
        self._why_not = "it has not begun to serve"
        self.role = ""  # of a process that may stand by: starting, standby or serving

    def wakes(self, wake: Callable[[], None]) -> None:
        """Wake this loop from now on, which has begun to serve."""
        self._wake = wake
        self.role = "serving"
        self.beat(self._why_not)

    # The side of the loop.

    def give(self, figures: F, *, made_in_s: float = 0.0) -> None:
        """Give figures to every scrape that waits.

        Args:
            made_in_s: what they took of the loop: a tenth of its time at most goes into them.
        """
        self._figures = figures
        self._fresh_until_s = self._clock() + max(FRESH_S, 9 * made_in_s)
        while self.asked:
            self.asked.popleft().put(figures)

    def beat(self, why_not: str = "") -> None:
        """The loop has turned.

        Args:
            why_not: it serves, but not everything: what is missing. "": it is ready.
        """
        self._beat_s = self._clock()
        self._why_not = why_not

    # The side of the thread that serves.

    def figures(self) -> F | None:
        """Fresh figures; those before if the loop does not give any in time; None: it never did."""
        if self.is_fresh or self._waits_to_serve:  # no loop would answer
            return self._figures
        mine: SimpleQueue[F] = SimpleQueue()
        self.asked.append(mine)
        self._wake()
        try:
            return mine.get(timeout=self._patience_s)
        except Empty:
            return self._figures

    @property
    def _waits_to_serve(self) -> bool:
        return self.role in ("starting", "standby")

    @property
    def is_fresh(self) -> bool:
        """Whether the newest figures are given again."""
        return self._clock() < self._fresh_until_s

    @property
    def silent_s(self) -> float:
        """How long the loop has not turned."""
        return max(self._clock() - self._beat_s, 0.0)

    def why_dead(self) -> str:
        """Return why the process needs a restart: its loop hangs, or a thread has died; or "".

        One that starts or stands by has no loop yet. It may wait for a disk or database that hangs,
        which no restart would end.
        """
        silent_s = self.silent_s
        if silent_s > BEAT_S_MAX and not self._waits_to_serve:
            return f"the loop has been stuck for {silent_s:.0f} s"
        return threads.why_dead()

    def why_not_ready(self) -> str:
        """Why requests are not served, or not all of them; "": it is ready."""
        return self.why_dead() or self._why_not
