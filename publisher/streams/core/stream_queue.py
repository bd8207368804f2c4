"""What a stream has collected and not sent yet, in batches, and how it ends. Pure.

The next batch grows while one is being sent, so the slower the proxy, the larger the batches. A
shell has the locks and the clock: a thread in `stream.py`, a task in `aio_stream.py`.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from reliable_pubsub.common.core.batch import Batch, fit_in_a_batch
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.payload import CONTENT_TYPE

from ...core.puts import copy_of

FULL_BATCHES_MAX: Final = 4  # that may wait to be sent; then `put` waits


class StreamBatch:
    """Messages of one topic and content type that are sent together and have one outcome."""

    __slots__ = ("content_type", "due_at_s", "payloads", "size", "topic")

    def __init__(self, topic: str, content_type: str | None, due_at_s: float) -> None:
        self.topic = topic
        self.content_type = content_type
        self.due_at_s = due_at_s  # of the shell's clock; then it is sent, full or not
        self.payloads: list[bytes] = []
        self.size = 0

    def has_room(self, topic: str, content_type: str | None, size: int) -> bool:
        """Whether a message can be added."""
        return (
            self.topic == topic
            and self.content_type == content_type
            and fit_in_a_batch(self.size + size, len(self.payloads) + 1)
        )

    def add(self, payload: bytes, size: int) -> int:
        """Add a message; return its index."""
        self.size += size
        self.payloads.append(payload)
        return len(self.payloads) - 1

    def whole(self) -> Batch:
        """All of them, to be put."""
        if self.content_type is None:
            return Batch(self.payloads)
        headers = [{CONTENT_TYPE: self.content_type}] * len(self.payloads)
        return Batch(self.payloads, headers=headers)


B = TypeVar("B", bound=StreamBatch)


class StreamQueue(Generic[B]):
    """The batches of a stream: one grows, full ones wait, one is being sent."""

    def __init__(self) -> None:
        self.open: B | None = None  # still growing
        self._full: deque[B] = deque()
        self.sending: B | None = None
        self.error: BaseException | None = None  # why nothing more is sent
        self.unsent: BaseException | None = None  # likewise, of what was not sent at all

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be sent, and nothing is being sent."""
        return not (self.open or self._full or self.sending)

    @property
    def batches(self) -> list[B]:
        """Those that are not stored, in order; one that an interrupt left in two places, once."""
        full = (one for one in self._full if one is not self.open)
        return [one for one in (self.sending, *full, self.open) if one is not None]

    @property
    def has_room(self) -> bool:
        """Whether another batch may be begun."""
        return len(self._full) < FULL_BATCHES_MAX

    def begin(self, batch: B) -> B:
        """Let a batch grow; the one before is full.

        An exception of a signal handler may leave that one in both places: it is sent once.
        """
        if self.open is not None and self.open not in self._full:
            self._full.append(self.open)
        self.open = batch
        return batch

    def take(self, now_s: float, *, at_once: bool) -> B | None:
        """The next batch to be sent, if one is full or due; what was being sent has ended.

        Args:
            at_once: the one that grows is due.
        """
        batch = None
        if self._full:
            batch = self._full.popleft()
        elif self.open is not None and (at_once or self.open.due_at_s <= now_s):
            batch = self.open
        if batch is self.open:
            self.open = None
        self.sending = batch
        return batch

    def end(self, error: BaseException) -> list[tuple[B, BaseException]]:
        """Send nothing more, so that no message overtakes one in doubt.

        Returns:
            The batches that are not stored, each with its error: at most the first one is kept, and
            sent again by the next call.
        """
        self.error = error
        self.unsent = copy_of(error, kept=False) if isinstance(error, PubSubError) else error
        left = [(one, error if one is self.sending else self.unsent) for one in self.batches]
        self._full.clear()
        self.sending = self.open = None
        return left
