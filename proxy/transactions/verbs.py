"""STAGE, COMMIT, ABORT: batches of several topics that become visible together, once (rule R23).

Staged batches have no effect. COMMIT is one decision, so its records are one commit of the store:
all batches, and the number of the transaction, by which a repeat is recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import (
    Conflict,
    Full,
    Gap,
    HelloAck,
    Limit,
    StageLost,
)
from reliable_pubsub.common.core.dead_letter import is_dead
from reliable_pubsub.common.core.limits import (
    NUMBER_MAX,
    STAGED_BATCH_BYTES,
    STAGED_IDLE_S_MAX,
    TRANSACTION_BYTES_MAX,
    TRANSACTION_TOPICS_MAX,
)
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requests import Hello
from reliable_pubsub.common.core.status import StagingStatus
from reliable_pubsub.common.core.transaction_messages import (
    Abort,
    AbortAck,
    Commit,
    CommitAck,
    Stage,
    StageAck,
    TopicReceipt,
)

from ..core.appending import next_batch, topic_for
from ..core.feature import Feature, Runtime
from ..core.publishing import for_subscribers_only
from ..core.records import Appended, Decision
from ..core.replies import decided, echo
from ..core.sessions import fence, without_session
from ..core.state import Hooks, Record, State
from ..core.stored import StoredState
from ..core.topic_log import TopicLog
from .records import (
    LAST_TRANSACTION,
    Staged,
    TransactionCommitted,
    TransactionForgotten,
    Unstaged,
)
from .staging import (
    LastTransaction,
    StagedBatch,
    StagedTransaction,
    Staging,
    StoredTransaction,
)


class _Share(Struct, frozen=True):
    """What a transaction appends to one topic."""

    log: TopicLog
    before: tuple[Record, ...]  # that create it, and make room in it
    batches: tuple[Appended, ...]


def stage(state: State, request: Stage, body: bytes, now_ns: int) -> Decision:
    """Stage a batch, if it is the next of its attempt and there is room.

    Its writer needs a session, so the bound on sessions also bounds what is staged. The epoch is
    not compared: tasks stage on many machines, and have no effect before COMMIT.
    """
    ended = without_session(state, "publisher", request) or _ended(state, request)
    if ended is not None:
        return ended
    if is_dead(request.topic):
        return for_subscribers_only(state, request)
    one = state.part(Staging).of(request.client, request.transaction)
    staged = one.attempts.get((request.task, request.attempt), [])
    if request.chunk < len(staged):
        return _repeated_stage(state, request, staged[request.chunk])
    if request.chunk > len(staged):
        return _stage_lost(state, request, request.task, len(staged))
    room = _make_stage_room(state, request, one, len(body))
    if isinstance(room, Decision):
        return room
    return Decision(
        StageAck(**echo(state, request)),
        (
            Staged(
                client=request.client,
                transaction=request.transaction,
                task=request.task,
                attempt=request.attempt,
                chunk=request.chunk,
                topic=request.topic,
                count=request.count,
                crc=request.crc,
                first_sequence=request.first_sequence,
                staged_s=state.leases.now_s,
                body=body,
                instead_of=room,
            ),
        ),
    )


def _repeated_stage(state: State, request: Stage, staged: StagedBatch) -> Decision:
    same = (staged.topic, staged.count, staged.crc, staged.first_sequence)
    if same == (request.topic, request.count, request.crc, request.first_sequence):
        return Decision(StageAck(**echo(state, request)))
    text = (
        f"transaction {request.transaction} of {request.client!r}: batch {request.chunk} of "
        f"task {request.task} is staged with another content; nothing was changed. Two tries "
        "of a task need two values of `attempt`"
    )
    return _conflict(state, request, request.first_sequence or 0, request.count, text)


def _make_stage_room(
    state: State, request: Stage, one: StagedTransaction, body_bytes: int
) -> Decision | tuple[tuple[int, bytes], ...]:
    """Stay within the bounds: superseded attempts are dropped first."""
    size = body_bytes + STAGED_BATCH_BYTES
    staging, staged_bytes_max = state.part(Staging), state.settings.staged_bytes_max
    limit = min(TRANSACTION_BYTES_MAX, staged_bytes_max)
    excess = max(
        one.held_bytes + size - limit,
        staging.held_bytes + size - staged_bytes_max,
    )
    if excess <= 0:
        return ()
    going: list[tuple[int, bytes]] = []
    for attempt, freed in one.superseded((request.task, request.attempt)):
        if excess <= 0:
            break
        going.append(attempt)
        excess -= freed
    if excess <= 0:
        return tuple(going)
    if one.held_bytes + size > limit:
        text = (
            f"transaction {request.transaction} of {request.client!r} has {one.held_bytes:,} bytes "
            f"staged, and a batch of {size:,} more is above the {limit:,} that are allowed; "
            "make smaller transactions, and abort this one"
        )
        return Decision(Limit(**echo(state, request), limit=limit, text=text))
    text = (
        f"{staging.transactions} transactions have {staging.held_bytes:,} of "
        f"{staged_bytes_max:,} bytes staged; this one has to wait until one of them is "
        "committed, aborted, or idle for too long"
    )
    return Decision(Full(**echo(state, request), text=text))


def commit(state: State, request: Commit, _body: bytes, now_ns: int) -> Decision:
    """Append all named batches, or none and say why."""
    ended = _fenced_or_ended(state, request)
    if ended is not None:
        return ended
    named = _named(state, request)
    if isinstance(named, Decision):
        return named
    if len(named) > TRANSACTION_TOPICS_MAX:
        text = f"a transaction has at most {TRANSACTION_TOPICS_MAX} topics, not {len(named)}"
        limit = TRANSACTION_TOPICS_MAX
        return Decision(Limit(**echo(state, request), limit=limit, text=text))
    shares: list[_Share] = []
    created = 0
    for topic, staged in named.items():
        share = _share(state, request, topic, staged, now_ns, created)
        if isinstance(share, Decision):
            return share
        created += topic not in state.topics or topic in state.deleted_topics
        shares.append(share)
    receipts = tuple(_receipt(share) for share in shares)
    return decided(
        state,
        CommitAck(**echo(state, request), already=False, receipts=receipts),
        *(record for share in shares for record in share.before),
        *(batch for share in shares for batch in share.batches),
        TransactionCommitted(request.client, request.transaction, request.digest or b"", receipts),
    )


def _named(state: State, request: Commit) -> Decision | Mapping[str, Sequence[StagedBatch]]:
    """The batches of a transaction, by topic."""
    one = state.part(Staging).of(request.client, request.transaction)
    named: dict[str, list[StagedBatch]] = {}
    for part in request.parts:
        staged = one.batches(part)
        if staged is None:
            found = len(one.attempts.get((part.task, part.attempt), []))
            return _stage_lost(state, request, part.task, found)
        for batch in staged:
            named.setdefault(batch.topic, []).append(batch)
    return named


def _share(
    state: State,
    request: Commit,
    topic: str,
    staged: Sequence[StagedBatch],
    now_ns: int,
    others: int,
) -> _Share | Decision:
    """The part of one topic; the same transaction creates `others` topics before it."""
    known = state.topics.get(topic)
    mark = known.publishers.get(request.client) if known else None
    sequence = mark.last_sequence + 1 if mark else 1
    for one in staged:
        if one.first_sequence not in (None, sequence):
            return _commit_gap(state, request, one, sequence, mark.lsn if mark else 0)
        sequence += one.count
    found = topic_for(
        state,
        request,
        topic,
        others=others,
        compares=True,
        count=sum(one.count for one in staged),
        body_bytes=sum(len(one.body) for one in staged),
    )
    if isinstance(found, Decision):
        return found
    log, before = found
    batches: list[Appended] = []
    for one in staged:
        batch = next_batch(
            state,
            log,
            request,
            one.body,
            count=one.count,
            crc=one.crc,
            now_ns=now_ns,
            after=batches[-1] if batches else None,
        )
        batches.append(batch)
    return _Share(log, before, tuple(batches))


def abort(state: State, request: Abort, _body: bytes, _now_ns: int) -> Decision:
    """Drop a staged transaction; a committed one stays."""
    ended = _fenced_or_ended(state, request)
    if ended is not None:
        return ended
    one = state.part(Staging).of(request.client, request.transaction)
    dropped = sum(len(staged) for staged in one.attempts.values())
    records = (Unstaged(request.client, request.transaction),) if dropped else ()
    return Decision(AbortAck(**echo(state, request), dropped=dropped), records)


def idle_stages(state: State) -> Sequence[Unstaged]:
    """Return the transactions that have been idle for too long."""
    before_s = state.leases.now_s - STAGED_IDLE_S_MAX
    return [Unstaged(*key) for key in state.part(Staging).idle_since(before_s)]


def staging_status(state: State) -> StagingStatus | UnsetType:
    """The row of transactions in a STATUS; unset if there never was one."""
    if not state.part(Staging).transactions and not state.part(Staging).last:
        return UNSET
    return StagingStatus(
        transactions=state.part(Staging).transactions,
        batches=state.part(Staging).batches,
        staged_bytes=state.part(Staging).held_bytes,
        writers=len(state.part(Staging).last),
    )


# Refusals, and the reply "already".


def _fenced_or_ended(state: State, request: Commit | Abort) -> Decision | None:
    session = fence(state, "publisher", request)
    return session if isinstance(session, Decision) else _ended(state, request)


def _ended(state: State, request: Stage | Commit | Abort) -> Decision | None:
    """Whether the transaction is committed, or a later one of its writer."""
    last = state.part(Staging).last.get(request.client)
    if last is None or request.transaction > last.transaction:
        return None
    return already(state, request, last)


def already(state: State, request: Stage | Commit | Abort, last: LastTransaction) -> Decision:
    """The transaction is committed: reply with its receipts if it is the last one."""
    is_last = request.transaction == last.transaction
    digest = request.digest if isinstance(request, Commit) else None
    if is_last and digest is not None and digest != last.digest:
        text = (
            f"transaction {request.transaction} of {request.client!r} is committed with "
            "another content; nothing was changed. Either two programs use this id (give each "
            "its own), or its state is older than what it sent"
        )
        return _conflict(state, request, 0, 0, text, visible_at=last.lsn)
    receipts = last.receipts if is_last else None
    return Decision(
        CommitAck(**echo(state, request), already=True, receipts=receipts), visible_at=last.lsn
    )


def _conflict(
    state: State,
    request: Stage | Commit | Abort,
    first: int,
    count: int,
    text: str,
    visible_at: int = 0,
) -> Decision:
    reply = Conflict(**echo(state, request), first_sequence=first, count=count, text=text)
    return Decision(reply, visible_at=visible_at)


def _stage_lost(state: State, request: Stage | Commit, task: int, found: int) -> Decision:
    text = (
        f"transaction {request.transaction} of {request.client!r}: of task {task} "
        f"{found} batches of this try are staged, not those of the request. What is "
        "staged ends with the proxy, with ABORT, with a later COMMIT, and after "
        f"{STAGED_IDLE_S_MAX} idle seconds; nothing was stored, stage the transaction again"
    )
    return Decision(StageLost(**echo(state, request), task=task, text=text))


def _commit_gap(
    state: State, request: Commit, batch: StagedBatch, expected: int, visible_at: int
) -> Decision:
    text = (
        f"topic {batch.topic!r}: transaction {request.transaction} of {request.client!r} has "
        f"sequence {batch.first_sequence}, but {expected} is next; nothing was stored"
    )
    reply = Gap(**echo(state, request), expected=expected, text=text)
    return Decision(reply, visible_at=visible_at)


def _receipt(share: _Share) -> TopicReceipt:
    """The receipt of one topic; its batches are contiguous in offsets and sequences."""
    first = share.batches[0]
    count = sum(batch.count for batch in share.batches)
    return TopicReceipt(share.log.topic, first.first_sequence, count, first.base)


# At moments of the core.


def restore(state: State, stored: StoredState) -> None:
    """Add the last transaction of each publisher; what was staged is lost."""
    staging = state.part(Staging)
    for one in stored.of(StoredTransaction):
        last = LastTransaction(one.transaction, one.digest, one.receipts, 0)
        staging.last[one.client] = last
    state.numbered |= staging.last.keys()


def is_staging(state: State, role: Role, client: str) -> bool:
    """Return whether a publisher has something staged."""
    return role == "publisher" and client in state.part(Staging).clients


def drop_staged(state: State, role: Role | None, client: str) -> None:
    """Drop what a forgotten publisher has staged."""
    if role == "publisher":
        state.part(Staging).drop_up_to(client, NUMBER_MAX)


def forget_last(state: State, role: Role, client: str) -> Iterator[Record]:
    """Yield the record that removes the last transaction of a publisher."""
    if role == "publisher" and client in state.part(Staging).last:
        yield TransactionForgotten(client)


def with_last(engine: Runtime, request: Hello, decision: Decision) -> Decision:
    """Add to a granted epoch what its publisher has committed last."""
    reply = decision.reply
    last = engine.state.part(Staging).last.get(request.client)
    if last is None or request.role != "publisher" or not isinstance(reply, HelloAck):
        return decision
    visible_at = max(decision.visible_at, last.lsn)
    return replace(
        decision, reply=replace(reply, transaction=last.transaction), visible_at=visible_at
    )


FEATURE: Final = Feature(
    name="transactions",
    verbs={Stage: stage, Commit: commit, Abort: abort},
    endpoints=dict.fromkeys((Stage, Commit, Abort), "publisher"),
    tables=(LAST_TRANSACTION,),
    due=idle_stages,
    completes={Hello: with_last},
    hooks=Hooks(restore=[restore], holds=[is_staging], gone=[drop_staged], forgets=[forget_last]),
)
