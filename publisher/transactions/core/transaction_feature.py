"""Transactions in the calls of a publisher: number, stage, commit, give up. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from reliable_pubsub.common.core.answers import AnyReply
from reliable_pubsub.common.core.conversation import Conversation, Save
from reliable_pubsub.common.core.errors import InDoubtError, MalformedError
from reliable_pubsub.common.core.transaction_messages import Abort, CommitAck

from ...core.engine import PublisherEngine
from ...core.feature import PublisherFeature, PublisherOpening
from ...core.outbox import Encoded, Pending
from ...core.receipt import Receipt
from .transaction import stage_and_commit


class TransactionFeature(PublisherFeature):
    """The transactions of a publisher."""

    name = "transactions"

    def __init__(self, engine: PublisherEngine, opening: PublisherOpening) -> None:
        self._engine, self._session = engine, engine.session
        self._token = opening.token

    def transact(
        self, batches: Sequence[Encoded], note: bytes | None
    ) -> Conversation[tuple[Receipt, ...]]:
        """Store batches of several topics as one; see `Publisher.transaction`."""
        engine, session, outbox = self._engine, self._session, self._engine.outbox
        if outbox.pending is not None:
            yield from engine.settle()
        yield from session.meet_all([one.topic for one in batches])
        # As the numbering of a topic: that there are transactions must survive power loss.
        first_time = outbox.transactions is None
        met = outbox.meet_transactions(session.last_transaction)
        if met:
            yield Save(met, durable=first_time)
        number = outbox.next_transaction(repeats=note is not None)
        yield from engine.keep(outbox.number(batches, note, number=number))
        try:
            return (yield from engine.settle())
        except InDoubtError as error:
            error.kept = True
            raise

    def send(self, pending: Pending) -> Conversation[AnyReply] | None:
        return stage_and_commit(pending, self._session, token=self._token)

    def receipts(self, reply: CommitAck, pending: Pending) -> tuple[Receipt, ...] | None:
        return _receipts(reply, pending, self._session.client)

    def give_up(self, number: int) -> Conversation[None]:
        try:
            abort = Abort(**self._session.head(), transaction=number)
            yield from self._session.asking(abort)
        except InDoubtError:
            pass  # then the proxy drops it when it is idle


def _receipts(reply: CommitAck, pending: Pending, client: str) -> tuple[Receipt, ...]:
    """A receipt for each topic."""
    durability = reply.durability
    found = reply.receipts or ()
    for batch in pending.batches:
        if batch.topic not in {one.topic for one in found}:
            raise MalformedError(f"COMMIT_ACK has no receipt for topic {batch.topic!r}")
    return tuple(
        Receipt(
            one.topic, client, one.first_sequence, one.count, one.offset, durability, reply.already
        )
        for one in found
    )
