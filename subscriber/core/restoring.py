"""Restores a subscription's messages in hand after an interrupted call (rule R31). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from reliable_pubsub.common.core.batch import Message

from .place import Place
from .states import SubscriptionEvent

if TYPE_CHECKING:
    from .subscription import Letter, Running, TopicSubscription


class ProgramState(NamedTuple):
    """A subscription's messages in hand when a call began."""

    in_hand: Message | None
    lost_end: int | None
    letter: Letter | None
    run: Running | None
    is_kept: bool
    place: Place

    @classmethod
    def of(cls, one: TopicSubscription) -> ProgramState:
        """Return its present state."""
        return cls(one.in_hand, one.lost_end, one.letter, one.run, one.is_kept, one.place)


def restore(subscription: TopicSubscription, before: ProgramState) -> None:
    """Restore the messages in hand, after a reset to the stored place.

    Leave out messages that the interrupted call settled. Restore nothing if it replaced the place.
    """
    place, known = subscription.place, before.place
    if place.log != known.log or place.shown != known.shown or place.asks:
        return
    if place.cursor < known.cursor:
        return
    in_hand, run = before.in_hand, before.run
    if run is not None:
        taken = run.taken
        known = known.after_run(taken)
        if 0 < taken <= len(run.messages) and place.terms.qos:
            in_hand = run.messages[taken - 1]
    # What the interrupted call was about to deliver does not count as delivered.
    deliveries = tuple(one for one in known.in_hand if one[0] > place.cursor)
    if known.run is None and place.in_hand != deliveries:
        subscription.place = place = replace(place, in_hand=deliveries)
    letter, lost_end = before.letter, before.lost_end
    if in_hand is None and letter is not None and letter.message.offset < place.cursor:
        in_hand = letter.rest  # the letter is stored
    if place.rejection:
        if letter is not None and letter.message.offset == place.cursor:
            subscription.transition(SubscriptionEvent.BEGIN_LETTER, letter=letter)
    elif in_hand is not None and in_hand.offset >= place.cursor:
        subscription.transition(SubscriptionEvent.HAND_OVER, in_hand=in_hand)
        subscription.is_kept = before.is_kept and place.cursor == before.place.cursor
    elif lost_end is not None and lost_end > place.cursor:
        subscription.transition(SubscriptionEvent.LOSE, lost_end=lost_end)
