"""Planted faults of transactions; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from reliable_pubsub.common.core.messages import Abort, AbortAck, Commit, CommitAck, Part, Stage
from reliable_pubsub.proxy.core.broker import Broker
from reliable_pubsub.proxy.core.records import (
    Appended,
    Decision,
    Record,
    TransactionCommitted,
)
from reliable_pubsub.proxy.core.staging import LastTransaction

from .simulated_proxy import Crash
from .simulated_store import SimulatedStore
from .simulation import Variant


class TearsTransactions(SimulatedStore):
    """Writes a transaction topic by topic; now and then the proxy dies in between."""

    def commit(self, records: Sequence[Record]) -> None:
        topics = [one.topic_id for one in records if isinstance(one, Appended)]
        transacts = any(isinstance(one, TransactionCommitted) for one in records)
        if transacts and len(set(topics)) > 1 and self.commits % 3 == 0:
            half = next(n for n, one in enumerate(records) if _is_of(one, topics[-1]))
            super().commit(records[:half])
            raise Crash("between two topics of a transaction")
        super().commit(records)


def _is_of(record: Record, topic_id: int) -> bool:
    return isinstance(record, Appended) and record.topic_id == topic_id


class ForgetsTransactions(SimulatedStore):
    """Does not store the numbers of transactions."""

    def commit(self, records: Sequence[Record]) -> None:
        super().commit([one for one in records if not isinstance(one, TransactionCommitted)])


class StoresReplays(Broker):
    """Looks at no number: a repeated commit is a new one."""

    def _stage(self, request: Stage, body: bytes, now_ns: int) -> Decision:
        self.last_transactions.pop(request.client, None)
        return super()._stage(replace(request, first_sequence=None), body, now_ns)

    def _commit(self, request: Commit, body: bytes, now_ns: int) -> Decision:
        self.last_transactions.pop(request.client, None)
        return super()._commit(request, body, now_ns)


class AlreadyBeforeDurable(Broker):
    """Tells that a transaction is over which a crash can still take back."""

    def _already(self, request: Stage | Commit | Abort, last: LastTransaction) -> Decision:
        return replace(super()._already(request, last), visible_at=0)


class LeavesTheLastTopicOut(Broker):
    """Says of every topic that it is stored, and leaves one out where there are several."""

    def _commit(self, request: Commit, body: bytes, now_ns: int) -> Decision:
        decision = super()._commit(request, body, now_ns)
        topics = [one.topic_id for one in decision.records if isinstance(one, Appended)]
        if len(set(topics)) < 2:
            return decision
        records = tuple(one for one in decision.records if not _is_of(one, topics[-1]))
        return replace(decision, records=records, visible_at=self.lsn + len(records))


class AbortLeavesMessages(Broker):
    """What is aborted is stored all the same."""

    def _abort(self, request: Abort, body: bytes, now_ns: int) -> Decision:
        one = self.staging.of(request.client, request.transaction)
        parts = tuple(Part(*key, len(staged)) for key, staged in one.attempts.items())
        facts = {name: getattr(request, name) for name in ("client", "epoch", "request")}
        commit = Commit(**facts, transaction=request.transaction, parts=parts)
        decision = super()._commit(commit, body, now_ns)
        if not isinstance(decision.reply, CommitAck):
            return decision
        return replace(decision, reply=AbortAck(**self._echo(request), dropped=len(parts)))


class CommitsEveryTry(Broker):
    """Takes every try of a task that was staged, not the one that is named."""

    def _commit(self, request: Commit, body: bytes, now_ns: int) -> Decision:
        one = self.staging.of(request.client, request.transaction)
        parts = tuple(Part(*key, len(staged)) for key, staged in one.attempts.items())
        return super()._commit(replace(request, parts=parts), body, now_ns)


FAULTS_OF_TRANSACTIONS: Mapping[str, Variant] = {
    "transaction torn between topics": Variant(store=TearsTransactions),
    "transaction numbers not stored": Variant(store=ForgetsTransactions),
    "repeated commit stored twice": Variant(broker=StoresReplays),
    "already before durable": Variant(broker=AlreadyBeforeDurable),
    "a topic is left out of a commit": Variant(broker=LeavesTheLastTopicOut),
    "abort leaves messages": Variant(broker=AbortLeavesMessages),
    "every try is committed": Variant(broker=CommitsEveryTry),
}
