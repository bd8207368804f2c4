"""The gate of a client: every public call passes it, one at a time.

A call ends properly if it returns or raises an error of this package. Any other exception (Ctrl-C,
an alarm, MemoryError) may interrupt it at any line, and the program may continue to use the client.
So every other exit counts as a crash of the client within its process: the next call first resets
the client to its stored state, as a new process with this id would (rule R25). But it knows what
calls that returned have delivered: that stays in hand (`core/undo.py`, rule R31).

An open call is marked by a lock that its turn holds. To end properly, it releases the lock as the
last step before the return. A call that did not release it was interrupted, wherever that was: no
code has to run to note it, so a second exception right after the first does no harm.

A call has its argument `timeout_s` for all that it does: for its turn here, and for its requests,
because the gate begins the client's `Patience` with it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from types import CodeType
from typing import Any, Concatenate, Final, NoReturn, ParamSpec, Protocol, TypeVar

from msgspec import Struct

from .core.arguments import check_argument, checked
from .core.errors import ForkedError, PubSubError, TimedOutError, UsageError
from .core.retry import Patience
from .core.schemas import BUILDING
from .core.undo import Undo
from .frames import frames_of

LOOK_S: Final = 0.05  # how often a waiting call checks whether the open one was interrupted

P = ParamSpec("P")
R = TypeVar("R")


class Shared(Protocol):
    """The work of a call, which another thread's call may complete."""

    @property
    def outcome(self) -> object | None:
        """Its outcome, once it is known; then the call does not need a turn."""

    def withdraw(self) -> bool:
        """Take it back; return False if another call has begun it."""


class Steps(Protocol):
    """A loop over what a client delivers, which takes steps between its calls."""

    @property
    def was_interrupted(self) -> bool:
        """Whether its last step ended without a result."""

    def drop(self) -> None:
        """Make its next step a call; the reset settles the work that it took."""

    def end(self) -> bool:
        """Settle what it has taken, and let its next step be a call.

        Returns:
            False: a step is being executed, and nothing was changed.
        """


class _Turn(Struct, eq=False):
    """One call: which thread is in it, and whether it is open."""

    mark: threading.Lock  # held until the call ends
    thread: int
    shared: Shared | None = None
    timeout_s: float | None = None
    until_s: float | None = None  # when its time is over

    def check_time(self, now_s: float, what: str) -> None:
        """Refuse to wait longer for the turn.

        Raises:
            TimedOutError: its time is over; `kept` is true if another call has begun its work.
        """
        if self.until_s is None or now_s < self.until_s:
            return
        error = timed_out_waiting(what, self.timeout_s)
        error.kept = self.shared is not None and not self.shared.withdraw()
        raise error

    def is_running(self) -> bool:
        """Whether its function is being executed."""
        return any(
            frame.f_code in CALLS and frame.f_locals.get("turn") is self
            for frame in frames_of(self.thread)
        )


def timed_out_waiting(what: str, timeout_s: float | None) -> TimedOutError:
    """The time of a call expired before its turn."""
    error = TimedOutError(
        f"{what} was in the middle of another call for the whole timeout_s of {timeout_s:g} s; "
        "`kept` shows whether that call also sends this one's messages; otherwise nothing was sent"
    )
    error.timeout_s = timeout_s
    return error


class Lives:
    """A client as its gate knows it: open or closed, and how often it was reset."""

    def __init__(self, what: str, recover: Callable[[], None], patience: Patience) -> None:
        """Create the gate of an open client, in its first life.

        Args:
            what: names the client in errors.
            recover: resets the client to its stored state. If it is interrupted itself, it is
                called again.
            patience: of its requests; each call begins it.
        """
        self.what = what
        self.patience = patience
        self._recover = recover
        self._is_broken = False  # whether its last call was interrupted
        self.closed = False
        self.is_replaced = False  # closed because another client of this process has its id
        self.lives = 1  # incremented by each reset
        self._pid = os.getpid()
        self.is_foreign = False  # whether this process has only a copy of the client, by fork
        self.steps: Steps | None = None  # of the loop that had the last call
        self.undo = Undo()
        _lives.add(self)

    def _refuse(self) -> NoReturn:
        """Refuse a call of a client that is foreign or closed."""
        if self.is_foreign:
            raise ForkedError(what=self.what, pid=self._pid)
        why = "is closed; make another one"
        if self.is_replaced:
            why = (
                "was closed when another client of this process took over its id and state "
                "directory; use that one, or give one of them another id"
            )
        raise UsageError(f"{self.what} {why}")

    def begin_again(self) -> None:
        """Reset the client if its last call was interrupted."""
        if self._is_broken:
            self.undo.end_proper()
            self._recover()
            self.undo.begin(None)
            self.lives += 1
            self._is_broken = False

    def check_life(self, life: int, what: str) -> None:
        """Refuse to use a stream or transaction from before a reset.

        Args:
            life: the value of `lives` when it was opened.
            what: names it in the error.

        Raises:
            UsageError: the client was reset since.
        """
        if life != self.lives:
            raise UsageError(
                f"{what} ended when a call of {self.what} was broken off by an exception that was "
                "not ours; nothing more of it is sent. Begin another one"
            )


