"""The call of a blocking publisher that begins a transaction."""

from __future__ import annotations

from collections.abc import Sequence

from reliable_pubsub.common.core.arguments import TimeoutS
from reliable_pubsub.common.gate import gated

from ..core.outbox import Encoded
from ..core.receipt import Receipt
from ..put_calls import PutCalls
from .core.transaction import Transaction
from .core.transaction_feature import TransactionFeature


class TransactionCalls(PutCalls):
    """Puts messages on several topics, all of them or none."""

    @gated
    def transaction(self, note: bytes | None = None, *, timeout_s: TimeoutS = None) -> Transaction:
        """Put messages on several topics, all of them or none, exactly once.

            with publisher.transaction() as transaction:
                transaction.put("orders", order)
                transaction.put("audit", line)

        They are sent when the block ends, and visible at one moment. An error that leaves the
        block stores nothing. At most 128 MiB and 256 topics. Until the block ends, every other put
        of this publisher raises UsageError, and so does another block, in every thread.

        Args:
            note: stored with the numbers; see `put_batch`.
            timeout_s: of the end of the block, which sends them.
        """
        self._check_is_free()
        life = self._gate.lives
        return Transaction(
            lambda transaction: self._begin_block(life, transaction),
            lambda batches: self._transact(life, batches, note, timeout_s=timeout_s),
            self._payloads,
        )

    @gated
    def _begin_block(self, life: int, transaction: Transaction) -> None:
        self._gate.check_life(life, "this transaction")
        self._check_no_stream()
        self._engine.begin_block(transaction)

    @gated
    def _transact(
        self,
        life: int,
        batches: Sequence[Encoded],
        note: bytes | None,
        *,
        timeout_s: float | None,
    ) -> tuple[Receipt, ...]:
        self._gate.check_life(life, "this transaction")
        return self._run(self._engine.feature(TransactionFeature).transact(batches, note))
