"""Combines marks, where they are too many to draw, into sums over slices of time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from msgspec import Struct

from .report_lanes import LaneMark, MarkKind, Scene

MARKS_MAX = 4000  # of a page; each is about 200 bytes of it
SLICES_MIN = 50  # of a lane and a kind, however many there are

NOUNS: dict[MarkKind, str] = {
    "put": "puts acknowledged",
    "retried": "puts acknowledged that an earlier attempt had stored",
    "unknown": "operations of unknown outcome",
    "failed": "failed operations",
    "commit": "batches made durable",
    "delivery": "hand-overs",
    "redelivery": "hand-overs again",
}


class Drawn(Struct, frozen=True):
    """What a page draws."""

    marks: Sequence[Sequence[LaneMark]]  # of each lane
    sum_max: int  # the most operations that one mark represents


def drawn(scene: Scene, marks_max: int = MARKS_MAX) -> Drawn:
    """The marks of each lane; of a kind that is over its share, sums.

    A rare kind stays exact beside a frequent one, so that no fault drowns in what went well.
    """
    kinds: list[dict[MarkKind, list[LaneMark]]] = []
    for lane in scene.lanes:
        by_kind: dict[MarkKind, list[LaneMark]] = defaultdict(list)
        for mark in lane.marks:
            by_kind[mark.kind].append(mark)
        kinds.append(by_kind)
    share = _share([len(marks) for by_kind in kinds for marks in by_kind.values()], marks_max)
    lanes = [
        [mark for marks in by_kind.values() for mark in _summed(marks, scene, share)]
        for by_kind in kinds
    ]
    return Drawn(lanes, max((mark.count for marks in lanes for mark in marks), default=1))


def _share(sizes: Sequence[int], marks_max: int) -> int:
    """The greatest share that, if no group takes more, keeps all groups within the bound."""
    left, share = marks_max, marks_max
    for index, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - index)
        if size > share:
            return max(share, SLICES_MIN)
        left -= size
    return max(share, *sizes, SLICES_MIN) if sizes else share


def _summed(marks: Sequence[LaneMark], scene: Scene, share: int) -> Sequence[LaneMark]:
    if len(marks) <= share:
        return marks
    size_ns = (scene.end_ns - scene.begin_ns) / share
    counts: dict[int, int] = defaultdict(int)
    for mark in marks:
        counts[min(int((mark.at_ns - scene.begin_ns) / size_ns), share - 1)] += mark.count
    kind = marks[0].kind
    return [
        LaneMark(
            scene.begin_ns + round(index * size_ns),
            scene.begin_ns + round((index + 1) * size_ns),
            kind,
            f"{count:,} {NOUNS[kind]}",
            count,
        )
        for index, count in sorted(counts.items())
    ]
