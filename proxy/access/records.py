"""The record of accounts. Pure."""

from __future__ import annotations

from typing import ClassVar

from ..core.rows import Writes
from ..core.state import Record, State
from ..core.stored import StoredCharge


class Charged(StoredCharge, Record, frozen=True, gc=False):
    """An id or a topic is charged to a key, and no longer to another (`accounts.py`)."""

    urgent: ClassVar[bool] = False

    def apply(self, state: State) -> None:
        """Charge it to the key."""
        state.accounts.charge(self)
        state.index_charge(self.kind, self.name)

    def store(self, writes: Writes) -> None:
        """Replace the charge."""
        writes.rows["charge"][self.kind, self.name] = (self.kind, self.name, self.key)
