"""Carries out conversations, and blocks: the shell of the clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, assert_never

from .core.conversation import Conversation, Effect, Exchange, Listen, Pause, Reopen, Save
from .core.errors import InDoubtError, PubSubError
from .core.retry import Clock, Transport
from .state_file import ClientState, MemoryState

T = TypeVar("T")

LOOK_S: Final = 0.2  # how often a shell that can be stopped looks whether it is


class Shell:
    """A socket, a clock and a state; for one conversation at a time."""

    def __init__(
        self, transport: Transport, clock: Clock, state: ClientState | None = None
    ) -> None:
        """Put them together; without a state, what is saved ends with the process."""
        self._transport = transport
        self._receive = transport.receive
        self._sleep = clock.sleep
        self._state = state or MemoryState()

    def run(self, conversation: Conversation[T]) -> T:
        """Carry out each effect, until the conversation returns.

        Raises:
            PubSubError: what the conversation raises.
        """
        send: Callable[[Any], Effect] = conversation.send
        step = send
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
                        value = self._exchange(effect)
                    elif isinstance(effect, Pause):
                        self._sleep(effect.seconds)
                    elif isinstance(effect, Reopen):
                        self._transport.reopen()
                    elif isinstance(effect, Listen):
                        effect.link.wait(effect.seconds)
                    else:
                        assert_never(effect)
                except PubSubError as error:
                    step, value = conversation.throw, error
        finally:
            value = None  # an error refers to this frame, and must not be referred to by it

    def _exchange(self, exchange: Exchange) -> object:
        transport = self._transport
        try:
            transport.send(exchange.frames)
            answer = self._receive(exchange.timeout_s)
        except BaseException:  # after an interrupt, too, the socket must not send again
            transport.reopen()
            raise
        if answer is None:
            transport.move_on()  # it missed its answer, and must not send again (rule R1)
        return answer


class StoppableShell(Shell):
    """A shell for a thread that another one stops, because Ctrl-C reaches the main thread only."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        state: ClientState,
        is_stopped: Callable[[], bool],
    ) -> None:
        """Put them together; the thread looks every LOOK_S whether it is to stop."""
        super().__init__(transport, clock, state)
        self._is_stopped = is_stopped
        self._receive = self._receive_in_parts
        self._sleep = self._sleep_in_parts
        self._clock = clock

    def run(self, conversation: Conversation[T]) -> T:
        """See `Shell.run`.

        Raises:
            InDoubtError: it was stopped.
        """
        self._go_on()
        return super().run(conversation)

    def _receive_in_parts(self, timeout_s: float) -> Sequence[bytes] | None:
        answer = None
        while answer is None and timeout_s > 0:
            self._go_on()
            answer = self._transport.receive(min(timeout_s, LOOK_S))
            timeout_s -= LOOK_S
        return answer

    def _sleep_in_parts(self, seconds: float) -> None:
        while seconds > 0:
            self._go_on()
            self._clock.sleep(min(seconds, LOOK_S))
            seconds -= LOOK_S

    def _go_on(self) -> None:
        if self._is_stopped():
            raise InDoubtError("broken off before the proxy has answered")
