"""A client's state as its shell sees it: named values, and marks beside them. Pure.

A mark is a number that is set without a write. Setting one survives `kill -9` of the process. After
power loss a mark may have any value that it ever had, so a row says which values are of that row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

MARKS_MAX: Final = 512


class Marks(Protocol):
    """`MARKS_MAX` numbers of 64 bits, 0 at first."""

    def __getitem__(self, slot: int, /) -> int:
        """A number."""

    def __setitem__(self, slot: int, number: int, /) -> None:
        """Set a number; it is there whole or not at all."""


class ClientState(Protocol):
    """Where a client keeps what must survive its end, or an interrupted call."""

    @property
    def marks(self) -> Marks:
        """The marks; the first use makes them."""

    def load(self) -> dict[str, bytes]:
        """Every value by its name; an interrupted write is included as a whole or not at all."""

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        """Set values, or remove those that are None, all or none of them."""

    def close(self) -> None:
        """Close the state."""


class MemoryState:
    """State that ends with the process. Implements `ClientState`."""

    def __init__(self) -> None:
        self._values: dict[str, bytes | None] = {}  # None: it is removed
        self._marks = [0] * MARKS_MAX

    @property
    def marks(self) -> Marks:
        """The marks."""
        return self._marks

    def load(self) -> dict[str, bytes]:
        """Every value by its name."""
        return {name: value for name, value in self._values.items() if value is not None}

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        """Set values, or remove those that are None, in one step that nothing interrupts."""
        self._values.update(changes)
        for name, value in changes.items():
            if value is None:
                del self._values[name]

    def close(self) -> None:
        """Nothing to do."""
