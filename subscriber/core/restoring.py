"""What the program has in hand, and how an interrupted call is undone (rule R31). Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.client_state import Marks

from .place import Place
from .states import SubscriptionEvent


class Letter(NamedTuple):
    """A dead letter that is being sent."""

    message: Message
    body: bytes
    rest: Message | None  # the last message that stays in hand


class Running(NamedTuple):
    """A run. A loop sets `marks[slot]` to `first + n` before it delivers the n-th message."""

    messages: list[Message]
    marks: Marks
    slot: int
    first: int
    over: Callable[[], bool] | None = None  # of a group: whether the lease has ended

    @property
    def taken(self) -> int:
        """Return how many the loop took; one more if it reached another topic (`Run.taken`)."""
        mark = self.marks[self.slot]
        if mark >> 32 != self.first >> 32:  # of an earlier run: this one has not begun
            return 0
        return min(max(mark - self.first, 0), len(self.messages) + 1)


class ProgramState(NamedTuple):
    """A subscription's messages in hand when a call began."""

    in_hand: Message | None
    lost_end: int | None
    letter: Letter | None
    run: Running | None
    is_kept: bool
    place: Place


class Restored(NamedTuple):
    """What a reset subscription has in hand again."""

    place: Place
    event: SubscriptionEvent | None = None  # towards the program; None: it has nothing in hand
    in_hand: Message | None = None
    lost_end: int | None = None
    letter: Letter | None = None
    is_kept: bool = False


def restored(place: Place, before: ProgramState) -> Restored | None:
    """Restore the messages in hand, after a reset to the stored place.

    Leave out messages that the interrupted call settled.

    Returns:
        None if it replaced the place: then nothing is in hand.
    """
    known = before.place
    if place.log != known.log or place.shown != known.shown or place.asks:
        return None
    if place.cursor < known.cursor:
        return None
    in_hand, run = before.in_hand, before.run
    if run is not None:
        taken = run.taken
        known = known.after_run(taken)
        if 0 < taken <= len(run.messages) and place.terms.qos:
            in_hand = run.messages[taken - 1]
    # What the interrupted call was about to deliver does not count as delivered.
    deliveries = tuple(one for one in known.in_hand if one[0] > place.cursor)
    if known.run is None and place.in_hand != deliveries:
        place = replace(place, in_hand=deliveries)
    letter, lost_end = before.letter, before.lost_end
    if in_hand is None and letter is not None and letter.message.offset < place.cursor:
        in_hand = letter.rest  # the letter is stored
    if place.rejection:
        if letter is not None and letter.message.offset == place.cursor:
            return Restored(place, SubscriptionEvent.BEGIN_LETTER, letter=letter)
    elif in_hand is not None and in_hand.offset >= place.cursor:
        is_kept = before.is_kept and place.cursor == before.place.cursor
        return Restored(place, SubscriptionEvent.HAND_OVER, in_hand=in_hand, is_kept=is_kept)
    elif lost_end is not None and lost_end > place.cursor:
        return Restored(place, SubscriptionEvent.LOSE, lost_end=lost_end)
    return Restored(place)
