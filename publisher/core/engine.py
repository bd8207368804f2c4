"""The engine of a publisher: everything it decides, as conversations. Pure.

A put at QoS 2 is numbered, written to the outbox, sent until the proxy has it, and removed. It is
in doubt once it is written. It is settled by the call that put it, or by a later one, or by the
next process with this state.

A shell carries out what the conversations ask for (`common/core/conversation.py`), one at a time.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from operator import attrgetter
from typing import Final, Protocol, TypeVar

from reliable_pubsub.common.core.answers import (
    AnyReply,
    Conflict,
    Denied,
    Duplicate,
    Fenced,
    Gap,
    Limit,
    PutAck,
)
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.conversation import Conversation, Save
from reliable_pubsub.common.core.errors import (
    ConflictError,
    InDoubtError,
    LimitError,
    PubSubError,
    UsageError,
)
from reliable_pubsub.common.core.plan_mark import place_in_plan
from reliable_pubsub.common.core.recorder import Call, Recorder
from reliable_pubsub.common.core.requests import Put
from reliable_pubsub.common.core.session import SESSIONS_BEGUN_MAX, forgets_again
from reliable_pubsub.common.core.transaction_messages import CommitAck
from reliable_pubsub.common.core.wire import decode_batch

from .feature import PublisherFeature, PublisherOpening
from .outbox import Changes, Encoded, Numbered, Outbox, Pending
from .puts import WaitingPut, failed, fitting, joined
from .receipt import Receipt
from .session import PublisherSession

F = TypeVar("F", bound=PublisherFeature)
R = TypeVar("R")
MakeFeature = Callable[["PublisherEngine", PublisherOpening], PublisherFeature]
NO_CALLS: Sequence[Call] = ()
IN_BLOCK: Final = (
    "this publisher has an open transaction: put through the transaction, end its block "
    "first, or use another publisher. Nothing was done"
)
topic_of: Callable[[Encoded | Numbered], str] = attrgetter("topic")


class Block(Protocol):
    """A block that has the publisher for itself."""

    @property
    def is_open(self) -> bool:
        """Whether the block has not ended."""


class PublisherEngine:
    """Stores puts once, across kills of either side; a part of it puts at QoS 0 and 1."""

    def __init__(
        self,
        session: PublisherSession,
        outbox: Outbox,
        *,
        recorder: Recorder,
        features: Sequence[MakeFeature] = (),
        opening: PublisherOpening | None = None,
    ) -> None:
        """Create it; only the content of the outbox is in doubt.

        Args:
            opening: how the publisher was opened, for its features.
        """
        self.session = session
        self.outbox = outbox
        self._recorder = recorder
        self._sending: Sequence[WaitingPut] = ()  # the puts of the batch in doubt
        # Whose block began last. It owns the publisher, even across an interrupted call.
        self._block: weakref.ref[Block] | None = None
        self._features: list[PublisherFeature] = []
        for make in features:
            assert opening is not None
            self._features.append(make(self, opening))

    def feature(self, kind: type[F]) -> F:
        """A feature of this publisher.

        Raises:
            UsageError: it runs without.
        """
        for one in self._features:
            if isinstance(one, kind):
                return one
        raise UsageError(f"this publisher runs without {kind.name}")

    def begin_again(self, stored: Mapping[str, bytes]) -> None:
        """Drop what is not in the stored state."""
        self.outbox.reload(stored)
        self.session.begin_again()
        for one in self._features:
            one.begin_again()

    def close(self) -> None:
        """End the links of features."""
        for one in self._features:
            one.close()

    # Puts.

    def put(self, put: WaitingPut, others: Sequence[object] = ()) -> Conversation[Receipt]:
        """Put it, in one request with the waiting puts of other threads on its topic; settle each.

        If the request is refused, they are put one by one: a single one may fit.

        Args:
            others: the work of the calls that wait.
        """
        session, outbox = self.session, self.outbox
        if self._block is not None and put.outcome is None:
            self.check_no_block()
        while put.outcome is None:
            puts = fitting(put, others) if others else [put]
            try:
                if put.qos < 2:
                    yield from self._of_a_feature(*(one.put(puts) for one in self._features))
                    continue
                if outbox.pending is not None:
                    yield from self.settle()
                    # It may have been this very put, if the call that had taken it was interrupted.
                    puts = [one for one in puts if one.outcome is None]
                    if put not in puts:
                        continue
                self._sending = puts
                encoded = put.encoded if len(puts) == 1 else joined(puts)[1]
                if not session.connected or encoded.topic not in session.met:
                    yield from session.meet_all((encoded.topic,))  # then number: rule R24
                yield from self.keep(outbox.number((encoded,), put.note))
                yield from self.settle()
            except LimitError as error:
                if put.is_alone or max(len(puts), len(self._sending)) == 1:
                    failed(puts, error)
                for one in puts:
                    one.is_alone = True
                    one.release()
            except PubSubError as error:
                self._failed(put, puts, error)
        receipt, count = put.outcome, put.encoded.count
        if isinstance(receipt, PubSubError):
            raise receipt
        return receipt if count == receipt.count else receipt.part(put.ahead, count)

    def _failed(self, put: WaitingPut, puts: Sequence[WaitingPut], error: PubSubError) -> None:
        """Settle the puts of a request that has failed.

        If only this call timed out, the others keep their time: one of them settles the request, or
        puts unnumbered messages again.
        """
        if not (isinstance(error, InDoubtError) and error.timeout_s is not None):
            failed(puts, error)
            return
        kept = self.outbox.pending is not None and put in self._sending
        failed([put], error, kept=kept)
        for one in () if kept else puts:
            one.release()

    def begin_block(self, transaction: Block) -> None:
        """Let a transaction own the publisher until its block ends (rule R38).

        Raises:
            UsageError: another block is open.
        """
        self.check_no_block()
        self._block = weakref.ref(transaction)

    def check_no_block(self) -> None:
        """Refuse a call that an open block would neither include nor undo.

        Raises:
            UsageError: a block is open.
        """
        transaction = None if self._block is None else self._block()
        if transaction is not None and transaction.is_open:
            raise UsageError(IN_BLOCK)
        self._block = None

    def keep(self, numbered: Changes) -> Conversation[None]:
        """Write batches that were just numbered; if that fails, they may be put again."""
        try:
            yield Save(numbered)
        except PubSubError:
            self.outbox.dropped()  # they were never sent, and are not kept
            raise

    # Runs of a program that repeats its messages.

    def begin_run(self, note: bytes, topics: Sequence[str]) -> Conversation[None]:
        """Begin a run; see `Publisher.begin_run`."""
        self.check_no_block()
        if self.outbox.pending is not None:
            yield from self.settle()
        yield from self.session.meet_all(topics)
        last = self.session.last_transaction
        met = self.outbox.meet_transactions(last) if topics else {}
        yield Save({**met, **self.outbox.begin_run(note)}, durable=True)

    def ready_for(self, topic: str, count: int, *, repeats: bool) -> Conversation[int]:
        """The sequence that the next message of a topic gets, when nothing is in doubt."""
        if self.outbox.pending is not None:
            yield from self.settle()
        yield from self.session.meet_all((topic,))
        return self.outbox.next_sequence(topic, count, repeats=repeats)

    # Settling.

    def resume(self) -> Conversation[Receipt | None]:
        """Send what is in doubt; return its first receipt."""
        return (yield from self.settle())[0] if self.outbox.pending else None

    def settle(self, calls: Sequence[Call] = NO_CALLS) -> Conversation[tuple[Receipt, ...]]:
        """Send what is in doubt until the proxy has it; a receipt for each topic.

        Args:
            calls: in the journal, one for each batch; without them they are begun here.
        """
        session = self.session
        if self._recorder.active and not calls:
            with ExitStack() as stack:
                begin = self._recorder.call
                batches = self._pending.batches
                calls = [stack.enter_context(begin("put", one.topic)) for one in batches]
                return (yield from self.settle(calls))
        try:
            reply = yield from self._send(calls)
        except InDoubtError as error:
            if not self._pending.number and error.timeout_s is None:
                failed(self._sending, error, kept=True)
            raise
        if not isinstance(reply, PutAck):
            reply = yield from self._accepted(reply, calls)
        pending = self.outbox.pending
        assert pending is not None
        if isinstance(reply, CommitAck):
            found = (one.receipts(reply, pending) for one in self._features)
            receipts = next(one for one in found if one is not None)
        else:
            (batch,) = pending.batches
            one = Receipt(
                batch.topic,
                session.client,
                batch.first_sequence,
                batch.count,
                reply.offset,
                reply.durability,
                isinstance(reply, Duplicate),
            )
            receipts = (one,)
        if calls:
            self._record(pending, receipts, calls)  # if this fails the put is kept, and sent again
        if pending.number:
            session.last_transaction = max(session.last_transaction, pending.number)
        else:
            for put in self._sending:  # before the outbox: else a waiting call puts again
                put.outcome = put.outcome or receipts[0]
        yield Save(self.outbox.settled(receipts))
        return receipts

    def _send(self, calls: Sequence[Call]) -> Conversation[AnyReply]:
        """Send until the reply is definite, in a session in which the numberings were compared.

        Raises:
            TryLaterError: the proxy forgot SESSIONS_BEGUN_MAX sessions in a row.
        """
        session, outbox = self.session, self.outbox
        may_compare = may_renumber = True
        for _ in range(SESSIONS_BEGUN_MAX):
            pending = outbox.pending
            assert pending is not None
            if not session.connected or not session.met.issuperset(map(topic_of, pending.batches)):
                yield from session.meet_all(list(map(topic_of, pending.batches)))
                pending = self._pending  # the comparison may have renumbered it
            if calls:
                self._invoke(pending, calls)
            if pending.number:
                sending = (one.send(pending) for one in self._features)
                reply = yield from self._of_a_feature(*sending)
            else:
                (batch,) = pending.batches
                put = Put(
                    client=session.client,  # not `**session.head()`, which takes twice as long
                    epoch=outbox.epoch,
                    request=next(session.requester.numbers),
                    topic=batch.topic,
                    first_sequence=batch.first_sequence,
                    count=batch.count,
                    crc=batch.crc,
                )
                reply, _body = yield from session.requester.asking(put, batch.body)
            if isinstance(reply, PutAck):
                return reply
            if isinstance(reply, Fenced) and session.is_forgotten(reply):
                continue
            if isinstance(reply, Gap) and may_compare:
                session.connected = may_compare = False  # the comparison shows what is lost
            elif session.adopts and may_renumber and self._is_used(reply):
                yield from self._renumber()
                may_compare = may_renumber = False
            else:
                return reply
        raise forgets_again()

    @property
    def _pending(self) -> Pending:
        assert self.outbox.pending is not None
        return self.outbox.pending

    def _invoke(self, pending: Pending, calls: Sequence[Call]) -> None:
        """Write `invoke` lines to the journal before the send."""
        number = {"transaction": pending.number} if pending.number else {}
        ahead = 0
        for call, batch in zip(calls, pending.batches, strict=True):
            call.invoke(
                epoch=self.outbox.epoch,
                sequence=batch.first_sequence,
                crcs=tuple(map(crc32, decode_batch(batch.body, batch.count).payloads)),
                **number,
                **place_in_plan(pending.note_before, ahead),
            )
            ahead += batch.count

    def _is_used(self, reply: AnyReply) -> bool:
        """Whether the proxy has other content under the numbers in doubt, or may have."""
        if self._pending.number:
            if isinstance(reply, CommitAck):  # without receipts: too long ago to be compared
                return reply.receipts is None
            return isinstance(reply, Gap | Conflict)
        unproven = isinstance(reply, Duplicate) and self.outbox.is_unproven(reply.offset)
        return unproven or isinstance(reply, Conflict)

    def _renumber(self) -> Conversation[None]:
        """Adopt the numbering of the proxy: renumber what is in doubt."""
        pending, session = self._pending, self.session
        if not pending.number:
            yield from session.meet(pending.batches[0].topic, conflict=True)
            return
        session.met.clear()
        yield from session.meet_all(list(map(topic_of, pending.batches)))
        yield Save(self.outbox.renumber_transaction(session.last_transaction))

    def _used_before(self) -> ConflictError:
        remedy = (
            "this state is older than what was sent with this id. Use --on-log-changed adopt to go "
            "on with the proxy's numbering"
        )
        pending = self._pending
        if pending.number:
            return ConflictError(
                f"transaction {pending.number} of {self.session.client!r} was committed, and "
                f"later ones too: {remedy}"
            )
        (batch,) = pending.batches
        return ConflictError(
            f"topic {batch.topic!r}: sequence {batch.first_sequence} was used before, and what it "
            f"stood for is no longer stored, so it cannot be compared: {remedy}"
        )

    def _accepted(
        self, reply: AnyReply, calls: Sequence[Call]
    ) -> Conversation[Duplicate | CommitAck]:
        """The reply, if it says that what is in doubt is stored; else raise what it means."""
        if isinstance(reply, Limit | Denied):
            yield from self._give_up()
            self.session.met.clear()  # an attempt before a right was taken may have been stored
        if not isinstance(reply, Duplicate | CommitAck):
            self.session.refused(reply)
        if self._is_used(reply):
            used = self._used_before()
            for call in calls:
                call.unknown(used)  # the numbers may have had this very content
            raise used
        return reply

    def _record(self, pending: Pending, receipts: Sequence[Receipt], calls: Sequence[Call]) -> None:
        places = {receipt.topic: receipt for receipt in receipts}
        for call, batch in zip(calls, pending.batches, strict=True):
            place = places[batch.topic]
            ahead = batch.first_sequence - place.first_sequence
            call.ok(
                epoch=self.outbox.epoch,
                sequence=batch.first_sequence,
                count=batch.count,
                offset=None if place.offset is None else place.offset + ahead,
                duplicate=place.duplicate,
                durability=place.durability,
            )

    def _give_up(self) -> Conversation[None]:
        """Drop what was refused, here and at the proxy."""
        number = self._pending.number
        yield Save(self.outbox.dropped())
        for one in self._features if number else ():
            yield from one.give_up(number)

    def _of_a_feature(self, *found: Conversation[R] | None) -> Conversation[R]:
        """The part of the feature that has one.

        Raises:
            UsageError: this publisher runs without it.
        """
        for one in found:
            if one is not None:
                return one
        raise UsageError("this publisher runs without the feature that this put needs")