_lives: weakref.WeakSet[Lives] = weakref.WeakSet()


def _refuse_in_child() -> None:
    """A forked child takes no step of its parent's loop: the next one is a call, and refused."""
    for client in _lives:
        client.is_foreign = True
        if client.steps is not None:
            client.steps.end()


os.register_at_fork(after_in_child=_refuse_in_child)
os.register_at_fork(
    before=BUILDING.acquire, after_in_parent=BUILDING.release, after_in_child=BUILDING.release
)


class Gate(Lives):
    """Admits one call at a time, and resets a client whose last call was interrupted."""

    def __init__(
        self, what: str, recover: Callable[[], None], patience: Patience, *, threads: bool
    ) -> None:
        """Create the gate of a client; no call is open. See `Lives`.

        Args:
            threads: let the calls of several threads wait for each other; else refuse the second.
        """
        super().__init__(what, recover, patience)
        self._threads = threads
        self._turns: list[_Turn] = []  # the first has the turn; an ended one stays until the next

    def enter(self, turn: _Turn, *, after_close: bool, recovers: bool) -> Sequence[Shared]:
        """Begin a call; wait until the open one has ended.

        Args:
            after_close: it may be called on a closed client.
            recovers: reset the client first, if the last call was interrupted.

        Returns:
            For a call with shared work, that of the calls of other threads that wait, in order.

        Raises:
            ForkedError: the client belongs to the parent of this process.
            UsageError: it is closed, or called from within its own call, or from two threads.
            TimedOutError: the open one has not ended in time.
        """
        if self.is_foreign:
            self._refuse()
        if turn.timeout_s is not None:
            turn.until_s = self.patience.now_s() + turn.timeout_s
        turns = self._turns
        turns.append(turn)  # atomic, so that calls are ordered
        while (first := turns[0]) is not turn:
            if first.mark.locked():
                if turn.shared is not None and turn.shared.outcome is not None:
                    return ()
                if self._is_executed(first, turn):
                    turn.check_time(self.patience.now_s(), self.what)
                    continue
            try:
                turns.remove(first)
            except ValueError:  # another thread has removed it
                continue
        self.patience.begin(turn.timeout_s, turn.until_s)
        steps = self.steps
        if not self._is_broken and not (steps is not None and steps.was_interrupted):
            self.undo.begin(turn.mark)
        if steps is not None:
            self._end_steps(steps)
        if self.closed and not after_close:
            self._refuse()
        if recovers and self._is_broken and not self.closed:
            self.begin_again()
            self.undo.begin(turn.mark)
        return () if turn.shared is None or len(turns) == 1 else self.waiting()

    def _end_steps(self, steps: Steps) -> None:
        """What a loop has taken counts; from now on this call decides."""
        if self._is_broken or steps.was_interrupted:
            self._is_broken = True
            steps.drop()
        elif not steps.end():
            raise UsageError(
                f"{self.what} is taking a step of a loop over its messages, and is called from "
                "another thread or a signal handler; let a handler set a flag, and make one "
                "client for each thread"
            )
        self.steps = None

    def replace(self, free: Callable[[], None]) -> bool:
        """Close the client for another one of this process, if no call of it is open.

        An interrupted call is not open: its effect is in the stored state.

        Args:
            free: releases what the client holds; called again if it was interrupted.

        Returns:
            Whether it is closed.
        """
        turns = self._turns
        turn = _Turn(threading.Lock(), threading.get_ident())
        turn.mark.acquire()
        turns.append(turn)
        try:
            while (first := turns[0]) is not turn:
                if first.mark.locked() and first.is_running():
                    return False
                with suppress(ValueError):
                    turns.remove(first)
            if self.steps is not None and not self.steps.end():
                return False
            self.closed = self.is_replaced = True
            free()
            return True
        finally:
            with suppress(ValueError):
                turns.remove(turn)
            turn.mark.release()

    def _is_executed(self, first: _Turn, turn: _Turn) -> bool:
        """Whether an open call is still executed, after a short wait; else it was interrupted."""
        if not first.is_running():
            self._is_broken |= first.mark.locked()  # before it is removed: the next call sees it
            return False
        if first.thread != turn.thread and self._threads:
            if first.mark.acquire(timeout=LOOK_S):
                first.mark.release()  # for the next waiting call
            return True
        self._turns.remove(turn)
        if first.thread == turn.thread:
            raise UsageError(
                f"{self.what} is in the middle of a call, and is called from within it, by a "
                "signal handler or a function that it calls; let that set a flag, and call later"
            )
        raise UsageError(
            f"{self.what} is in the middle of a call of another thread; make one for each thread, "
            "with an id of its own, or call one after the other"
        )

    def waiting(self) -> Sequence[Shared]:
        """The work of the waiting calls of other threads, in order.

        A call that was interrupted while it waited is left out: its message must not be sent.
        """
        return [
            turn.shared
            for turn in self._turns[1:]
            if turn.shared is not None and turn.mark.locked() and turn.is_running()
        ]

    def left_by(self, error: BaseException, turn: _Turn | None) -> None:
        """End a call that raises `error`; note if it was interrupted."""
        if turn is None or not turn.mark.locked() or not _is_of_one_call(error):
            if turn is not None:
                self.undo.interrupted(turn.mark)
            self._is_broken = True
        else:
            turn.mark.release()


