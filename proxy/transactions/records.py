"""The records of transactions. Pure."""

from __future__ import annotations

from typing import ClassVar

from ..core.rows import Writes, encode
from ..core.state import Record, State
from ..core.stored import StoredTransaction
from .staging import LastTransaction, StagedBatch


class Staged(StagedBatch, Record, frozen=True, gc=False):
    """A batch of a transaction is staged, in memory only: the store does not write it."""

    urgent: ClassVar[bool] = False

    def apply(self, state: State) -> None:
        """Keep the batch."""
        state.staging.add(self)
        state.index_session("publisher", self.client)

    def store(self, writes: Writes) -> None:
        """Add nothing: what is staged is in memory only."""


class Unstaged(Record, frozen=True, gc=False):
    """The staged batches of a transaction are dropped. In memory only, as `Staged`."""

    urgent: ClassVar[bool] = False
    client: str
    transaction: int

    def apply(self, state: State) -> None:
        """Drop them."""
        state.staging.drop(self.client, self.transaction)
        state.index_session("publisher", self.client)

    def store(self, writes: Writes) -> None:
        """Add nothing: what is staged is in memory only."""


class TransactionCommitted(StoredTransaction, Record, frozen=True, gc=False):
    """A transaction is committed; its batches are in the same decision."""

    def apply(self, state: State) -> None:
        """Remember it as the last one of its publisher."""
        state.last_transactions[self.client] = LastTransaction(
            self.transaction, self.digest, self.receipts, state.lsn
        )
        state.numbered.add(self.client)
        state.index_session("publisher", self.client)
        state.staging.drop_up_to(self.client, self.transaction)

    def store(self, writes: Writes) -> None:
        """Replace the last transaction of its publisher."""
        row = (self.client, self.transaction, self.digest, encode(self.receipts))
        writes.rows["last_transaction"][self.client,] = row
