"""`Opened`: the parts of a client. `Client`, `BlockingClient`: what both kinds of client share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, NoReturn, Protocol, Self, TypeVar

from .asking import Asker
from .core.arguments import TimeoutS, checked
from .core.client_state import ClientState, MemoryState
from .core.errors import InDoubtError, PubSubError, UsageError
from .core.message_base import Role
from .core.names import name_of_replica
from .core.recorder import Recorder
from .core.retry import ANSWER_S, RetryPolicy, Silence
from .core.session import ClientSession
from .core.settings import Settings
from .gate import Gate, closing, gated
from .journal_file import open_journal
from .replicas import open_replica
from .state_file import StateFile, open_state
from .surroundings import client_here
from .transport import Shell
from .world import World


class ClientEngine(Protocol):
    """The engine of a publisher or subscriber."""

    @property
    def session(self) -> ClientSession:
        """Return its session with the proxy."""

    def begin_again(self, stored: Mapping[str, bytes]) -> None:
        """Reset it to the stored state."""

    def close(self) -> None:
        """End its links for data."""


E = TypeVar("E", bound=ClientEngine)
CLOSE_S: Final = 5.0  # that `close`, and leaving a block, take at most by default


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
        self.role = role
        self._begin()

    @property
    def asks_forever(self) -> bool:
        """Return whether `run` and loops retry until stopped, without a number of retries."""
        return self.asker.retry.retries_max is None

    @property
    def remembers(self) -> bool:
        """Whether the state outlives the process."""
        return not isinstance(self.state, MemoryState)

    def may_be_taken(self, make_way: Callable[[], bool]) -> None:
        """Let another client of this process take over the id; see `FileLock.make_way`."""
        if isinstance(self.state, StateFile):
            self.state.may_be_taken(make_way)

    def begin_again(self, stored: Mapping[str, bytes] | None = None) -> None:
        """Reset to the stored state, after a call that was interrupted (rule R25).

        Args:
            stored: that state, if it was read already.
        """
        self.asker.transport.reopen()
        self.engine.begin_again(self.state.load() if stored is None else stored)
        self._begin()

    @contextmanager
    def last_call(
        self, free: Callable[[BaseException | None], None], timeout_s: float
    ) -> Iterator[None]:
        """Free the client after the block, in which it sends the proxy its last requests.

        If the state outlives the process, the next one sends them too: so they have the time of one
        attempt here, and an InDoubtError is dropped.

        Args:
            free: called with the error that the block has raised.
            timeout_s: that they have together.
        """
        if self.remembers:
            timeout_s = min(timeout_s, max(self.asker.retry.timeout_s, ANSWER_S))
        self.asker.patience.begin(timeout_s)
        try:
            yield
        except BaseException as error:
            free(error)
            if not (self.remembers and isinstance(error, InDoubtError)):
                raise
        else:
            free(None)

    @contextmanager
    def last_words(self) -> Iterator[None]:
        """In the block a client that an exception ends sends what would be lost with its state.

        All requests have the time of one attempt. The program's exception is the one that counts.
        """
        self.asker.patience.begin(max(self.asker.retry.timeout_s, ANSWER_S))
        with suppress(PubSubError):
            yield

    def _begin(self) -> None:
        self.recorder.begin(self.role, remembers=self.remembers)

    def close(self, error: BaseException | None) -> None:
        """Close sockets, then the state; it may be repeated if it was interrupted.

        Args:
            error: that the program ends with, for the journal.
        """
        self.close_sockets()
        self.state.close()
        self.recorder.end(error)

    def close_sockets(self) -> None:
        self.asker.close()
        self.engine.close()


class OpenedParts(NamedTuple):
    """What both kinds of client are made of, before their engine."""

    recorder: Recorder
    state: ClientState
    asker: Asker
    settings: Settings


def open_parts(
    role: Role,
    client: str,
    world: World,
    endpoint: str | None,
    state_dir: Path | str | None,
    retry: RetryPolicy | None,
    *,
    allow_plaintext: bool,
    on_silence: Silence,
    journal: Path | str | None,
    push_via: str | None = None,
) -> OpenedParts:
    """Open settings, journal, state and socket; the arguments are those of a client."""
    here = client_here(
        *(role, client, endpoint, state_dir, retry),
        allow_plaintext=allow_plaintext,
        push_via=push_via,
        looks=world.is_real,
    )
    recorder = world.recorder or open_journal(journal, client)
    state = world.state or open_state(here.state_dir, role, client)
    asker = Asker(
        client, here.endpoint, retry=here.retry, on_silence=on_silence, role=role, world=world
    )
    return OpenedParts(recorder, state, asker, here.settings)


class Client(Generic[E]):
    """A client around its engine, whether it blocks or awaits. It belongs to its process."""

    _gate: Any  # of calls that block, or that are awaited
    _role: ClassVar[Role]
    _waits: ClassVar[bool]  # for calls of other threads or tasks; else a second one is refused

    def __init__(self, client: str, opened: Opened[E]) -> None:
        """Take what was opened, which is closed here; the gate exists."""
        self.client = client
        self._opened = opened
        self._engine = opened.engine
        is_replica = name_of_replica(client) != client  # others of this process have their own slot
        opened.may_be_taken((lambda: False) if is_replica else self._make_way)

    @classmethod
    @checked
    def unique(cls, name: str, *, state_dir: Path | str | None = None, **options: Any) -> Self:
        """Make the client of one of several processes that run the same program.

        The page docs/how-to/replicas.md has examples.

        Without `state_dir` its id is `NAME.unique-` and a random number, and ends with the process:
        no other process continues it, and a subscriber can only join groups or begin clean
        sessions. With `state_dir` it takes the first id `NAME.slot-...` there that no process uses,
        and continues its state.

        Args:
            name: of the program; at most 40 characters.
            options: those of the constructor.

        Raises:
            InvalidNameError: the name is not allowed, or too long. Others as of the constructor.
        """
        role: Role = cls._role
        return open_replica(
            role,
            name,
            state_dir,
            lambda client, where, world: cls(
                client, **{"_world": world, **options, "state_dir": where}
            ),
        )

    def _make_way(self) -> bool:
        """Close for another client of this process, unless a call is open."""
        is_closed: bool = self._gate.replace(lambda: self._free(None))
        return is_closed

    def _begin_again(self) -> None:
        """Reset to the stored state, after an interrupted call."""
        self._opened.begin_again()

    def _free(self, error: BaseException | None) -> None:
        self._gate.closed = True  # now it can only be closed, again if that is interrupted
        self._opened.close(error)

    def __repr__(self) -> str:
        state = " (closed)" if self._gate.closed else ""
        return f"<{self._gate.what}{state}>"

    def __dir__(self) -> list[str]:
        """List what programs use; inbox and outbox are internal."""
        return sorted({*super().__dir__()} - {"inbox", "outbox"})

    def __reduce__(self) -> NoReturn:
        raise UsageError(
            f"{self._gate.what} has a socket and a locked state, which belong to this process: it "
            "cannot be pickled, nor copied. Make a client in each process, with an id of its own"
        )


class BlockingClient(Client[E]):
    """A client whose calls block."""

    def __init__(self, client: str, opened: Opened[E]) -> None:
        """See `Client`."""
        self._run = Shell(opened.asker.transport, opened.asker.clock, opened.state).run
        what, patience = f"{opened.role} {client!r}", opened.asker.patience
        self._gate = Gate(what, self._begin_again, patience, threads=self._waits)
        super().__init__(client, opened)

    def __enter__(self) -> Self:
        return self

    @gated
    def topics(self, *, timeout_s: TimeoutS = None) -> tuple[str, ...]:
        """Return the names of the topics that exist and that this client may see.

        Raises:
            InDoubtError, DeniedError.
        """
        return self._run(self._engine.session.topics())

    @closing
    def _close(self, error: BaseException | None) -> None:
        self._free(error)
