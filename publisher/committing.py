"""How a transaction is stored: numbered, kept, staged, committed, and settled when in doubt."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from msgspec.structs import replace

from reliable_pubsub.common.batch import crc32, decode_batch
from reliable_pubsub.common.errors import ConflictError, InDoubtError, MalformedError
from reliable_pubsub.common.messages import Abort, AnyReply, CommitAck, Conflict, Gap, Limit
from reliable_pubsub.common.plan_mark import PlanMark
from reliable_pubsub.common.recorder import Call, Recorder
from reliable_pubsub.common.state_file import ClientState

from .link import PublisherLink
from .outbox import Outbox, Pending, Receipt
from .transaction import Encoded, is_lost, is_unproven, stage_and_commit


class Committing:
    """Stores batches of several topics as one, across kills of either side."""

    def __init__(
        self, link: PublisherLink, outbox: Outbox, state: ClientState, recorder: Recorder
    ) -> None:
        """Nothing is under way but what the outbox has."""
        self._link = link
        self._outbox = outbox
        self._state = state
        self._recorder = recorder

    def transact(self, batches: Sequence[Encoded], plan: PlanMark | None) -> tuple[Receipt, ...]:
        """Begin one, when nothing is in doubt; see `Publisher.transaction`."""
        self._link.meet_all([batch.topic for batch in batches])
        # As the numbering of a topic: that there is one must outlive power loss.
        first_time = self._outbox.transactions is None
        met = self._outbox.meet_transactions(self._link.last_transaction)
        if met:
            self._state.write(met, durable=first_time)
        _, changes = self._outbox.number_transaction(
            [Pending(one.topic, 0, one.count, one.crc, one.body) for one in batches], plan
        )
        try:
            self._state.write(changes, durable=False)
        except BaseException:
            self._outbox.transaction_dropped()  # it was never sent, and is not kept
            raise
        try:
            return self.settle()
        except InDoubtError as error:
            error.kept = True
            raise

    def settle(self) -> tuple[Receipt, ...]:
        """Send the pending transaction until the proxy has it."""
        assert self._outbox.transaction is not None
        with ExitStack() as stack:
            calls = [
                stack.enter_context(self._recorder.call("put", batch.topic))
                for batch in self._outbox.transaction.batches
            ]
            reply = self._send(calls)
            if isinstance(reply, Gap):
                self._link.connected = False  # the comparison of the numberings tells what is lost
                reply = self._send(calls)
            if self._link.adopts and (isinstance(reply, Gap | Conflict) or is_unproven(reply)):
                self._link.met.clear()
                self._link.meet_all([batch.topic for batch in self._outbox.transaction.batches])
                changes = self._outbox.renumber_transaction(self._link.last_transaction)
                self._state.write(changes, durable=False)
                reply = self._send(calls)
            if isinstance(reply, CommitAck) and reply.receipts is not None:
                return self._stored(reply, calls)
            if isinstance(reply, Limit):
                self._abort()
            if is_unproven(reply):
                number = self._outbox.transaction.number
                error = ConflictError(
                    f"transaction {number} of {self._link.client!r} was committed, and later ones "
                    "too: this state is older than what was sent with this id. Use --on-log-changed"
                    " adopt to go on with the proxy's numbering"
                )
                for call in calls:
                    call.unknown(error)
                raise error
            self._link.refused(reply)

    def _send(self, calls: Sequence[Call]) -> AnyReply:
        return self._link.ask_as_known(lambda: self._send_once(calls))

    def _send_once(self, calls: Sequence[Call]) -> AnyReply:
        """Stage and commit it; where a proxy dies in between, again."""
        pending = self._outbox.transaction
        assert pending is not None
        for _ in range(self._link.asker.retry.retries_max + 1):
            self._link.meet_all([batch.topic for batch in pending.batches])
            place = pending.plan_before
            for call, batch in zip(calls, pending.batches, strict=True):
                if call.recorded:
                    call.invoke(
                        epoch=self._outbox.epoch,
                        sequence=batch.first_sequence,
                        crcs=tuple(map(crc32, decode_batch(batch.body, batch.count).payloads)),
                        transaction=pending.number,
                        **(place.place if place else {}),
                    )
                place = place and replace(place, message=place.message + batch.count)
            reply = stage_and_commit(
                pending, self._link.ask, self._link.head, attempt=secrets.token_bytes(16)
            )
            if not is_lost(reply):
                return reply
        return reply

    def _stored(self, reply: CommitAck, calls: Sequence[Call]) -> tuple[Receipt, ...]:
        """Note where its messages are, and let it go."""
        pending = self._outbox.transaction
        assert pending is not None
        assert reply.receipts is not None
        places = {receipt.topic: receipt for receipt in reply.receipts}
        for batch in pending.batches:
            if batch.topic not in places:
                raise MalformedError(f"COMMIT_ACK has no receipt for topic {batch.topic!r}")
        for call, batch in zip(calls, pending.batches, strict=True):
            place = places[batch.topic]
            call.ok(  # before it is let go, as in `_settle_call`
                epoch=self._outbox.epoch,
                sequence=batch.first_sequence,
                count=batch.count,
                offset=place.offset + batch.first_sequence - place.first_sequence,
                duplicate=reply.already,
                durability=reply.durability,
            )
        self._link.last_transaction = max(self._link.last_transaction, pending.number)
        self._state.write(self._outbox.transaction_stored(reply.receipts), durable=False)
        return tuple(
            Receipt(
                one.topic,
                self._link.client,
                one.first_sequence,
                one.count,
                one.offset,
                reply.durability,
                reply.already,
            )
            for one in reply.receipts
        )

    def _abort(self) -> None:
        """Give a refused transaction up, here and at the proxy."""
        pending = self._outbox.transaction
        assert pending is not None
        self._state.write(self._outbox.transaction_dropped(), durable=False)
        with suppress(InDoubtError):  # then it goes by itself, after a while
            self._link.ask(Abort(**self._link.head(), transaction=pending.number))
