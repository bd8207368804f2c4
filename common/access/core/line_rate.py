"""Which lines of a flood are written to a log; the others are counted. Pure."""

from __future__ import annotations


class LineRate:
    """So many lines in each second."""

    def __init__(self, most: int) -> None:
        """Create it; nothing was left out.

        Args:
            most: lines in a second.
        """
        self._most = most
        self._second, self._lines, self._left_out = 0, 0, 0

    def admits(self, now_s: float) -> bool:
        """Whether one more line is to be written."""
        second = int(now_s)
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        is_admitted = self._lines <= self._most
        self._left_out += not is_admitted
        return is_admitted

    def take_left_out(self) -> int:
        """How many were not written since this was asked last."""
        count, self._left_out = self._left_out, 0
        return count
