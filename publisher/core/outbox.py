"""The outbox: a publisher's numbering, and the one batch that may be in flight.

A batch is written to it, with its number and the plan's position after it, before it is sent for
the first time (rules R3 and R16). It is removed when the proxy reports that it is stored. If a
process dies in between, the same bytes are sent again under the same number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.errors import LogChangedError
from reliable_pubsub.common.core.messages import QoS, TopicPosition, TopicReceipt
from reliable_pubsub.common.core.names import message_id
from reliable_pubsub.common.core.plan_mark import PlanMark

from .delivery import Delivery
from .repeating import TRANSACTIONS, Repeats

Changes = dict[str, bytes | None]

# stored: the proxy has it. At QoS 0, sent: it was sent once. unwanted: there is no listener.
# dropped: no room on the link, or no link; there may be listeners.
Fate = Literal["stored", "sent", "unwanted", "dropped"]

_EPOCH = "epoch"
_PENDING = "pending"
_TOPIC = "topic:"
_PLAN = "plan"
_TRANSACTION = "transaction"
_TRANSACTIONS = "transactions"
_REPEATS = "repeats"


class Numbering(Struct, frozen=True):
    """A publisher's last sequence in one topic, as the proxy reported it."""

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
    plan_before: PlanMark | None = None  # the plan's position if the batch is dropped

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
    """The outcome of a put: the proxy has the messages, or (QoS 0) they were sent, or not."""

    topic: str
    publisher: str
    first_sequence: int
    count: int
    offset: int | None  # of the first; None if the proxy stored and has since removed them
    durability: str  # what "has" means: sync, os or snapshot; none at QoS 0
    duplicate: bool  # whether an earlier attempt had stored them
    qos: QoS = 2
    fate: Fate = "stored"
    delivery: Delivery | None = (
        None  # the subscribers that acknowledged it, if the put waited for that
    )

    @property
    def message_id(self) -> str:
        """Id of the first message, `<publisher>_<sequence>`."""
        return message_id(self.publisher, self.first_sequence)

    def part(self, index: int, count: int = 1) -> Receipt:
        """The receipt of `count` of these messages, from the one at `index`."""
        if count == self.count:
            return self
        return replace(
            self,
            first_sequence=self.first_sequence + index,
            count=count,
            offset=None if self.offset is None else self.offset + index,
        )


_encode = msgspec.msgpack.Encoder().encode


