"""The state of a member of a group: messages in hand and ahead, outcomes to report. Pure.

Nothing of it outlives the process: the proxy knows what is held, and gives it to others when the
lease ends. A request without an answer stays here and is sent again, so that what it settles is
settled once and its answer is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.answers import SubAck
from reliable_pubsub.common.core.batch import Message, StoredBatch
from reliable_pubsub.common.core.errors import (
    LeaseLostError,
    MalformedError,
    SettledInDoubtError,
)
from reliable_pubsub.common.core.group_messages import (
    How,
    Outcome,
    Settle,
    Settled,
    Stretch,
    Take,
    Taken,
)
from reliable_pubsub.common.core.limits import GROUP_OUTCOMES_MAX
from reliable_pubsub.common.core.message_base import GroupTerms, Start
from reliable_pubsub.common.core.wire import decode_batch

from ...core.pace import Pace
from ...core.restoring import Running

_offset = attrgetter("offset")
AHEAD_MAX = 4_000  # messages that a loop takes at once, in one request and one commit; see `Pace`
ENDS: tuple[How, ...] = ("ack", "nack", "reject")
AHEAD_FROM = 100  # so does a program that gets as many at once; with fewer it gets what it asks for


class JoinTerms(Struct, frozen=True, kw_only=True):
    """The arguments of `subscribe` with a group."""

    group: str
    terms: GroupTerms
    start: Start | None = None


class PendingRequest(Struct, frozen=True):
    """A request without an answer."""

    request: Take | Settle
    sent_s: float  # for the first time; leases count from here
    confirms: bool = False  # that what is fetched has come


class Membership:
    """A member of one group of one topic."""

    pushes: None = None  # see `Deliverable`; groups are polled
    fulfils: Callable[[Message], bool] | None = None  # see `TopicSubscription`
    was_late = False  # whether messages came too late in this call, and others were requested

    def __init__(self, topic: str, asked: JoinTerms) -> None:
        self.topic = topic
        self.asked = asked
        self.log: str | None = None  # log id; None: not known yet
        self.boot = ""  # of the proxy that has confirmed it
        # The offset after the newest message that was held here, and the timestamp of its batch.
        self.cursor: int | None = None
        self.witness_ns: int | None = None
        self.rejected: list[Stretch] = []  # settlements, to be reported
        self.in_doubt: list[Stretch] = []  # possibly rejected
        self.gone: dict[int, Message] = {}  # was in hand when all of it was lost
        self.in_hand: dict[int, Message] = {}
        self.pace = Pace(1, AHEAD_MAX)
        self.epoch = 0
        self.drop()

    def drop(self) -> None:
        """Forget everything that was held: the proxy has given it back."""
        self.gone = self.in_hand
        self.in_hand = {}
        self.fetched: deque[Message] = deque()
        self.is_unconfirmed = False  # the proxy has to learn that what is fetched came
        self.received = 0  # number of the newest TAKE whose messages came
        self._noted: list[Outcome] = []  # to be reported to the proxy
        self.until_s = 0.0  # when the lease of the fetched ones ends; only there it is used
        self._run: Running | None = None
        self.kept: dict[int, Message] = {}  # in hand; given back when the program comes back
        # Of what a loop took, the message in hand; None: everything in hand is of a get.
        self.last_taken: Sequence[Message] | None = None
        self._left: list[Outcome] | None = None  # of the noted, when a request has taken some
        # Losses that were not reported to the program yet. The proxy reports them to another
        # member, unless this one asks for more.
        self.lost: deque[Stretch] = deque()
        self.pending: PendingRequest | None = None
        self.is_fresh = True
        self.generation: int | None = None  # None: to be confirmed by the proxy

    def begin_again(self, given: Sequence[Message]) -> None:
        """Continue after an interrupted call: messages from returned calls stay in hand.

        Args:
            given: messages that the interrupted call was about to deliver; they are next.
        """
        if self.pending is not None:
            self._forget_sent()
        self._left = None
        self.end_run()
        for message in given:
            self.in_hand.pop(message.offset, None)
        self._put_ahead(given)
        self.in_hand = {
            offset: message
            for offset, message in self.in_hand.items()
            if not any(self.has_on_its_way(message, how) for how in ENDS)
        }

    def _put_ahead(self, messages: Sequence[Message]) -> None:
        """These are next, each once."""
        known = set(map(_offset, messages))
        rest = [message for message in self.fetched if message.offset not in known]
        self.fetched = deque([*messages, *rest])

    def joined(self, reply: SubAck, epoch: int) -> None:
        """The proxy has confirmed it; in another epoch it has given back all that was held."""
        generation = reply.generation
        self.log, self.boot = reply.log, reply.boot
        if epoch != self.epoch or generation != self.generation:
            pending = self.pending
            told = pending.request.outcomes if pending and not pending.confirms else ()
            noted = sorted(self._noted, key=lambda one: one.first)
            self.in_doubt += [Stretch(o.first, o.count) for o in told if o.how != "return"]
            self.rejected += [Stretch(o.first, o.count) for o in noted if o.how != "return"]
            self.drop()
            self.epoch, self.generation = epoch, generation

    def lose(self) -> None:
        """Require the proxy to confirm the membership again; it forgot the messages held here."""
        self.generation = None

    def accept_log(self) -> None:
        """Continue in the log of the proxy, also if messages of another one were held before."""
        self.log, self.cursor, self.witness_ns = None, None, None

    def take_rejected(self) -> tuple[list[Stretch], list[Stretch]]:
        """Return the settlements rejected, and possibly rejected, since the last call."""
        found = self.rejected, self.in_doubt
        self.rejected, self.in_doubt = [], []
        return found

    # What is handed over.

    @property
    def has_next(self) -> bool:
        """Whether something is to be handed over without asking the proxy."""
        return bool(self.fetched)

    def drop_late(self, now_s: float) -> bool:
        """Return fetched messages whose lease has ended: the proxy may have granted them on.

        Returns:
            Whether there was any.
        """
        is_late = bool(self.fetched) and now_s >= self.until_s
        if is_late:
            self.give_back_ahead()
        return is_late

    def next(self, count: int, now_s: float) -> list[Message]:
        """Hand over the first messages that are still held."""
        self.drop_late(now_s)
        if count < len(self.fetched):
            found = [self.fetched.popleft() for _ in range(count)]
        else:
            found = list(self.fetched)
            self.fetched.clear()
        self.in_hand.update(zip(map(_offset, found), found, strict=True))
        return found

    def begin_run(self, over: Callable[[], bool]) -> Running:
        """Let a loop take the fetched messages one by one.

        Args:
            over: whether their lease has ended.
        """
        self._run = Running(list(self.fetched), [0], 0, 0, over)
        self.fetched.clear()
        return self._run

    def end_run(self) -> None:
        """Keep the messages that a loop took in hand, and the rest for later delivery."""
        if (run := self._run) is not None:
            self.in_hand.update((one.offset, one) for one in run.messages[: run.taken])
            self._put_ahead(run.messages[run.taken :])
            self._run = None

    # What is settled.

    def note(self, message: Message, how: How, delay_ms: int = 0) -> None:
        """The program is done with a message; a later request reports it."""
        self.in_hand.pop(message.offset, None)
        outcome = Outcome(message.offset, 1, message.delivery_count, how, delay_ms)
        self._noted.append(outcome)

    def keep(self, message: Message) -> None:
        """A message in hand is not processed: it is given back when the program comes back."""
        self.kept[message.offset] = message

    def keep_taken(self, *, was_received: bool) -> None:
        """Mark the message that a loop took last as unprocessed."""
        if (run := self._run) is None:  # its only message
            self.kept = dict(self.in_hand)
        elif run.taken:
            self.last_taken = run.messages[run.taken - 1 : run.taken]
            self.keep(self.last_taken[0])

    def keep_none(self) -> None:
        """See `TopicSubscription.keep_none`."""
        self.kept = {}

    def end_loop(self, last: Message | None, *, is_kept: bool) -> None:
        """Note the message that a loop took last; give it back, if it is not processed."""
        self.last_taken = [] if last is None else [last]
        if is_kept and last is not None:
            self.keep(last)

    def settle_in_hand(self) -> None:
        """The program has come back: what is in hand is processed."""
        self.gone = {}
        for kept in self.kept.values():
            if kept.offset in self.in_hand:
                self.note(kept, "nack")
        self.kept = {}
        self._noted += outcomes_of(self.in_hand.values(), "ack")
        self.in_hand = {}
        self.last_taken = None

    def fail(self) -> None:
        """Mark the messages in hand as unprocessed: the program ends with an exception."""
        in_hand = self.in_hand.values() if self.last_taken is None else self.last_taken
        for message in list(in_hand):
            self.keep(message)

    def give_back_ahead(self) -> None:
        """Return messages that were not handed over: free for others, and not delivered."""
        self._noted += outcomes_of(self.fetched, "return")
        self.fetched.clear()
        self.is_unconfirmed = False

    def has_on_its_way(self, message: Message, how: How) -> bool:
        """Whether this outcome of a message was sent, and the proxy has not answered."""
        asked = self.pending.request.outcomes if self.pending is not None else ()
        return any(
            one.how == how
            and one.delivery == message.delivery_count
            and one.first <= message.offset < one.first + one.count
            for one in (*asked, *self._noted)
        )

    @property
    def has_noted(self) -> bool:
        """Whether there are outcomes to report."""
        return bool(self._noted)

    def take_noted(self) -> tuple[Outcome, ...]:
        """Outcomes for the next request, neighbours as one; noted until it is `pending`."""
        noted = sorted(self._noted, key=lambda one: one.first)
        found: list[Outcome] = []
        taken = 0
        for one in noted:
            last = found[-1] if found else None
            if last is not None and last.first + last.count == one.first and _alike(last, one):
                found[-1] = replace(last, count=last.count + one.count)
            elif len(found) == GROUP_OUTCOMES_MAX:
                break
            else:
                found.append(one)
            taken += 1
        self._left = noted[taken:]
        return tuple(found)

    def is_sent(self, pending: PendingRequest) -> None:
        """Note that a request is in flight, with its outcomes."""
        self.pending = pending
        self._forget_sent()

    def _forget_sent(self) -> None:
        if self._left is not None:
            self._noted, self._left = self._left, None

    # What is taken.

    def taken(self, reply: Taken, body: bytes, pending: PendingRequest, now_s: float) -> None:
        """Messages were granted; the lease counts from the sending of the request.

        Raises:
            MalformedError: the reply has a grant without its message.
        """
        found = granted_messages(self.topic, reply, body)
        self.is_fresh = False
        self.lost.extend(reply.lost)
        if not found:
            return
        if found[-1].offset >= (self.cursor or 0):
            self.cursor, self.witness_ns = found[-1].offset + 1, found[-1].timestamp_ns
        until_s = pending.sent_s + reply.lease_ms / 1000
        self.until_s = min(until_s, self.until_s) if self.fetched else until_s
        self.is_unconfirmed |= reply.unconfirmed is True
        fetched = deque([*self.fetched, *found])
        self.fetched, self.received = fetched, pending.request.request  # both or none
        self.pace.found(len(found), now_s)

    def confirmed(self, reply: Settled, pending: PendingRequest) -> Settled:
        """Note that the proxy confirmed the fetched messages; their lease counts from this request.

        Returns:
            The reply without its refusals: no program had those messages, which are dropped.
        """
        others = set(offsets_of(reply.refused))
        self.fetched = deque(one for one in self.fetched if one.offset not in others)
        self.until_s = pending.sent_s + reply.lease_ms / 1000
        self.is_unconfirmed = False
        return replace(reply, refused=())


def _alike(one: Outcome, other: Outcome) -> bool:
    return (one.delivery, one.how, one.delay_ms) == (other.delivery, other.how, other.delay_ms)


def granted_messages(topic: str, reply: Taken, body: bytes) -> list[Message]:
    """The messages that a reply grants, each with its delivery number, in offset order.

    Raises:
        MalformedError: the body is not that of its batches, or lacks a message.
    """
    stored: list[Message] = []
    begin, view = 0, memoryview(body)
    for one in reply.batches:
        part = view[begin : begin + one.body_bytes]
        begin += one.body_bytes
        stored += StoredBatch(one, decode_batch(part, one.count)).messages(topic)
    if len(reply.grants) == 1 and reply.grants[0].delivery == 1:
        first, count = reply.grants[0].first, reply.grants[0].count
        skip = first - stored[0].offset if stored else 0
        found = stored[skip : skip + count]
        if found and found[0].offset == first and found[-1].offset == first + count - 1:
            return found
    by_offset = {message.offset: message for message in stored}
    try:
        return [
            replace(by_offset[at], delivery_count=one.delivery)
            for one in reply.grants
            for at in range(one.first, one.first + one.count)
        ]
    except KeyError as error:
        raise MalformedError(f"TAKEN grants offset {error}, and has no such message") from None


def outcomes_of(messages: Iterable[Message], how: How) -> list[Outcome]:
    """Return the same outcome for many messages, neighbours as one: most are a batch."""
    found: list[Outcome] = []
    first = end = delivery = 0
    for message in messages:
        offset = message.offset
        if offset != end or message.delivery_count != delivery or first == end:
            if first < end:
                found.append(Outcome(first, end - first, delivery, how))
            first, delivery = offset, message.delivery_count
        end = offset + 1
    if first < end:
        found.append(Outcome(first, end - first, delivery, how))
    return found


def errors_of(
    topic: str, refused: Sequence[Stretch], in_doubt: Sequence[Stretch]
) -> Iterator[LeaseLostError | SettledInDoubtError]:
    """The errors for the program; first what is certain."""
    if refused:
        yield LeaseLostError(topic=topic, offsets=offsets_of(refused))
    if in_doubt:
        yield SettledInDoubtError(topic=topic, offsets=offsets_of(in_doubt))


def pairs(stretches: Iterable[Stretch]) -> tuple[tuple[int, int], ...]:
    """First and count of each."""
    return tuple((one.first, one.count) for one in stretches)


def offsets_of(stretches: Iterable[Stretch]) -> list[int]:
    """All of their offsets."""
    return [at for one in stretches for at in range(one.first, one.first + one.count)]
