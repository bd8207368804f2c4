"""The queue of pushed batches of one topic, and when to pull instead. Pure.

A push is a hint: it may be lost, doubled, late, early, or of a start of the proxy that is over. The
queue takes only the batch that directly follows its end, with the right log id and boot; others
are dropped, and if one shows that a batch is missing, a pull is due. A pull is also due when there
was no push for longer than usual, and to send the proxy a cursor that moved. A pull that finds a
batch that was not pushed is a miss; several misses in a row mean that pushing has failed: then the
topic is polled, until a push comes or a new link works.

The silence allowed is the mean time between arrivals and four deviations, as TCP's timer
(RFC 6298), between two bounds; it doubles with each pull that finds nothing.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Annotated, Final

from msgspec import Meta, Struct

from reliable_pubsub.common.core.arguments import check_fields
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.message_base import BatchHeader, Positive
from reliable_pubsub.common.core.retry import poll_pause_s
from reliable_pubsub.common.core.settings import Settings
from reliable_pubsub.relay.core.push import PushFrames

QUEUE_BYTES_MAX: Final = 4 * MIB  # of bodies; further ones are pulled later
_DOUBLINGS_MAX: Final = 30

SilenceS = Annotated[float, Meta(gt=0, le=86_400)]


class PushTiming(Struct, frozen=True, kw_only=True):
    """When a subscriber pulls although it receives pushes."""

    silence_s_min: SilenceS = 0.05  # the shortest silence after which it asks
    silence_s_max: SilenceS = 5.0  # the longest
    tell_s: SilenceS = 1.0  # a cursor that moved is sent to the proxy within this time
    misses_max: Positive = 3  # in a row: then pushing counts as failed

    def __post_init__(self) -> None:
        check_fields(self)


def timing_of(settings: Settings) -> PushTiming:
    """The timing of a client's settings."""
    return PushTiming(
        silence_s_min=settings.push_silence_min, silence_s_max=settings.push_silence_max
    )


class Standing(Struct, frozen=True):
    """The subscriber's position, and the start of the proxy that it belongs to."""

    log: str
    boot: str
    cursor: int  # the next offset it wants
    told: int  # the cursor that the proxy knows
    heard_s: float = inf  # the proxy must get a request within this time: half the lease


class PushCounts(Struct, kw_only=True):
    """Counts of pushes, taken and dropped."""

    taken: int = 0  # batches
    repeats: int = 0
    jumps: int = 0  # something before them is missing
    places: int = 0  # pushed without body
    foreign: int = 0  # of another log or another start of the proxy
    overflows: int = 0  # the queue was full
    misses: int = 0  # pulls that found batches that were not pushed
    pulls: int = 0
    links: int = 0  # links that replaced a failed one


