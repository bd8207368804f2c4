"""Runs conversations with await: the shell of the asyncio clients, their gate and base.

The gate keeps rules R25 and R31, as that of the blocking clients does (`gate.py`): a call ends
properly if it returns or raises an error of this package. Every other exit, a cancellation above
all, counts as a crash of the client within its process, so the next call first resets it to its
stored state and its delivered messages.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, Self, TypeVar, assert_never, cast

from .core.arguments import checked
from .core.client_state import ClientState
from .core.conversation import (
    Await,
    Conversation,
    Exchange,
    Listen,
    Reopen,
    Save,
    ShellEffect,
    Sleep,
)
from .core.errors import PubSubError, UsageError
from .core.retry import Patience, Transport
from .gate import CALLS, Lives, timed_out_waiting, timeout_of
from .opened import BlockingClient, Client, E, Opened
from .state_file import StateFile
from .state_thread import StateThread
from .transport import DataLink, carry_out

T = TypeVar("T")
P = ParamSpec("P")


class AwaitedTransport(Transport, Protocol):
    """A transport that never has to block: `ReqTransport`, and that of the broker for tests."""

    @property
    def descriptors(self) -> Iterable[int]:
        """File descriptors; one becomes readable after a `take` that found nothing."""

    def take(self) -> Sequence[bytes] | None:
        """The answer, if it has come."""


class AioShell:
    """A socket and a state; for one conversation at a time, in one event loop."""

    def __init__(self, transport: Transport, state: ClientState, files: StateThread | None) -> None:
        """Combine them; the transport is an `AwaitedTransport`.

        Args:
            files: writes the state, if it is in files.
        """
        self._transport = cast(AwaitedTransport, transport)
        self._state = state
        self._files = files

    async def run(self, conversation: Conversation[T]) -> T:
        """Carry out each effect, until the conversation returns.

        Raises:
            PubSubError: what the conversation raises.
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
                if isinstance(effect, Exchange):
                    self._transport.send(effect.frames)
                    value = await self._receive(effect.timeout_s)
                elif isinstance(effect, Await):
                    value = await self._receive(effect.timeout_s)
                elif isinstance(effect, Save):
                    await self._save(effect)
                elif isinstance(effect, Sleep):
                    await asyncio.sleep(effect.seconds)
                elif isinstance(effect, Reopen):
                    transport = self._transport
                    (transport.move_on if effect.is_wanted else transport.reopen)()
                elif isinstance(effect, Listen):
                    await _listen(effect)
                else:
                    assert_never(effect)
            except PubSubError as error:
                step, value = conversation.throw, error

    async def _save(self, save: Save) -> None:
        if self._files is not None:
            await self._files.do(lambda: carry_out(save, self._state))
        else:
            carry_out(save, self._state)

    async def _receive(self, timeout_s: float) -> object:
        transport = self._transport  # after a cancellation the gate has it reopened
        return await _look(transport.take, transport.descriptors, timeout_s)


async def _listen(listen: Listen) -> None:
    link = listen.link
    assert isinstance(link, DataLink)
    seconds = min(listen.seconds, link.due_in_s)
    await _look(lambda: link.has_arrived() or None, link.descriptors, seconds)


async def _look(
    look: Callable[[], T | None], descriptors: Iterable[int], timeout_s: float
) -> T | None:
    """Look at once, and whenever a descriptor is readable, until there is something.

    A descriptor of ZeroMQ says that a socket's state may have changed, not that a message is there.
    """
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + timeout_s
    while (found := look()) is None and loop.time() < deadline_s:
        woken: asyncio.Future[None] = loop.create_future()
        timer = loop.call_at(deadline_s, _wake, woken)
        for descriptor in descriptors:
            loop.add_reader(descriptor, _wake, woken)
        try:
            await woken
        finally:
            timer.cancel()
            for descriptor in descriptors:
                loop.remove_reader(descriptor)
    return found


def _wake(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)


