"""What an archive says of each of its files, and which of them are worth merging. Pure.

A batch of an archive is one file: a range of one topic. Its name follows from the range, so the
same range can never be in a folder twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from reliable_pubsub.common.core.errors import DamagedError

from .offsets import TopicOffset

VERSION: Final = 1
SUFFIX: Final = ".parquet"
_NAME_CHARS_MAX: Final = 60
_OFFSET_DIGITS: Final = 19  # of the greatest offset, so that names sort as offsets do


class Manifest(Struct, frozen=True, kw_only=True):
    """One file: offsets first to end - 1 of a topic."""

    topic: str
    log: str  # log id
    first: int
    end: int
    rows: int  # below end - first only where --accept-loss went over a gap
    first_ns: int  # timestamp of its first message; 0 if it has none
    witness_ns: int | None  # timestamp of the batch that holds end - 1, where it was read
    bytes: int
    sha256: str  # of the file
    staged: str  # where the file is until it has its name, below the archive
    v: int = VERSION

    @property
    def name(self) -> str:
        """Of the file."""
        return file_name(self.topic, self.log, self.first, self.end)


def file_name(topic: str, log: str, first: int, end: int) -> str:
    """The name of a range: readable, the same for the same range, safe on every file system."""
    readable = re.sub(r"[^A-Za-z0-9.-]", "-", topic).lstrip(".-")[:_NAME_CHARS_MAX]
    identity = sha256(f"{topic}\n{log}".encode()).hexdigest()[:12]
    offsets = f"{first:0{_OFFSET_DIGITS}}-{end:0{_OFFSET_DIGITS}}"
    return f"{readable or 'topic'}.{identity}.{offsets}{SUFFIX}"


def encode_manifest(manifest: Manifest) -> bytes:
    """As JSON, for people too."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def decode_manifest(text: bytes, where: str) -> Manifest:
    """Read a manifest.

    Raises:
        DamagedError: it is none, or one of another version.
    """
    try:
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError as error:
        raise DamagedError(f"{where}: is not the manifest of an archived file: {error}") from error
    if manifest.v != VERSION:
        raise DamagedError(f"{where}: has version {manifest.v}, this program reads {VERSION}")
    return manifest


def in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """By topic, a topic's logs one after another, each by offset."""
    manifests = list(manifests)
    began: dict[tuple[str, str], int] = {}
    for one in manifests:
        log = (one.topic, one.log)
        began[log] = min(began.get(log, one.first_ns), one.first_ns)
    return sorted(
        manifests, key=lambda one: (one.topic, began[one.topic, one.log], one.log, one.first)
    )


def newest_logs(manifests: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """By topic the files of the log that was archived last, by offset."""
    logs: dict[str, list[Manifest]] = {}
    for one in in_order(manifests):
        files = logs.setdefault(one.topic, [])
        if files and files[-1].log != one.log:
            files.clear()
        files.append(one)
    return logs


def archived_to(manifests: Iterable[Manifest]) -> dict[str, TopicOffset]:
    """Where the archive ends in each topic; by the witness the log is known again."""
    return {
        topic: TopicOffset(files[-1].log, files[-1].end, files[-1].witness_ns)
        for topic, files in newest_logs(manifests).items()
    }


def merges(manifests: Iterable[Manifest], rows_max: int) -> list[list[Manifest]]:
    """Neighbours that become one file each, of at most `rows_max` rows.

    Files on both sides of a gap stay apart.
    """
    groups: list[list[Manifest]] = []
    for one in in_order(manifests):
        if groups and _follows(groups[-1], one, rows_max):
            groups[-1].append(one)
        else:
            groups.append([one])
    return [group for group in groups if len(group) > 1]


def _follows(group: Sequence[Manifest], one: Manifest, rows_max: int) -> bool:
    last = group[-1]
    return (last.topic, last.log, last.end) == (one.topic, one.log, one.first) and (
        sum(file.rows for file in group) + one.rows <= rows_max
    )
