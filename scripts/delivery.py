"""Compares what was put with the output files: the judge of a crash run.

Only the files count, never what a process says of itself. No other file of the project is
imported, so that a fault of the product cannot hide itself here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# By topic and publisher: the payloads in the order of the publisher's sequence 1, 2, 3, ...
Puts = Mapping[str, Mapping[str, Sequence[bytes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One subscriber's file, in numbers of messages."""

    subscriber: str
    expected: int  # put on its topics
    received: int  # lines in its file
    lost: int  # put, and not in the file
    duplicated: int  # lines that repeat a message
    out_of_order: int  # lines after a higher offset, or a higher sequence of the publisher
    altered: int  # lines that are not what was put: payload, id or topic, or no JSON at all
    misplaced: int  # lines whose offset another file does not confirm, and holes in the offsets

    @property
    def perfect(self) -> bool:
        """Whether each message is there once, in order, unaltered, at the offset of all."""
        expected, received, *faults = self.counts.values()
        return received == expected and not any(faults)

    @property
    def counts(self) -> Mapping[str, int]:
        """For people; `wrong` is altered, or not where others have it."""
        return {
            "expected": self.expected,
            "received": self.received,
            "lost": self.lost,
            "duplicated": self.duplicated,
            "out of order": self.out_of_order,
            "wrong": self.altered + self.misplaced,
        }


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an output file."""

    topic: str
    offset: int
    publisher: str
    sequence: int
    payload: bytes

    @property
    def message(self) -> tuple[str, str, int]:
        """What makes two lines the same message."""
        return self.topic, self.publisher, self.sequence


def read_lines(path: Path) -> list[Line | None]:
    """The lines of an output file; None for one that cannot be understood."""
    content = path.read_bytes() if path.exists() else b""
    lines = content.split(b"\n")
    # Every line ends with \n, so what follows the last one is a torn line, or nothing.
    return [_line(text) for text in (lines if lines[-1] else lines[:-1])]


def _line(text: bytes) -> Line | None:
    try:
        fields = json.loads(text)
        publisher, _, sequence = fields["message_id"].rpartition("_")
        payload = (
            fields["payload"].encode()
            if "payload" in fields
            else base64.b64decode(fields["payload_base64"], validate=True)
        )
        return Line(fields["topic"], fields["offset"], publisher, int(sequence), payload)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def compare(
    outputs: Mapping[str, Path], topics: Mapping[str, Sequence[str]], puts: Puts
) -> list[Verdict]:
    """Judge the output file of each subscriber.

    Args:
        outputs: the files, by subscriber.
        topics: what each of them was subscribed to before the first put.
        puts: everything that was put, and nothing that was not.
    """
    files = {name: read_lines(path) for name, path in outputs.items()}
    places: dict[tuple[str, str, int], int] = {}  # the offset in the first file that has it
    for lines in files.values():
        for line in lines:
            if line is not None:
                places.setdefault(line.message, line.offset)
    return [_judge(name, lines, topics[name], puts, places) for name, lines in files.items()]


def _judge(
    subscriber: str,
    lines: Sequence[Line | None],
    topics: Sequence[str],
    puts: Puts,
    places: Mapping[tuple[str, str, int], int],
) -> Verdict:
    payloads = {
        (topic, publisher, sequence): payload
        for topic in topics
        for publisher, all_payloads in puts.get(topic, {}).items()
        for sequence, payload in enumerate(all_payloads, start=1)
    }
    seen: set[tuple[str, str, int]] = set()
    offsets: dict[str, set[int]] = {}
    last_offset: dict[str, int] = {}
    last_sequence: dict[tuple[str, str], int] = {}
    duplicated = out_of_order = altered = misplaced = 0
    for line in lines:
        if line is None or payloads.get(line.message) != line.payload:
            altered += 1
        if line is None:
            continue
        if line.message in seen:
            duplicated += 1
            continue
        seen.add(line.message)
        offsets.setdefault(line.topic, set()).add(line.offset)
        flow = (line.topic, line.publisher)
        if line.offset <= last_offset.get(line.topic, -1) or line.sequence <= last_sequence.get(
            flow, 0
        ):
            out_of_order += 1
        elif places[line.message] != line.offset:
            misplaced += 1
        last_offset[line.topic] = max(line.offset, last_offset.get(line.topic, -1))
        last_sequence[flow] = max(line.sequence, last_sequence.get(flow, 0))
    lost = len(payloads.keys() - seen)
    holes = sum(max(found) - min(found) + 1 - len(found) for found in offsets.values())
    return Verdict(
        subscriber=subscriber,
        expected=len(payloads),
        received=len(lines),
        lost=lost,
        duplicated=duplicated,
        out_of_order=out_of_order,
        altered=altered,
        misplaced=misplaced + max(holes - lost, 0),  # what is lost leaves a hole of its own
    )
