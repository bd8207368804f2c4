"""What the loop does for monitoring: STATUS, figures for scrapes, the watchdog."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.status import CommitterStatus, StatusReport
from reliable_pubsub.common.metrics_server import Pages
from reliable_pubsub.common.notify import ServiceManager
from reliable_pubsub.common.scrapes import Scrapes

from .access.uses import key_uses
from .committer import COMMIT_BOUNDS_S, Committer
from .core.engine import Engine
from .core.state import State
from .front_door import Endpoints
from .operators.history import Administration
from .status.figures import Figures, Histogram, figures_of
from .status.survey import Survey, surveyed
from .store import WAL_BYTES_MAX, Store

if TYPE_CHECKING:
    from .postgres_store import PostgresStore


class Observation:
    """Used by the loop; `pages` is for the thread that serves metrics."""

    def __init__(
        self,
        wake: Callable[[], None],
        manager: ServiceManager,
        *,
        endpoints: Endpoints,
        committer: Committer,
        store: Store | PostgresStore,
        scrapes: Scrapes[Figures],
    ) -> None:
        """Create it; no scrape has asked.

        Args:
            wake: wakes the loop.
            manager: is notified that the loop turns.
            endpoints, committer, store: observed besides the engine.
            scrapes: those that may have waited while the process stood by.
        """
        self._endpoints, self._committer, self._store = endpoints, committer, store
        self._scrapes = scrapes
        scrapes.wakes(wake)
        self.asked = scrapes.asked  # if any scrape waits there, `turn` has something to do
        self._manager = manager
        self._survey: Generator[None, None, Survey] | None = None
        self._state: State | None = None  # that the survey is of
        self._spent_s = 0.0

    def turn(self, engine: Engine, now_s: float) -> None:
        """Do one more piece, of bounded cost, of what a scrape has asked for."""
        begun_s, state = time.perf_counter(), engine.state
        if self._survey is None or self._state is not state:  # after a full disk it is another one
            self._survey = surveyed(state, uses=key_uses(state))
            self._state = state
            self._spent_s = 0.0
        try:
            next(self._survey)
        except StopIteration as end:
            figures = self._figures(engine, end.value, now_s)
            self._survey = None
            self._scrapes.give(figures, made_in_s=self._spent_s)
        self._spent_s += time.perf_counter() - begun_s

    def _figures(self, engine: Engine, survey: Survey, now_s: float) -> Figures:
        committer = self._committer
        return figures_of(
            engine,
            survey,
            now_s=now_s,
            commits=Histogram(COMMIT_BOUNDS_S, tuple(committer.by_duration), committer.commits_s),
            committed_records=committer.records,
            wal_held_bytes=self._store.wal_held_bytes,
            wal_bytes_max=WAL_BYTES_MAX,
            push=self._endpoints.push.pushes.status(),
            ingress=self._endpoints.ingress.status(engine),
            connections=self._endpoints.entrance.status(),
            standbys=self._store.standbys,
        )

    def described(self, report: StatusReport, engine: Engine) -> StatusReport:
        """A STATUS, with what the engine does not know."""
        state = engine.state
        publishers, subscribers = self._endpoints.doors
        return replace(
            report,
            publisher_endpoint=publishers.endpoint,
            subscriber_endpoint=subscribers.endpoint,
            push=self._endpoints.push.pushes.status(),
            ingress=self._endpoints.ingress.status(engine),
            connections=self._endpoints.entrance.status(),
            store_path=str(self._store.path),
            standbys=UNSET if self._store.standbys is None else self._store.standbys,
            why_dead=self._scrapes.why_dead() or UNSET,
            committer=CommitterStatus(
                queued_records=state.lsn - state.durable_lsn,
                commits=self._committer.commits,
                records=self._committer.records,
                last_commit_ms=self._committer.last_commit_s * 1000,
                storage_full=state.is_storage_full,
                log_held_bytes=self._store.wal_held_bytes or UNSET,
            ),
        )

    def beat(self, now_s: float, state: State) -> None:
        """The loop has turned."""
        why_not = ""
        if state.is_storage_full:
            why_not = "puts are refused: the disk is full"
        elif state.part(Administration).paused is not None:
            why_not = "puts are refused: an operator has paused the proxy"
        self._scrapes.beat(why_not)
        self._manager.alive(now_s)


def pages(scrapes: Scrapes[Figures], data_dir: Path) -> Pages[Figures]:
    """Return the pages of the metrics endpoint; loads `prometheus_client`."""
    from .exposition import exposition

    return Pages(scrapes, lambda figures: exposition(figures, data_dir))
