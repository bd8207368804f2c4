"""Rates from two looks at a proxy: what has grown, over the time between. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from reliable_pubsub.common.core.status import StatusReport
from reliable_pubsub.relay.core.tree import TreeSnapshot

BETWEEN_S_MAX: Final = 60.0  # looks further apart give an average that says nothing of now


class Rates:
    """How fast each counter of a look grows."""

    def __init__(self, now: TreeSnapshot, earlier: TreeSnapshot | None = None) -> None:
        """Compare two looks.

        Args:
            earlier: None, or too long ago: no rate is known.
        """
        between_s = now.at_s - earlier.at_s if earlier else 0.0
        is_near = earlier is not None and 0 < between_s <= BETWEEN_S_MAX
        self.between_s = between_s if is_near else None  # None: no rate is known
        self._before = _counters(earlier.status) if earlier and is_near else {}

    def of(self, counter: Hashable, value: int) -> float | None:
        """Growth in a second; None: it was not there, or began again.

        Args:
            counter: as `counter_of_topic` and the others name it.
        """
        before = self._before.get(counter)
        if self.between_s is None or before is None or value < before:
            return None
        return (value - before) / self.between_s


def counter_of_topic(topic: str, log: str) -> Hashable:
    """Name the messages of a topic."""
    return ("topic", topic, log)


def counter_of_publisher(topic: str, publisher: str, qos: int) -> Hashable:
    """Name the messages of a publisher in a topic."""
    return ("publisher", topic, publisher, qos)


def counter_of_reader(topic: str, reader: str, generation: int) -> Hashable:
    """Name the cursor of a subscription, or of a group."""
    return ("reader", topic, reader, generation)


def _counters(status: StatusReport | None) -> dict[Hashable, int]:
    return dict(_each(status)) if status else {}


def _each(status: StatusReport) -> Iterator[tuple[Hashable, int]]:
    for topic in status.topics:
        yield counter_of_topic(topic.topic, topic.log), topic.end
        for publisher in topic.publishers:
            name = counter_of_publisher(topic.topic, publisher.publisher, publisher.qos)
            yield name, publisher.last_sequence
        for one in topic.subscriptions:
            yield counter_of_reader(topic.topic, one.subscriber, one.generation), one.cursor
        for group in topic.groups if isinstance(topic.groups, tuple) else ():
            name = counter_of_reader(topic.topic, f"group {group.group}", group.generation)
            yield name, group.cursor
