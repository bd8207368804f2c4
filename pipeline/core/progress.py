"""How far a running query lags, from what Spark reports of it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.parameters import shown

from .offsets import from_json


def lag(progress: Any) -> dict[str, int]:
    """Messages that are stored and not yet processed, by topic.

    Args:
        progress: `query.lastProgress` (a dict, or the object of newer Spark versions), or None
            before the first batch. Only sources of this format count.
    """
    if progress is None:
        return {}
    if not isinstance(progress, Mapping) and not hasattr(progress, "sources"):
        raise UsageError(f"lag takes query.lastProgress; this is {shown(progress)}")
    sources = progress["sources"] if isinstance(progress, Mapping) else progress.sources
    behind: dict[str, int] = {}
    for source in sources:
        ends = _offsets(source, "endOffset")
        latest = _offsets(source, "latestOffset")
        if ends is None or latest is None:
            continue
        for topic, place in from_json(latest).items():
            reached = from_json(ends).get(topic)
            done = reached.offset if reached is not None and reached.log == place.log else 0
            behind[topic] = behind.get(topic, 0) + max(place.offset - done, 0)
    return behind


def _offsets(source: Any, name: str) -> Mapping[str, Any] | None:
    value = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    if isinstance(value, str):
        value = json.loads(value)
    return value if isinstance(value, Mapping) and "v" in value else None