class PushQueue:
    """One topic's pushed batches, in offset order without gap."""

    def __init__(self, timing: PushTiming) -> None:
        """Create an empty queue: a pull is due first."""
        self.counts = PushCounts()
        self._timing = timing
        self._life: tuple[str, str] | None = None  # log id and boot
        self._batches: deque[tuple[BatchHeader, bytes]] = deque()
        self._size_bytes = 0
        self._cursor = 0
        self._tell_s = inf  # longest time from a pull to the next request
        self._end = 0  # the next offset that a push may bring
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

    def stand(self, standing: Standing) -> None:
        """Set the subscriber's position; its cursor is the next wanted offset."""
        self._cursor = standing.cursor
        moved_s = self._timing.tell_s if standing.cursor > standing.told else inf
        self._tell_s = min(moved_s, standing.heard_s)
        life = (standing.log, standing.boot)
        if life != self._life:
            self._life = life
            self._forget()
            return
        while self._batches and self._end_of_first() <= standing.cursor:
            self._size_bytes -= len(self._batches.popleft()[1])
        if self._batches and self._batches[0][0].base > standing.cursor:
            self._forget()
        elif not self._batches:
            # Batches taken from here but not delivered were dropped: they are not pushed again.
            self._is_missing = self._is_missing or standing.cursor < self._end
            self._end = standing.cursor

    def _end_of_first(self) -> int:
        header, _ = self._batches[0]
        return header.base + header.count

    def _forget(self) -> None:
        self._batches.clear()
        self._size_bytes = 0
        self._end = self._cursor
        self._is_missing = True

    def pushed(self, push: PushFrames, now_s: float) -> None:
        """A push has arrived."""
        if (push.pushed.log, push.pushed.boot) != self._life:
            self.counts.foreign += 1
            self._is_missing = True  # the proxy may have restarted: a pull shows it
            return
        self._failed_at_s = None
        self._misses = 0
        header = push.pushed.batch
        end = header.base + header.count
        if end <= self._end:
            self.counts.repeats += 1
            return
        self._arrived(now_s)
        if header.base > self._end:
            self.counts.jumps += 1
        elif push.body is None:
            self.counts.places += 1
        elif self._batches and self._size_bytes + len(push.body) > QUEUE_BYTES_MAX:
            self.counts.overflows += 1
        else:
            self.counts.taken += 1
            self._batches.append((header, push.body))
            self._size_bytes += len(push.body)
            self._end = end
            return
        self._is_missing = True

    def pulled(self, end: int | None, now_s: float) -> None:
        """A pull has been answered.

        Args:
            end: the offset after what it found; None: there is nothing.
        """
        self.counts.pulls += 1
        self._asked_at_s = now_s
        expected, self._is_missing = self._is_missing, False
        if end is None or end <= self._end:
            self._fruitless += end is None
            return
        self._end = end
        self._batches.clear()
        self._size_bytes = 0
        self._fruitless = 0
        self._arrived(now_s)
        if self.is_polled or expected:
            return
        self.counts.misses += 1
        self._misses += 1
        if self._misses >= self._timing.misses_max:
            self._failed_at_s = now_s

    def _arrived(self, now_s: float) -> None:
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

    # Consequences.

    @property
    def is_polled(self) -> bool:
        """Whether pushing does not work, so that the topic is polled."""
        return not self._is_linked or self._failed_at_s is not None

    def wants_new_link(self, now_s: float) -> bool:
        """Whether pushing has failed for long enough to try another link."""
        failed_at_s = self._failed_at_s
        return failed_at_s is not None and now_s - failed_at_s >= self._timing.silence_s_max

    def pull_due_in_s(self, now_s: float) -> float:
        """Seconds until a pull is due; until then queued batches can be taken."""
        tell_s = max(self._asked_at_s + self._tell_s - now_s, 0.0) if self._tell_s < inf else inf
        if self._batches:
            return tell_s
        if self._is_missing:
            return 0.0
        pause_s = poll_pause_s(self._fruitless) if self.is_polled else self.silence_s
        last_s = self._asked_at_s if self.is_polled else max(self._asked_at_s, self._heard_at_s)
        return min(tell_s, max(last_s + pause_s - now_s, 0.0))

    def wait_s(self, now_s: float) -> float:
        """Seconds until there is something to do, if no push comes."""
        return 0.0 if self._batches else self.pull_due_in_s(now_s)

    @property
    def silence_s(self) -> float:
        """How long pushes may be silent before a pull is due."""
        timing = self._timing
        usual_s = 0.0 if self._mean_s is None else self._mean_s + 4 * self._deviation_s
        allowed_s: float = max(usual_s, timing.silence_s_min)
        allowed_s *= 2.0 ** min(self._fruitless, _DOUBLINGS_MAX)
        return min(allowed_s, timing.silence_s_max)

    def take(self) -> list[tuple[BatchHeader, bytes]]:
        """Take all queued batches, in order from the cursor."""
        batches = list(self._batches)
        self._batches.clear()
        self._size_bytes = 0
        return batches
