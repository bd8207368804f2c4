"""The outbox: a publisher's numbering, and the one put that may be in flight. Pure.

A put is written to it, with its numbers and the caller's note, before it is sent for the first time
(rules R3 and R16). It is removed when the proxy reports that it is stored. If a process dies in
between, the same bytes are sent again under the same numbers. A put is a batch, or a transaction of
several; a batch is a transaction of one topic that has no number of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import TopicPosition
from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.errors import LogChangedError
from reliable_pubsub.common.core.schemas import convert, msgpack_decoder
from reliable_pubsub.common.core.transaction_messages import TopicReceipt
from reliable_pubsub.common.core.wire import encode_batch

from .receipt import Receipt
from .repeating import TRANSACTIONS, Repeats

Changes = dict[str, bytes | None]

_EPOCH = "epoch"
_TOPIC = "topic:"
_NOTE = "plan"  # the name it has in the state; a step file's note is its position in the plan
_BATCH = "pending"
_TRANSACTION = "transaction"
_TRANSACTIONS = "transactions"
_REPEATS = "repeats"
_NO_REPEATS: Final = Repeats()


class Numbering(Struct, frozen=True):
    """A publisher's last sequence in one topic, as the proxy reported it."""

    log: str  # log id; "" while the topic does not exist
    last_sequence: int
    offset: int | None  # of that message


class Encoded(Struct, frozen=True):
    """One batch that is not numbered yet."""

    topic: str
    count: int
    crc: int
    body: bytes


def encoded_batch(topic: str, batch: Batch, *, are_bytes: bool = False) -> Encoded:
    """Encode a batch, or raise a TooLargeError or UsageError: it cannot be put."""
    body = encode_batch(batch, are_bytes=are_bytes)
    return Encoded(topic, len(batch.payloads), crc32(body), body)


class Numbered(Struct, frozen=True):
    """One batch that is numbered."""

    topic: str
    first_sequence: int
    count: int
    crc: int
    body: bytes
    # That of `Pending`, if this batch is all of it and is stored in its place.
    note_before: bytes | None = msgspec.field(default=None, name="plan_before")

    @property
    def last_sequence(self) -> int:
        """Sequence of its last message."""
        return self.first_sequence + self.count - 1


class Pending(Struct, frozen=True):
    """A put that is numbered, and not known to be stored: batches with one fate."""

    number: int  # of the transaction; 0: it is a single batch
    batches: tuple[Numbered, ...]  # those of one topic follow one another
    # The note that is restored if the put is dropped.
    note_before: bytes | None = msgspec.field(default=None, name="plan_before")


_encode = msgspec.msgpack.Encoder().encode
_number = msgpack_decoder(int).decode
_numbering = msgpack_decoder(Numbering).decode
_repeats = msgpack_decoder(Repeats).decode


