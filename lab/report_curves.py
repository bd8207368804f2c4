"""How far a topic and its subscribers have come, over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from reliable_pubsub.common.core.journal import AnyLine, Ok, StoredLine

END = ""  # key of a topic's own curve among those of its subscribers

Points = Sequence[tuple[int, int]]  # (at_ns, value), by time; a value holds until the next point


class TopicCurves(Struct, frozen=True):
    """One topic."""

    topic: str
    offsets: Mapping[str, Points]  # END: its end; else by subscriber: offset of its next message
    lags: Mapping[str, Points]  # by subscriber: end - position

    @property
    def offset_max(self) -> int:
        """The highest offset of any curve."""
        return max((value for points in self.offsets.values() for _, value in points), default=0)

    @property
    def lag_max(self) -> int:
        """The greatest distance of any subscriber from the end."""
        return max((value for points in self.lags.values() for _, value in points), default=0)


class _Topic:
    def __init__(self) -> None:
        self.end = 0
        self.positions: dict[str, int] = {}
        self.offsets: dict[str, list[tuple[int, int]]] = {END: []}
        self.lags: dict[str, list[tuple[int, int]]] = {}

    def set_end(self, at_ns: int, end: int) -> None:
        if end != self.end or not self.offsets[END]:
            self.end = end
            _append(self.offsets[END], at_ns, end)
            for subscriber, position in self.positions.items():
                _append(self.lags[subscriber], at_ns, max(end - position, 0))

    def set_position(self, at_ns: int, subscriber: str, position: int) -> None:
        self.positions[subscriber] = position
        _append(self.offsets.setdefault(subscriber, []), at_ns, position)
        _append(self.lags.setdefault(subscriber, []), at_ns, max(self.end - position, 0))


def topic_curves(lines: Sequence[AnyLine]) -> list[TopicCurves]:
    """The curves of each topic, the busiest topics first.

    The end is what an acknowledgement or the proxy's own journal says, whichever comes first; it
    falls only if the proxy says so. A position is the offset after what was handed over last.
    """
    topics: dict[str, _Topic] = {}
    for line in lines:
        if isinstance(line, StoredLine) and line.messages:
            topic = topics.setdefault(line.topic, _Topic())
            topic.set_end(line.at_ns, line.messages[-1].offset + 1)
        elif isinstance(line, Ok) and line.op == "put" and line.offset is not None:
            topic = topics.setdefault(line.topic, _Topic())
            topic.set_end(line.at_ns, max(topic.end, line.offset + max(line.count, 1)))
        elif isinstance(line, Ok) and line.op == "subscribe" and line.cursor is not None:
            topic = topics.setdefault(line.topic, _Topic())
            topic.set_position(line.at_ns, line.process, line.cursor)
        elif isinstance(line, Ok) and line.op == "get" and line.messages:
            topic = topics.setdefault(line.topic, _Topic())
            topic.set_position(line.at_ns, line.process, line.messages[-1].offset + 1)
    made = [TopicCurves(name, topic.offsets, topic.lags) for name, topic in topics.items()]
    return sorted(made, key=lambda curves: (-curves.offset_max, curves.topic))


def thinned(points: Points, begin_ns: int, end_ns: int, count_max: int) -> Points:
    """At most about `count_max` points: of each slice of time the highest and the last."""
    if len(points) <= count_max:
        return points
    slices = max(count_max // 2, 1)
    size_ns = (end_ns - begin_ns) / slices
    kept: list[tuple[int, int]] = [points[0]]
    group: list[tuple[int, int]] = []
    current = -1
    for point in points:
        index = int((point[0] - begin_ns) / size_ns)
        if index != current and group:
            kept += _highest_and_last(group)
            group = []
        current = index
        group.append(point)
    kept += _highest_and_last(group)
    return kept


def _highest_and_last(group: Points) -> Points:
    highest = max(group, key=lambda point: point[1])
    return [highest] if highest == group[-1] else [highest, group[-1]]


def _append(points: list[tuple[int, int]], at_ns: int, value: int) -> None:
    if not points or points[-1][1] != value:
        points.append((at_ns, value))
