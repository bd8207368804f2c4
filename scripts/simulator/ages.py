"""Counts the age of messages beside the broker: retention removes none too early or late.

Only of what this start of the broker stored: the age of the rest is an estimate (rule R36).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from reliable_pubsub.proxy.core.records import Trimmed
from reliable_pubsub.proxy.core.state import Record, State

LATE_S: Final = 0.2  # by which a removal may be late: ticks make it


class Ages:
    """Of one start of a broker."""

    def __init__(self) -> None:
        self._stored_s: dict[tuple[int, int], float] = {}  # by topic and end of the batch
        self._begun_s: dict[int, float] = {}  # by topic: since when its oldest segment may go

    def stored(self, records: Iterable[Record], now_s: float) -> None:
        """Records were applied."""
        for record in records:
            batch = record.batch
            if batch is not None:
                self._stored_s[batch.topic_id, batch.end] = now_s

    def judge(self, state: State, due: Iterable[Record], now_s: float) -> None:
        """Check that a tick removes exactly the segments that are too old."""
        if state.is_storage_full:
            return  # nothing is removed while it cannot write
        starts = {one.topic_id: one.start for one in due if isinstance(one, Trimmed)}
        for log in state.topic_by_id.values():
            history_s = log.retention.history_s
            begun_s = self._stored_s.get((log.topic_id, starts.get(log.topic_id, -1)))
            if begun_s is not None:
                assert now_s - begun_s >= history_s, (
                    f"{log.topic!r}: a message {now_s - begun_s:.3f} s old is removed by age"
                )
            oldest = log.segments[0] if log.segments else None
            key = (log.topic_id, oldest.end if oldest else -1)
            may_go = oldest is not None and oldest.end <= log.low_watermark()
            if log.topic_id in starts or not may_go or key not in self._stored_s:
                self._begun_s.pop(log.topic_id, None)
                continue
            since_s = self._begun_s.setdefault(log.topic_id, max(now_s, self._stored_s[key]))
            assert now_s - since_s <= history_s + LATE_S, (
                f"{log.topic!r}: retention by age has stopped: what all have acknowledged for "
                f"{now_s - since_s:.3f} s is kept"
            )
