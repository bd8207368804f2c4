"""What the broker asks of a store: records in, the state and batches out.

`tests/store/test_contract.py` checks these docstrings for each store: SQLite (`proxy/store.py`,
`stored_state.py`, `log_reader.py`), PostgreSQL and the simulator's. A new store has to pass it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from reliable_pubsub.common.core.errors import PubSubError

from .records import Appended, Record

DISK_FULL: Final = "the proxy's disk is full"


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


class BatchReader(Protocol):
    """Reads durable batches, from memory or from the store; none below a topic's start is asked."""

    def read(
        self, topic_id: int, offset: int, *, messages_max: int, bytes_max: int
    ) -> Sequence[Appended]:
        """Batches in order, from the one that holds `offset` (or the next one after it).

        At least one if there is one; then more while both bounds hold.
        """

    def timestamp_ns(self, topic_id: int, offset: int) -> int | None:
        """When the batch of an offset was stored; None if there is none. Reads no body."""

    def first_since(self, topic_id: int, base: int, end: int, timestamp_ns: int) -> int | None:
        """Base of the first batch in [base, end) that was stored at `timestamp_ns` or later.

        None if there is none. Reads no body.
        """

    def find(self, topic_id: int, publisher: str, sequence: int) -> Appended | None:
        """The QoS 2 batch that contains a publisher's sequence; None if there is none."""
