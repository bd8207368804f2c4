"""Signals: which of them end a command, and how."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from msgspec import Struct

from .command_line import complain
from .core.errors import InDoubtError

UNFINISHED = InDoubtError.exit_code  # ended before the work was done: run again to resume
RESUME = "stopped: what is left is kept; run the same command again to continue"


class Stopped(BaseException):
    """A signal, by its number: exit at the next safe point."""


class _Reload(Struct, frozen=True):
    """A handler of SIGHUP."""

    reload: Callable[[], None]

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        """Do it."""
        self.reload()


def _ending() -> list[signal.Signals]:
    """The signals that end a process: SIGTERM, SIGINT, and SIGHUP when its terminal is closed.

    Not SIGHUP where it means a reload, or is ignored: `nohup` has started the process, to outlive
    its terminal.
    """
    at_hangup = signal.getsignal(signal.SIGHUP)
    if at_hangup is signal.SIG_IGN or isinstance(at_hangup, _Reload):
        return [signal.SIGTERM, signal.SIGINT]
    return [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


@contextmanager
def stopped_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at a signal that ends; they are ignored after the block, where processes end."""

    def act(_number: int, _frame: FrameType | None) -> None:
        stop()

    for number in _ending():
        signal.signal(number, act)
    try:
        yield
    finally:
        ignore_signals()


def reloaded_by_signal(reload: Callable[[], None]) -> None:
    """Call `reload` at SIGHUP from now on."""
    signal.signal(signal.SIGHUP, _Reload(reload))


def ignore_signals() -> None:
    """Ignore signals that end from now on: a second one has nothing to add to the first."""
    for number in _ending():
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def signals_raise() -> Iterator[None]:
    """SIGTERM, SIGINT and SIGHUP raise `Stopped` in the main thread."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in _ending()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def signals_wait() -> Iterator[None]:
    """A signal that ends raises `Stopped` after the block; a second one raises it at once.

    For a short start of something that would complain at length if it were left in the middle.
    """
    held: list[int] = []

    def hold(number: int, _frame: FrameType | None) -> None:
        if held:
            raise Stopped(number)
        held.append(number)

    before = {number: signal.signal(number, hold) for number in _ending()}
    try:
        yield
    except Exception:
        if not held:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if held:
        raise Stopped(*held)


@contextmanager
def stop_on_signals(word: str = "", *, exit_code: int = UNFINISHED) -> Iterator[None]:
    """Signals end the work at once and cleanly; the state is durable at every moment.

    Args:
        word: printed when that happens.
        exit_code: of the process then, unless 0. What has an end and has not come to it is not
            done; what only watches is.
    """
    try:
        with signals_raise():
            yield
    except (Stopped, KeyboardInterrupt):  # the latter while Spark has put its own handler
        if word:
            complain(word)
        if exit_code:
            sys.exit(exit_code)
