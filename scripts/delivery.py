"""Compare what subscribers wrote with what publishers were told to send. Files only, no claims.

Pure: values in, values out. The demo and the integration tests judge with this one function.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec import Struct


class Line(Struct, frozen=True):
    """One line of an output file."""

    topic: str
    offset: int
    message_id: str
    timestamp_ns: int
    payload: str | None = None
    payload_base64: str | None = None

    @property
    def body(self) -> bytes:
        """The payload as bytes."""
        if self.payload is not None:
            return self.payload.encode()
        return base64.b64decode(self.payload_base64 or "")


class Verdict(Struct, frozen=True, kw_only=True):
    """How one output file compares with what was sent to its topics."""

    expected: int
    received: int
    lost: int  # sent, and not in the file
    duplicated: int  # in the file more than once
    out_of_order: int  # behind a later offset, or a later sequence of the same publisher
    wrong: int  # never sent, or with another payload, or at two offsets in different files

    @property
    def ok(self) -> bool:
        """Whether everything that was sent is there, once, in order, unaltered."""
        return (
            self.received == self.expected
            and self.lost == self.duplicated == self.out_of_order == self.wrong == 0
        )


Sent = Mapping[str, Mapping[str, bytes]]  # topic -> message id -> payload


def read_lines(content: bytes) -> list[Line]:
    """The lines of an output file. A line that cannot be read raises `msgspec.DecodeError`."""
    return [msgspec.json.decode(line, type=Line) for line in content.splitlines()]


def compare(topics: Iterable[str], lines: Sequence[Line], sent: Sent) -> Verdict:
    """Judge one output file.

    Args:
        topics: those that the subscriber was to receive completely.
        sent: everything that was put, by topic and message id.
    """
    expected = {(topic, message_id) for topic in topics for message_id in sent[topic]}
    seen: set[tuple[str, str]] = set()
    duplicated = out_of_order = wrong = 0
    last_offset: dict[str, int] = {}
    last_sequence: dict[tuple[str, str], int] = {}
    for line in lines:
        key = (line.topic, line.message_id)
        publisher, _, sequence = line.message_id.rpartition("_")
        if key in seen:
            duplicated += 1
            continue
        seen.add(key)
        if sent.get(line.topic, {}).get(line.message_id) != line.body:
            wrong += 1
        before = last_sequence.get((line.topic, publisher), 0)
        if line.offset <= last_offset.get(line.topic, -1) or int(sequence) <= before:
            out_of_order += 1
        last_offset[line.topic] = line.offset
        last_sequence[(line.topic, publisher)] = int(sequence)
    return Verdict(
        expected=len(expected),
        received=len(lines),
        lost=len(expected - seen),
        duplicated=duplicated,
        out_of_order=out_of_order,
        wrong=wrong,
    )


def disagreements(files: Mapping[str, Sequence[Line]]) -> list[str]:
    """Offsets at which two subscribers saw different messages: there must be none."""
    first: dict[tuple[str, int], tuple[str, str]] = {}
    found = []
    for name, lines in files.items():
        for line in lines:
            place = (line.topic, line.offset)
            known_id, known_by = first.setdefault(place, (line.message_id, name))
            if known_id != line.message_id:
                found.append(
                    f"{line.topic} offset {line.offset}: {known_by} has {known_id}, "
                    f"{name} has {line.message_id}"
                )
    return found
