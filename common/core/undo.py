"""`Undo`: the program's messages in hand, as they were before a call changed them. Pure.

An interrupted call restores them: it undoes at most its own deliveries (rule R31).
"""

from __future__ import annotations

from typing import Any, Protocol


class Mark(Protocol):
    """The mark of a call; see `Gate`."""

    def locked(self) -> bool:
        """Return whether the call has not ended properly."""


class Undo:
    """The changes of the newest call: each owner, with its earlier state."""

    def __init__(self) -> None:
        self.before: dict[Any, Any] = {}
        self._mark: Mark | None = None

    def begin(self, mark: Mark | None) -> None:
        """Begin a call; the one before ended properly, or was undone.

        Args:
            mark: locked until it ends properly; None: nothing can interrupt between two calls.
        """
        self.before.clear()
        self._mark = mark

    def interrupted(self, mark: Mark) -> None:
        """Note that an exception left a call, even if its mark is released."""
        if self._mark is mark:
            self._mark = None

    def end_proper(self) -> None:
        """Forget a call that ended properly: the exception came after it."""
        if self._mark is not None and not self._mark.locked():
            self.begin(None)
