"""How a program ends a wait early: `StopSignal`, and conversations that look for it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from .conversation import Await, Conversation, Exchange, Listen, Reopen, ShellEffect, Sleep
from .errors import PubSubError, StoppedError

T = TypeVar("T")

LOOK_S: Final = 0.2  # how often a wait looks whether it was stopped
GRACE_S: Final = 1.0  # that a request which is not only a wait for messages has for its answer
REOPEN: Final = Reopen()


class StopSignal:
    """The `stop` of a client: it ends every open `run` and loop, or else the next one.

    It stays set until a `run` or loop has ended because of it. Any thread or signal handler may set
    it; a second time changes nothing.
    """

    def __init__(self) -> None:
        self.count = self.heeded = 0

    def set(self) -> None:
        """End every open `run` and loop, or the next one."""
        self.count = self.heeded + 1

    def begin(self) -> Until:
        """Begin a `run` or a loop."""
        return Until(self)


class Until:
    """One `run` or loop, which lasts until the signal is set."""

    def __init__(self, signal: StopSignal) -> None:
        """Begin; an unused signal ends it."""
        self.signal = signal
        self.begun = signal.heeded

    def is_over(self) -> bool:
        """Return whether it was stopped."""
        return self.signal.count > self.begun

    def heed(self) -> None:
        """Note that the signal ended it; later runs and loops are not affected."""
        self.signal.heeded = self.signal.count


def until_stopped(
    conversation: Conversation[T], is_stopped: Callable[[], bool], grace_s: float = 0.0
) -> Conversation[T]:
    """Run a conversation in short waits, and interrupt it on a stop.

    Args:
        grace_s: how long it may still wait then.

    Raises:
        StoppedError: the outcome of an unanswered request is unknown.
    """
    step: Callable[[Any], ShellEffect] = conversation.send
    value: object = None
    while True:
        try:
            effect = step(value)
        except StopIteration as end:
            result: T = end.value
            return result
        step, value = conversation.send, None
        try:
            left_s = getattr(effect, "timeout_s", None) or getattr(effect, "seconds", None)
            if left_s is None:
                value = yield effect
                continue
            while value is None and left_s > 0:
                wait_s = min(left_s, LOOK_S)
                if is_stopped():
                    if grace_s <= 0:
                        yield REOPEN
                        raise StoppedError
                    grace_s -= wait_s
                value = yield _shorter(effect, wait_s)
                left_s -= wait_s
                if isinstance(effect, Exchange):
                    effect = Await(left_s)
                elif isinstance(effect, Listen):
                    break  # a wait that ends early is followed by a look at what has arrived
        except PubSubError as error:
            step, value = conversation.throw, error


def _shorter(effect: ShellEffect, wait_s: float) -> ShellEffect:
    """Return the same wait, shorter."""
    match effect:
        case Exchange():
            return Exchange(effect.frames, wait_s)
        case Await():
            return Await(wait_s)
        case Listen():
            return Listen(effect.link, wait_s)
        case _:
            return Sleep(wait_s)
