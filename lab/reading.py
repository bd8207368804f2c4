"""From a directory to a run: journal files and output files, known by what is in them."""

from __future__ import annotations

import base64
import binascii
import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final
from zlib import crc32

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.common.core.journal import AnyLine, Begin, Seen, decode_line
from reliable_pubsub.common.core.schemas import json_decoder

from .core.one_run import check_one_folder, check_one_run
from .core.run import LabRun, OutputLine

_BEGIN: Final = b'{"type":"begin"'

BytesRead = Callable[[int], None]  # so many bytes further


class _Written(Struct, frozen=True):
    """A line of an output file, as far as it counts here."""

    topic: str
    offset: int | None  # None: it was put at QoS 0
    message_id: str
    timestamp_ns: int
    payload: str | None = None
    payload_base64: str | None = None


_decode_written = json_decoder(_Written).decode


@dataclass
class Files:
    """What files are and say of themselves, as far as they were read."""

    outputs: dict[str, int] = field(default_factory=dict)  # by file: lines of messages
    claims: dict[str, tuple[str, str]] = field(default_factory=dict)  # subscriber: name, journal
    torn: dict[str, int] = field(default_factory=dict)
    # By file and reason: the lines that cannot be read, without those that a kill has torn.
    unreadable: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    journals: int = 0
    proxies: list[str] = field(default_factory=list)  # files in which lives of a proxy begin

    def why_unreadable(self) -> list[str]:
        """One sentence for each file and reason."""
        return [
            f"{name}:{lines[0]}: cannot be read, and is not the last of a life: {reason}"
            + (f"; and {len(lines) - 1:,} more like it" if lines[1:] else "")
            for (name, reason), lines in self.unreadable.items()
        ]

    def add(self, other: Files) -> None:
        """What was read after that."""
        self.outputs |= other.outputs
        self.claims |= other.claims
        self.torn |= other.torn
        self.unreadable |= other.unreadable
        self.warnings += other.warnings
        self.journals += other.journals
        self.proxies += other.proxies


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


def read_run(folder: Path, advance: BytesRead = lambda size: None) -> LabRun:
    """Read a run; several files, and several lives of a process, are put in one order of time.

    Args:
        advance: called with the number of bytes read, as reading proceeds.

    Raises:
        ConfigurationError: there is no journal in it, a file cannot be read, or there are lines of
            several runs.
    """
    found = Files()
    lines: list[AnyLine] = []
    outputs: dict[str, list[OutputLine]] = {}
    for path in journal_files(folder):
        name = path.relative_to(folder).as_posix()
        for line in read_file(path, name, found, advance=advance):
            if isinstance(line, OutputLine):
                outputs.setdefault(name, []).append(line)
            else:
                lines.append(line)
    check_files(folder, found)
    lines.sort(key=lambda line: line.at_ns)  # stable: a file keeps its order
    check_one_run(str(folder), lines)
    return LabRun(
        lines=lines,
        outputs={who: outputs.get(name, []) for who, name in owners_of(found).items()},
        torn=found.torn,
        unreadable=sum(map(len, found.unreadable.values())),
        warnings=[*found.why_unreadable(), *found.warnings],
    )


@contextmanager
def without_collection() -> Iterator[None]:
    """A run is millions of values without cycles: looking for cycles takes half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def check_files(folder: Path, found: Files) -> None:
    """See that they are journals of one run.

    Raises:
        ConfigurationError: there is no journal, or there are proxies of several runs.
    """
    if not found.journals:
        raise ConfigurationError(
            f"{folder}: no *.jsonl in it or below is a journal; processes write one with "
            "--journal FILE"
        )
    check_one_folder(str(folder), found.proxies)


def read_file(
    path: Path,
    name: str,
    found: Files,
    *,
    end: int | None = None,
    advance: BytesRead = lambda size: None,
) -> Iterator[AnyLine | OutputLine]:
    """Read a file as what its first readable line is; a file of another kind has no lines.

    Args:
        name: in warnings.
        found: what the file says of itself is added there.
        end: read up to this byte; None: all that is there.
        advance: called with the number of bytes read, as reading proceeds.

    Raises:
        ConfigurationError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            kind = next((kind for line in file if (kind := _kind(line))), "")
            file.seek(0)
            if kind == "journal":
                found.journals += 1
                yield from _read_journal(_sized(file, advance, end), name, found)
            elif kind == "output":
                found.outputs[name] = 0
                for line in _read_output(_sized(file, advance, end), name, found):
                    found.outputs[name] += 1
                    yield line
            elif path.stat().st_size:
                found.warnings.append(f"{name}: neither a journal nor an output, left out")
            else:
                found.outputs[name] = 0  # an empty output, if a client names it as its own
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error


