"""Which connections are counted for a key with a bound on them. Pure.

libzmq names the key of a connection with its first message, so that is when one is counted. It
counts until it has ended; who is killed gives its place back as who leaves does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from msgspec import Struct


class Excess(Struct, frozen=True):
    """A connection is more than its key may have."""

    name: str  # of the key
    most: int

    @property
    def text(self) -> str:
        """What happened, and what to do."""
        return (
            f"the key {self.name!r} has {self.most:,} connections, the most that it may have "
            "(connections_max of its entry in rights.yaml); this one is refused, the others stay. "
            "Close some, or ask the operator for more (docs/how-to/security.md)"
        )


class Attendance:
    """The connections of keys with a bound, those of one name together."""

    def __init__(self) -> None:
        self._present: dict[str, set[Hashable]] = {}

    def excess(
        self, name: str, connection: Hashable, most: int, has_ended: Callable[[Hashable], bool]
    ) -> Excess | None:
        """Why a connection is refused; None: it is one of those that the key may have.

        A connection that was counted stays, also if the bound is lower by now.
        """
        present = self._present.setdefault(name, set())
        if connection in present:
            return None
        if len(present) >= most:
            present.difference_update([one for one in present if has_ended(one)])
        if len(present) >= most:
            return Excess(name, most)
        present.add(connection)
        return None

    def counts(self, is_gone: Callable[[Hashable], bool]) -> dict[str, int]:
        """How many connections each key with a bound has, by its name."""
        for present in self._present.values():
            present.difference_update([one for one in present if is_gone(one)])
        return {name: len(present) for name, present in self._present.items()}
