"""A call of a client as a conversation: a generator that yields what is to be done outside. Pure.

An engine decides: it yields an effect, and is sent its result. A shell has the socket, the clock
and the state: the one in `common/transport.py` blocks, one for asyncio awaits the same effects.
An error of this package that an effect raises is thrown into the conversation.

Any other exception leaves the conversation where it is (decision 0024). When such a conversation is
collected, nothing of it may still happen. So a conversation has no `finally`, and catches errors
of this package only.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Exchange(Struct, frozen=True, gc=False):
    """Send a request and wait for its answer. Result: its frames; None after `timeout_s`."""

    frames: Sequence[bytes]
    timeout_s: float


class Await(Struct, frozen=True, gc=False):
    """Wait longer for the answer of the last request. Result: as of `Exchange`."""

    timeout_s: float


class Reopen(Struct, frozen=True):
    """Use another socket: this one missed its answer, and must not send again (rule R1)."""

    is_wanted: bool = False  # an answer that is on its way, of several endpoints


class Sleep(Struct, frozen=True):
    """Let time pass."""

    seconds: float


class Save(Struct, frozen=True, gc=False):
    """Write values of the client's state, all or none; None removes one."""

    changes: Mapping[str, bytes | None]
    durable: bool = False  # sync to disk, with every write before it
    mark: tuple[int, int] | None = None  # slot and number of a mark that is set before


class Hears(Protocol):
    """A link on which something may arrive."""

    def wait(self, seconds: float) -> None:
        """Wait until something arrives, at most so long."""


class Listen(Struct, frozen=True):
    """Wait until something arrives on a link."""

    link: Hears
    seconds: float


ShellEffect = Exchange | Await | Reopen | Sleep | Save | Listen
Conversation = Generator[ShellEffect, Any, T]
