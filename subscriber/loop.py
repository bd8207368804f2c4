"""`Loop`: a program takes messages one by one, and the gate knows what it has taken.

A step of the loop resumes a generator, and its interpreter keeps the gate's rule (rule R25): a
generator that a step has left without a message cannot be resumed, and one that gave a message
waits to be. So no code has to run to note that a step was interrupted.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Generator
from types import GeneratorType

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.marks import Marks

from .core.subscription import Running, Subscription


class Loop:
    """The steps of one loop over messages. Implements `gate.Steps`."""

    def __init__(self) -> None:
        """Create a loop that has taken nothing."""
        self.messages: list[Message] = []
        self.marks: Marks = [0]  # where the messages are no run
        self.slot = 0
        self.first = 0
        self.is_run = False
        self.is_in_call = False  # the message before is processed; the gate decides
        self.has_left = False
        self._subscription: Subscription | None = None

    def over(self, steps: Generator[Message, None, None]) -> Generator[Message, None, None]:
        """Set the generator of the steps; return it."""
        assert isinstance(steps, GeneratorType)
        self._steps = weakref.ref(steps)  # it refers to this; leaving the loop must collect it
        return steps

    def begin(self, subscription: Subscription, found: Running | list[Message]) -> None:
        """Let the loop take these messages."""
        self._subscription = subscription
        if isinstance(found, Running):
            self.messages, self.marks, self.slot, self.first = found
        else:
            self.messages, self.marks, self.slot, self.first = found, [0], 0, 0
        self.is_run = isinstance(found, Running)
        self.is_in_call = False

    @property
    def was_interrupted(self) -> bool:
        steps = self._steps()
        return not self.has_left and (steps is None or steps.gi_frame is None)

    def drop(self) -> None:
        self.messages.clear()

    def end(self) -> bool:
        messages = self.messages[:]
        self.messages.clear()  # before the check: a step of another thread finds the gate
        steps = self._steps()
        if steps is not None and steps.gi_running and not self.is_in_call:
            self.messages[:] = messages
            return False
        self._settle(messages)
        return True

    def _settle(self, messages: list[Message]) -> None:
        if self.is_run and self._subscription is not None:
            self._subscription.end_run(messages)


class AioLoop(Loop):
    """The steps of an `async for` over messages. A step awaits only where it is a call."""

    def __init__(self, take: Callable[[AioLoop], Coroutine[object, object, None]]) -> None:
        """Create a loop that has taken nothing.

        Args:
            take: settles what was taken, and begins with the next messages.
        """
        super().__init__()
        self.on_taken: Callable[[Message], None] | None = None  # records a step of a run
        self._take = take
        self._taken = 0

    def __aiter__(self) -> AioLoop:
        return self

    async def __anext__(self) -> Message:
        if self._taken >= len(self.messages):
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
