"""A run, as values: the lines of all its processes in one order, and the output files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from reliable_pubsub.common.core.journal import AnyLine, Seen


class OutputLine(Struct, frozen=True, gc=False):
    """One line of a subscriber's output file."""

    topic: str
    message: Seen  # without delivery count: each is there once


class LabRun(Struct, frozen=True, kw_only=True):
    """Everything that a verdict rests on."""

    lines: Sequence[AnyLine]  # by time; lines of one process in the order of its file
    outputs: Mapping[str, Sequence[OutputLine]]  # by subscriber, in the order of the file
    torn: Mapping[str, int] = {}  # by file: lines that cannot be read; the last of a killed life
    unreadable: int = 0  # other lines that cannot be read
    warnings: Sequence[str] = ()  # what is missing or unreadable beyond that
