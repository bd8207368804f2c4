"""The outbox: a publisher's numbering, and the one batch that may be under way.

A batch enters it, with its number and with the place in the plan behind it, before it is sent
for the first time (rules R3 and R16). It leaves when the proxy says that it is stored. Whatever
dies in between, the same bytes are sent again under the same number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.errors import LogChangedError
from reliable_pubsub.common.messages import QoS, TopicPosition, TopicReceipt
from reliable_pubsub.common.names import message_id
from reliable_pubsub.common.plan_mark import PlanMark

from .delivery import Delivery

Changes = dict[str, bytes | None]

# stored: the proxy has it. At QoS 0, sent: it left, once. unwanted: nobody would get it. dropped:
# no room on the link, or no link; somebody may have wanted it.
Fate = Literal["stored", "sent", "unwanted", "dropped"]

_EPOCH = "epoch"
_PENDING = "pending"
_TOPIC = "topic:"
_PLAN = "plan"
_TRANSACTION = "transaction"
_TRANSACTIONS = "transactions"


class Numbering(Struct, frozen=True):
    """How far a publisher is in one topic, by what the proxy has acknowledged."""

    log: str  # log id; "" while the topic does not exist
    last_sequence: int
    offset: int | None  # of that message


class Pending(Struct, frozen=True):
    """A batch that is numbered, and not known to be stored."""

    topic: str
    first_sequence: int
    count: int
    crc: int
    body: bytes
    plan_before: PlanMark | None = None  # where the plan stands if the batch is given up

    @property
    def last_sequence(self) -> int:
        """Sequence of its last message."""
        return self.first_sequence + self.count - 1


class PendingTransaction(Struct, frozen=True):
    """Batches of several topics with one fate: numbered, and not known to be stored."""

    number: int  # of the transaction
    batches: tuple[Pending, ...]  # those of one topic follow one another
    plan_before: PlanMark | None = None


class Receipt(Struct, frozen=True):
    """What became of these messages: the proxy has them, or (QoS 0) they were sent, or not."""

    topic: str
    publisher: str
    first_sequence: int
    count: int
    offset: int | None  # of the first; None if the proxy stored and has since removed them
    durability: str  # what "has" means: sync, os or snapshot; none at QoS 0
    duplicate: bool  # whether an earlier attempt had stored them
    qos: QoS = 2
    fate: Fate = "stored"
    delivery: Delivery | None = None  # who has acknowledged it, if the put waited for that

    @property
    def message_id(self) -> str:
        """Id of the first message, `<publisher>_<sequence>`."""
        return message_id(self.publisher, self.first_sequence)


_encode = msgspec.msgpack.Encoder().encode


class Outbox:
    """A publisher's state. Changes are applied here and given back, to be written."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        """Begin with what was written before; empty for a new publisher."""
        decode = msgspec.msgpack.decode
        self.epoch = decode(stored[_EPOCH], type=int) if _EPOCH in stored else 0
        self.pending = decode(stored[_PENDING], type=Pending) if _PENDING in stored else None
        self.plan = decode(stored[_PLAN], type=PlanMark) if _PLAN in stored else None
        self.transaction = (
            decode(stored[_TRANSACTION], type=PendingTransaction)
            if _TRANSACTION in stored
            else None
        )
        # Number of our last transaction; None: we have no memory of any.
        self.transactions = (
            decode(stored[_TRANSACTIONS], type=int) if _TRANSACTIONS in stored else None
        )
        self._repeated: dict[str, int] = {}  # up to here the proxy knows more than our state
        self.topics: dict[str, Numbering] = {
            name.removeprefix(_TOPIC): decode(value, type=Numbering)
            for name, value in stored.items()
            if name.startswith(_TOPIC)
        }

    def reload(self, stored: Mapping[str, bytes]) -> None:
        """Know what was written, and nothing else."""
        self.__dict__ = Outbox(stored).__dict__

    @property
    def is_in_doubt(self) -> bool:
        """Whether something is numbered and not settled; nothing else may be numbered then."""
        return self.pending is not None or self.transaction is not None

    def granted(self, epoch: int) -> Changes:
        """The proxy has granted an epoch."""
        self.epoch = epoch
        return {_EPOCH: _encode(epoch)}

    def last_receipt(self, topic: str, publisher: str) -> Receipt | None:
        """Of the newest message in a topic; None if there is none, or its offset is not known."""
        known = self.topics.get(topic)
        if known is None or known.offset is None:
            return None
        return Receipt(topic, publisher, known.last_sequence, 1, known.offset, "", False)

    def next_sequence(self, topic: str) -> int:
        """The number that the next message of a topic gets; its numbering must be known."""
        assert not self.is_in_doubt, "one at a time"
        return self.topics[topic].last_sequence + 1

    def number(
        self, topic: str, count: int, crc: int, body: bytes, plan: PlanMark | None = None
    ) -> tuple[Pending, Changes]:
        """Give a batch its numbers; write the changes before the first send."""
        before = None if plan is None else self.plan
        self.pending = Pending(topic, self.next_sequence(topic), count, crc, body, before)
        changes: Changes = {_PENDING: _encode(self.pending)}
        if plan is not None:
            changes |= self.mark_plan(plan)
        return self.pending, changes

    def mark_plan(self, plan: PlanMark) -> Changes:
        """Move the place in the plan."""
        self.plan = plan
        return {_PLAN: _encode(plan)}

    def stored(self, offset: int | None) -> Changes:
        """The proxy has the pending batch; `offset` is that of its first message."""
        pending = self.pending
        assert pending is not None
        log = self.topics[pending.topic].log
        last = None if offset is None else offset + pending.count - 1
        numbering = Numbering(log, pending.last_sequence, last)
        self.topics[pending.topic] = numbering
        self.pending = None
        return {_TOPIC + pending.topic: _encode(numbering), _PENDING: None}

    def is_unproven(self, offset: int | None) -> bool:
        """Whether a DUPLICATE for the pending batch may speak of another message.

        It may where our state is older than what was sent, and the proxy has removed the message
        under this number, so that it cannot compare.
        """
        pending = self.pending
        assert pending is not None
        repeated = self._repeated.get(pending.topic, 0)
        return offset is None and pending.last_sequence <= repeated

    def dropped(self) -> Changes:
        """The pending batch is not stored and will not be sent: its numbers are free again.

        The plan goes back too: what it says is done must be done.
        """
        pending = self.pending
        assert pending is not None
        self.pending = None
        changes: Changes = {_PENDING: None}
        if pending.plan_before is not None:
            changes |= self.mark_plan(pending.plan_before)
        return changes

    # Transactions. The number is ours; the proxy compares it, and what it stands for.

    def count_transactions(self, last: int) -> Changes:
        """Begin behind the last transaction that the proxy knows of this publisher."""
        self.transactions = last
        return {_TRANSACTIONS: _encode(last)}

    def number_transaction(
        self, batches: Sequence[Pending], plan: PlanMark | None = None
    ) -> tuple[PendingTransaction, Changes]:
        """Give a transaction and its batches their numbers; write the changes before it is sent.

        Args:
            batches: with any number; each gets the one that follows in its topic.
        """
        assert not self.is_in_doubt, "one at a time"
        assert self.transactions is not None
        before = None if plan is None else self.plan
        changes = self._number_batches(self.transactions + 1, batches, before)
        if plan is not None:
            changes |= self.mark_plan(plan)
        assert self.transaction is not None
        return self.transaction, changes

    def renumber_transaction(self, last: int) -> Changes:
        """Put the pending transaction behind what the proxy has: its topics are met again.

        Args:
            last: number of the last transaction that the proxy knows.
        """
        assert self.transaction is not None
        number = max(self.transaction.number, last + 1)
        return self._number_batches(number, self.transaction.batches, self.transaction.plan_before)

    def _number_batches(
        self, number: int, batches: Sequence[Pending], before: PlanMark | None
    ) -> Changes:
        nexts: dict[str, int] = {}
        numbered = []
        for batch in batches:
            first = nexts.get(batch.topic, self.topics[batch.topic].last_sequence + 1)
            numbered.append(replace(batch, first_sequence=first))
            nexts[batch.topic] = first + batch.count
        self.transaction = PendingTransaction(number, tuple(numbered), before)
        return {_TRANSACTION: _encode(self.transaction)}

    def transaction_stored(self, receipts: Sequence[TopicReceipt]) -> Changes:
        """The proxy has the pending transaction."""
        assert self.transaction is not None
        changes = self.count_transactions(self.transaction.number)
        for receipt in receipts:
            last = receipt.first_sequence + receipt.count - 1
            log = self.topics[receipt.topic].log
            numbering = Numbering(log, last, receipt.offset + receipt.count - 1)
            self.topics[receipt.topic] = numbering
            changes[_TOPIC + receipt.topic] = _encode(numbering)
        self.transaction = None
        return {**changes, _TRANSACTION: None}

    def transaction_dropped(self) -> Changes:
        """The pending transaction is not stored and will not be sent: its numbers are free."""
        assert self.transaction is not None
        before = self.transaction.plan_before
        self.transaction = None
        changes: Changes = {_TRANSACTION: None}
        if before is not None:
            changes |= self.mark_plan(before)
        return changes

    def meet(self, position: TopicPosition, *, adopt: bool, conflict: bool = False) -> Changes:
        """Compare our numbering in a topic with the proxy's (rule R14, faults M8 and M9).

        A publisher without memory of the topic takes the proxy's numbering.

        Args:
            adopt: on a difference, go on with the proxy's numbers instead of stopping.
            conflict: the numbers of the pending batch are used; when adopting it gets new ones.

        Raises:
            LogChangedError: the proxy has lost what it acknowledged, or our state is older than
                what we sent.
        """
        ours = self.topics.get(position.topic)
        theirs = Numbering(position.log, position.last_sequence, position.offset)
        problem = self._difference(position.topic, ours, theirs) if ours else ""
        if problem and not adopt:
            raise LogChangedError(
                f"topic {position.topic!r}: {problem}. Nothing was sent. To go on with the proxy's "
                "numbering, use --on-log-changed adopt"
            )
        changes: Changes = {}
        behind = ours is not None and theirs.last_sequence > ours.last_sequence
        if ours is not None and behind:
            self._repeated[position.topic] = theirs.last_sequence
            theirs = theirs if adopt else ours
        pending = self.pending
        if pending is not None and pending.topic == position.topic:
            # Numbers that the proxy has too are tried first: they may be this batch, from before.
            # Of numbers that the proxy has in part, it can only say GAP.
            unknown = pending.last_sequence > theirs.last_sequence
            in_part = unknown and pending.first_sequence <= theirs.last_sequence
            if (problem and unknown) or (adopt and (conflict or in_part)):
                first = theirs.last_sequence + 1
                pending = msgspec.structs.replace(pending, first_sequence=first)
                self.pending = pending
                changes[_PENDING] = _encode(pending)
            # It may be stored already; the answer to its own PUT tells.
            theirs = Numbering(theirs.log, pending.first_sequence - 1, None)
        self.topics[position.topic] = theirs
        changes[_TOPIC + position.topic] = _encode(theirs)
        return changes

    def _difference(self, topic: str, ours: Numbering, theirs: Numbering) -> str:
        """What is wrong between the two numberings; "" if nothing.

        That the proxy knows more than we do is not: after power loss our state may be older than
        what we sent. The same messages under their old numbers are DUPLICATE, others CONFLICT.
        """
        if ours.log and theirs.log != ours.log:
            now = f"is now {theirs.log!r}" if theirs.log else "does not exist there any more"
            return f"its log was {ours.log!r} and {now}: another data directory"
        if theirs.last_sequence < ours.last_sequence:
            return (
                f"the proxy acknowledged sequence {ours.last_sequence} and now knows only "
                f"{theirs.last_sequence}: it was set back to an older copy"
            )
        same = theirs.last_sequence == ours.last_sequence
        if same and None not in (ours.offset, theirs.offset) and ours.offset != theirs.offset:
            return f"sequence {ours.last_sequence} was at offset {ours.offset}, now {theirs.offset}"
        return ""
