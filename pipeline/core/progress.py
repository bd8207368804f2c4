"""How far a running query lags, from what Spark reports of it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.parameters import shown

from .offsets import Offsets, from_json


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
    total: dict[str, int] = {}
    for source in sources:
        reached = _offsets(source, "endOffset")
        latest = _offsets(source, "latestOffset")
        if reached is None or latest is None:
            continue
        for topic, messages in lag_messages(from_json(reached), from_json(latest)).items():
            total[topic] = total.get(topic, 0) + messages
    return total


def lag_messages(reached: Offsets, latest: Offsets) -> dict[str, int]:
    """Messages between two places of each topic of `latest`; of another log all of them."""
    return {
        topic: max(end.offset - (place.offset if place and place.log == end.log else 0), 0)
        for topic, end in latest.items()
        for place in [reached.get(topic)]
    }


def _offsets(source: Any, name: str) -> Mapping[str, Any] | None:
    value = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    if isinstance(value, str):
        value = json.loads(value)
    return value if isinstance(value, Mapping) and "v" in value else None
