"""Put rate and lag of each topic over the last hours, one sample each STEP_S. Pure.

A sample that is missing, because the proxy or the console was away, stays missing.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from .board import TopicRow

STEP_S: Final = 10.0
GAP_S: Final = 60.0  # samples further apart have a gap between them
SAMPLES_MAX: Final = 1080  # three hours; 8 bytes of each topic, so 86 MB for 10,000 topics
ALL: Final = ""  # all topics together; no topic has this name


class Samples(Struct, frozen=True, kw_only=True):
    """What was seen of a topic, the oldest first."""

    gap_s: float  # samples further apart have a gap between them
    at_s: tuple[float, ...]  # since 1970
    put_per_s: tuple[float | None, ...]  # since the sample before; None: not known
    lag_s: tuple[float, ...]  # age of the oldest message that a reader has not acknowledged


class TopicHistory:
    """The samples of all topics."""

    def __init__(self) -> None:
        self._at_s = array("d")
        self._series: dict[str, _Series] = {}

    def is_due(self, at_s: float) -> bool:
        """Return whether it is time for a sample, also after the clock was set back."""
        return not self._at_s or abs(at_s - self._at_s[-1]) >= STEP_S

    def add(self, rows: Iterable[TopicRow], at_s: float) -> None:
        """Take a sample.

        Args:
            at_s: since 1970.
        """
        since_s = at_s - self._at_s[-1] if self._at_s else math.inf
        is_next = 0 < since_s < GAP_S
        seen: dict[str, _Series] = {}
        put, lag_s = 0, 0.0
        for row in rows:
            one = seen[row.topic] = self._series.get(row.topic) or _Series()
            grown = row.end - one.end
            is_known = is_next and one.end >= 0 and grown >= 0
            put += grown if is_known else 0
            lag_s = max(lag_s, row.lag_s)
            one.add(grown / since_s if is_known else math.nan, row.lag_s)
            one.end = row.end
        seen[ALL] = self._series.get(ALL) or _Series()
        seen[ALL].add(put / since_s if is_next else math.nan, lag_s)
        self._series = seen
        _append(self._at_s, at_s)

    def of(self, topic: str) -> Samples:
        """Return the samples of a topic, or of `ALL`."""
        one = self._series.get(topic) or _Series()
        return Samples(
            gap_s=GAP_S,
            at_s=tuple(self._at_s[len(self._at_s) - len(one.lag_s) :]),
            put_per_s=tuple(None if math.isnan(rate) else rate for rate in one.put_per_s),
            lag_s=tuple(one.lag_s),
        )


class _Series:
    """The newest samples of one topic, one for each time since it was seen first."""

    __slots__ = ("end", "lag_s", "put_per_s")

    def __init__(self) -> None:
        self.end = -1  # of the topic at the last sample
        self.put_per_s, self.lag_s = array("f"), array("f")

    def add(self, put_per_s: float, lag_s: float) -> None:
        _append(self.put_per_s, put_per_s)
        _append(self.lag_s, lag_s)


def _append(column: array[float], value: float) -> None:
    column.append(value)
    if len(column) > SAMPLES_MAX:
        del column[0]
