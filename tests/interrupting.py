"""Raises a foreign exception at a chosen line, or step of the interpreter, of our clients."""

from __future__ import annotations

import dis
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn

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
        if (skipped := self._skipped(frame.f_code)) is None:
            return None
        if self._opcodes:
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        counted = self._event

        def stepped(frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
            if event == counted and frame.f_lasti not in skipped:
                self.count += 1
                if self._at and self.count == self._at[0]:
                    self._raise(frame)
            return stepped

        return stepped

    def _skipped(self, code: CodeType) -> frozenset[int] | None:
        """Return the steps of a function at which nothing is raised; None: it does not count."""
        known = _KNOWN[self._files, self._opcodes]
        if (found := known.get(id(code))) is not None:
            return found[1]
        skipped = None
        if _counts(code.co_filename, self._files):
            skipped = _exits(code) | (_returns(code) if self._opcodes else frozenset())
        known[id(code)] = code, skipped
        return skipped

    def _raise(self, frame: FrameType) -> NoReturn:
        del self._at[0]
        name = Path(frame.f_code.co_filename).name
        self.places.append(f"{name}:{frame.f_lineno} {frame.f_code.co_name}")
        if not self._at:
            sys.settrace(None)  # nothing is left to do, and tracing is dear
        raise self._error()

    def __enter__(self) -> Interrupter:
        if self._at or not self.places:
            sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


# Asked at every call of every run, and so kept for the process: by the files that count, and by
# whether lines or steps do, the steps of each function that are skipped. A function is known by the
# id of its code, because the hash of the code is that of all that is in it.
_KNOWN: defaultdict[
    tuple[tuple[str, ...], bool], dict[int, tuple[CodeType, frozenset[int] | None]]
] = defaultdict(dict)


@cache
def _counts(name: str, files: tuple[str, ...]) -> bool:
    """Whether a file's lines count."""
    path = str(Path(name).resolve())
    return path.endswith(files) if files else path.startswith(OURS)


def _returns(code: CodeType) -> frozenset[int]:
    """Return where a function returns: Python looks for signals at calls and jumps, never there."""
    return frozenset(
        one.offset for one in dis.get_instructions(code) if one.opname == "RETURN_VALUE"
    )


def _exits(code: CodeType) -> frozenset[int]:
    """Return the steps from the push of the three arguments of `__exit__` to its call.

    The work of the `with` is done, and Python looks for no signal until that call has ended. An
    exception here would leave a lock held, as none in a real program does, and the tests that
    follow would wait for it.
    """
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
