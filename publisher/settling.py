"""Stores a put once: number it, write it to the outbox, send until stored, remove it.

A batch, or a transaction of several, is in doubt once it is written to the outbox. It is settled by
the call that put it, or by a later one, or by the next process with this state.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from msgspec.structs import replace

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import crc32, decode_batch
from reliable_pubsub.common.core.errors import ConflictError, InDoubtError, MalformedError
from reliable_pubsub.common.core.messages import (
    Abort,
    AnyReply,
    CommitAck,
    Conflict,
    Duplicate,
    Gap,
    Limit,
    Put,
    PutAck,
    TopicReceipt,
)
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.common.core.recorder import Call, Recorder
from reliable_pubsub.common.state_file import ClientState

from .core.combining import WaitingPut, failed, joined, stored
from .core.outbox import Changes, Outbox, Pending, Receipt
from .core.transaction import Encoded, is_lost, is_unproven, stage_and_commit
from .link import PublisherLink


class Settling:
    """Stores a batch, or batches of several topics as one, across kills of either side."""

    def __init__(
        self, link: PublisherLink, outbox: Outbox, state: ClientState, recorder: Recorder
    ) -> None:
        """Create it; only the content of the outbox is in doubt."""
        self._link = link
        self._outbox = outbox
        self._state = state
        self._recorder = recorder
        self._sending: Sequence[WaitingPut] = ()  # the puts of the batch in doubt

    @property
    def shares(self) -> int:
        """How many calls have put the batch that is, or was last, in doubt."""
        return len(self._sending)

    def put(self, puts: Sequence[WaitingPut], plan: PlanMark | None) -> Receipt:
        """Put the messages of these calls as one batch, when nothing is in doubt.

        Raises:
            InDoubtError: the batch is in doubt; each put has an error that says so.
        """
        batch, body = joined(puts)
        topic = puts[0].topic
        self._link.meet_all([names.topic(topic)])  # before it is numbered: rule R24
        self._sending = puts
        _, changes = self._outbox.number(topic, len(batch.payloads), crc32(body), body, plan)
        self._keep(changes, self._outbox.dropped)
        return self.settle()[0]

    def transact(self, batches: Sequence[Encoded], plan: PlanMark | None) -> tuple[Receipt, ...]:
        """Begin a transaction, when nothing is in doubt; see `Publisher.transaction`."""
        self._link.meet_all([batch.topic for batch in batches])
        # As the numbering of a topic: that there are transactions must survive power loss.
        first_time = self._outbox.transactions is None
        met = self._outbox.meet_transactions(self._link.last_transaction)
        if met:
            self._state.write(met, durable=first_time)
        _, changes = self._outbox.number_transaction(
            [Pending(one.topic, 0, one.count, one.crc, one.body) for one in batches], plan
        )
        self._keep(changes, self._outbox.transaction_dropped)
        try:
            return self.settle()
        except InDoubtError as error:
            error.kept = True
            raise

    def _keep(self, changes: Changes, drop: Callable[[], object]) -> None:
        try:
            self._state.write(changes, durable=False)
        except BaseException:
            drop()  # it was never sent, and is not kept: the caller may put it again
            raise

    def settle(self) -> tuple[Receipt, ...]:
        """Send what is in doubt until the proxy has it; a receipt for each topic."""
        batches = self._outbox.in_doubt
        try:
            if len(batches) == 1:
                with self._recorder.call("put", batches[0].topic) as call:
                    return self._settle([call])
            with ExitStack() as stack:
                calls = [
                    stack.enter_context(self._recorder.call("put", one.topic)) for one in batches
                ]
                return self._settle(calls)
        except InDoubtError as error:
            if self._outbox.pending is not None:
                failed(self._sending, error, kept=True)
            raise

    def _settle(self, calls: Sequence[Call]) -> tuple[Receipt, ...]:
        reply = self._send(calls)
        if isinstance(reply, Gap):
            self._link.connected = False  # the comparison of the numberings shows what is lost
            reply = self._send(calls)
        if self._link.adopts and self._is_used(reply):
            self._renumber()
            reply = self._send(calls)
        if isinstance(reply, PutAck | Duplicate | CommitAck):
            if self._is_used(reply):
                error = self._used_before()
                for call in calls:
                    call.unknown(error)  # the numbers may have had this very content
                raise error
            return self._stored(reply, calls)
        if isinstance(reply, Limit):
            self._give_up()
        self._link.refused(reply)

    def _send(self, calls: Sequence[Call]) -> AnyReply:
        return self._link.ask_as_known(lambda: self._send_once(calls))

    def _send_once(self, calls: Sequence[Call]) -> AnyReply:
        """Send once the numberings agree; the comparison may renumber a batch.

        A transaction whose staged batches were lost is staged again.
        """
        for _ in range(self._link.asker.retry.retries_max + 1):
            self._link.meet_all([batch.topic for batch in self._outbox.in_doubt])
            self._invoke(calls)
            transaction = self._outbox.transaction
            if transaction is not None:
                reply = stage_and_commit(
                    transaction, self._link.ask, self._link.head, attempt=secrets.token_bytes(16)
                )
            else:
                (batch,) = self._outbox.in_doubt
                put = Put(
                    **self._link.head(),
                    topic=batch.topic,
                    first_sequence=batch.first_sequence,
                    count=batch.count,
                    crc=batch.crc,
                )
                reply = self._link.ask(put, batch.body)
            if not is_lost(reply):
                return reply
        return reply

    def _invoke(self, calls: Sequence[Call]) -> None:
        """Write `invoke` lines to the history before the send."""
        transaction = self._outbox.transaction
        whole = transaction or self._outbox.pending
        place = whole and whole.plan_before
        number = {} if transaction is None else {"transaction": transaction.number}
        for call, batch in zip(calls, self._outbox.in_doubt, strict=True):
            if call.recorded:
                call.invoke(
                    epoch=self._outbox.epoch,
                    sequence=batch.first_sequence,
                    crcs=tuple(map(crc32, decode_batch(batch.body, batch.count).payloads)),
                    **number,
                    **(place.place if place else {}),
                )
            place = place and replace(place, message=place.message + batch.count)

    def _is_used(self, reply: AnyReply) -> bool:
        """Whether the proxy has other content under the numbers in doubt, or may have."""
        if self._outbox.transaction is not None:
            return isinstance(reply, Gap | Conflict) or is_unproven(reply)
        unproven = isinstance(reply, Duplicate) and self._outbox.is_unproven(reply.offset)
        return unproven or isinstance(reply, Conflict)

    def _renumber(self) -> None:
        """Adopt the numbering of the proxy: renumber what is in doubt."""
        if self._outbox.transaction is None:
            (batch,) = self._outbox.in_doubt
            self._link.meet(batch.topic, conflict=True)
            return
        self._link.met.clear()
        self._link.meet_all([batch.topic for batch in self._outbox.in_doubt])
        changes = self._outbox.renumber_transaction(self._link.last_transaction)
        self._state.write(changes, durable=False)

    def _used_before(self) -> ConflictError:
        remedy = (
            "this state is older than what was sent with this id. Use --on-log-changed adopt to go "
            "on with the proxy's numbering"
        )
        transaction = self._outbox.transaction
        if transaction is not None:
            return ConflictError(
                f"transaction {transaction.number} of {self._link.client!r} was committed, and "
                f"later ones too: {remedy}"
            )
        (batch,) = self._outbox.in_doubt
        return ConflictError(
            f"topic {batch.topic!r}: sequence {batch.first_sequence} was used before, and what it "
            f"stood for is no longer stored, so it cannot be compared: {remedy}"
        )

    def _stored(
        self, reply: PutAck | Duplicate | CommitAck, calls: Sequence[Call]
    ) -> tuple[Receipt, ...]:
        """Record the offsets, settle the calls, and remove the batches from the outbox."""
        batches = self._outbox.in_doubt
        if isinstance(reply, CommitAck):
            duplicate = reply.already
            receipts = self._receipts(reply, batches)
        else:
            duplicate = isinstance(reply, Duplicate)
            receipts = (self._receipt(batches[0], reply.offset, reply.durability, duplicate),)
        places = {receipt.topic: receipt for receipt in receipts}
        for call, batch in zip(calls, batches, strict=True):
            place = places[batch.topic]
            ahead = batch.first_sequence - place.first_sequence
            call.ok(  # before it is removed: if this fails it is kept, and sent again
                epoch=self._outbox.epoch,
                sequence=batch.first_sequence,
                count=batch.count,
                offset=None if place.offset is None else place.offset + ahead,
                duplicate=duplicate,
                durability=reply.durability,
            )
        if isinstance(reply, CommitAck):
            changes = self._committed(reply)
        else:
            stored(self._sending, receipts[0])  # before, too: else a waiting call puts it again
            changes = self._outbox.stored(reply.offset)
        self._state.write(changes, durable=False)
        return receipts

    def _receipts(self, reply: CommitAck, batches: Sequence[Pending]) -> tuple[Receipt, ...]:
        found = reply.receipts or ()
        for batch in batches:
            if batch.topic not in {one.topic for one in found}:
                raise MalformedError(f"COMMIT_ACK has no receipt for topic {batch.topic!r}")
        return tuple(
            self._receipt(one, one.offset, reply.durability, reply.already) for one in found
        )

    def _receipt(
        self, batch: Pending | TopicReceipt, offset: int | None, durability: str, duplicate: bool
    ) -> Receipt:
        client = self._link.client
        first, count = batch.first_sequence, batch.count
        return Receipt(batch.topic, client, first, count, offset, durability, duplicate)

    def _committed(self, reply: CommitAck) -> Changes:
        assert self._outbox.transaction is not None
        number = self._outbox.transaction.number
        self._link.last_transaction = max(self._link.last_transaction, number)
        return self._outbox.transaction_stored(reply.receipts or ())

    def _give_up(self) -> None:
        """Drop what was refused, here and at the proxy."""
        transaction = self._outbox.transaction
        if transaction is None:
            self._state.write(self._outbox.dropped(), durable=False)
            return
        self._state.write(self._outbox.transaction_dropped(), durable=False)
        with suppress(InDoubtError):  # then the proxy drops it when it is idle
            self._link.ask(Abort(**self._link.head(), transaction=transaction.number))