class Outbox:
    """A publisher's state. Changes are applied in memory and returned, to be written."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        """Create an outbox from stored rows; empty for a new publisher."""
        decode = msgspec.msgpack.decode
        self.epoch = decode(stored[_EPOCH], type=int) if _EPOCH in stored else 0
        self.pending = decode(stored[_PENDING], type=Pending) if _PENDING in stored else None
        self.plan = decode(stored[_PLAN], type=PlanMark) if _PLAN in stored else None
        self.transaction = (
            decode(stored[_TRANSACTION], type=PendingTransaction)
            if _TRANSACTION in stored
            else None
        )
        # Number of our last transaction; None: unknown.
        self.transactions = (
            decode(stored[_TRANSACTIONS], type=int) if _TRANSACTIONS in stored else None
        )
        self.topics: dict[str, Numbering] = {
            name.removeprefix(_TOPIC): decode(value, type=Numbering)
            for name, value in stored.items()
            if name.startswith(_TOPIC)
        }
        self._told: dict[
            str, int
        ] = {}  # the last sequence at the proxy, for topics that were asked
        # Topics whose stored numbering was not compared yet: it may be older than what was sent.
        self._unmet = {*self.topics, TRANSACTIONS}
        self._goes_on = self.plan is not None and not self.plan.finished  # from the stored position
        self._repeats = decode(stored[_REPEATS], type=Repeats) if _REPEATS in stored else Repeats()

    def reload(self, stored: Mapping[str, bytes]) -> None:
        """Reset to the stored rows."""
        self.__dict__ = Outbox(stored).__dict__

    @property
    def in_doubt(self) -> tuple[Pending, ...]:
        """The numbered batches that are not settled: one, or those of a transaction.

        While there are any, nothing else may be numbered.
        """
        if self.transaction is not None:
            return self.transaction.batches
        return () if self.pending is None else (self.pending,)

    def granted(self, epoch: int) -> Changes:
        """The proxy has granted an epoch."""
        self.epoch = epoch
        return {_EPOCH: _encode(epoch)}

    def last_receipt(self, topic: str, publisher: str) -> Receipt | None:
        """The receipt of the newest message in a topic; None if there is none, or no offset."""
        known = self.topics.get(topic)
        if known is None or known.offset is None:
            return None
        return Receipt(topic, publisher, known.last_sequence, 1, known.offset, "", False)

    def next_sequence(self, topic: str, plan: PlanMark | None = None, count: int = 1) -> int:
        """The sequence of the next message of a topic, whose numbering must be known.

        Args:
            plan: the position after these messages, if they belong to a plan: they may have been
                numbered before.
            count: of the messages of the batch.
        """
        assert not self.in_doubt, "one at a time"
        return self._next(topic, self._repeats if self.is_running(plan) else Repeats(), count)

    def _next(self, topic: str, repeats: Repeats, count: int) -> int:
        return repeats.first(topic, count) or self.topics[topic].last_sequence + 1

    def is_running(self, plan: PlanMark | None) -> bool:
        """Whether a position belongs to the run of a plan that the state is in."""
        if plan is None or self.plan is None:
            return False
        return (plan.digest, plan.run) == (self.plan.digest, self.plan.run)

    def number(
        self, topic: str, count: int, crc: int, body: bytes, plan: PlanMark | None = None
    ) -> tuple[Pending, Changes]:
        """Number a batch; write the returned changes before the first send."""
        before = None if plan is None else self.plan
        first = self.next_sequence(topic, plan, count)
        self.pending = Pending(topic, first, count, crc, body, before)
        changes: Changes = {_PENDING: _encode(self.pending)}
        if plan is not None:
            changes |= self.mark_plan(plan) | self._passed(topic, first)
        return self.pending, changes

    def mark_plan(self, plan: PlanMark) -> Changes:
        """Move the position in the plan, or begin another plan or run: its messages are new."""
        changes: Changes = {}
        if not self.is_running(plan):
            self._goes_on = False
            changes |= self._set_repeats(Repeats())
        self.plan = plan
        return {**changes, _PLAN: _encode(plan)}

    def _passed(self, topic: str, first: int) -> Changes:
        """The plan has reached this number: if it is new, the plan repeats no more numbers."""
        known = self.topics[topic].last_sequence if topic else self.transactions or 0
        return self._set_repeats(self._repeats.without(topic)) if first > known else {}

    def _set_repeats(self, repeats: Repeats) -> Changes:
        if repeats == self._repeats:
            return {}
        self._repeats = repeats
        return {_REPEATS: _encode(repeats) if repeats.of else None}

    def stored(self, offset: int | None) -> Changes:
        """The proxy has the pending batch; `offset` is that of its first message."""
        pending = self.pending
        assert pending is not None
        last = None if offset is None else offset + pending.count - 1
        self.pending = None
        return {**self._reached(pending.topic, pending.last_sequence, last), _PENDING: None}

    def _reached(self, topic: str, last: int, offset: int | None) -> Changes:
        """The proxy has our message of this number, and perhaps later ones."""
        changes = self._set_repeats(self._repeats.after(topic, last))
        known = self.topics[topic]
        if last < known.last_sequence:
            return changes
        numbering = Numbering(known.log, last, offset)
        self.topics[topic] = numbering
        return {**changes, _TOPIC + topic: _encode(numbering)}

    def is_unproven(self, offset: int | None) -> bool:
        """Whether a DUPLICATE for the pending batch may be for another message.

        That is possible if the proxy had its numbers before it was sent from here, and has removed
        their messages, so that it cannot compare.
        """
        pending = self.pending
        assert pending is not None
        return offset is None and pending.last_sequence <= self._told.get(pending.topic, 0)

    def dropped(self) -> Changes:
        """The pending batch is not stored and will not be sent: its numbers are free again.

        The plan's position goes back too: messages before it must be stored.
        """
        pending = self.pending
        assert pending is not None
        self.pending = None
        changes: Changes = {_PENDING: None}
        if pending.plan_before is not None:
            changes |= self.mark_plan(pending.plan_before)
        return changes

    # Transactions. The number is ours; the proxy compares it, and the digest of the content.

    def meet_transactions(self, last: int) -> Changes:
        """Compare our numbering of transactions with the last that the proxy knows of us."""
        assert self.transaction is None, "one at a time"
        ours = self.transactions
        changes: Changes = {}
        if ours is not None and last > ours and self._may_repeat(TRANSACTIONS):
            changes = self._set_repeats(self._repeats.adding(TRANSACTIONS, ours + 1, last))
        self._unmet.discard(TRANSACTIONS)
        return {**changes, **self._count_transactions(max(last, ours or 0))}

    def _count_transactions(self, last: int) -> Changes:
        if last == self.transactions:
            return {}
        self.transactions = last
        return {_TRANSACTIONS: _encode(last)}

    def number_transaction(
        self, batches: Sequence[Pending], plan: PlanMark | None = None
    ) -> tuple[PendingTransaction, Changes]:
        """Give a transaction and its batches their numbers; write the changes before it is sent.

        Args:
            batches: with any number; each gets the one that follows in its topic.
        """
        assert not self.in_doubt, "one at a time"
        assert self.transactions is not None
        before = None if plan is None else self.plan
        again = self._repeats.first(TRANSACTIONS) if self.is_running(plan) else None
        repeats = self._repeats if again else Repeats()
        changes = self._number_batches(again or self.transactions + 1, batches, before, repeats)
        assert self.transaction is not None
        if plan is not None:
            changes |= self.mark_plan(plan) | self._passed(TRANSACTIONS, self.transaction.number)
            for batch in self.transaction.batches:
                changes |= self._passed(batch.topic, batch.first_sequence)
        return self.transaction, changes

    def renumber_transaction(self, last: int) -> Changes:
        """Number the pending transaction after what the proxy has; compare its topics again.

        Args:
            last: number of the last transaction that the proxy knows.
        """
        assert self.transaction is not None
        number = max(self.transaction.number, last + 1)
        pending = self.transaction
        changes = self._number_batches(number, pending.batches, pending.plan_before, Repeats())
        return {**changes, **self._set_repeats(Repeats())}

    def _number_batches(
        self, number: int, batches: Sequence[Pending], before: PlanMark | None, repeats: Repeats
    ) -> Changes:
        nexts: dict[str, int] = {}
        numbered = []
        for batch in batches:
            first = nexts.get(batch.topic) or self._next(batch.topic, repeats, batch.count)
            numbered.append(replace(batch, first_sequence=first))
            nexts[batch.topic] = first + batch.count
        self.transaction = PendingTransaction(number, tuple(numbered), before)
        return {_TRANSACTION: _encode(self.transaction)}

    def transaction_stored(self, receipts: Sequence[TopicReceipt]) -> Changes:
        """The proxy has the pending transaction."""
        assert self.transaction is not None
        number = self.transaction.number
        changes = self._set_repeats(self._repeats.after(TRANSACTIONS, number))
        changes |= self._count_transactions(max(number, self.transactions or 0))
        for receipt in receipts:
            last = receipt.first_sequence + receipt.count - 1
            changes |= self._reached(receipt.topic, last, receipt.offset + receipt.count - 1)
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
        """Compare our numbering in a topic with the proxy's (rules R14 and R24).

        New messages are numbered above what the proxy has. If it has more than our state, the batch
        in doubt and a plan that continues keep their numbers: the proxy may have them already.

        Args:
            adopt: on a difference, continue with the proxy's numbers instead of stopping.
            conflict: the numbers of the pending batch are used; when adopting it gets new ones.

        Raises:
            LogChangedError: the proxy has lost what it acknowledged.
        """
        topic = position.topic
        ours = self.topics.get(topic)
        theirs = Numbering(position.log, position.last_sequence, position.offset)
        problem = self._difference(topic, ours, theirs) if ours else ""
        if problem and not adopt:
            raise LogChangedError(
                f"topic {topic!r}: {problem}. Nothing was sent. To go on with the proxy's "
                "numbering, use --on-log-changed adopt"
            )
        repeats = self._repeats
        if problem or conflict:
            repeats = repeats.without(topic)
        elif ours is not None and self._may_repeat(topic):
            first = max(ours.last_sequence, self._last_in_doubt(topic)) + 1
            if first <= theirs.last_sequence:
                repeats = repeats.adding(topic, first, theirs.last_sequence)
        changes = self._set_repeats(repeats)
        self._unmet.discard(topic)
        self._told[topic] = theirs.last_sequence
        pending = self.pending
        if pending is not None and pending.topic == topic:
            # Numbers that the proxy has too are tried first: they may be this very batch.
            # For numbers that it has only in part, its reply would be GAP.
            unknown = pending.last_sequence > theirs.last_sequence
            in_part = unknown and pending.first_sequence <= theirs.last_sequence
            if (problem and unknown) or (adopt and (conflict or in_part)):
                self.pending = replace(pending, first_sequence=theirs.last_sequence + 1)
                changes[_PENDING] = _encode(self.pending)
        self.topics[topic] = theirs
        changes[_TOPIC + topic] = _encode(theirs)
        return changes

    def _may_repeat(self, topic: str) -> bool:
        """Whether the proxy's messages above our state may be the next ones of the plan."""
        return self._goes_on and topic in self._unmet

    def _last_in_doubt(self, topic: str) -> int:
        """The highest number of what is in doubt on a topic; 0: nothing."""
        numbers = (one.last_sequence for one in self.in_doubt if one.topic == topic)
        return max(numbers, default=0)

    def _difference(self, topic: str, ours: Numbering, theirs: Numbering) -> str:
        """How the two numberings contradict each other; "" if they do not.

        That the proxy has more is no contradiction: after power loss our state may be older than
        what we sent.
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