def _sized(lines: Iterable[bytes], advance: BytesRead, end: int | None) -> Iterator[bytes]:
    size = 0
    for line in lines:
        size += len(line)
        if end is not None and size > end:
            line = line[: end - size]  # what was written since is of a later reading
        if line:
            advance(len(line))
            yield line
        if end is not None and size >= end:
            return


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


def _read_journal(lines: Iterator[bytes], name: str, found: Files) -> Iterator[AnyLine]:
    """A life that was killed may leave a torn last line; any other unreadable one is noted."""
    torn: tuple[int, str] | None = None  # number and reason; may be the last line of a life
    last_ns: dict[int, int] = {}  # by pid
    for number, text in enumerate(lines, start=1):
        try:
            line = decode_line(text)
        except msgspec.DecodeError as error:
            found.torn[name] = found.torn.get(name, 0) + 1
            _note_unreadable(name, torn, found)
            torn = number, str(error)
            place = text.rfind(_BEGIN)
            if place <= 0:
                continue
            try:
                line = decode_line(text[place:])  # the next life continued after it
            except msgspec.DecodeError:
                continue
        if not isinstance(line, Begin):
            _note_unreadable(name, torn, found)
        torn = None
        if line.at_ns < last_ns.get(line.pid, 0):
            found.warnings.append(
                f"{name}:{number}: its clock goes back; a journal belongs to one boot of a machine"
            )
        last_ns[line.pid] = line.at_ns
        if isinstance(line, Begin) and line.role == "subscriber" and line.output:
            found.claims[line.process] = (line.output, name)
        if isinstance(line, Begin) and line.role == "proxy":
            found.proxies.append(name)
        yield line


def _note_unreadable(name: str, torn: tuple[int, str] | None, found: Files) -> None:
    if torn is not None:
        found.unreadable.setdefault((name, torn[1]), []).append(torn[0])


def _read_output(lines: Iterator[bytes], name: str, found: Files) -> Iterator[OutputLine]:
    torn: tuple[int, str] | None = None
    for number, text in enumerate(lines, start=1):
        _note_unreadable(name, torn, found)
        torn = None
        try:
            yield from _output_line(_decode_written(text))
        except (msgspec.DecodeError, ValueError) as error:
            found.torn[name] = found.torn.get(name, 0) + 1
            torn = number, str(error)


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


def owners_of(found: Files) -> dict[str, str]:
    """The output files by subscriber: by the name that it gave, the nearest if there are several.

    One that no client names counts under its own name, and `found` has a warning more.
    """
    left = list(found.outputs)
    owned: dict[str, str] = {}
    for subscriber, (output, journal) in found.claims.items():
        same = [name for name in left if PurePosixPath(name).name == output]
        if same:
            owned[subscriber] = max(same, key=lambda name: _common_folders(name, journal))
            left.remove(owned[subscriber])
    for name in left:
        if not found.outputs[name]:
            continue
        stem = PurePosixPath(name).stem
        subscriber = stem if stem not in owned else name
        owned[subscriber] = name
        found.warnings.append(
            f"{name}: an output that no journal names; judged as that of {subscriber}, without "
            "its subscription points"
        )
    return owned


def _common_folders(one: str, other: str) -> int:
    return sum(a == b for a, b in zip(one.split("/"), other.split("/"), strict=False))
