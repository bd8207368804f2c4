"""The extents of a log that an audit reads: in an archive, at the proxy, or both. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TypeVar

from .planning import MessageRange, TopicExtent

AUDITOR = "auditor"


A = TypeVar("A", bound=MessageRange)


def of_one_log(archived: Sequence[A], now: Mapping[str, TopicExtent]) -> tuple[list[A], list[str]]:
    """What is archived of the log that a topic has now, or had last; and warnings of the rest."""
    logs = {one.topic: one.log for one in archived} | {t: one.log for t, one in now.items()}
    strange = sorted({one.topic for one in archived if one.log != logs[one.topic]})
    warnings = [
        f"{topic!r}: the archive has another log of that name than the proxy; it was left out"
        for topic in strange
    ]
    return [one for one in archived if one.log == logs[one.topic]], warnings


def extents(
    archived: Sequence[MessageRange], now: Mapping[str, TopicExtent]
) -> dict[str, TopicExtent]:
    """From where to where each topic is known, by its archive, the proxy, or both."""
    known = [(one.topic, TopicExtent(one.log, one.first, one.end)) for one in archived]
    found: dict[str, TopicExtent] = {}
    for topic, one in sorted([*known, *now.items()], key=itemgetter(0)):
        before = found.get(topic, one)
        edges = min(before.start, one.start), max(before.end, one.end)
        found[topic] = TopicExtent(one.log, *edges)
    return found
