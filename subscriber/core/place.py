"""`Place`: the position of a subscriber in one topic, as one row of its state. Pure.

The cursor moves when a message has been processed, not when it is delivered. Messages that were
delivered but not processed when the process died are redelivered, marked with their delivery
count, so the place has that too. Each method returns a new place; places are immutable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from math import inf
from operator import attrgetter
from typing import Final, NamedTuple

from msgspec import UNSET, Struct, field
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import SubAck
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import LogChangedError
from reliable_pubsub.common.core.message_base import Terms

RUN_BATCHES_MAX: Final = 100  # their ends and timestamps are in the row


class Run(Struct, frozen=True, array_like=True):
    """Messages from the cursor on that a loop takes one by one, without a write for each.

    How many it has taken so far is in a mark: `number << 32 | taken`, at `slot` of the state. A run
    may be of several topics, one after another; each has a row, and the mark is that of all.
    """

    number: int  # tells its mark from those of other runs
    slot: int
    before: tuple[tuple[int, int], ...]  # `Place.in_hand` before it
    batches: tuple[tuple[int, int], ...]  # end and timestamp of each
    skip: int = 0  # messages of other topics that it takes before these
    total: int = 0  # messages of all of its topics; 0: it is of one

    def taken(self, mark: int, count: int) -> int | None:
        """How many of `count` messages were taken; None: the mark is of another run, or damaged.

        `count` + 1 if the loop has reached another topic: then it has processed the last one.
        """
        taken = mark & 0xFFFFFFFF
        is_ours = mark >> 32 == self.number and taken <= (self.total or count)
        return min(max(taken - self.skip, 0), count + 1) if is_ours else None

    def witness_ns(self, cursor: int) -> int:
        """The timestamp of the batch that holds offset `cursor` - 1."""
        return next(timestamp_ns for end, timestamp_ns in self.batches if end >= cursor)


class Place(Struct, frozen=True):
    """The position of a subscriber in one topic."""

    log: str  # log id: the log that the offsets refer to
    cursor: int  # the next offset not processed
    witness_ns: int | None = None  # timestamp of the batch that holds offset cursor - 1
    # Delivered and not processed: (end, count): messages from the cursor to `end`, `count` times.
    in_hand: tuple[tuple[int, int], ...] = ()
    terms: Terms = Terms()  # of the subscription
    max_deliveries: int | None = None  # after these a message becomes a dead letter; None: never
    # Why the message at the cursor is to be rejected; "": it is not.
    rejection: str = field(default="", name="giving_up")
    shown: int = 0  # messages below it were delivered before this place was chosen
    asks: bool = False  # a SUB with another start is pending; the proxy may have moved
    run: Run | None = None  # delivered since this row was written; part of `in_hand`

    # Queries.

    def deliveries(self, offset: int) -> int:
        """How often a message at or above the cursor was delivered."""
        return next((count for end, count in self.in_hand if offset < end), 0)

    @property
    def handed_end(self) -> int:
        """The offset after the highest one that is known to be delivered."""
        return max(self.cursor, self.shown, *(end for end, _ in self.in_hand))

    def has_become_dead(self, reply: SubAck) -> bool:
        """Whether the proxy already has the dead letter that an earlier process may have sent."""
        is_next = reply.cursor == self.cursor + 1
        return bool(self.rejection) and is_next and reply.moved is UNSET

    # Changes.

    def handed_over(self, messages: list[Message]) -> tuple[Place, list[Message]]:
        """Deliver the messages that follow the cursor; those that come again are marked."""
        last = messages[-1]
        if self.terms.qos == 0:  # at most once: processed before it is delivered
            return self.moved(last.offset + 1, last.timestamp_ns), messages
        if not self.in_hand and self.shown <= self.cursor:  # none was delivered before
            return replace(self, in_hand=((last.offset + 1, 1),)), messages
        place = self.counted(last.offset + 1)
        return place, marked(place, messages)

    def counted(self, end: int) -> Place:
        """Count a delivery of the messages from the cursor up to `end`."""
        runs = [(min(run_end, end), count + 1) for run_end, count in self.in_hand]
        runs += [(end, 1)]
        runs += [run for run in self.in_hand if run[0] > end]
        # Of several entries with the same end only the first has messages.
        in_hand = tuple(
            run for index, run in enumerate(runs) if index == 0 or run[0] > runs[index - 1][0]
        )
        return replace(self, in_hand=in_hand)

    def in_run(
        self,
        number: int,
        slot: int,
        batches: tuple[tuple[int, int], ...],
        *,
        skip: int = 0,
        total: int = 0,
    ) -> Place:
        """Let a loop deliver these batches, one message after the other; see `Run`."""
        assert self.run is None
        run = Run(number, slot, self.in_hand, batches, skip, total)
        return replace(self.counted(batches[-1][0]), run=run)

    def after_run(self, taken: int | None) -> Place:
        """Deliver `taken` messages of a run; all but the last of them are processed.

        Args:
            taken: see `Run.taken`. None: any of them may have been delivered.
        """
        run = self.run
        if run is None:
            return self
        at_most_once = self.terms.qos == 0  # so that what was delivered counts as processed
        if taken is None and not at_most_once:
            return replace(self, run=None)
        place = replace(self, in_hand=run.before, run=None)
        last = run.batches[-1][0]
        end = last if taken is None else min(self.cursor + taken, last)
        processed = end if taken is None or at_most_once else self.cursor + max(taken - 1, 0)
        if processed > self.cursor:
            place = place.moved(processed, run.witness_ns(processed))
        return place.counted(end) if end > processed else place

    def moved(self, cursor: int, witness_ns: int | None) -> Place:
        """Everything below `cursor` is processed or lost.

        Args:
            witness_ns: timestamp of the newest message below it; None: it is not known.
        """
        assert cursor >= self.cursor, (cursor, self)
        assert self.run is None, self
        in_hand = tuple(run for run in self.in_hand if run[0] > cursor)
        return replace(self, cursor=cursor, witness_ns=witness_ns, in_hand=in_hand, rejection="")

    def rejecting(self, offset: int, reason: str) -> Place:
        """Reject the message at `offset`; everything below it is processed."""
        witness_ns = self.witness_ns if offset == self.cursor else None
        return replace(self.moved(offset, witness_ns), rejection=reason)

    def kept(self) -> Place:
        """Withdraw the rejection of the message at the cursor."""
        return replace(self, rejection="")

    def confirmed(self, reply: SubAck, *, adopt: bool) -> Place:
        """The proxy has confirmed the subscription at this place or below, or knows of more.

        Args:
            adopt: where the proxy knows of more than this state, continue at its position.

        Raises:
            LogChangedError: the proxy knows of more acknowledged messages than this state: the
                state is older than what this subscriber did.
        """
        if self.has_become_dead(reply):
            moved = self.moved(reply.cursor, reply.witness_ns)
            return replace(moved, terms=reply.terms, asks=False)
        # Below QoS 2 our state may be older; acknowledged messages were processed nevertheless.
        may_be_older = adopt or reply.terms.qos < 2 or self.asks
        if reply.cursor > self.cursor and may_be_older:
            return repositioned(reply, self if self.asks else None)
        if reply.cursor > self.cursor:
            raise LogChangedError(
                f"topic {reply.topic!r}: the proxy knows that offsets up to {reply.cursor - 1} "
                f"were acknowledged with this id, this state is at {self.cursor}: the state "
                "is an older copy. To go on at the proxy's position, use --on-log-changed adopt"
            )
        if reply.terms != self.terms or self.asks:
            return replace(self, terms=reply.terms, asks=False)
        return self

    def moved_by_operator(self, reply: SubAck) -> Place:
        """An operator has moved the subscription at the proxy.

        Back: that place replaces this one, and what was delivered comes again, marked. Forward:
        this place stays, and the next GET reports what lies between as lost.
        """
        if reply.cursor < self.cursor:
            return replace(repositioned(reply, self), max_deliveries=self.max_deliveries)
        return replace(self, terms=reply.terms, asks=False, rejection="")

    def compared(self, topic: str, end: int, *, forget: bool) -> Place:
        """Check delivered offsets against the end of the log: they must be below it (rule R14).

        Args:
            forget: continue; the cursor is of this log, only messages in hand are lost.

        Raises:
            LogChangedError: messages that were delivered are no longer in the log.
        """
        shown_end = self.in_hand[-1][0] if self.in_hand else self.cursor
        if shown_end <= end:
            return self
        if forget:
            return replace(self, in_hand=())
        raise LogChangedError(
            f"topic {topic!r}: offsets {self.cursor} to {shown_end - 1} were delivered and not "
            f"acknowledged, and the log of the proxy ends at {end}: it was set back to an older "
            "copy. To continue without them, use --on-log-changed adopt"
        )


class Standing(Struct, frozen=True):
    """The subscriber's position, and the start of the proxy that it belongs to."""

    log: str
    boot: str
    cursor: int  # the next offset it wants
    proxy_cursor: int  # the cursor that the proxy knows
    heard_s: float = inf  # the proxy must get a request within this time: half the lease


