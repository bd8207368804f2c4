"""The key with the lowest number; its cost depends on changes, not on the count of keys.

Deadlines and cursors grow with every request. Sorting them again, or moving an entry at each
change, would cost time for every live key. So an entry is only a lower bound of its number: when it
becomes the lowest entry, its number is read and the entry is put back at that number.
Source: a binary heap with lazy deletion, as in the notes of Python's `heapq`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound="str | int | tuple[int, str]")


class LowerBounds(Generic[Key]):
    """Keys, each with a lower bound of its current number.

    `number` returns the current number of a key; None: it has none, and the key is removed.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[float, Any]] = []
        self._bounds: dict[Key, float] = {}  # the entry of the heap that counts
        self.looks = 0  # how often a number was read, for tests

    def __len__(self) -> int:
        return len(self._bounds)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._bounds)

    def add(self, key: Key, bound: float) -> None:
        """Set the bound of a key: its number is `bound` or above. Replaces an earlier bound."""
        known = self._bounds.get(key)
        if known is not None and known <= bound:
            return
        self._bounds[key] = bound
        heappush(self._heap, (bound, key))
        if len(self._heap) > 2 * len(self._bounds) + 64:  # most are entries that do not count
            self._heap = [(value, one) for one, value in self._bounds.items()]
            heapify(self._heap)

    def lowest(self, number: Callable[[Key], float | None]) -> tuple[float, Key] | None:
        """The lowest number and its key; None: no key has one."""
        heap = self._heap
        while heap:
            bound, key = heap[0]
            if self._bounds.get(key) != bound:
                heappop(heap)
                continue
            self.looks += 1
            now = number(key)
            if now is None:
                heappop(heap)
                del self._bounds[key]
            elif now > bound:
                self._bounds[key] = now
                heapreplace(heap, (now, key))
            else:
                return bound, key
        return None

    def take_below(self, end: float, number: Callable[[Key], float | None]) -> list[Key]:
        """Take out the keys whose number is below `end`, the lowest first."""
        taken: list[Key] = []
        while (one := self.lowest(number)) is not None and one[0] < end:
            heappop(self._heap)
            del self._bounds[one[1]]
            taken.append(one[1])
        return taken
