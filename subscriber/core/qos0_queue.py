"""The QoS 0 messages of one topic, on their way to the program: each at most once. Pure.

A message has a place in the ring of one start of the proxy. Some messages are pushed; the others
are read from the ring if they are still there, else they are lost and counted. A place that was
taken is never taken again, so no message is delivered twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from reliable_pubsub.common.core.batch import Message, StoredBatch
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.wire import direct_batches

if TYPE_CHECKING:
    from reliable_pubsub.relay.core.push import UnstoredFrames

QUEUE_BYTES_MAX: Final = 4 * MIB  # of bodies; further ones stay in the ring until it is full


class UnstoredCounts(Struct, kw_only=True):
    """Counts of QoS 0 messages, in this process."""

    taken: int = 0  # messages
    lost: int = 0  # messages that can no longer be read
    repeats: int = 0  # duplicate batches, which were dropped


class QoS0Queue:
    """One topic's messages at QoS 0, in the order of their places."""

    def __init__(self) -> None:
        """Create an empty queue that knows no ring."""
        self.counts = UnstoredCounts()
        self._boot = ""
        self.place = 0  # the next one wanted
        self.messages: deque[Message] = deque()
        self._sizes: deque[tuple[int, int]] = deque()  # messages and bytes of each batch
        self._size_bytes = 0
        self.is_missing = False  # the ring has messages that were not pushed
        self._is_changing = False

    @property
    def is_confirmed(self) -> bool:
        """Whether the proxy has said where it begins."""
        return bool(self._boot)

    @property
    def has_room(self) -> bool:
        """Whether there is room for more messages."""
        return self._size_bytes < QUEUE_BYTES_MAX

    def begin_again(self) -> None:
        """Discard the queue if an interrupted call was changing it."""
        if self._is_changing:
            self.counts.lost += len(self.messages)
            self.messages.clear()
            self._sizes.clear()
            self._size_bytes = 0
            self._is_changing = False
        self.is_missing = True

    def confirmed(self, boot: str, end: int, *, is_new: bool) -> None:
        """The proxy has confirmed the subscription; the next place of its ring is `end`.

        Args:
            is_new: it begins in this process: earlier messages were perhaps delivered to another
                process, so they are skipped. Otherwise all messages of a restarted proxy are new.
        """
        if is_new:
            self.place, self._boot = end, boot
            self.is_missing = False
        elif boot != self._boot:
            self._boot, self.place = boot, 0
            self.is_missing = end > 0

    def hinted(self, boot: str, end: int) -> None:
        """A reply contained the end of the ring."""
        if boot == self._boot and end > self.place:
            self.is_missing = True

    def found(self, topic: str, boot: str, header: BatchHeader, body: bytes) -> bool:
        """Take a batch that a FETCH has found, in the order of its topic; False: some are missing.

        What was put before the pattern began is not wanted: a queue that knows no ring begins here.
        """
        if boot != self._boot:
            self.confirmed(boot, header.base, is_new=not self.is_confirmed)
        if header.base > self.place:
            self.is_missing = True
            return False
        if header.base + header.count > self.place:
            self.read(topic, self.place, [header], body)
        return True

    def has(self, boot: str, header: BatchHeader) -> bool:
        """Return whether a batch was taken or skipped."""
        return boot == self._boot and header.base + header.count <= self.place

    def skip_missing(self, place: int) -> None:
        """Note that the messages below a place can no longer be read."""
        self._pass(place)
        self.is_missing = False

    def pushed(self, push: UnstoredFrames) -> BatchHeader | None:
        """Take a push; return its header, or None if it was dropped."""
        header = push.pushed.batch
        if push.pushed.boot != self._boot:
            return None  # the SUB_ACK of the new proxy will set the place first
        if header.base + header.count <= self.place:
            self.counts.repeats += 1
            return None
        if header.base > self.place or push.body is None or not self.has_room:
            self.is_missing = True
            return None
        try:
            batches = direct_batches(push.topic, self.place, [header], push.body)
        except MalformedError:
            self._pass(header.base + header.count)
            return None
        self._take(push.topic, batches)
        return header

    def read(self, topic: str, first: int, headers: Sequence[BatchHeader], body: bytes) -> None:
        """The ring was read from our place; places below `first` are lost."""
        if first > self.place:
            self._pass(first)
        try:
            self._take(topic, direct_batches(topic, self.place, headers, body))
        except MalformedError:
            self._pass(headers[-1].base + headers[-1].count)

    def emptied(self) -> None:
        """The ring has no more messages."""
        self.is_missing = False

    def _pass(self, place: int) -> None:
        self.counts.lost += place - self.place
        self.place = place

    def _take(self, topic: str, batches: Sequence[StoredBatch]) -> None:
        self._is_changing = True
        for batch in batches:
            messages = batch.messages(topic, qos=0, is_stored=False)
            self.messages.extend(messages)
            self._sizes.append((len(messages), batch.header.body_bytes))
            self._size_bytes += batch.header.body_bytes
            self.place = batch.end
            self.counts.taken += len(messages)
        self._is_changing = False

    def hand_over(self, count_max: int) -> list[Message]:
        """Take the next messages; they count as delivered, even if the program dies."""
        self._is_changing = True
        count = min(count_max, len(self.messages))
        left = count
        while left:
            messages, size = self._sizes.popleft()
            if messages > left:
                self._sizes.appendleft((messages - left, size))
                break
            left -= messages
            self._size_bytes -= size
        given = [self.messages.popleft() for _ in range(count)]
        self._is_changing = False
        return given
