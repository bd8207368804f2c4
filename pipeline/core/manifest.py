"""What an archive records of each of its files. Pure.

A file has neighbouring messages of one log, taken on one day. What is known of it stands in the
log of the Delta table, in Delta's own words (partition values and statistics), so that a file that
another program has compacted is known as well as ours; only the checksum is our own, in the
file's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from .offsets import TopicOffset
from .planning import MessageRange

PARTITIONS: Final = ("topic", "log", "day")
SUFFIX: Final = ".parquet"
_NAME_CHARS_MAX: Final = 60
_SEAL: Final = re.compile(r"\.([0-9a-f]{64})\.parquet$")


class Manifest(MessageRange, frozen=True, kw_only=True):
    """One file, and the messages in it."""

    path: str  # below the archive, as the log of the table has it
    day: str  # when the proxy took them: 2026-11-23, in UTC
    rows: int  # below end - first only where --accept-loss went over a gap
    first_ns: int  # timestamp of its first message
    last_ns: int  # and of its last
    bytes: int

    @property
    def sha256(self) -> str:
        """Of the file, if it was written by an archive job; "": by another program."""
        found = _SEAL.search(self.path)
        return found[1] if found else ""

    @property
    def partition(self) -> dict[str, str | None]:
        """What Delta partitions by."""
        return {name: getattr(self, name) for name in PARTITIONS}

    @property
    def statistics(self) -> str:
        """As Delta has them: JSON."""
        lowest = {"offset": self.first, "timestamp_ns": self.first_ns}
        highest = {"offset": self.end - 1, "timestamp_ns": self.last_ns}
        none = dict.fromkeys(lowest, 0)
        found = {"minValues": lowest, "maxValues": highest, "nullCount": none}
        return msgspec.json.encode({"numRecords": self.rows, **found}).decode()


class ArchivedFile(NamedTuple):
    """A file of an archive, for a task that reads it."""

    manifest: Manifest
    path: str  # its address


def from_log(row: Mapping[str, Any]) -> Manifest:
    """A file as the log of a Delta table has it.

    Raises:
        TypeError, KeyError: the log does not say which messages it has.
    """
    return Manifest(
        path=row["path"],
        topic=row["partition.topic"],
        log=row["partition.log"],
        day=str(row["partition.day"]),
        first=row["min.offset"],
        end=row["max.offset"] + 1,
        rows=row["num_records"],
        first_ns=row["min.timestamp_ns"],
        last_ns=row["max.timestamp_ns"],
        bytes=row["size_bytes"],
    )


def folder_name(topic: str, log: str, day: str) -> str:
    """Where the files of a day are: readable, safe on every file system."""
    readable = re.sub(r"[^A-Za-z0-9.-]", "-", topic).lstrip(".-")[:_NAME_CHARS_MAX]
    identity = sha256(f"{topic}\n{log}".encode()).hexdigest()[:12]
    return f"{readable or 'topic'}.{identity}/{day}"


def app_id(topic: str, log: str) -> str:
    """Under which the table has the end of a log, as the version of an application transaction."""
    return f"archive/{topic}/{log}"


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


def archived_to(
    manifests: Iterable[Manifest], ends: Mapping[tuple[str, str], int]
) -> dict[str, TopicOffset]:
    """Where the archive ends in each topic; by the witness the log is known again.

    Args:
        ends: by topic and log, what the table has recorded.
    """
    reached = {topic: TopicOffset(log, end) for (topic, log), end in ends.items()}
    for topic, files in newest_logs(manifests).items():
        last = files[-1]
        end = ends.get((topic, last.log), last.end)
        reached[topic] = TopicOffset(last.log, end, last.last_ns if end == last.end else None)
    return reached
