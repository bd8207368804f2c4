"""When to pull although pushes come: for one topic, or for all topics of a pattern. Pure.

A pull is due when a push shows that a batch is missing, when there was no push for longer than
usual, and to send the proxy a cursor that moved. A pull that finds a batch that was not pushed is a
miss; several misses in a row mean that pushing has failed: then the proxy is polled, until a push
comes or a new link works.

The silence allowed is the mean time between arrivals and four deviations, as TCP's timer
(RFC 6298), between two bounds; it doubles with each pull that finds nothing.
"""

from __future__ import annotations

from math import inf
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core.retry import poll_pause_s
from reliable_pubsub.common.core.settings import Settings

from ...core.push_timing import PushTiming

_DOUBLINGS_MAX: Final = 30


def timing_of(settings: Settings) -> PushTiming:
    """The timing of a client's settings."""
    return PushTiming(
        silence_s_min=settings.push_silence_min, silence_s_max=settings.push_silence_max
    )


class PushCounts(Struct, kw_only=True):
    """Counts of pushes, taken and dropped."""

    taken: int = 0  # batches
    repeats: int = 0
    jumps: int = 0  # something before them is missing
    places: int = 0  # pushed without body
    foreign: int = 0  # of another log or another start of the proxy
    overflows: int = 0  # the queue was full
    beginnings: int = 0  # of a pattern: of a topic that is new here
    misses: int = 0  # pulls that found batches that were not pushed
    pulls: int = 0
    links: int = 0  # links that replaced a failed one


class PullTimer:
    """Decides when a pull is due, from what arrives and what pulls find."""

    def __init__(self, timing: PushTiming, counts: PushCounts | None = None) -> None:
        """A pull is due first.

        Args:
            counts: to be continued.
        """
        self.timing = timing
        self.counts = counts or PushCounts()
        self.queued_bytes = 0  # bodies of queued batches
        self._is_linked = False
        self._is_missing = True  # a batch may exist that will not be pushed
        self._failed_at_s: float | None = None
        self._misses = 0  # in a row
        self._fruitless = 0  # pulls in a row that found nothing
        self._heard_at_s = self._asked_at_s = -inf
        self._mean_s: float | None = None  # between arrivals
        self._deviation_s = 0.0

    # Events.

    def linked(self, is_linked: bool) -> None:
        """Set whether the upstream node sends data; batches from before that are missing."""
        if is_linked and not self._is_linked:
            self._is_missing = True
            self._failed_at_s = None
            self._misses = 0
        self._is_linked = is_linked

    def relinked(self) -> None:
        """A new link replaces the old one."""
        self.counts.links += 1
        self._is_linked = False
        self._failed_at_s = None

    def missing(self) -> None:
        """A batch may exist that will not be pushed."""
        self._is_missing = True

    def worked(self) -> None:
        """A push of the current log and start of the proxy has come: the link works."""
        self._failed_at_s = None
        self._misses = 0

    def arrived(self, now_s: float) -> None:
        """A push has brought something new."""
        gap_s = now_s - self._heard_at_s
        self._heard_at_s = now_s
        self._fruitless = 0
        if gap_s == inf:
            return
        if self._mean_s is None:
            self._mean_s, self._deviation_s = gap_s, gap_s / 2
        else:
            self._deviation_s += (abs(gap_s - self._mean_s) - self._deviation_s) / 4
            self._mean_s += (gap_s - self._mean_s) / 8

    def pulled(self, now_s: float, *, is_new: bool, is_empty: bool) -> bool:
        """A pull has been answered; return whether it was a miss.

        Args:
            is_new: it brought a batch that was not pushed.
            is_empty: it brought nothing at all.
        """
        self.counts.pulls += 1
        self._asked_at_s = now_s
        expected, self._is_missing = self._is_missing, False
        if not is_new:
            self._fruitless += is_empty
            return False
        self.arrived(now_s)
        if self.is_polled or expected:
            return False
        self.counts.misses += 1
        self._misses += 1
        if self._misses >= self.timing.misses_max:
            self._failed_at_s = now_s
        return True

    # Consequences.

    @property
    def is_polled(self) -> bool:
        """Whether pushing does not work, so that the proxy is polled."""
        return not self._is_linked or self._failed_at_s is not None

    def wants_new_link(self, now_s: float) -> bool:
        """Whether pushing has failed for long enough to try another link."""
        failed_at_s = self._failed_at_s
        return failed_at_s is not None and now_s - failed_at_s >= self.timing.silence_s_max

    def due_in_s(self, now_s: float, tell_s: float, *, has_batches: bool) -> float:
        """Seconds until a pull is due; until then queued batches can be taken.

        Args:
            tell_s: longest time from a pull to the next request.
            has_batches: some are queued.
        """
        tell_s = max(self._asked_at_s + tell_s - now_s, 0.0) if tell_s < inf else inf
        if has_batches:
            return tell_s
        if self._is_missing:
            return 0.0
        pause_s = poll_pause_s(self._fruitless) if self.is_polled else self.silence_s
        last_s = self._asked_at_s if self.is_polled else max(self._asked_at_s, self._heard_at_s)
        return min(tell_s, max(last_s + pause_s - now_s, 0.0))

    @property
    def silence_s(self) -> float:
        """How long pushes may be silent before a pull is due."""
        timing = self.timing
        usual_s = 0.0 if self._mean_s is None else self._mean_s + 4 * self._deviation_s
        allowed_s: float = max(usual_s, timing.silence_s_min)
        allowed_s *= 2.0 ** min(self._fruitless, _DOUBLINGS_MAX)
        return min(allowed_s, timing.silence_s_max)
