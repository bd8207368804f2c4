"""Writes the journal of one process; clock and file are arguments.

A `Recorder()` without a sink records nothing and costs nothing, so that a client needs no second
path. Every operation is a call:

    with recorder.call("put", topic) as call:
        call.invoke(sequence=7)  # before the first send
        ...
        call.ok(sequence=7, offset=3)

An error that leaves the block becomes `failed` where it proves that there was no effect and never
will be, and `unknown` everywhere else. An interrupt writes nothing, as `kill -9` would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from .batch import Message, crc32
from .errors import (
    ConflictError,
    LimitError,
    LostError,
    NotSubscribedError,
    PubSubError,
    UsageError,
)
from .journal import AnyLine, Begin, End, Failed, Invoke, Ok, Operation, Seen, Unknown

# Definite refusals. Not in this list, because an attempt whose reply was lost may have had its
# effect: FENCED, LOG_CHANGED, STALE, MALFORMED (the reply may be what cannot be read).
WITHOUT_EFFECT: Final = (UsageError, ConflictError, LimitError, NotSubscribedError)


class JournalSink(Protocol):
    """The destination of the lines of one process, and their clock."""

    process: str
    pid: int

    def now_ns(self) -> int:
        """The monotonic clock that all processes of a run share."""

    def wall_ns(self) -> int:
        """The wall clock, for people."""

    def write(self, line: AnyLine) -> None:
        """Write a line so that it survives the process; StorageFailedError if that fails."""

    def close(self) -> None:
        """Close the destination."""


class Recorder:
    """Writes lines. Used by one thread at a time."""

    def __init__(self, sink: JournalSink | None = None, *, output: str = "") -> None:
        """Create a recorder.

        Args:
            sink: None records nothing.
            output: name of a subscriber's output file, for `Begin`.
        """
        self._sink = sink
        self.active = sink is not None  # looked at before expensive facts are gathered
        self._output = output
        self._calls = 0

    def line(self, kind: Callable[..., AnyLine], **facts: Any) -> None:
        """Write a line with the current time.

        Raises:
            StorageFailedError: it could not be written.
        """
        sink = self._sink
        if sink is not None:
            sink.write(kind(at_ns=sink.now_ns(), process=sink.process, pid=sink.pid, **facts))

    def begin(self, role: str, **facts: Any) -> None:
        """Record the start of the process."""
        if self._sink is not None:
            self.line(Begin, role=role, wall_ns=self._sink.wall_ns(), output=self._output, **facts)

    def end(self, error: BaseException | None = None) -> None:
        """Record that the process ends normally; anything later is not recorded."""
        sink = self._sink
        if sink is None:
            return
        try:
            self.line(End, code=code_of(error) if isinstance(error, Exception) else "")
        finally:
            self._sink = None
            self.active = False
            sink.close()

    def call(self, op: Operation, topic: str = "") -> Call:
        """An operation of a client; use it in a `with` block."""
        return _UNRECORDED if self._sink is None else Call(self, op, topic)

    def next_call(self) -> int:
        """Number of a call, given with its first line."""
        self._calls += 1
        return self._calls


class Call:
    """One operation, from its `invoke` to its one answer."""

    __slots__ = ("_answered", "_invoked", "_number", "_op", "_recorder", "_topic", "recorded")

    def __init__(self, recorder: Recorder, op: Operation, topic: str) -> None:
        """Create an operation without writing a line; use `Recorder.call`."""
        self.recorded = recorder.active
        self._recorder = recorder
        self._op: Operation = op
        self._topic = topic
        self._number = 0
        self._invoked: dict[str, Any] | None = None
        self._answered = False

    def invoke(self, **facts: Any) -> None:
        """Record `Invoke` with these facts, before the send; repeated only if they changed."""
        if self.recorded and facts != self._invoked:
            self._line(Invoke, facts)
            self._invoked = facts

    def ok(self, **facts: Any) -> None:
        """Record that it had its effect, with these facts of `Ok`."""
        if self.recorded:
            self._line(Ok, facts)
            self._answered = True

    def unknown(self, error: PubSubError) -> None:
        """Record that it may have had its effect, whatever the code of the error."""
        if self.recorded:
            self._line(Unknown, {"code": error.code, **self._sequence()})
            self._answered = True

    def __enter__(self) -> Call:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """Record how it ended: without effect, if that is certain."""
        if self._answered or not self.recorded:
            return
        is_lost = isinstance(error, LostError)
        if self._op == "get" or (self._op == "take" and is_lost):  # nothing was delivered
            if isinstance(error, UsageError):
                return
            lost: dict[str, Any] = {}
            if isinstance(error, LostError):
                lost = {
                    "first": error.first,
                    "end": error.end,
                    "waiting_max": error.waiting_max,
                    "by_operator": error.by_operator,
                }
            self._line(Failed, {"code": code_of(error), **lost})
        elif self._invoked is not None:
            answer = Failed if isinstance(error, WITHOUT_EFFECT) else Unknown
            self._line(answer, {"code": code_of(error), **self._sequence()})

    def _line(self, kind: Callable[..., AnyLine], facts: Mapping[str, Any]) -> None:
        self._number = self._number or self._recorder.next_call()
        self._recorder.line(kind, op=self._op, call=self._number, topic=self._topic, **facts)

    def _sequence(self) -> dict[str, int]:
        return {"sequence": (self._invoked or {}).get("sequence", 0)}


_UNRECORDED: Final = Call(Recorder(), "get", "")


def code_of(error: BaseException | None) -> str:
    """The code of an error; "" if there is none."""
    if isinstance(error, PubSubError):
        return error.code
    return PubSubError.code if error is not None else ""


def seen(message: Message) -> Seen:
    """A message as a journal has it."""
    return Seen(
        message.offset,
        message.publisher,
        message.sequence,
        crc32(message.payload),
        message.timestamp_ns,
        message.delivery_count,
        message.qos,
    )
