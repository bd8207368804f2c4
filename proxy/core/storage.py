"""What the broker asks of a store: records in, the state and batches out.

`tests/store/test_contract.py` checks these docstrings for each store: SQLite (`proxy/store.py`,
`stored_state.py`, `log_reader.py`), PostgreSQL and the simulator's. A new store has to pass it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from reliable_pubsub.common.core.errors import PubSubError

from .state import DISK_FULL, Record


class StorageFullError(PubSubError):
    """There was no space for a commit; none of it was written."""

    code = "STORAGE_FULL"

    def __init__(self, text: str, *, why: str = DISK_FULL) -> None:
        """Create the error.

        Args:
            why: the reason for clients, and what an operator can do.
        """
        super().__init__(text)
        self.why = why


class NotServingError(PubSubError):
    """This process may not serve any longer, or does not know whether a commit has happened.

    Nothing may be answered from its memory: what is durable has to be read again.
    """

    code = "NOT_SERVING"
    exit_code = 3


class Storage(Protocol):
    """Where records become durable. Used by one thread at a time."""

    @property
    def is_full(self) -> bool:
        """Return whether the disk was too full for messages at the last commit."""

    def commit(self, records: Sequence[Record]) -> None:
        """Make records durable: all of them or none.

        The space of batches that a `Trimmed` removes is reused or freed. An empty commit checks
        whether a full disk has space again. On a full disk, records that store no message use
        reserved space (rule R37).

        Raises:
            StorageFullError: no space; the commit left no trace, and can be tried again later.
            StorageFailedError: a write failed; what is durable is unknown, so the process ends.
            NotServingError: another process serves the store now, or the outcome is unknown.
        """
