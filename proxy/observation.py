"""What the loop does so that others can watch it: figures for scrapes, and signs of life."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from pathlib import Path

from reliable_pubsub.common.metrics_server import Pages
from reliable_pubsub.common.notify import ServiceManager
from reliable_pubsub.common.scrapes import Scrapes

from .core.engine import Engine
from .core.figures import Figures
from .core.state import State
from .core.survey import Survey, surveyed


class Observation:
    """Used by the loop; `pages` is for the thread that serves metrics."""

    def __init__(
        self,
        wake: Callable[[], None],
        make: Callable[[Survey, float], Figures],
        manager: ServiceManager,
    ) -> None:
        """Nothing was asked.

        Args:
            wake: wakes the loop.
            make: the figures, given a survey and the monotonic clock.
            manager: is told that the loop turns.
        """
        self._scrapes: Scrapes[Figures] = Scrapes(wake)
        self.asked = self._scrapes.asked  # if any scrape waits there, `turn` has something to do
        self._make = make
        self._manager = manager
        self._survey: Generator[None, None, Survey] | None = None
        self._state: State | None = None  # that the survey is of
        self._spent_s = 0.0

    def turn(self, engine: Engine, now_s: float, now_ns: int) -> None:
        """Go on for one piece of bounded cost with what a scrape has asked for."""
        begun_s, state = time.perf_counter(), engine.state
        if self._survey is None or self._state is not state:  # after a full disk it is another one
            self._survey = surveyed(state, now_ns=now_ns, uses=engine.uses())
            self._state = state
            self._spent_s = 0.0
        try:
            next(self._survey)
        except StopIteration as end:
            figures = self._make(end.value, now_s)
            self._survey = None
            self._scrapes.give(figures, made_in_s=self._spent_s)
        self._spent_s += time.perf_counter() - begun_s

    def beat(self, now_s: float, why_not: str) -> None:
        """The loop has turned.

        Args:
            why_not: what is not served at the moment; "": nothing.
        """
        self._scrapes.beat(why_not)
        self._manager.alive(now_s)

    def pages(self, data_dir: Path) -> Pages[Figures]:
        """What the metrics endpoint serves; loads `prometheus_client`."""
        from .exposition import exposition

        return Pages(self._scrapes, lambda figures: exposition(figures, data_dir))
