"""The queue of pushed batches of one topic. Pure.

A push is a hint: it may be lost, doubled, late, early, or of a start of the proxy that is over. The
queue takes only the batch that directly follows its end, with the right log id and boot; others
are dropped, and if one shows that a batch is missing, a pull is due (`pull_timer.py`).
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.relay.core.push import PushFrames

from ...core.place import Standing
from .pull_timer import PullTimer

QUEUE_BYTES_MAX: Final = 4 * MIB  # of bodies; further ones are pulled later


class PushQueue:
    """One topic's pushed batches, in offset order without gap."""

    def __init__(self, timer: PullTimer) -> None:
        """Create an empty queue.

        Args:
            timer: decides when to pull; that of a pattern has the queues of all its topics.
        """
        self.timer = timer
        self._life: tuple[str, str] | None = None  # log id and boot
        self._batches: deque[tuple[BatchHeader, bytes]] = deque()
        self._cursor = 0
        self._tell_s = inf  # longest time from a pull to the next request
        self._end = 0  # the next offset that a push may bring

    # Events.

    def stand(self, standing: Standing) -> None:
        """Set the subscriber's position; its cursor is the next wanted offset."""
        self._cursor = standing.cursor
        moved_s = self.timer.timing.tell_s if standing.cursor > standing.proxy_cursor else inf
        self._tell_s = min(moved_s, standing.heard_s)
        life, before = (standing.log, standing.boot), self._life
        self._life = life
        if before is None:  # what came before is for the first pull of its timer
            self._end = standing.cursor
            return
        if life != before:
            self._forget()
            return
        while self._batches and self._end_of_first() <= standing.cursor:
            self.timer.queued_bytes -= len(self._batches.popleft()[1])
        if self._batches and self._batches[0][0].base > standing.cursor:
            self._forget()
        elif not self._batches:
            # Batches taken from here but not delivered were dropped: they are not pushed again.
            if standing.cursor < self._end:
                self.timer.missing()
            self._end = standing.cursor

    def _end_of_first(self) -> int:
        header, _ = self._batches[0]
        return header.base + header.count

    def _forget(self) -> None:
        self.take()
        self._end = self._cursor
        self.timer.missing()

    def pushed(self, push: PushFrames, now_s: float) -> None:
        """A push has arrived."""
        timer, counts = self.timer, self.timer.counts
        if (push.pushed.log, push.pushed.boot) != self._life:
            counts.foreign += 1
            timer.missing()  # the proxy may have restarted: a pull shows it
            return
        timer.worked()
        header = push.pushed.batch
        end = header.base + header.count
        if end <= self._end:
            counts.repeats += 1
            return
        timer.arrived(now_s)
        if header.base > self._end:
            counts.jumps += 1
        elif push.body is None:
            counts.places += 1
        elif self._batches and timer.queued_bytes + len(push.body) > QUEUE_BYTES_MAX:
            counts.overflows += 1
        else:
            counts.taken += 1
            self._batches.append((header, push.body))
            timer.queued_bytes += len(push.body)
            self._end = end
            return
        timer.missing()

    def pulled_to(self, end: int | None) -> bool:
        """A pull has brought the batches below `end`; None: there were none.

        Returns:
            Whether one of them was not pushed.
        """
        if end is None or end <= self._end:
            return False
        self._end = end
        self.take()
        return True

    def pulled(self, end: int | None, now_s: float) -> bool:
        """A pull of this topic alone has been answered; see `pulled_to` and `PullTimer.pulled`."""
        return self.timer.pulled(now_s, is_new=self.pulled_to(end), is_empty=end is None)

    # Consequences.

    @property
    def has_batches(self) -> bool:
        """Whether some are queued."""
        return bool(self._batches)

    def pull_due_in_s(self, now_s: float) -> float:
        """Seconds until a pull is due; until then queued batches can be taken."""
        return self.timer.due_in_s(now_s, self._tell_s, has_batches=self.has_batches)

    def wait_s(self, now_s: float) -> float:
        """Seconds until there is something to do, if no push comes."""
        return 0.0 if self._batches else self.pull_due_in_s(now_s)

    def take(self) -> list[tuple[BatchHeader, bytes]]:
        """Take all queued batches, in order from the cursor."""
        batches = list(self._batches)
        self._batches.clear()
        self.timer.queued_bytes -= sum(len(body) for _, body in batches)
        return batches