class Outbox:
    """A publisher's state. Changes are applied in memory and returned, to be written."""

    def __init__(self, stored: Mapping[str, bytes]) -> None:
        """Create an outbox from stored rows; empty for a new publisher."""
        self.epoch = _number(stored[_EPOCH]) if _EPOCH in stored else 0
        self.note = stored.get(_NOTE)
        self.pending = _pending(stored)
        # Number of our last transaction; None: unknown.
        self.transactions = _number(stored[_TRANSACTIONS]) if _TRANSACTIONS in stored else None
        self.topics: dict[str, Numbering] = {
            name.removeprefix(_TOPIC): _numbering(value)
            for name, value in stored.items()
            if name.startswith(_TOPIC)
        }
        self._proxy_last: dict[str, int] = {}  # its last sequence, for topics that were asked
        # Topics whose stored numbering was not compared yet: it may be older than what was sent.
        self._unmet = {*self.topics, TRANSACTIONS}
        self._continues = self.note is not None  # the run that wrote the note may continue from it
        self._repeats = _repeats(stored[_REPEATS]) if _REPEATS in stored else Repeats()

    def reload(self, stored: Mapping[str, bytes]) -> None:
        """Reset to the stored rows."""
        self.__dict__ = Outbox(stored).__dict__

    def granted(self, epoch: int) -> Changes:
        """The proxy has granted an epoch."""
        self.epoch = epoch
        return {_EPOCH: _encode(epoch)}

    @property
    def batch_in_doubt(self) -> Numbered | None:
        """The batch that is numbered and kept, and not known to be stored."""
        pending = self.pending
        return None if pending is None or pending.number else pending.batches[0]

    @property
    def transaction_in_doubt(self) -> Pending | None:
        """The transaction that is numbered and kept, and not known to be stored."""
        return self.pending if self.pending is not None and self.pending.number else None

    def last_receipt(self, topic: str, publisher: str) -> Receipt | None:
        """The receipt of the newest message in a topic; None if there is none, or no offset."""
        known = self.topics.get(topic)
        if known is None or known.offset is None:
            return None
        return Receipt(topic, publisher, known.last_sequence, 1, known.offset, "", False)

    # Numbers.

    def next_sequence(self, topic: str, count: int = 1, *, repeats: bool = False) -> int:
        """The sequence of the next message of a topic, whose numbering must be known.

        Args:
            count: of the messages of the batch.
            repeats: they get a note, so this run may have put and numbered them before.
        """
        again = self._repeats.first(topic, count) if repeats else None
        return again or self.topics[topic].last_sequence + 1

    def next_transaction(self, *, repeats: bool = False) -> int:
        """The number of the next transaction; see `next_sequence`."""
        assert self.transactions is not None, "they must have been met"
        again = self._repeats.first(TRANSACTIONS) if repeats else None
        return again or self.transactions + 1

    def number(
        self, batches: Sequence[Encoded | Numbered], note: bytes | None = None, *, number: int = 0
    ) -> Changes:
        """Number the next put; write the returned changes before the first send.

        Args:
            note: stored with the numbers, for the caller. After a crash it puts the messages after
                its last note again, and they get their old numbers.
            number: of the transaction, by `next_transaction`; 0: it is a single batch.
        """
        assert self.pending is None, "one at a time"
        is_new = number > (self.transactions or 0)
        repeats = _NO_REPEATS if note is None or is_new else self._repeats
        before = None if note is None else self.note
        nexts: dict[str, int] = {}
        numbered = []
        for batch in batches:
            topic, count = batch.topic, batch.count
            first = nexts.get(topic) or self.topics[topic].last_sequence + 1
            if repeats.of and topic not in nexts:
                first = repeats.first(topic, count) or first
            nexts[topic] = first + count
            own_note = None if number else before
            numbered.append(Numbered(topic, first, count, batch.crc, batch.body, own_note))
        self.pending = Pending(number, tuple(numbered), before)
        changes: Changes = (
            {_TRANSACTION: _encode(self.pending)} if number else {_BATCH: _encode(numbered[0])}
        )
        return changes if note is None else changes | self._noted(note)

    def _noted(self, note: bytes) -> Changes:
        """Write the note of the pending put: the run has reached its numbers."""
        pending = self.pending
        assert pending is not None
        changes = self.write_note(note)
        if pending.number:
            changes |= self._passed(TRANSACTIONS, pending.number)
        for batch in pending.batches:
            changes |= self._passed(batch.topic, batch.first_sequence)
        return changes

    def write_note(self, note: bytes) -> Changes:
        self.note = note
        return {_NOTE: note}

    def begin_run(self, note: bytes) -> Changes:
        """Begin a run: its messages are new, so it repeats no numbers of an earlier run."""
        self._continues = False
        return {**self._set_repeats(_NO_REPEATS), **self.write_note(note)}

    def _passed(self, topic: str, first: int) -> Changes:
        """The run has reached this number: if it is new, the run repeats no more numbers."""
        known = self.topics[topic].last_sequence if topic else self.transactions or 0
        return self._set_repeats(self._repeats.without(topic)) if first > known else {}

    def _set_repeats(self, repeats: Repeats) -> Changes:
        if repeats == self._repeats:
            return {}
        self._repeats = repeats
        return {_REPEATS: _encode(repeats) if repeats.of else None}

    # Outcomes.

    def settled(self, receipts: Sequence[Receipt | TopicReceipt]) -> Changes:
        """The proxy has the pending put.

        Args:
            receipts: what it has of each topic, perhaps in several.
        """
        pending = self.pending
        assert pending is not None
        changes: Changes = {}
        if pending.number:
            changes = self._count_transactions(max(pending.number, self.transactions or 0))
            changes |= self._set_repeats(self._repeats.after(TRANSACTIONS, pending.number))
        for one in receipts:
            last = one.first_sequence + one.count - 1
            if self._repeats.of:
                changes |= self._set_repeats(self._repeats.after(one.topic, last))
            known = self.topics[one.topic]
            if last >= known.last_sequence:
                offset = None if one.offset is None else one.offset + one.count - 1
                self.topics[one.topic] = known = Numbering(known.log, last, offset)
                changes[_TOPIC + one.topic] = _encode(known)
        self.pending = None
        changes[_TRANSACTION if pending.number else _BATCH] = None
        return changes

    def dropped(self) -> Changes:
        """The pending put is not stored and will not be sent: its numbers are free again.

        The note goes back too: what was put before it must be stored.
        """
        pending = self.pending
        assert pending is not None
        self.pending = None
        changes: Changes = {_TRANSACTION if pending.number else _BATCH: None}
        if pending.note_before is not None:
            changes |= self.write_note(pending.note_before)
        return changes

    def is_unproven(self, offset: int | None) -> bool:
        """Whether a DUPLICATE for the pending batch may be for another message.

        That is possible if the proxy had its numbers before it was sent from here, and has removed
        their messages, so that it cannot compare.
        """
        assert self.pending is not None
        batch = self.pending.batches[0]
        return offset is None and batch.last_sequence <= self._proxy_last.get(batch.topic, 0)

    # Comparing with the proxy.

    def meet_transactions(self, last: int) -> Changes:
        """Compare our numbering of transactions with the last one that the proxy knows."""
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

    def renumber_transaction(self, last: int) -> Changes:
        """Number the pending transaction after what the proxy has; compare its topics first.

        Args:
            last: number of the last transaction that the proxy knows.
        """
        old, self.pending = self.pending, None
        assert old is not None
        self.number(old.batches, number=max(old.number, last + 1))
        assert self.pending is not None
        self.pending = replace(self.pending, note_before=old.note_before)
        return {_TRANSACTION: _encode(self.pending)} | self._set_repeats(_NO_REPEATS)

    def differs(self, position: TopicPosition) -> bool:
        """Whether our numbering in a topic and the proxy's contradict each other."""
        ours = self.topics.get(position.topic)
        theirs = Numbering(position.log, position.last_sequence, position.offset)
        return ours is not None and bool(self._difference(position.topic, ours, theirs))

    def meet(self, position: TopicPosition, *, adopt: bool, conflict: bool = False) -> Changes:
        """Compare our numbering in a topic with the proxy's (rules R14 and R24).

        New messages are numbered above what the proxy has. If it has more than our state, the batch
        in doubt and a run that continues keep their numbers: the proxy may have them already.

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
                f"topic {topic!r}: {problem}. Nothing was sent. To continue with the proxy's "
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
        self._proxy_last[topic] = theirs.last_sequence
        changes |= self._renumbered(topic, theirs, bool(problem), adopt=adopt, conflict=conflict)
        self.topics[topic] = theirs
        changes[_TOPIC + topic] = _encode(theirs)
        return changes

    def _renumbered(
        self, topic: str, theirs: Numbering, differs: bool, *, adopt: bool, conflict: bool
    ) -> Changes:
        """Number the pending batch after what the proxy has, if its numbers cannot be tried first.

        Numbers that the proxy has too are tried: they may be this very batch. For numbers that it
        has only in part, its reply would be GAP.
        """
        pending = self.pending
        if pending is None or pending.number or pending.batches[0].topic != topic:
            return {}
        batch = pending.batches[0]
        unknown = batch.last_sequence > theirs.last_sequence
        in_part = unknown and batch.first_sequence <= theirs.last_sequence
        if not ((differs and unknown) or (adopt and (conflict or in_part))):
            return {}
        batch = replace(batch, first_sequence=theirs.last_sequence + 1)
        self.pending = replace(pending, batches=(batch,))
        return {_BATCH: _encode(batch)}

    def _may_repeat(self, topic: str) -> bool:
        """Whether the proxy's messages above our state may be the next ones of the run."""
        return self._continues and topic in self._unmet

    def _last_in_doubt(self, topic: str) -> int:
        """The highest number of what is in doubt on a topic; 0: nothing."""
        batches = self.pending.batches if self.pending is not None else ()
        numbers = (one.last_sequence for one in batches if one.topic == topic)
        return max(numbers, default=0)

    def _difference(self, topic: str, ours: Numbering, theirs: Numbering) -> str:
        """How the two numberings contradict each other; "" if they do not.

        That the proxy has more is no contradiction: after power loss our state may be older than
        what we sent.
        """
        if ours.log and theirs.log != ours.log:
            now = f"is now {theirs.log!r}" if theirs.log else "no longer exists there"
            return f"its log was {ours.log!r} and {now}: another data directory"
        if theirs.last_sequence < ours.last_sequence:
            return (
                f"the proxy acknowledged sequence {ours.last_sequence} and now knows only "
                f"{theirs.last_sequence}: it was set back to an older copy, or it has forgotten "
                "this id"
            )
        same = theirs.last_sequence == ours.last_sequence
        if same and None not in (ours.offset, theirs.offset) and ours.offset != theirs.offset:
            return f"sequence {ours.last_sequence} was at offset {ours.offset}, now {theirs.offset}"
        return ""


def _pending(stored: Mapping[str, bytes]) -> Pending | None:
    """Read the put in doubt."""
    name = _TRANSACTION if _TRANSACTION in stored else _BATCH
    if name not in stored:
        return None
    row = msgspec.msgpack.decode(stored[name])
    if name == _TRANSACTION:
        return convert(row, Pending)
    batch = convert(row, Numbered)
    return Pending(0, (batch,), batch.note_before)
