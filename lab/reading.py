"""From a directory to a run: journal files and output files, known by what is in them."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.journal import AnyLine, Begin, Seen, decode_line

from .core.one_run import check_one_folder, check_one_run
from .core.run import OutputLine, Run

_BEGIN: Final = b'{"type":"begin"'

Advance = Callable[[int], None]  # so many bytes further


class _Written(Struct, frozen=True):
    """A line of an output file, as far as it counts here."""

    topic: str
    offset: int | None  # None: it was put at QoS 0
    message_id: str
    timestamp_ns: int
    payload: str | None = None
    payload_base64: str | None = None


_decode_written = msgspec.json.Decoder(_Written).decode


@dataclass
class _Found:
    """What was read so far."""

    lines: list[AnyLine] = field(default_factory=list)
    outputs: dict[Path, list[OutputLine]] = field(default_factory=dict)
    claims: dict[str, tuple[str, Path]] = field(default_factory=dict)  # subscriber: name, journal
    torn: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    journals: int = 0
    proxies: list[str] = field(default_factory=list)  # files in which lives of a proxy begin


def journal_files(folder: Path) -> list[Path]:
    """All that may hold a journal or an output.

    Raises:
        ConfigurationError: there is no such directory, or nothing in it.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"{folder}: is no directory; name one that holds journals")
    paths = sorted(path for path in folder.rglob("*.jsonl") if path.is_file())
    if not paths:
        raise ConfigurationError(
            f"{folder}: holds no journal (no *.jsonl in it or below); processes write one with "
            "--journal FILE"
        )
    return paths


def read_run(folder: Path, advance: Advance = lambda size: None) -> Run:
    """Read a run; several files, and several lives of a process, are put in one order of time.

    Args:
        advance: told of the bytes read, as it goes on.

    Raises:
        ConfigurationError: there is no journal in it, a file cannot be read, or there are lines of
            several runs.
    """
    found = _Found()
    for path in journal_files(folder):
        try:
            _read_file(path, path.relative_to(folder).as_posix(), found, advance)
        except OSError as error:
            raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    if not found.journals:
        raise ConfigurationError(
            f"{folder}: no *.jsonl in it or below is a journal; processes write one with "
            "--journal FILE"
        )
    check_one_folder(str(folder), found.proxies)
    found.lines.sort(key=lambda line: line.at_ns)  # stable: a file keeps its order
    check_one_run(str(folder), found.lines)
    return Run(
        lines=found.lines,
        outputs=_owned(found, folder),
        torn=found.torn,
        warnings=found.warnings,
    )


def _read_file(path: Path, name: str, found: _Found, advance: Advance) -> None:
    """Read a file as what its first readable line is."""
    with path.open("rb") as file:
        kind = next((kind for line in file if (kind := _kind(line))), "")
        file.seek(0)
        if kind == "journal":
            found.journals += 1
            _read_journal(_sized(file, advance), path, name, found)
        elif kind == "output":
            found.outputs[path] = _read_output(_sized(file, advance), name, found)
        elif path.stat().st_size:
            found.warnings.append(f"{name}: neither a journal nor an output, left out")
        else:
            found.outputs[path] = []  # an empty output, if a client names it as its own


def _sized(lines: Iterator[bytes], advance: Advance) -> Iterator[bytes]:
    for line in lines:
        advance(len(line))
        yield line


def _kind(line: bytes) -> str:
    try:
        decode_line(line)
    except msgspec.DecodeError:
        try:
            _decode_written(line)
        except msgspec.DecodeError:
            return ""
        return "output"
    return "journal"


def _read_journal(lines: Iterator[bytes], path: Path, name: str, found: _Found) -> None:
    """A life that was killed may leave a torn last line; any other unreadable one is a warning."""
    torn_at = 0  # number of a line that may turn out to be the last of a life
    last_ns: dict[int, int] = {}  # by pid
    for number, text in enumerate(lines, start=1):
        try:
            line = decode_line(text)
        except msgspec.DecodeError:
            found.torn[name] = found.torn.get(name, 0) + 1
            _warn_of_torn(name, torn_at, found)
            torn_at = number
            place = text.rfind(_BEGIN)
            if place <= 0:
                continue
            try:
                line = decode_line(text[place:])  # the next life continued after it
            except msgspec.DecodeError:
                continue
        if not isinstance(line, Begin):
            _warn_of_torn(name, torn_at, found)
        torn_at = 0
        if line.at_ns < last_ns.get(line.pid, 0):
            found.warnings.append(
                f"{name}:{number}: its clock goes back; a journal belongs to one boot of a machine"
            )
        last_ns[line.pid] = line.at_ns
        if isinstance(line, Begin) and line.role == "subscriber" and line.output:
            found.claims[line.process] = (line.output, path)
        if isinstance(line, Begin) and line.role == "proxy":
            found.proxies.append(name)
        found.lines.append(line)


def _warn_of_torn(name: str, number: int, found: _Found) -> None:
    if number:
        found.warnings.append(f"{name}:{number}: cannot be read, and is not the last of a life")


def _read_output(lines: Iterator[bytes], name: str, found: _Found) -> list[OutputLine]:
    messages: list[OutputLine] = []
    torn_at = 0
    for number, text in enumerate(lines, start=1):
        _warn_of_torn(name, torn_at, found)
        torn_at = 0
        try:
            messages += _output_line(_decode_written(text))
        except (msgspec.DecodeError, ValueError):
            found.torn[name] = found.torn.get(name, 0) + 1
            torn_at = number
    return messages


def _output_line(written: _Written) -> list[OutputLine]:
    """A line as a sighting; none of what is in no log.

    Raises:
        ValueError: it is not one that a subscriber wrote.
    """
    if written.offset is None:
        return []
    publisher, _, sequence = written.message_id.rpartition("_")
    if written.payload is not None:
        payload = written.payload.encode()
    elif written.payload_base64 is not None:
        try:
            payload = base64.b64decode(written.payload_base64, validate=True)
        except binascii.Error as error:
            raise ValueError(str(error)) from error
    else:
        raise ValueError("no payload")
    seen = Seen(written.offset, publisher, int(sequence), crc32(payload), written.timestamp_ns)
    return [OutputLine(written.topic, seen)]


def _owned(found: _Found, folder: Path) -> dict[str, list[OutputLine]]:
    """The output files by subscriber: by the name that it gave, the nearest if there are several.

    One that no client names counts under its own name.
    """
    left = dict(found.outputs)
    owned: dict[str, list[OutputLine]] = {}
    for subscriber, (name, journal) in found.claims.items():
        same = [path for path in left if path.name == name]
        if same:
            nearest = max(same, key=lambda path: _common_folders(path, journal))
            owned[subscriber] = left.pop(nearest)
    for path, lines in left.items():
        name = path.relative_to(folder).as_posix()
        if not lines:
            continue
        subscriber = path.stem if path.stem not in owned else name
        owned[subscriber] = lines
        found.warnings.append(
            f"{name}: an output that no journal names; judged as that of {subscriber}, without "
            "its subscription points"
        )
    return owned


def _common_folders(one: Path, other: Path) -> int:
    return sum(a == b for a, b in zip(one.parts, other.parts, strict=False))