NO_PLACE: Final = Place("", -1)  # of a topic that is not subscribed to


class Batches(NamedTuple):
    """Messages for a run, with the end and the timestamp of each of their batches."""

    messages: list[Message]
    ends: tuple[tuple[int, int], ...]


def run_batches(fetched: Iterable[Message]) -> Batches:
    """The first of these messages, as many as one run may have."""
    messages, taken = list(fetched), 0
    ends: list[tuple[int, int]] = []
    while taken < len(messages) and len(ends) < RUN_BATCHES_MAX:
        timestamp_ns = messages[taken].timestamp_ns  # all messages of a batch have it
        taken = bisect_right(messages, timestamp_ns, taken, key=attrgetter("timestamp_ns"))
        ends.append((messages[taken - 1].offset + 1, timestamp_ns))
    return Batches(messages[:taken], tuple(ends))


def marked(place: Place, messages: list[Message]) -> list[Message]:
    """These messages, which the place counts as delivered, each with its delivery count."""
    is_first = len(place.in_hand) == 1 and place.in_hand[0][1] == 1 and place.shown <= place.cursor
    if is_first or place.terms.qos == 0:
        return messages
    return [
        replace(m, delivery_count=place.deliveries(m.offset) + (m.offset < place.shown))
        for m in messages
    ]


def repositioned(reply: SubAck, before: Place | None = None) -> Place:
    """The place after a SUB with a start; the proxy's cursor replaces ours.

    Messages delivered before are marked but not counted: they are replayed, or were sent to an
    earlier process of this id whose state is lost.

    Args:
        before: the place until now; None: there was none, and the proxy knows what it has sent.
    """
    place = Place(reply.log, reply.cursor, reply.witness_ns, (), reply.terms)
    if before is None or before.log != reply.log:
        return replace(place, shown=reply.shown)
    if reply.cursor < before.cursor:
        return replace(place, shown=before.handed_end)
    in_hand = before.moved(reply.cursor, None).in_hand
    return replace(place, in_hand=in_hand, shown=before.shown)
