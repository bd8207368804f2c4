"""A journal in memory, as the lines of its file would read."""

from __future__ import annotations

import json
from typing import Any

from reliable_pubsub.common.core.errors import StorageFailedError
from reliable_pubsub.common.core.journal import AnyLine, encode_line

from .fakes import NOW_NS

Told = dict[str, Any]


class JournalLines:
    """Lines by a clock that ticks once a line. Implements `recorder.JournalSink`."""

    def __init__(self, process: str) -> None:
        self.process = process
        self.pid = 1
        self.space = 1000  # this many more lines can be written
        self.written: list[Told] = []

    def now_ns(self) -> int:
        """See `JournalSink.now_ns`."""
        return len(self.written)

    def wall_ns(self) -> int:
        """See `JournalSink.wall_ns`."""
        return NOW_NS

    def write(self, line: AnyLine) -> None:
        """See `JournalSink.write`."""
        if not self.space:
            raise StorageFailedError("there is no space for the journal")
        self.space -= 1
        self.written.append(json.loads(encode_line(line)))

    def close(self) -> None:
        """See `JournalSink.close`."""
        self.space = 0

    def of(self, op: str) -> list[Told]:
        """The lines of one operation, without the fields that every line about a topic has."""
        common = {*stamp(self.process, 0), "op", "topic"}
        return [
            {name: fact for name, fact in line.items() if name not in common}
            for line in self.written
            if line.get("op") == op
        ]


def stamp(process: str, at_ns: int) -> Told:
    """The fields that every line has."""
    return {"at_ns": at_ns, "process": process, "pid": 1}
