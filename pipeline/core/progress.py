"""How far a running query lags, from what Spark reports of it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.parameters import shown

from .offsets import Offsets


def lag(progress: Any) -> dict[str, int]:
    """Messages that are stored and not yet processed, by topic.

    Args:
        progress: `query.lastProgress`, or None before the first batch. Only sources of this
            format count.
    """
    if progress is None:
        return {}
    if not isinstance(progress, Mapping):
        raise UsageError(f"lag takes query.lastProgress; this is {shown(progress)}")
    total: dict[str, int] = {}
    for source in progress["sources"]:
        latest = source["latestOffset"]
        latest = json.loads(latest) if isinstance(latest, str) else latest
        if isinstance(latest, Mapping):
            for topic, messages in latest.get("lag_messages", {}).items():
                total[topic] = total.get(topic, 0) + messages
    return total


def lag_messages(reached: Offsets, latest: Offsets) -> dict[str, int]:
    """Messages between two places of each topic of `latest`; of another log all of them."""
    return {
        topic: max(end.offset - (place.offset if place and place.log == end.log else 0), 0)
        for topic, end in latest.items()
        for place in [reached.get(topic)]
    }