def _is_of_one_call(error: BaseException) -> bool:
    """Whether it is an error of this package and of this call, not of one in a signal handler."""
    calls = 0
    trace = error.__traceback__
    while trace is not None:
        calls += trace.tb_frame.f_code in CALLS
        trace = trace.tb_next
    return isinstance(error, PubSubError | StopIteration) and calls == 1


class _Gated(Protocol):
    """An object with a gate."""

    _gate: Gate


S = TypeVar("S", bound=_Gated)
W = TypeVar("W", bound=Shared)
CALLS: Final[set[CodeType]] = {Gate.replace.__code__}  # the code of every call


def _through_the_gate(
    method: Callable[Concatenate[S, P], R],
    *,
    after_close: bool,
    recovers: bool,
    shares: bool = False,
) -> Callable[Concatenate[S, P], R]:
    inner = method if method.__name__.startswith("_") else checked(method)
    share: Any = method

    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        turn = None
        try:
            shared: Any = args[0] if shares else None
            turn = _Turn(threading.Lock(), threading.get_ident(), shared)
            turn.mark.acquire()
            if kwargs:
                turn.timeout_s = timeout_of(method, kwargs, self)
            others = self._gate.enter(turn, after_close=after_close, recovers=recovers)
            result = share(self, shared, others) if shares else inner(self, *args, **kwargs)
            # Its last step before the return.
            return (result, turn.mark.release())[0]  # type: ignore[func-returns-value]
        except BaseException as error:
            self._gate.left_by(error, turn)
            raise

    CALLS.add(call.__code__)
    return wraps(method)(call)


def timeout_of(method: Any, given: Mapping[str, Any], client: object) -> float | None:
    """Check and return the `timeout_s` of a call."""
    timeout_s = given.get("timeout_s")
    if timeout_s is None or method.__name__.startswith("_"):
        return timeout_s
    if "timeout_s" not in method.__code__.co_varnames:
        return None  # Python refuses the call
    checked_s: float = check_argument(method, "timeout_s", timeout_s, None, client)
    return checked_s


def gated(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a call of a client; its arguments are checked. It must not call gated methods."""
    return _through_the_gate(method, after_close=False, recovers=True)


def sharing(method: Callable[[S, W, Sequence[Shared]], R]) -> Callable[..., R]:
    """Decorate a call with shared work; the method also gets that of the calls that wait.

    It is called with its work, and its `timeout_s`, if it has one.

    The call that has the turn may settle theirs. Their methods are then called without a turn, and
    may only return the outcome.
    """
    through: Any = _through_the_gate
    call: Callable[..., R] = through(method, after_close=False, recovers=True, shares=True)
    return call


def gated_after_close(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Decorate a public call that is allowed on a closed client."""
    return _through_the_gate(method, after_close=True, recovers=True)


def closing(method: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Decorate a call that releases what a client holds; it may be repeated if interrupted.

    In a forked child it does nothing: everything belongs to the parent.
    """
    gated_method = _through_the_gate(method, after_close=True, recovers=False)

    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if not self._gate.is_foreign:
            gated_method(self, *args, **kwargs)

    return call
