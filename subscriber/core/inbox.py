"""The inbox: the state of a subscriber by topic, and how it is stored. Pure.

A cursor is sent to the proxy only after it is durable here (rule R9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from reliable_pubsub.common.core.marks import MARKS_MAX, Marks
from reliable_pubsub.common.core.pattern import Pattern

from .pattern_subscription import PATTERN, AskedPattern, PatternSubscription
from .place import Place
from .subscription import TOPIC, Changes, Subscription

_EPOCH = "epoch"
_NOTE = "plan"  # the name it has in the state; a step file's note is its position in the plan

_encode = msgspec.msgpack.Encoder().encode


class Inbox:
    """A subscriber's epoch, subscriptions and note. Implements `EpochMemory`."""

    new_subscription = Subscription

    def __init__(self, stored: Mapping[str, bytes], marks: Callable[[], Marks] = list) -> None:
        """Create an inbox from stored rows; empty for a new subscriber.

        Args:
            marks: those of the same state, needed only by rows with a run.
        """
        self.subscriptions: dict[str, Subscription] = {}
        self.patterns: dict[Pattern, PatternSubscription] = {}
        self._marks = marks
        self.reload(stored)

    def reload(self, stored: Mapping[str, bytes]) -> None:
        """Reset to the stored rows."""
        decode = msgspec.msgpack.decode
        self.epoch = decode(stored[_EPOCH], type=int) if _EPOCH in stored else 0
        self.note = stored.get(_NOTE)
        places = {
            name.removeprefix(TOPIC): decode(value, type=Place)
            for name, value in stored.items()
            if name.startswith(TOPIC)
        }
        known = {one.pattern: one for one in self.patterns.values()}
        self.patterns = {}
        for name, value in stored.items():
            if name.startswith(PATTERN):
                asked = decode(value, type=AskedPattern)
                one = known.get(asked.pattern) or PatternSubscription(asked)
                one.reload(asked)
                self.patterns[asked.pattern] = one
        for topic in {**self.subscriptions, **places}:
            place = places.get(topic)
            run = place.run if place is not None else None
            after = place
            if place is not None and run is not None:
                after = place.after_run(
                    run.taken(self._marks()[run.slot], run.batches[-1][0] - place.cursor)
                )
            self.add(topic).reload(place, after)

    def of(self, topic: str) -> Subscription:
        """The subscription to a topic; an empty one if there is none."""
        return self.subscriptions.get(topic) or self.new_subscription(topic)

    def add(self, topic: str) -> Subscription:
        """The subscription to a topic, kept from now on."""
        if topic not in self.subscriptions:
            self.subscriptions[topic] = self.new_subscription(topic)
        return self.subscriptions[topic]

    @property
    def places(self) -> Mapping[str, Place]:
        """The place of each subscribed topic."""
        subscribed = (one for one in self.subscriptions.values() if one.is_subscribed)
        return {one.topic: one.place for one in subscribed}

    def can_run(self, one: Subscription | PatternSubscription) -> bool:
        """Whether there are marks for its runs: two, which take turns."""
        if one.slot is None:
            slots = [each.slot for each in self.subscriptions.values()]
            slots += [each.run_slot for each in self.subscriptions.values()]
            slots += [each.slot for each in self.patterns.values()]
            used = {slot // 2 for slot in slots if slot is not None}
            free = next((pair for pair in range(MARKS_MAX // 2) if pair not in used), None)
            one.slot = None if free is None else 2 * free
        return one.slot is not None

    def granted(self, epoch: int) -> Changes:
        """The proxy has granted an epoch."""
        self.epoch = epoch
        return {_EPOCH: _encode(epoch)}

    def write_note(self, note: bytes) -> Changes:
        """Set the note of the program."""
        self.note = note
        return {_NOTE: note}
