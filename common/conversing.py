"""Carries out conversations, and blocks: the shell of the clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, assert_never

from .core.conversation import Conversation, Effect, Exchange, Listen, Pause, Reopen, Save
from .core.errors import PubSubError
from .core.retry import Clock, Transport
from .state_file import ClientState, MemoryState

T = TypeVar("T")


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
                        self._clock.sleep(effect.seconds)
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
            answer = transport.receive(exchange.timeout_s)
        except BaseException:  # after an interrupt, too, the socket must not send again
            transport.reopen()
            raise
        if answer is None:
            transport.move_on()  # it missed its answer, and must not send again (rule R1)
        return answer
