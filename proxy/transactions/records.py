"""The records of transactions. Pure."""

from __future__ import annotations

from typing import ClassVar, Final

from reliable_pubsub.common.core.schemas import msgpack_decoder
from reliable_pubsub.common.core.transaction_messages import TopicReceipt

from ..core.rows import Writes, encode
from ..core.schema import StoredTable
from ..core.state import Record, State
from .staging import LastTransaction, StagedBatch, Staging, StoredTransaction

_receipts: Final = msgpack_decoder(tuple[TopicReceipt, ...])


def _stored_transaction(
    client: str, number: int, digest: bytes, receipts: bytes
) -> StoredTransaction:
    return StoredTransaction(client, number, digest, _receipts.decode(receipts))


LAST_TRANSACTION: Final = StoredTable(
    """
CREATE TABLE last_transaction (
    client TEXT PRIMARY KEY,        -- the publisher
    number INTEGER NOT NULL,        -- of the last transaction that it has committed
    digest BLOB NOT NULL,           -- of its content, by the publisher
    receipts BLOB NOT NULL,         -- msgpack: what it appended to each topic
    row_crc INTEGER NOT NULL
) WITHOUT ROWID;
""",
    StoredTransaction,
    _stored_transaction,
)


class Staged(StagedBatch, Record, frozen=True, gc=False):
    """A batch of a transaction is staged, in memory only: the store does not write it."""

    urgent: ClassVar[bool] = False
    is_stored: ClassVar[bool] = False

    def apply(self, state: State) -> None:
        """Keep the batch."""
        state.part(Staging).add(self)
        state.index_session("publisher", self.client)

    def store(self, writes: Writes) -> None:
        """Add nothing: what is staged is in memory only."""


class Unstaged(Record, frozen=True, gc=False):
    """The staged batches of a transaction are dropped. In memory only, as `Staged`."""

    urgent: ClassVar[bool] = False
    is_stored: ClassVar[bool] = False
    client: str
    transaction: int

    def apply(self, state: State) -> None:
        """Drop them."""
        state.part(Staging).drop(self.client, self.transaction)
        state.index_session("publisher", self.client)

    def store(self, writes: Writes) -> None:
        """Add nothing: what is staged is in memory only."""


class TransactionCommitted(StoredTransaction, Record, frozen=True, gc=False):
    """A transaction is committed; its batches are in the same decision."""

    def apply(self, state: State) -> None:
        """Remember it as the last one of its publisher."""
        state.part(Staging).last[self.client] = LastTransaction(
            self.transaction, self.digest, self.receipts, state.lsn
        )
        state.numbered.add(self.client)
        state.index_session("publisher", self.client)
        state.part(Staging).drop_up_to(self.client, self.transaction)

    def store(self, writes: Writes) -> None:
        """Replace the last transaction of its publisher."""
        row = (self.client, self.transaction, self.digest, encode(self.receipts))
        writes.rows[LAST_TRANSACTION][self.client,] = row


class TransactionForgotten(Record, frozen=True, gc=False):
    """The last transaction of a publisher is removed, as its id is forgotten."""

    urgent: ClassVar[bool] = False
    client: str

    def apply(self, state: State) -> None:
        """Remove it."""
        del state.part(Staging).last[self.client]

    def store(self, writes: Writes) -> None:
        """Remove its row."""
        writes.rows[LAST_TRANSACTION][self.client,] = None
