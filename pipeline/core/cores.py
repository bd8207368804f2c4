"""Whether a job of Spark waits for cores, which Spark itself reports only in its log. Pure."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

PATIENCE_S: Final = 15.0  # an executor of a cluster starts in less


class JobProgress(Struct, frozen=True):
    """How far the tasks of a job are."""

    running: int = 0
    done: int = 0
    is_planned: bool = True  # False: Spark has no job to give cores to yet


class CoreWait:
    """Reports once that a job waits for cores, and once that it continues."""

    def __init__(self, now_s: float, where: str) -> None:
        """Begin with a job that is given to Spark.

        Args:
            where: the master.
        """
        self._idle_since_s = now_s
        self._where = where
        self._done = 0
        self._told = False

    def look(self, now_s: float, advance: JobProgress) -> str | None:
        """What to report to the user now; None: nothing."""
        if advance.running or advance.done > self._done:
            self._idle_since_s, self._done = now_s, advance.done
            told, self._told = self._told, False
            return "continuing: Spark has given this job a core" if told else None
        if not advance.is_planned:
            self._idle_since_s = now_s
        if self._told or now_s - self._idle_since_s < PATIENCE_S:
            return None
        self._told = True
        return (
            f"waiting: Spark ({self._where}) has given this job no core for {PATIENCE_S:.0f} s. It "
            "begins by itself as soon as there is one. Has the cluster workers, do other "
            "applications hold all cores (spark.cores.max bounds one), and has a worker the "
            "memory that an executor asks for (spark.executor.memory)?"
        )
