"""Planted faults of transactions; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.transaction_messages import (
    Abort,
    AbortAck,
    Commit,
    CommitAck,
    Part,
    Stage,
)
from reliable_pubsub.proxy.core.records import Appended, Decision
from reliable_pubsub.proxy.core.replies import echo
from reliable_pubsub.proxy.core.sessions import without_session
from reliable_pubsub.proxy.core.state import Record, State
from reliable_pubsub.proxy.transactions.records import TransactionCommitted
from reliable_pubsub.proxy.transactions.staging import Staging
from reliable_pubsub.proxy.transactions.verbs import abort, already, commit, stage

from .faulty_parts import before_durable, with_decision, with_request
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


def of_no_number(state: State, request: Any) -> Any:
    """No number is compared: what belongs to a committed transaction is staged, and committed."""
    state.part(Staging).last.pop(request.client, None)
    return replace(request, first_sequence=None) if isinstance(request, Stage) else request


def leave_last_topic_out(state: State, _request: Commit, decision: Decision) -> Decision:
    """Every topic is reported as stored, and one of several is left out."""
    topics = [one.topic_id for one in decision.records if isinstance(one, Appended)]
    if len(set(topics)) < 2:
        return decision
    records = tuple(one for one in decision.records if not _is_of(one, topics[-1]))
    return replace(decision, records=records, visible_at=state.lsn + len(records))


def abort_stores(state: State, request: Abort, *more: Any) -> Decision:
    """What is aborted is stored all the same."""
    decision = commit(state, of_every_try(state, request), *more)
    if not isinstance(decision.reply, CommitAck):
        return decision
    dropped = len(decision.records)
    return replace(decision, reply=AbortAck(**echo(state, request), dropped=dropped))


def of_every_try(state: State, request: Commit | Abort) -> Commit:
    """Every try of a task that was staged counts, not the one that is named."""
    one = state.part(Staging).of(request.client, request.transaction)
    return Commit(
        client=request.client,
        epoch=request.epoch,
        request=request.request,
        transaction=request.transaction,
        parts=tuple(Part(*key, len(staged)) for key, staged in one.attempts.items()),
    )


FAULTS_OF_TRANSACTIONS: Mapping[str, Variant] = {
    "transaction torn between topics": Variant(store=TearsTransactions),
    "transaction numbers not stored": Variant(store=ForgetsTransactions),
    "repeated commit stored twice": Variant(
        rules=with_request(stage, of_no_number) | with_request(commit, of_no_number)
    ),
    # An id without a session stages; no bound is on how many such ids there are.
    "staged without a session": Variant(rules={without_session: lambda *_: None}),
    "already before durable": Variant(rules=before_durable(already)),
    "a topic is left out of a commit": Variant(rules=with_decision(commit, leave_last_topic_out)),
    "abort leaves messages": Variant(rules={abort: abort_stores}),
    "every try is committed": Variant(rules=with_request(commit, of_every_try)),
}
