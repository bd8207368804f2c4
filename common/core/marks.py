"""Marks: numbers next to the rows of a client's state, set without a write. Pure.

Setting one survives `kill -9` of the process. After power loss a mark may have any value that it
ever had, so a row says which values are of that row.
"""

from __future__ import annotations

from typing import Final, Protocol

MARKS_MAX: Final = 512


class Marks(Protocol):
    """`MARKS_MAX` numbers of 64 bits, 0 at first."""

    def __getitem__(self, slot: int, /) -> int:
        """A number."""

    def __setitem__(self, slot: int, number: int, /) -> None:
        """Set a number; it is there whole or not at all."""
