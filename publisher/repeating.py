"""Which used numbers a plan may use again: those that the proxy has and a set-back state has not.

A state that lost its unsynced end, or was restored from a copy, is older than what was sent. What
a program puts then is new, and its numbers begin above everything that the proxy has (rule R24).
Only a plan that goes on from the place that the state itself recorded makes the same messages
again: they go out under the numbers that they had, and are DUPLICATE. Place and numbers are one
record of the state, so the numbers that it lacks were used after that place.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

TRANSACTIONS: Final = ""  # where a topic's name would stand: no topic has an empty one

Numbers = tuple[int, int]  # first and last


class Repeats(Struct, frozen=True):
    """By topic, the numbers that the plan may have used before; ascending, with gaps."""

    of: dict[str, tuple[Numbers, ...]] = {}

    def first(self, topic: str, count: int = 1) -> int | None:
        """The number that the next `count` messages of the plan had, if they had any.

        Fewer numbers than that were used for something else: a batch is stored whole, and a plan
        cuts the same batches at every run.
        """
        ranges = self.of.get(topic, ())
        return next((first for first, last in ranges if first + count - 1 <= last), None)

    def adding(self, topic: str, first: int, last: int) -> Repeats:
        """With these numbers, which lie above all that are there."""
        ranges = self.of.get(topic, ())
        if ranges and ranges[-1][1] == first - 1:
            first = ranges[-1][0]
            ranges = ranges[:-1]
        return Repeats({**self.of, topic: (*ranges, (first, last))})

    def behind(self, topic: str, number: int) -> Repeats:
        """Without what the plan has passed, once it has used this number; others change nothing."""
        ranges = self.of.get(topic, ())
        if not any(first <= number <= last for first, last in ranges):
            return self
        left = tuple((max(first, number + 1), last) for first, last in ranges if last > number)
        return Repeats({**self.of, topic: left}) if left else self.without(topic)

    def without(self, topic: str) -> Repeats:
        """With none of a topic."""
        return Repeats({name: ranges for name, ranges in self.of.items() if name != topic})
