"""What the loop does for monitoring: STATUS, figures for scrapes, the watchdog."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from reliable_pubsub.common.core.status import CommitterStatus, StatusReport
from reliable_pubsub.common.metrics_server import Pages
from reliable_pubsub.common.scrapes import Scrapes

from .access.uses import key_uses
from .committer import COMMIT_BOUNDS_S
from .core.engine import Engine
from .core.feature import Runtime
from .core.state import State
from .extension import Extension, Surroundings
from .operators.history import Administration
from .push.pushes import Pushes
from .qos0.interest import Wanted
from .status.figures import Figures, Histogram, figures_of
from .status.report import Description
from .status.survey import Survey, surveyed
from .store import WAL_BYTES_MAX


class Observation(Extension):
    """Used by the loop; `pages` is for the thread that serves metrics."""

    def __init__(self, at: Surroundings) -> None:
        """Create it; no scrape has asked, but some may have waited while the process stood by."""
        self._at = at
        self._scrapes: Scrapes[Figures] = at.scrapes or Scrapes()
        self._scrapes.wakes(at.wake)
        self.asked = self._scrapes.asked
        self._survey: Generator[None, None, Survey] | None = None
        self._state: State | None = None  # that the survey is of
        self._spent_s = 0.0

    def parts(self) -> Sequence[object]:
        """Describe the shell in a STATUS."""
        return (Description(self.described),)

    def work(self, engine: Engine, now_s: float) -> None:
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
        committer, store = self._at.committer, self._at.store
        return figures_of(
            engine,
            survey,
            now_s=now_s,
            commits=Histogram(COMMIT_BOUNDS_S, tuple(committer.by_duration), committer.commits_s),
            committed_records=committer.records,
            wal_held_bytes=store.wal_held_bytes,
            wal_bytes_max=WAL_BYTES_MAX,
            push=engine.state.kept(Pushes).status(),
            ingress=engine.state.kept(Wanted).status(),
            connections=self._at.entrance.status(),
            standbys=store.standbys,
        )

    def described(self, report: StatusReport, engine: Runtime) -> StatusReport:
        """A STATUS, with what the engine does not know."""
        state, at = engine.state, self._at
        store, committer = at.store, at.committer
        return replace(
            report,
            publisher_endpoint=at.publisher_endpoint,
            subscriber_endpoint=at.subscriber_endpoint,
            push=state.kept(Pushes).status(),
            ingress=state.kept(Wanted).status(),
            connections=at.entrance.status(),
            store_path=str(store.path),
            standbys=UNSET if store.standbys is None else store.standbys,
            why_dead=self._scrapes.why_dead() or UNSET,
            committer=CommitterStatus(
                queued_records=state.lsn - state.durable_lsn,
                commits=committer.commits,
                records=committer.records,
                last_commit_ms=committer.last_commit_s * 1000,
                storage_full=state.is_storage_full,
                log_held_bytes=store.wal_held_bytes or UNSET,
            ),
        )

    def tick(self, engine: Engine, _now_s: float, _judged_s: float) -> None:
        """Note that the loop turns."""
        state, why_not = engine.state, ""
        if state.is_storage_full:
            why_not = "puts are refused: the disk is full"
        elif state.part(Administration).paused is not None:
            why_not = "puts are refused: an operator has paused the proxy"
        self._scrapes.beat(why_not)


def pages(scrapes: Scrapes[Figures], data_dir: Path) -> Pages[Figures]:
    """Return the pages of the metrics endpoint; loads `prometheus_client`."""
    from .exposition import exposition

    return Pages(scrapes, lambda figures: exposition(figures, data_dir))
