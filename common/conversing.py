"""Carries out conversations, and blocks: the shell of the clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, assert_never

from .core.conversation import Conversation, Effect, Exchange, Listen, Pause, Reopen, Save
from .core.errors import InDoubtError, PubSubError
from .core.retry import Clock, Transport
from .state_file import ClientState, MemoryState

T = TypeVar("T")

LOOK_S: Final = 0.2  # how often a thread that can be stopped looks whether it is


class Shell:
    """A socket, a clock and a state; for one conversation at a time."""

    def __init__(
        self, transport: Transport, clock: Clock, state: ClientState | None = None
    ) -> None:
        """Put them together; without a state, what is saved ends with the process."""
        self._transport = transport
        self._clock = clock
        self._state = state or MemoryState()

    def run(self, conversation: Conversation[T]) -> T:
        """Carry out each effect, until the conversation returns.

        Raises:
            PubSubError: what the conversation raises.
        """
        send: Callable[[Any], Effect] = conversation.send
        transport, step = self._transport, send
        value: object = None
        try:
            while True:
                try:
                    effect = step(value)
                except StopIteration as end:
                    result: T = end.value
                    return result
                step, value = send, None
                try:
                    if isinstance(effect, Save):
                        self._state.write(effect.changes, durable=effect.durable)
                    elif isinstance(effect, Exchange):
                        transport.send(effect.frames)
                        value = transport.receive(effect.timeout_s)
                        if value is None:
                            transport.move_on()  # it missed its answer, and must not send (rule R1)
                    elif isinstance(effect, Pause):
                        self._clock.sleep(effect.seconds)
                    elif isinstance(effect, Reopen):
                        transport.reopen()
                    elif isinstance(effect, Listen):
                        effect.link.wait(effect.seconds)
                    else:
                        assert_never(effect)
                except PubSubError as error:
                    step, value = conversation.throw, error
        except PubSubError:
            raise
        except BaseException:  # an interrupt: as after silence
            transport.reopen()
            raise
        finally:
            value = None  # an error refers to this frame, and must not be referred to by it


class Stoppable:
    """The transport and the clock of a thread that another one stops.

    Ctrl-C reaches the main thread only, so this one looks every LOOK_S whether it is to stop.
    """

    def __init__(self, transport: Transport, clock: Clock, is_stopped: Callable[[], bool]) -> None:
        """Put them together; every method that waits may raise `InDoubtError`."""
        self._transport, self._clock, self._is_stopped = transport, clock, is_stopped
        self.move_on, self.reopen, self.now_s = transport.move_on, transport.reopen, clock.now_s

    @property
    def endpoint(self) -> str:
        """Whose turn it is."""
        return self._transport.endpoint

    def go_on(self) -> None:
        """Raise `InDoubtError` if it is stopped; what is under way is not awaited any longer."""
        if self._is_stopped():
            self.reopen()
            raise InDoubtError("broken off before the proxy has answered")

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a request."""
        self.go_on()
        self._transport.send(frames)

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        """Wait for the answer; None after `timeout_s`."""
        answer = None
        while answer is None and timeout_s > 0:
            self.go_on()
            answer = self._transport.receive(min(timeout_s, LOOK_S))
            timeout_s -= LOOK_S
        return answer

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        while seconds > 0:
            self.go_on()
            self._clock.sleep(min(seconds, LOOK_S))
            seconds -= LOOK_S
