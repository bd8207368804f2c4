"""`Opened`: what a client is made of, whether it blocks or awaits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from msgspec.structs import replace

from .asking import Asker
from .core.errors import InDoubtError
from .core.message_base import Role
from .core.recorder import Recorder
from .state_file import ClientState, MemoryState, StateFile


class ClientEngine(Protocol):
    """The engine of a publisher or subscriber."""

    def begin_again(self, stored: Mapping[str, bytes]) -> None:
        """Reset it to the stored state."""

    def close(self) -> None:
        """End its links for data."""


E = TypeVar("E", bound=ClientEngine)


class Opened(Generic[E]):
    """Journal, state, socket and engine of one client; the state is locked."""

    def __init__(
        self, role: Role, recorder: Recorder, state: ClientState, asker: Asker, engine: E
    ) -> None:
        """Put them together, and record that the client begins."""
        self.recorder = recorder
        self.state = state
        self.asker = asker
        self.engine = engine
        self._role = role
        self._begin()

    @property
    def remembers(self) -> bool:
        """Whether the state outlives the process."""
        return not isinstance(self.state, MemoryState)

    def may_be_taken(self, make_way: Callable[[], bool]) -> None:
        """Let another client of this process take over the id; see `FileLock.make_way`."""
        if isinstance(self.state, StateFile):
            self.state.may_be_taken(make_way)

    def begin_again(self) -> None:
        """Reset to the stored state, after a call that was interrupted (rule R25)."""
        self.asker.transport.reopen()
        self.engine.begin_again(self.state.load())
        self._begin()

    @contextmanager
    def last_call(self, free: Callable[[BaseException | None], None]) -> Iterator[None]:
        """Free the client after the block, which tells the proxy what is left.

        If the state outlives the process, the next one tells it too: each request is sent once, and
        an InDoubtError ends here.

        Args:
            free: called with the error that the block has raised.
        """
        if self.remembers:
            self.asker.retry = replace(self.asker.retry, retries_max=0)
        try:
            yield
        except BaseException as error:
            free(error)
            if not (self.remembers and isinstance(error, InDoubtError)):
                raise
        else:
            free(None)

    def _begin(self) -> None:
        self.recorder.begin(self._role, remembers=self.remembers)

    def close(self, error: BaseException | None) -> None:
        """Close sockets and state; it may be repeated if it was interrupted.

        Args:
            error: that the program ends with, for the journal.
        """
        self.asker.close()
        self.engine.close()
        self.state.close()
        self.recorder.end(error)
