"""Used sequences that a plan may use again: the proxy has them, an older state does not.

A state that lost its unsynced end, or was restored from a copy, is older than what was sent. New
messages of a program are then numbered above everything that the proxy has (rule R24). Only a plan
that resumes at the position in the state makes the same messages again: they are sent under their
old numbers, and are DUPLICATE. Position and numbers are one record of the state, so the numbers
that it lacks were used after that position.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

TRANSACTIONS: Final = ""  # in place of a topic name: none is empty

Sequences = tuple[int, int]  # first and last


class Repeats(Struct, frozen=True):
    """By topic, the numbers that the plan may have used before; ascending, with gaps."""

    of: dict[str, tuple[Sequences, ...]] = {}

    def first(self, topic: str, count: int = 1) -> int | None:
        """The first old number of the next `count` messages of the plan, if they had numbers.

        Fewer than `count` numbers were used for something else: a batch is stored as a whole, and a
        plan makes the same batches in every run.
        """
        ranges = self.of.get(topic, ())
        return next((first for first, last in ranges if first + count - 1 <= last), None)

    def adding(self, topic: str, first: int, last: int) -> Repeats:
        """Add these numbers, which are above all present ones."""
        ranges = self.of.get(topic, ())
        if ranges and ranges[-1][1] == first - 1:
            first = ranges[-1][0]
            ranges = ranges[:-1]
        return Repeats({**self.of, topic: (*ranges, (first, last))})

    def after(self, topic: str, number: int) -> Repeats:
        """Remove the numbers up to this one, which the plan has used; others change nothing."""
        ranges = self.of.get(topic, ())
        if not any(first <= number <= last for first, last in ranges):
            return self
        left = tuple((max(first, number + 1), last) for first, last in ranges if last > number)
        return Repeats({**self.of, topic: left}) if left else self.without(topic)

    def without(self, topic: str) -> Repeats:
        """Remove all numbers of a topic."""
        return Repeats({name: ranges for name, ranges in self.of.items() if name != topic})
