"""A subscriber in groups: joins, takes, settles. Pure.

The messages of a group are held by one member at a time. `get` acknowledges what the last `get`
gave, as in a plain subscription; with `ack`, `nack`, `extend` and `reject` the program says more of
single messages. What a loop or `get` acknowledges goes with the next TAKE, so that a batch costs
one request and one commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

from reliable_pubsub.common.core.answers import AnyReply
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.conversation import Conversation, Save
from reliable_pubsub.common.core.errors import (
    LeaseLostError,
    LostError,
    NotSubscribedError,
    PubSubError,
    UsageError,
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
from reliable_pubsub.common.core.recorder import Call, seen

from ...core.delivering import A_LOOP, Source
from ...core.fetching import patience_s
from ...core.restoring import Running
from ...core.session import SubscriberSession
from ...core.subscribing import OnLogChanged
from .group_requests import GroupRequests
from .membership import (
    AHEAD_FROM,
    JoinTerms,
    Membership,
    errors_of,
    offsets_of,
    outcomes_of,
    pairs,
)


class Groups(Source[Membership]):
    """The groups in which one subscriber is a member."""

    new_membership = Membership

    def __init__(
        self,
        session: SubscriberSession,
        *,
        on_log_changed: OnLogChanged,
        now_s: Callable[[], float],
    ) -> None:
        """It is a member of none.

        Args:
            on_log_changed: what to do if the log is not the one of the messages that were held.
            now_s: the monotonic clock.
        """
        self._session = session
        self._now_s = now_s
        self.members: dict[str, Membership] = {}  # by topic
        self._requests = GroupRequests(
            session,
            now_s=now_s,
            on_log_changed=on_log_changed,
            ended=lambda topic: self.members.pop(topic, None),
        )

    def is_in(self, topic: str, group: str) -> bool:
        """Whether this client is a member of this group."""
        member = self.members.get(topic)
        return member is not None and member.asked.group == group

    def held(self, message: Message) -> Membership:
        """The membership by which a message is in hand.

        Raises:
            UsageError: it is not in hand, or of no group.
            LeaseLostError: it was, and the proxy has given it to others.
        """
        member = self.members.get(message.topic)
        if member is None:
            raise UsageError(
                f"this client is in no group of topic {message.topic!r}, and only a group settles "
                "single messages; a plain subscription acknowledges when the program comes back "
                "for the next message, or calls `acknowledge`. Nothing was done"
            )
        if member.gone.get(message.offset) == message:
            raise LeaseLostError(topic=message.topic, offsets=[message.offset])
        if member.in_hand.get(message.offset) != message:
            raise UsageError(
                f"message {message.message_id} at offset {message.offset} of {message.topic!r} is "
                "not in hand: only what the last get gave can be settled, and that once. Nothing "
                "was done"
            )
        return member

    def _asked_before(self, message: Message, how: How) -> Membership | None:
        """The membership that has this outcome on its way; its answer did not come yet."""
        member = self.members.get(message.topic)
        return member if member is not None and member.has_on_its_way(message, how) else None

    def begin_again(self) -> None:
        """Continue after an interrupted call; a request without an answer is sent again."""
        for member in self.members.values():
            member.begin_again(self._session.inbox.undo.before.get(member, ()))

    # Members come and go.

    def join(self, topic: str, asked: JoinTerms) -> Conversation[int]:
        """Become a member; return the cursor of the group."""
        member = self.members.get(topic)
        if member is not None and member.asked.group != asked.group:
            raise UsageError(
                f"topic {topic!r}: a member of {member.asked.group!r} cannot be one of "
                f"{asked.group!r}; unsubscribe first, or use another client"
            )
        if member is None:
            member = self.new_membership(topic, asked)
        member.asked = asked
        cursor = yield from self._requests.join(member, is_new=True)
        self._tell_lost(member, *member.take_rejected())
        self.members[topic] = member
        return cursor

    def leave(self, topic: str, *, ends_group: bool, fails: bool = False) -> Conversation[None]:
        """Settle the messages in hand, return the rest, and leave the group.

        Args:
            fails: also return the messages in hand, which the program has not processed.
        """
        session, member = self._session, self.members[topic]
        if fails:
            member.fail()
        member.settle_in_hand()
        member.give_back_ahead()
        if member.has_noted or (member.pending and member.generation is not None):
            with suppress(NotSubscribedError):  # it is left, or ended, already
                yield from self._tell(member)
        with session.recorder.call("unsubscribe", topic) as call:
            yield from self._requests.leave(member, call, ends_group=ends_group)
            self.members.pop(topic, None)
            call.ok(epoch=session.inbox.epoch, group=member.asked.group)

    def leave_all(self, *, fails: bool = False) -> Conversation[None]:
        """Leave every group, at the end of the process.

        Args:
            fails: as in `leave`.
        """
        for topic in list(self.members):
            if self._session.connected:
                yield from self.leave(topic, ends_group=False, fails=fails)

    # The messages, as a source.

    def settle(self, member: Membership) -> Conversation[None]:
        """Count what is in hand as processed; the next request reports it."""
        yield from ()
        member.settle_in_hand()
        member.was_late = False

    def ready(self, member: Membership) -> Conversation[bool | None]:
        """Report one stretch of lost messages at each call."""
        if member.lost:
            one = member.lost.popleft()
            raise LostError(topic=member.topic, first=one.first, end=one.first + one.count)
        if (yield from self._is_late(member)) and not member.was_late:
            member.was_late = True
            return None
        return member.has_next

    def arrived(self, member: Membership, count: int, *, asks: bool) -> Conversation[bool]:
        """Return False: the messages of a group are not pushed."""
        yield from ()
        return False

    def request(self, member: Membership, count: int, left_s: float) -> Conversation[None]:
        """TAKE, which also reports what was settled.

        Take more than is handed over if the loop is fast; so does a `get` of many.
        """
        if count == A_LOOP or count >= AHEAD_FROM:
            count = max(count, member.pace.look_ahead(self._now_s()))
        wait_ms = int(patience_s(self._session, left_s, member.asked.terms.lease_ms) * 1000)

        def make() -> Take:
            assert member.generation is not None
            return Take(
                **self._session.head(),
                topic=member.topic,
                group=member.asked.group,
                generation=member.generation,
                outcomes=member.take_noted(),
                messages_max=count,
                received=member.received,
                fresh=member.is_fresh,
            )

        refused: list[Stretch] = []
        with self._session.recorder.call("take", member.topic) as call:
            reply: AnyReply | None = None
            while not isinstance(reply, Taken):  # else it answers a SETTLE that had been in doubt
                reply = yield from self._requests.asking(member, make, call, wait_ms=wait_ms)
                if not isinstance(reply, Taken | Settled):
                    self._session.refused(reply, member.topic)
                refused += reply.refused
            rejected, in_doubt = member.take_rejected()
            refused += rejected
            self._settled(member, call, refused, in_doubt)
        self._tell_lost(member, refused, in_doubt)

    def hand_over(self, member: Membership, count: int) -> Conversation[list[Message]]:
        yield from ()
        now_s = self._now_s()
        self._session.inbox.undo.before[member] = list(islice(member.fetched, count))
        found = member.next(count, now_s)
        if found and self._session.recorder.active:
            self._session.recorder.call("take", member.topic).ok(
                epoch=self._session.inbox.epoch,
                group=member.asked.group,
                messages=tuple(map(seen, found)),
                lease_ms=int((member.until_s - now_s) * 1000),
            )
        return found

    def begin_run(self, member: Membership) -> Conversation[Running | None]:
        """Return None if each message has a line of its own in the journal."""
        yield from ()
        until_s = member.until_s
        is_recorded = self._session.recorder.active
        return None if is_recorded else member.begin_run(lambda: self._now_s() >= until_s)

    def write(self, member: Membership) -> Conversation[None]:
        """Do nothing: nothing of a member outlives the process."""
        yield from ()

    def failed(self, member: Membership, error: PubSubError) -> None:
        self._session.recorder.call("take", member.topic).failed(error)

    def acknowledge(self, member: Membership) -> Conversation[None]:
        member.settle_in_hand()
        yield from self._tell(member, raises=True)

    def record(self, member: Membership, note: bytes) -> Conversation[None]:
        """Write the note; what is in hand is acknowledged later: a crash repeats, never loses."""
        yield Save(self._session.inbox.write_note(note), True)

    def _settled(
        self,
        member: Membership,
        call: Call,
        refused: Sequence[Stretch],
        in_doubt: Sequence[Stretch],
        lease_ms: int = 0,
    ) -> None:
        """Record what the proxy has answered to outcomes."""
        call.ok(
            epoch=self._session.inbox.epoch,
            group=member.asked.group,
            refused=pairs(refused),
            in_doubt=pairs(in_doubt),
            lease_ms=lease_ms,
        )

    def _tell_lost(
        self, member: Membership, refused: Sequence[Stretch], in_doubt: Sequence[Stretch] = ()
    ) -> None:
        """Messages that a get or a loop acknowledged were no longer held here, or perhaps not."""
        for error in errors_of(member.topic, refused, in_doubt):
            self._session.tell(logging.WARNING, str(error), member.topic)

    def _is_late(self, member: Membership) -> Conversation[bool]:
        """Confirm that the fetched messages came; only then they are handed over (rule R29).

        Returns:
            Whether their lease has ended; then they are returned.
        """

        def make() -> Settle:
            return self._a_settle(member, outcomes_of(member.fetched, "extend"))

        is_late = member.drop_late(self._now_s())
        while member.is_unconfirmed:
            with self._session.recorder.call("take", member.topic) as call:
                reply = yield from self._requests.asking(member, make, call, confirms=True)
                if not isinstance(reply, Settled | Taken):
                    self._session.refused(reply, member.topic)
                self._settled(member, call, reply.refused, ())
            self._tell_lost(member, reply.refused)  # of a request that had been in doubt
            is_late = member.drop_late(self._now_s())
        return is_late

    def _a_settle(self, member: Membership, outcomes: Sequence[Outcome]) -> Settle:
        assert member.generation is not None
        return Settle(
            **self._session.head(),
            topic=member.topic,
            group=member.asked.group,
            generation=member.generation,
            outcomes=tuple(sorted(outcomes, key=lambda one: one.first)),
        )

    # Single messages.

    def settle_one(self, message: Message, how: How, delay_ms: int = 0) -> Conversation[None]:
        """Settle a message in hand durably, or extend its lease.

        Raises:
            UsageError: it is not in hand; nothing was settled.
            LeaseLostError: it was no longer held.
        """
        if how != "extend" and (asked := self._asked_before(message, how)) is not None:
            yield from self._tell(asked, raises=True)
            return
        member = self.held(message)
        if how == "extend":
            member.give_back_ahead()  # it takes long, and others could have what waits here
            yield from self._tell(member, outcomes_of([message], how), raises=True)
        else:
            member.note(message, how, delay_ms)
            yield from self._tell(member, raises=True)

    def keep_alive(self) -> Conversation[None]:
        """Extend the lease of everything in hand."""
        for member in self.members.values():
            if member.in_hand:
                extended = outcomes_of(member.in_hand.values(), "extend")
                yield from self._tell(member, extended, raises=True)

    def keep(self, message: Message) -> None:
        """A `reject` or `nack` failed: its message is given back by the next call, if refused.

        If it has no answer yet, the next call finishes it.
        """
        member = self.members.get(message.topic)
        if member is None or member.in_hand.get(message.offset) != message:
            return
        if member.has_on_its_way(message, "reject"):
            del member.in_hand[message.offset]
        else:
            member.keep(message)

    def keep_all(self) -> None:
        """Keep everything in hand."""
        for member in self.members.values():
            for message in list(member.in_hand.values()):
                self.keep(message)

    def reject(self, message: Message, reason: str) -> Conversation[int]:
        """Make a dead letter of a message in hand; return the offset of the letter.

        Raises:
            LeaseLostError: it was no longer held, and is not rejected.
        """
        if (asked := self._asked_before(message, "reject")) is not None:
            return (yield from self._tell(asked, raises=True))[-1]
        member = self.held(message)
        outcome = Outcome(message.offset, 1, message.delivery_count, "reject", 0, reason)
        letters = yield from self._tell(member, (outcome,), raises=True)
        member.in_hand.pop(message.offset, None)
        return letters[-1]

    def fail(self, message: Message, pause_s: float | None, reason: str) -> Conversation[None]:
        """A handler has failed: give its message back, or make a dead letter of it.

        Nothing is done if it is not in hand: the handler has settled it, or broke off a call.

        Args:
            pause_s: before it comes again; None: it has used up its retries.
        """
        member = self.members.get(message.topic)
        if member is None or member.in_hand.get(message.offset) != message:
            return
        try:
            if pause_s is None:
                yield from self.reject(message, reason)
            else:
                yield from self.settle_one(message, "nack", round(pause_s * 1000))
        except LeaseLostError as late:
            self._session.tell(logging.WARNING, str(late), message.topic)

    def _tell(
        self, member: Membership, also: Sequence[Outcome] = (), *, raises: bool = False
    ) -> Conversation[list[int]]:
        """SETTLE until all noted outcomes are reported, and these too.

        Returns:
            The offsets of the dead letters that were made.

        Raises:
            LeaseLostError: with `raises`, if some messages were no longer held.
        """
        lease_ms = 0
        letters: list[int] = []
        refused: list[Stretch] = []
        with self._session.recorder.call("settle", member.topic) as call:
            while also or member.has_noted or member.pending is not None:
                made: list[Settle] = []

                def make(also: Sequence[Outcome] = also, made: list[Settle] = made) -> Settle:
                    made.append(self._a_settle(member, also or member.take_noted()))
                    return made[-1]

                answer = yield from self._requests.asking(member, make, call)
                if not isinstance(answer, Settled | Taken):
                    self._session.refused(answer, member.topic)
                if made and also:
                    also = ()
                    lease_ms = answer.lease_ms
                letters += answer.letters
                refused += answer.refused
            rejected, in_doubt = member.take_rejected()
            refused += rejected
            self._settled(member, call, refused, in_doubt, lease_ms)
        for offset in offsets_of(refused):
            member.in_hand.pop(offset, None)
        for error in errors_of(member.topic, refused, in_doubt) if raises else ():
            raise error
        self._tell_lost(member, refused, in_doubt)
        return letters
