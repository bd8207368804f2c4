"""The one delivery path: settle the messages in hand, find the next ones, hand them over. Pure.

Messages come from a source: a topic, a pattern's topics, or a group's grants. Each answers the
same questions. What is unacknowledged (`settle`)? What has arrived (`ready`, `arrived`)? What is
there to request (`request`)? What is there to report (`write`, `acknowledge`, `record`)?
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation, Sleep
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.retry import poll_pause_s

from .place import Standing
from .restoring import Running

A_LOOP = 0  # as a count: as many messages as a loop takes in a short time


class Deliverable(Protocol):
    """What a source has of one topic, pattern or group."""

    pushes: Any | None  # what was pushed of it; None: push is off


S = TypeVar("S", bound=Deliverable, contravariant=True)


class PushSource(Protocol):
    """The link that pushes arrive on; its queues are what a subscription has as `pushes`."""

    def take(self, queue: Any, standing: Standing, /) -> Sequence[tuple[BatchHeader, bytes]] | None:
        """Take the batches after the cursor; empty: none yet; None: pull."""

    def pulled(self, queue: Any, standing: Standing, end: int | None, /) -> None:
        """Note that a pull was answered, up to an offset; None: with nothing."""

    def wait(self, pushed: Any, seconds: float, /) -> Conversation[None]:
        """Wait until any push arrives, or a pull is due for one of these."""


class Source(Protocol[S]):
    """Where messages come from."""

    def settle(self, one: S, /) -> Conversation[None]:
        """Count the messages in hand as processed; `write` or `request` follows."""

    def ready(self, one: S, /) -> Conversation[bool | None]:
        """Return whether a message can be handed over; None: request more, even if it is late.

        Raises:
            LostError: messages are lost; the next call continues after them.
        """

    def arrived(self, one: S, count: int, /, *, asks: bool) -> Conversation[bool]:
        """Take what was pushed; return False if a request is due.

        Args:
            asks: also if nothing was pushed.
        """

    def request(self, one: S, count: int, left_s: float, /) -> Conversation[None]:
        """Send one request for messages, with what was settled.

        Args:
            count: messages that the program asks for, or `A_LOOP`.
            left_s: how long the proxy may hold the answer.
        """

    def write(self, one: S, /) -> Conversation[None]:
        """Write what was settled to the state."""

    def hand_over(self, one: S, count: int, /) -> Conversation[list[Message]]:
        """Deliver what was found, in one write with what was settled."""

    def begin_run(self, one: S, /) -> Conversation[Running | None]:
        """Let a loop take what was found; None: one by one."""

    def failed(self, one: S, error: PubSubError, /) -> None:
        """Record that nothing was delivered."""

    def acknowledge(self, one: S, /) -> Conversation[None]:
        """Settle the messages in hand; return when the proxy has stored it."""

    def record(self, one: S, note: bytes, /) -> Conversation[None]:
        """Write durably that the messages in hand are processed, in one step with the note."""


class Delivering:
    """Delivers the messages of every source."""

    pushes: PushSource  # set by the feature that pushes

    def __init__(self, *, now_s: Callable[[], float]) -> None:
        self._now_s = now_s

    def get(
        self, source: Source[S], one: S, count: int, timeout_s: float
    ) -> Conversation[list[Message]]:
        """Settle the messages in hand, and deliver the next ones.

        Both are one write of the state. Only if the proxy must be asked, or nothing is available
        yet, the settled cursor is written first (decision 0039).
        """
        deadline_s = self._now_s() + timeout_s
        while True:
            is_found = yield from self.find(source, one, deadline_s - self._now_s(), count)
            messages = yield from source.hand_over(one, count)
            if messages or not is_found:
                return messages

    def take(
        self, source: Source[S], one: S, timeout_s: float
    ) -> Conversation[Running | list[Message]]:
        """Settle the messages in hand, and let a loop take the next ones.

        Returns:
            A run, where it costs one write for all messages; else one message, or none.
        """
        deadline_s = self._now_s() + timeout_s
        while True:
            is_found = yield from self.find(source, one, deadline_s - self._now_s())
            if is_found and (run := (yield from source.begin_run(one))) is not None:
                return run
            messages = yield from source.hand_over(one, 1)
            if messages or not is_found:
                return messages

    def find(
        self,
        source: Source[S],
        one: S,
        timeout_s: float,
        count: int = A_LOOP,
        *,
        asks: bool = True,
    ) -> Conversation[bool]:
        """Settle the messages in hand, and fetch until there are messages or time is over.

        Args:
            asks: if no time is left, request even if pushes are waited for.

        Returns:
            Whether there are messages.

        Raises:
            LostError: messages are lost; the next call continues after them.
        """
        try:
            yield from source.settle(one)
            began_s = now_s = self._now_s()
            deadline_s, asks = now_s + timeout_s, asks and timeout_s <= 0
            requests = 0
            while True:
                is_ready = yield from source.ready(one)
                if is_ready:
                    return True
                if is_ready is None:
                    requests = 0
                elif requests and now_s >= deadline_s:
                    return False
                if requests:
                    yield from source.write(one)
                    if one.pushes is not None:
                        yield from self.pushes.wait([one.pushes], deadline_s - now_s)
                    elif (pause_s := min(began_s + poll_pause_s(requests), deadline_s) - now_s) > 0:
                        yield Sleep(pause_s)  # else the proxy has held its answer
                began_s = self._now_s()
                if not (yield from source.arrived(one, count, asks=asks)):
                    yield from source.request(one, count, deadline_s - began_s)
                requests += 1
                now_s = self._now_s()
        except PubSubError as error:
            source.failed(one, error)
            raise

    def settle_in_hand(self, source: Source[S], one: S) -> Conversation[None]:
        """Settle the messages in hand, and write that."""
        yield from source.settle(one)
        yield from source.write(one)
