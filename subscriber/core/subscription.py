"""One subscription: the state that a subscriber has for one topic. Pure.

It has one state towards the proxy and one towards the program; `states.py` says what they mean, and
has the tables of what may happen in each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from math import inf
from typing import Any, Final

from msgspec import Struct

from reliable_pubsub.common.core.answers import SubAck
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.undo import Undo

from .pace import Pace
from .place import NO_PLACE, Batches, Place, Standing
from .qos0_queue import QoS0Queue
from .restoring import Letter, ProgramState, Running, restored
from .states import TO_PROGRAM, TO_PROXY, SubscriptionEvent, ToProgram, ToProxy

Changes = dict[str, bytes | None]

AHEAD_MIN: Final = 10  # messages that a loop fetches at once; see `Pace`
AHEAD_MAX: Final = 1_000


class Confirmation(Struct):
    """What the running proxy knows of a subscription."""

    generation: int
    boot: str  # of the proxy that confirmed it
    proxy_cursor: int  # the cursor that the proxy knows


class TopicSubscription:
    """The state that a subscriber has for one topic."""

    new_qos0_queue = QoS0Queue

    fulfils: Callable[[Message], bool] | None = None  # of a pattern: what a loop gives
    in_hand: Message | None = None
    letter: Letter | None = None
    lost_end: int | None = None
    run: Running | None = None

    def __init__(self, topic: str, place: Place | None = None, *, undo: Undo | None = None) -> None:
        """Create a subscription from the stored place; without one it is not subscribed.

        Args:
            place: as it is stored; whether it survives power loss is not known.
            undo: of the calls of its client.
        """
        self.topic = topic
        self.undo = undo or Undo()
        self.place = NO_PLACE
        self.fetched: deque[Message] = deque()  # from the cursor on, not delivered
        self.qos0 = self.new_qos0_queue()  # what was put at QoS 0
        self.pushes: Any | None = None  # None: push is off
        self.refused_letter: int | None = None  # offset of the message whose letter was refused
        self.is_kept = False  # what is in hand is redelivered, unless it is acknowledged
        self.lower_qos: set[str] = set()  # publishers whose lower level was reported
        self.pace = Pace(AHEAD_MIN, AHEAD_MAX)
        self.reload(place, place)

    def reload(self, stored: Place | None, place: Place | None) -> None:
        """Reset to the stored place, after a call interrupted by a foreign exception.

        Messages from calls that returned stay in hand. The queues stay, with their counts,
        and are reset by their owners.

        Args:
            place: the stored one, after what a run has taken since.
        """
        before = self.undo.before.get(self) or self._program_state()
        before = self.undo.before[self] = before._replace(  # this may be interrupted itself
            letter=self.letter or before.letter, is_kept=self.is_kept or before.is_kept
        )
        self.saved = stored or NO_PLACE  # the place as it was written
        self.place = place or NO_PLACE  # the position of the subscriber
        self.is_kept = False
        run = self.saved.run
        self.slot = run.slot if run is not None and not run.total else None
        self.durable_cursor = -1  # the cursor that survives power loss
        self._to_proxy = ToProxy.NONE if place is None else ToProxy.UNCONFIRMED
        self.confirmation: Confirmation | None = None  # None: the proxy has not confirmed it
        self._to_program = ToProgram.IDLE
        self.transition(SubscriptionEvent.DROP)
        self.fetched.clear()
        if self.qos0.is_confirmed:
            self.qos0.begin_again()
        self._restore(before)

    def _restore(self, before: ProgramState) -> None:
        found = restored(self.place, before)
        if found is None:
            return
        self.place = found.place
        if found.event is not None:
            self.transition(
                found.event, in_hand=found.in_hand, lost_end=found.lost_end, letter=found.letter
            )
            self.is_kept = found.is_kept

    def _program_state(self) -> ProgramState:
        return ProgramState(
            self.in_hand, self.lost_end, self.letter, self.run, self.is_kept, self.place
        )

    def _keep_for_undo(self) -> None:
        """Keep the state from before the first change of a call."""
        if self not in self.undo.before:
            self.undo.before[self] = self._program_state()

    # The place, and whether it is written.

    @property
    def is_subscribed(self) -> bool:
        """Whether there is a place."""
        return self.place is not NO_PLACE

    @property
    def is_clean(self) -> bool:
        """Whether its session is clean, so that it ends with its process or its lease."""
        return self.place.terms.session == "clean"

    def move(self, place: Place) -> None:
        """Set the place; the caller saves it."""
        self._keep_for_undo()
        if not self.is_subscribed:
            self._transition_at_proxy(SubscriptionEvent.STAND)
        self.place = place

    # The proxy.

    def is_to_be_told(self, *, ahead: bool) -> bool:
        """Whether the running proxy knows only an older cursor than that of this client.

        Args:
            ahead: also if the proxy has sent messages that were not delivered.
        """
        if self.confirmation is None:
            return False
        return self.place.cursor > self.confirmation.proxy_cursor or (ahead and bool(self.fetched))

    @property
    def standing(self) -> Standing | None:
        """The position for pushes; None: the running proxy has not confirmed it yet."""
        confirmation = self.confirmation
        if confirmation is None:
            return None
        heard_s = self.place.terms.lease_ms / 2000 or inf
        place = self.place
        return Standing(
            place.log, confirmation.boot, place.cursor, confirmation.proxy_cursor, heard_s
        )

    def confirmed(self, reply: SubAck, *, is_new: bool) -> None:
        """The proxy has confirmed the subscription; its place was taken already.

        Args:
            is_new: it begins in this process, so earlier QoS 0 messages are skipped.
        """
        self._transition_at_proxy(SubscriptionEvent.CONFIRM)
        self.confirmation = Confirmation(reply.generation, reply.boot, reply.cursor)
        self.qos0.confirmed(reply.boot, reply.ring, is_new=is_new)

    def forgotten(self) -> None:
        """The running proxy does not know the subscription: it must be confirmed again."""
        self._transition_at_proxy(SubscriptionEvent.FORGET)

    def place_lost(self) -> None:
        """The place can no longer be resumed; the proxy may have another one already."""
        self._keep_for_undo()
        self._transition_at_proxy(SubscriptionEvent.END)
        self.place = NO_PLACE

    def ended(self) -> None:
        """The subscription has ended; drop the undelivered messages."""
        self.place_lost()
        self.qos0 = self.new_qos0_queue()
        self.durable_cursor = -1

    def _transition_at_proxy(self, event: SubscriptionEvent) -> None:
        before, self._to_proxy = self._to_proxy, TO_PROXY[self._to_proxy][event]
        if self._to_proxy is not ToProxy.CONFIRMED:
            self.confirmation = None
        if ToProxy.CONFIRMED in (before, self._to_proxy):
            self.drop_fetched()

    # The program.

    @property
    def is_idle(self) -> bool:
        """Return whether the program has no message that its next call settles."""
        return self._to_program is ToProgram.IDLE

    @property
    def has_next(self) -> bool:
        """Whether a message can be delivered."""
        return bool(self.fetched or self.qos0.messages)

    def drop_fetched(self) -> None:
        """Drop fetched messages that were not delivered; they are fetched again."""
        self.fetched.clear()

    def has_in_hand(self, message: Message) -> bool:
        """Whether the program has a message and it is neither acknowledged nor rejected."""
        last = self.in_hand
        return last is not None and self.place.cursor <= message.offset <= last.offset

    @property
    def can_run(self) -> bool:
        """Whether a loop may take the fetched messages with one write for all of them."""
        place = self.place
        is_limited = place.max_deliveries and place.deliveries(place.cursor)
        return self.is_idle and bool(self.fetched) and not self.qos0.messages and not is_limited

    @property
    def run_slot(self) -> int | None:
        """The slot of the mark of the run in the stored row; None: it has no run."""
        run = self.saved.run
        return None if run is None else run.slot

    def join_run(
        self, whole: Running, batches: Batches, *, skip: int = 0, total: int = 0
    ) -> Running:
        """Let the loop of a run take these fetched messages one by one; the caller writes `row`.

        Args:
            skip: messages of the run before them, of other topics.
            total: messages of the run, if it is of several topics.
        """
        run = whole._replace(messages=batches.messages, first=whole.first + skip)
        self.transition(SubscriptionEvent.BEGIN_RUN, run=run)
        number = whole.first >> 32
        self.place = self.place.in_run(number, run.slot, batches.ends, skip=skip, total=total)
        self.fetched = deque(islice(self.fetched, len(batches.messages), None))
        return run

    def end_run(self) -> None:
        """Settle the messages that a loop took, except the last, which is in hand."""
        run = self.run
        if run is None:
            return
        messages, taken = run.messages, run.taken
        self.transition(SubscriptionEvent.END_RUN)
        self.place = self.place.after_run(taken)
        self.fetched.extendleft(reversed(messages[taken:]))
        if 0 < taken <= len(messages) and self.place.terms.qos:
            self.transition(SubscriptionEvent.HAND_OVER, in_hand=messages[taken - 1])

    def settle(self) -> None:
        """The program has called again: count messages in hand as processed, skip reported losses.

        Those in hand are dropped if a rejection of one failed, or the place was given up.
        """
        if self.is_kept or self.place is NO_PLACE:
            self.drop()
            return
        last, lost_end = self.in_hand, self.lost_end
        self.transition(SubscriptionEvent.SETTLE)
        if last is not None:
            self.place = self.place.moved(last.offset + 1, last.timestamp_ns)
        elif lost_end is not None:
            self.place = self.place.moved(lost_end, None)
        while self.fetched and self.fetched[0].offset < self.place.cursor:
            self.fetched.popleft()  # in hand through one pattern, fetched through another

    def keep_taken(self, *, was_received: bool) -> None:
        """Mark the message that a loop took last as unprocessed, before a reset.

        Args:
            was_received: false: perhaps the program does not even have it.
        """
        self.is_kept = True
        if not was_received:
            self.in_hand = self.run = None

    def keep_none(self) -> None:
        """What is in hand is processed, although a call failed."""
        self.is_kept = False

    def end_loop(self, last: Message | None, *, is_kept: bool) -> None:
        """Keep what is in hand, if it is not processed; `last` is part of that."""
        if is_kept and self.in_hand is not None:
            self.keep(self.in_hand)

    def begin_letter(self, message: Message, body: bytes) -> None:
        """A dead letter of this message will be sent; earlier messages are processed."""
        last = self.in_hand
        rest = last if last is not None and last.offset > message.offset else None
        letter = Letter(message, body, rest)
        self.transition(SubscriptionEvent.BEGIN_LETTER, letter=letter)
        # If this call is interrupted, it is the letter of the rejection that is stored by then.
        self.undo.before[self] = self.undo.before[self]._replace(letter=letter)
        self.is_kept = False

    def keep(self, message: Message) -> None:
        """A rejection failed: the next `get` does not count its message as processed."""
        if self.has_in_hand(message):
            self.is_kept = True

    def letter_not_begun(self, in_hand: Message | None) -> None:
        """Keep the message in hand, because its rejection could not be written."""
        self.transition(SubscriptionEvent.LETTER_REFUSED)
        if in_hand is not None:
            self.transition(SubscriptionEvent.HAND_OVER, in_hand=in_hand)

    def letter_stored(self) -> None:
        """The dead letter is stored; later messages of the same `get` are still in hand."""
        letter = self.letter
        assert letter is not None
        self.transition(SubscriptionEvent.LETTER_STORED)
        while self.fetched and self.fetched[0].offset <= letter.message.offset:
            self.fetched.popleft()  # it had reached its bound, and was not delivered
        if letter.rest is not None:
            self.transition(SubscriptionEvent.HAND_OVER, in_hand=letter.rest)

    def letter_refused(self, offset: int) -> None:
        """The dead letter was refused: its message and those in hand are redelivered."""
        self.transition(SubscriptionEvent.LETTER_REFUSED)
        self.drop_fetched()
        self.refused_letter = offset

    def drop(self) -> None:
        """Forget the messages in hand: the place was replaced or removed, or they are kept."""
        self.transition(SubscriptionEvent.DROP)
        self.drop_fetched()
        self.refused_letter = None
        self.is_kept = False

    def transition(
        self,
        event: SubscriptionEvent,
        *,
        in_hand: Message | None = None,
        lost_end: int | None = None,
        letter: Letter | None = None,
        run: Running | None = None,
    ) -> None:
        """An event towards the program; what changes more than the state has a method of its own.

        Args:
            in_hand, lost_end, letter, run: what is known in the new state, and only there.
        """
        self._keep_for_undo()
        self._to_program = TO_PROGRAM[self._to_program][event]
        self.in_hand = in_hand  # IN_HAND: the last delivered message
        self.lost_end = lost_end  # LOSS_REPORTED: messages below it are lost
        self.letter = letter  # LETTER: the pending dead letter
        self.run = run  # IN_RUN