class AioGate(Lives):
    """Admits one call at a time, and resets a client whose last call was interrupted."""

    def __init__(
        self,
        what: str,
        recover: Callable[[], None],
        patience: Patience,
        *,
        reload: Callable[[], Coroutine[Any, Any, None]],
        waits: bool,
    ) -> None:
        """Create the gate of a client; no call is open. See `Lives`.

        Args:
            reload: reads the stored state, for `recover`.
            waits: let the calls of several tasks wait for each other; else refuse the second.
        """
        super().__init__(what, recover, patience)
        self._reload = reload
        self._waits = waits
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn = asyncio.Lock()

    async def enter(self, timeout_s: float | None, *, closes: bool) -> None:
        """Begin a call; wait until the open one has ended.

        Args:
            timeout_s: of the call.
            closes: it may be called on a closed client, and resets nothing.

        Raises:
            ForkedError: the client belongs to the parent of this process.
            UsageError: it is closed, or used in two event loops, or by two tasks.
            TimedOutError: the open one has not ended in time.
        """
        if self.is_foreign:
            self._refuse()
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop:
            raise UsageError(f"{self.what} belongs to another event loop; make one for each loop")
        self._loop = loop
        if self._turn.locked() and not self._waits:
            raise UsageError(
                f"{self.what} is in the middle of a call of another task; make one for each task, "
                "with an id of its own, or call one after the other"
            )
        until_s = None
        if timeout_s is None:
            await self._turn.acquire()
        else:
            until_s = self.patience.now_s() + timeout_s
            try:
                async with asyncio.timeout(timeout_s):
                    await self._turn.acquire()
            except TimeoutError:
                raise timed_out_waiting(self.what, timeout_s) from None
        try:
            if self._is_broken and not self.closed:
                await self._reload()
            self.patience.begin(timeout_s, until_s)
            self._begin(closes=closes)
        except BaseException:
            self._turn.release()
            raise

    def _begin(self, *, closes: bool) -> None:
        if not self._is_broken:
            self.undo.begin(None)
        if self.steps is not None:
            self.steps.end()
            self.steps = None
        if closes:
            return
        if self.closed:
            self._refuse()
        self.begin_again()

    def life(self) -> int:
        """The life that a stream or transaction begins in; see `check_life`."""
        if not self._turn.locked():
            self.begin_again()
        return self.lives

    def leave(self, error: BaseException | None) -> None:
        """End a call, by an error or without."""
        if error is not None and not isinstance(error, PubSubError):
            self._is_broken = True
        self._turn.release()

    def replace(self, free: Callable[[], None]) -> bool:
        """Close the client for another one of this process, if no call of it is open."""
        if self._turn.locked():
            return False
        if self.steps is not None and not self.steps.end():
            return False
        self.closed = self.is_replaced = True
        free()
        return True


class _Gated(Protocol):
    """A client with a gate."""

    _gate: AioGate


class _Closable(_Gated, Protocol):
    """A client that can be closed."""

    async def _close_files(self) -> None:
        """Close its state files, if it is closed."""


S = TypeVar("S", bound=_Gated)
C = TypeVar("C", bound=_Closable)
Method = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


def _through_the_gate(
    method: Any, *, closes: bool, inner: Method[S, P, T] | None = None
) -> Method[S, P, T]:
    if inner is None:
        inner = method if method.__name__.startswith("_") else checked(method)

    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        gate = self._gate
        await gate.enter(timeout_of(method, kwargs, self) if kwargs else None, closes=closes)
        try:
            result = await inner(self, *args, **kwargs)
        except BaseException as error:
            gate.leave(error)
            raise
        gate.leave(None)
        return result

    return call


def gated(method: Method[S, P, T]) -> Method[S, P, T]:
    """Decorate a call of a client; its arguments are checked. It must not call gated methods."""
    return _through_the_gate(method, closes=False)


def awaited(method: Callable[Concatenate[Any, P], T]) -> Method[Any, P, T]:
    """Make the call of an asyncio client from the blocking one; both have one signature and text.

    The body of the blocking call returns what `self._run` gives: here a coroutine.
    """
    body: Any = inspect.unwrap(method)
    begin: Any = body if body.__name__.startswith("_") else checked(body)

    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        begun = begin(self, *args, **kwargs)
        result: T = await begun if inspect.isawaitable(begun) else begun
        return result

    if method.__code__ in CALLS:
        return _through_the_gate(body, closes=False, inner=call)
    return wraps(body)(call)


def closing(method: Method[C, P, T]) -> Method[C, P, T]:
    """Decorate a call that releases what a client holds; it may be repeated."""

    @wraps(method)
    async def released(self: C, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(self, *args, **kwargs)
        finally:
            await self._close_files()

    return _through_the_gate(released, closes=True)


class AioClient(Client[E]):
    """A client whose calls are awaited."""

    def __init__(self, client: str, opened: Opened[E]) -> None:
        """See `Client`."""
        state, waits = opened.state, self._waits
        self._files = StateThread() if isinstance(state, StateFile) else None
        self._stored: Mapping[str, bytes] | None = None
        self._run = AioShell(opened.asker.transport, state, self._files).run
        what, patience = f"{opened.role} {client!r}", opened.asker.patience
        self._gate = AioGate(what, self._begin_again, patience, reload=self._reload, waits=waits)
        super().__init__(client, opened)
        if self._role == "subscriber" and opened.remembers:
            _ = state.marks  # made here, and not in the event loop

    async def _reload(self) -> None:
        """Read the stored state, after pending writes."""
        if self._files is not None:
            self._stored = await self._files.do(self._opened.state.load)

    def _begin_again(self) -> None:
        """Reset to the stored state, after an interrupted call."""
        if self._files is not None and self._stored is None:
            self._files.finish()  # outside a call: one that was cancelled may be writing
        self._opened.begin_again(self._stored)
        self._stored = None

    def _free(self, error: BaseException | None) -> None:
        """Close all but the state files, which may hang."""
        if self._files is None:
            super()._free(error)
            return
        self._gate.closed = True
        self._opened.close_sockets()
        self._opened.recorder.end(error)

    async def _close_files(self) -> None:
        """Close the state files, if the client is closed."""
        if self._files is not None and self._gate.closed:
            await self._files.do(self._opened.state.close)

    def _make_way(self) -> bool:
        is_closed = super()._make_way()
        if is_closed and self._files is not None:
            self._files.finish()
            self._opened.state.close()
        return is_closed

    async def __aenter__(self) -> Self:
        return self

    topics = awaited(BlockingClient.topics)

    @closing
    async def _close(self, error: BaseException | None) -> None:
        self._free(error)
