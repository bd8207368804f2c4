"""The extents of a log that an audit reads: in an archive, at the proxy, or both. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from .planning import TopicExtent

AUDITOR = "auditor"


class TopicRange(Protocol):
    """A stretch of a topic, read or to be read."""

    @property
    def topic(self) -> str: ...

    @property
    def log(self) -> str: ...

    @property
    def first(self) -> int: ...

    @property
    def end(self) -> int: ...


A = TypeVar("A", bound=TopicRange)


class Extent(Struct, frozen=True):
    """Where a log was said to begin and to end."""

    start: int
    end: int


def of_one_log(archived: Sequence[A], now: Mapping[str, TopicExtent]) -> tuple[list[A], list[str]]:
    """What is archived of the log that a topic has now, or had last; and warnings of the rest."""
    logs = {one.topic: one.log for one in archived} | {t: one.log for t, one in now.items()}
    strange = sorted({one.topic for one in archived if one.log != logs[one.topic]})
    warnings = [
        f"{topic!r}: the archive has another log of that name than the proxy; it was left out"
        for topic in strange
    ]
    return [one for one in archived if one.log == logs[one.topic]], warnings


def extents(archived: Sequence[TopicRange], now: Mapping[str, TopicExtent]) -> dict[str, Extent]:
    """From where to where each topic is known, by its archive, the proxy, or both."""
    borders: dict[str, list[tuple[int, int]]] = {}
    for one in archived:
        borders.setdefault(one.topic, []).append((one.first, one.end))
    for topic, where in now.items():
        borders.setdefault(topic, []).append((where.start, where.end))
    return {
        topic: Extent(min(first for first, _ in all_), max(end for _, end in all_))
        for topic, all_ in sorted(borders.items())
    }
