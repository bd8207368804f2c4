"""Carries out a conversation, and blocks: the shell of the clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, assert_never

from .core.conversation import Conversation, Effect, Exchange, Listen, Pause, Reopen, Save
from .core.errors import PubSubError
from .core.retry import Clock, Transport
from .state_file import ClientState

T = TypeVar("T")


def converse(
    conversation: Conversation[T], transport: Transport, clock: Clock, state: ClientState
) -> T:
    """Carry out each effect, until the conversation returns.

    Raises:
        PubSubError: what the conversation raises.
    """
    send: Callable[[Any], Effect] = conversation.send
    value: object = None
    try:
        while True:
            try:
                effect = send(value)
            except StopIteration as end:
                result: T = end.value
                return result
            send, value = conversation.send, None
            try:
                if isinstance(effect, Exchange):
                    value = _exchange(effect, transport)
                elif isinstance(effect, Save):
                    state.write(effect.changes, durable=effect.durable)
                elif isinstance(effect, Pause):
                    clock.sleep(effect.seconds)
                elif isinstance(effect, Reopen):
                    transport.reopen()
                elif isinstance(effect, Listen):
                    effect.link.wait(effect.seconds)
                else:
                    assert_never(effect)
            except PubSubError as error:
                send, value = conversation.throw, error
    finally:
        value = None  # an error refers to this frame, and must not be referred to by it


def _exchange(exchange: Exchange, transport: Transport) -> Sequence[bytes] | None:
    try:
        transport.send(exchange.frames)
        answer = transport.receive(exchange.timeout_s)
    except BaseException:  # after an interrupt, too, the socket must not send again
        transport.reopen()
        raise
    if answer is None:
        transport.reopen()  # a REQ socket that misses its answer must not send again (rule R1)
    return answer
