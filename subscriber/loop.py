"""`MessageLoop`: a program takes messages one by one, and the gate knows what it has taken.

A step of the loop resumes a generator, and its interpreter keeps the gate's rule (rule R25): a
generator that a step has left without a message cannot be resumed, and one that gave a message
waits to be. So no code has to run to note that a step was interrupted.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Generator
from types import GeneratorType
from typing import Final, Protocol

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.client_state import Marks
from reliable_pubsub.common.core.stopping import StopSignal, Until

from .core.restoring import Running


class Holder(Protocol):
    """What has the messages of a loop: a topic, a pattern or a group."""

    fulfils: Callable[[Message], bool] | None

    @property
    def has_next(self) -> bool:
        """Whether a message can be delivered."""

    def end_run(self) -> None:
        """Settle the messages that a loop took, except the last, which is in hand."""

    def end_loop(self, last: Message | None, *, is_kept: bool) -> None:
        """Note the message that a loop took last; None: none, or it is processed.

        Args:
            is_kept: what is in hand is not processed.
        """

    def keep_taken(self, *, was_received: bool) -> None:
        """See `TopicSubscription.keep_taken`."""

    def keep_none(self) -> None:
        """What is in hand is processed, although a call failed."""


NEVER: Final = Until(StopSignal())


class MessageLoop:
    """The steps of one loop over messages. Implements `gate.Steps`."""

    def __init__(self, until: Until | None = None, *, handles: bool = False) -> None:
        """Create a loop that has taken nothing.

        Args:
            until: it is stopped.
            handles: a message is processed when that is noted, and not when the loop comes back;
                the loop ends where the proxy would have to be asked.
        """
        self.until = until
        self.asks_s: float | None = None  # how long a step that does not wait asks
        self.is_turn = handles
        self.handled = -1 if handles else None  # mark of the message that was processed last
        self.messages: list[Message] = []
        self.marks: Marks = [0]  # where the messages are not a run
        self.slot = 0
        self.first = 0
        self.is_run = False
        self.is_in_call = False  # the message before is processed; the gate decides
        self.has_left = False
        self.lease_is_over: Callable[[], bool] | None = None  # of what is left
        self.on_taken: Callable[[Message], None] | None = None  # records a step of a run
        self.fulfils: Callable[[Message], bool] | None = None  # the others are passed over
        self._holder: Holder | None = None

    def over(self, take: Callable[[], None]) -> Generator[Message, None, None]:
        """The steps: a call for each run, and an assignment for each message.

        Args:
            take: settles what was taken, and begins with the next messages.
        """
        steps = self._taking(take)
        assert isinstance(steps, GeneratorType)
        self._steps = weakref.ref(steps)  # it refers to this; leaving the loop must collect it
        return steps

    def _taking(self, take: Callable[[], None]) -> Generator[Message, None, None]:
        while True:
            self.is_in_call = True
            take()
            messages, marks, slot, mark = self.messages, self.marks, self.slot, self.first
            if not messages:
                return
            is_over, fulfils = self.lease_is_over, self.fulfils
            until = self.until or NEVER
            signal, begun = until.signal, until.begun
            on_taken = self.on_taken if self.is_run else None
            try:
                for message in messages:
                    if is_over is not None and is_over():
                        break
                    if signal.count > begun:  # not by a call, as this is done for each message
                        break
                    mark += 1
                    marks[slot] = mark
                    if on_taken is not None:
                        on_taken(message)
                    if fulfils is None or fulfils(message):
                        yield message
                    else:
                        self.pass_over()
            except GeneratorExit:  # the program has left the loop, with a message in hand
                self.has_left = True
                raise
            if self.is_turn and not self.has_next:
                self.has_left = True
                return

    def begin(
        self,
        holder: Holder,
        found: Running | list[Message],
    ) -> None:
        """Let the loop take these messages."""
        self._holder = holder
        self.fulfils = holder.fulfils
        if self.handled is not None:
            self.handled = -1
        if isinstance(found, Running):
            _, self.marks, self.slot, self.first, self.lease_is_over = found
            self.messages = found.messages[:]  # emptied, so that the loop comes back to its client
        else:
            self.messages, self.marks, self.slot, self.first = found, [0], 0, 0
            self.lease_is_over = None
        self.is_run = isinstance(found, Running)
        self.is_in_call = False

    @property
    def has_next(self) -> bool:
        """Whether there are more without asking the proxy."""
        return self._holder is not None and self._holder.has_next

    @property
    def was_interrupted(self) -> bool:
        steps = self._steps()
        return not self.has_left and (steps is None or steps.gi_frame is None)

    def drop(self) -> None:
        self.messages.clear()
        was_received = not self.was_interrupted
        if self._holder is not None and not (was_received and self.is_handled):
            self._holder.keep_taken(was_received=was_received)

    def end(self) -> bool:
        messages = self.messages[:]
        self.messages.clear()  # before the check: a step of another thread finds the gate
        steps = self._steps()
        if steps is not None and steps.gi_running and not self.is_in_call:
            self.messages[:] = messages
            return False
        self._settle(messages)
        return True

    @property
    def is_handled(self) -> bool:
        """Whether the message that was taken last is processed, if the program comes back now."""
        return self.handled is None or self.handled == self.marks[self.slot]

    def note_handled(self) -> None:
        """The message that was taken last is processed."""
        self.handled = self.marks[self.slot]
        if self._holder is not None:
            self._holder.keep_none()  # a call of its handler may have ended the loop

    def pass_over(self) -> None:
        """The message that was taken last is not for the program, so it is processed."""
        if self.handled is not None:
            self.note_handled()

    def _settle(self, messages: list[Message]) -> None:
        if self._holder is None:
            return
        taken = self.marks[self.slot] - self.first
        if self.is_run:
            self._holder.end_run()
        last = messages[taken - 1] if taken else None
        is_done = self.handled is not None and self.is_handled
        self._holder.end_loop(None if is_done else last, is_kept=not self.is_handled)


class AioLoop(MessageLoop):
    """The steps of an `async for` over messages. A step awaits only where it is a call."""

    def __init__(
        self,
        take: Callable[[AioLoop], Coroutine[object, object, None]],
        until: Until | None = None,
        *,
        handles: bool = False,
    ) -> None:
        """Create a loop that has taken nothing.

        Args:
            take: settles what was taken, and begins with the next messages.
            until, handles: see `MessageLoop`.
        """
        super().__init__(until, handles=handles)
        self._take = take
        self._taken = 0

    def __aiter__(self) -> AioLoop:
        return self

    async def __anext__(self) -> Message:
        while True:
            message = await self._next()
            if self.fulfils is None or self.fulfils(message):
                return message
            self.pass_over()

    async def _next(self) -> Message:
        is_over, until = self.lease_is_over, self.until
        if (
            self._taken >= len(self.messages)
            or (is_over is not None and is_over())
            or (until is not None and until.is_over())
        ):
            await self._take(self)
            self._taken = 0
            if not self.messages:
                raise StopAsyncIteration
        message = self.messages[self._taken]
        self._taken += 1
        self.marks[self.slot] = self.first + self._taken
        if self.is_run and self.on_taken is not None:
            self.on_taken(message)
        return message

    @property
    def was_interrupted(self) -> bool:
        """See `Steps`: an interrupted call is known to its gate."""
        return False

    def end(self) -> bool:
        """See `Steps`."""
        messages = self.messages[:]
        self.messages.clear()
        self._settle(messages)
        return True
