"""Raises a foreign exception at a chosen line, or step of the interpreter, of our clients."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).parents[1].resolve()
OURS = tuple(f"{ROOT}/{room}/" for room in ("common", "publisher", "subscriber"))


class Interrupted(Exception):
    """What a signal handler raises: not a PubSubError.

    An `Exception`, as `TimeoutError` is, so that an `except` in our code that catches it shows.
    """


class Interrupter:
    """Counts the lines of our clients, and raises at some of them.

    Use it as a context: the lines of the block are counted from 1. What is called from `paused`
    (the proxy, in the same thread) is the world's, and is left in peace.
    """

    def __init__(
        self,
        at: Sequence[int] = (),
        *,
        opcodes: bool = False,
        error: Callable[[], BaseException] = Interrupted,
        files: tuple[str, ...] = (),
    ) -> None:
        """Raise at these numbers, in ascending order; the count continues after each.

        Args:
            files: whose lines count, by the end of their path; by default all of our clients.
        """
        self._error = error
        self.count = 0
        self.places: list[str] = []  # where it raised
        self._at = list(at)
        self._opcodes = opcodes
        self._event = "opcode" if opcodes else "line"
        self._files = files

    def _called(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        if not _counts(frame.f_code.co_filename, self._files):
            return None
        if self._opcodes:
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return self._stepped

    def _stepped(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        is_return = self._opcodes and _is_return(frame)
        if event == self._event and not is_return and not _leaves_with(frame):
            self.count += 1
            if self._at and self.count == self._at[0]:
                del self._at[0]
                code = frame.f_code
                self.places.append(f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}")
                if not self._at:
                    sys.settrace(None)  # nothing is left to do, and tracing is dear
                raise self._error()
        return self._stepped

    def __enter__(self) -> Interrupter:
        if self._at or not self.places:
            sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


# What is asked at every step of every run is kept for the process.


@cache
def _counts(name: str, files: tuple[str, ...]) -> bool:
    """Whether a file's lines count."""
    path = str(Path(name).resolve())
    return path.endswith(files) if files else path.startswith(OURS)


def _is_return(frame: FrameType) -> bool:
    """Whether the next step returns: Python looks for signals at calls and jumps, never there."""
    return frame.f_lasti in _returns(frame.f_code)


@cache
def _returns(code: CodeType) -> frozenset[int]:
    """Where a function returns; its code is a copy each time that it is looked at."""
    return frozenset(
        one.offset for one in dis.get_instructions(code) if one.opname == "RETURN_VALUE"
    )


def _leaves_with(frame: FrameType) -> bool:
    """Return whether the next step begins to call `__exit__`, the work of a `with` being done.

    Python looks for no signal until that call has ended. An exception here would leave a lock held,
    as none in a real program does, and the tests that follow would wait for it.
    """
    return frame.f_lasti in _exits(frame.f_code)


@cache
def _exits(code: CodeType) -> frozenset[int]:
    """Return the steps from the push of the three arguments of `__exit__` to its call."""
    steps = [one for one in dis.get_instructions(code) if one.opname != "CACHE"]
    pushes = [one.opname == "LOAD_CONST" and one.argval is None for one in steps]
    found: set[int] = set()
    for first in range(len(steps) - 4):
        calls = [
            step for step in steps[first + 3 : first + 5] if step.opname in ("PRECALL", "CALL")
        ]
        if all(pushes[first : first + 3]) and calls:
            swaps = [step for step in steps[first - 1 : first] if step.opname == "SWAP"]
            found |= {step.offset for step in (*swaps, *steps[first : first + 3], *calls)}
    return frozenset(found)


@contextmanager
def paused() -> Iterator[None]:
    """Leave what happens here in peace."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
