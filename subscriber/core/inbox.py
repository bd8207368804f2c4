"""The inbox: the state of a subscriber by topic, and how it is stored. Pure.

A cursor is sent to the proxy only after it is durable here (rule R9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from reliable_pubsub.common.core.client_state import MARKS_MAX, Marks
from reliable_pubsub.common.core.conversation import Conversation, Save
from reliable_pubsub.common.core.patterns.pattern import Pattern
from reliable_pubsub.common.core.schemas import msgpack_decoder
from reliable_pubsub.common.core.undo import Undo

from .place import NO_PLACE, Place
from .restoring import Running
from .subscription import Changes, TopicSubscription

_TOPIC = "topic:"  # prefix of the names of rows
_EPOCH = "epoch"
_NOTE = "plan"  # the name it has in the state; a step file's note is its position in the plan

_encode = msgspec.msgpack.Encoder().encode
_number = msgpack_decoder(int).decode
_place = msgpack_decoder(Place).decode


class HasSlot(Protocol):
    """What has runs."""

    slot: int | None  # of the mark of the last one; two take turns


class Inbox:
    """A subscriber's epoch, subscriptions and note. Implements `EpochMemory`."""

    new_subscription = TopicSubscription

    def __init__(
        self,
        stored: Mapping[str, bytes],
        marks: Callable[[], Marks] = list,
        *,
        run: int = 0,
    ) -> None:
        """Create an inbox from stored rows; empty for a new subscriber.

        Args:
            marks: those of the same state, needed only by runs.
            run: number of the run before the first, random.
        """
        self.undo = Undo()
        self.subscriptions: dict[str, TopicSubscription] = {}
        self.patterns: dict[Pattern, Any] = {}  # loaded by their feature
        self._marks = marks
        self._run = run
        self.reload(stored)

    def reload(self, stored: Mapping[str, bytes]) -> None:
        """Reset to the stored rows; what calls that returned have delivered stays in hand."""
        self._with_next: TopicSubscription | None = None  # saved in one step with the next one
        self._mark: tuple[int, int] | None = None  # set with the row of a run
        self.epoch = _number(stored[_EPOCH]) if _EPOCH in stored else 0
        self.note = stored.get(_NOTE)
        places = {
            name.removeprefix(_TOPIC): _place(value)
            for name, value in stored.items()
            if name.startswith(_TOPIC)
        }
        for topic in {**self.subscriptions, **places}:
            place = places.get(topic)
            run = place.run if place is not None else None
            after = place
            if place is not None and run is not None:
                after = place.after_run(
                    run.taken(self._marks()[run.slot], run.batches[-1][0] - place.cursor)
                )
            self.add(topic).reload(place, after)

    def of(self, topic: str) -> TopicSubscription:
        """The subscription to a topic; an empty one if there is none."""
        return self.subscriptions.get(topic) or self._made(topic)

    def add(self, topic: str) -> TopicSubscription:
        """The subscription to a topic, kept from now on."""
        if topic not in self.subscriptions:
            self.subscriptions[topic] = self._made(topic)
        return self.subscriptions[topic]

    def _made(self, topic: str) -> TopicSubscription:
        return self.new_subscription(topic, undo=self.undo)

    @property
    def places(self) -> Mapping[str, Place]:
        """The place of each subscribed topic."""
        subscribed = (one for one in self.subscriptions.values() if one.is_subscribed)
        return {one.topic: one.place for one in subscribed}

    # What is written.

    def save(
        self,
        *some: TopicSubscription,
        durable: bool = False,
        tells: bool = False,
        also: Changes | None = None,
    ) -> Conversation[None]:
        """Write the places that have changed, in one step with `also`.

        Args:
            durable: sync to disk, with all earlier writes; writes even unchanged places.
            tells: a cursor is about to be sent to the proxy: sync those of QoS 2 (rule R9).
        """
        changes = dict(also or {})
        written: list[TopicSubscription] = []
        syncs = durable
        for each in some if self._with_next is None else (*some, self._with_next):
            place = each.place
            # A cursor of 0 acknowledges nothing.
            is_ahead = tells and place.terms.qos == 2 and place.cursor > max(each.durable_cursor, 0)
            if is_ahead or place is not each.saved or (durable and place is not NO_PLACE):
                changes[_TOPIC + each.topic] = None if place is NO_PLACE else _encode(place)
                written.append(each)
            syncs = syncs or is_ahead
        if changes:
            yield Save(changes, syncs, self._mark)
        self._with_next = self._mark = None
        for each in written:
            each.saved = each.place
            if syncs:
                each.durable_cursor = each.place.cursor

    def save_with_next(self, subscription: TopicSubscription) -> None:
        """Save a place in one step with the next save, which precedes every delivery."""
        self._with_next = subscription

    def next_run(self, one: HasSlot) -> Running:
        """A run without messages; the mark of the run before counts until its rows are written."""
        assert one.slot is not None
        one.slot ^= 1
        self._run = (self._run + 1) % 2**32 or 1  # a mark that was never set is 0
        run = Running([], self._marks(), one.slot, self._run << 32)
        self._mark = (run.slot, run.first)
        return run

    def can_run(self, one: HasSlot) -> bool:
        """Whether there are marks for its runs: two, which take turns."""
        if one.slot is None:
            slots = [each.slot for each in self.subscriptions.values()]
            slots += [each.run_slot for each in self.subscriptions.values()]
            slots += [each.slot for each in self.patterns.values()]
            used = {slot // 2 for slot in slots if slot is not None}
            free = next((pair for pair in range(MARKS_MAX // 2) if pair not in used), None)
            one.slot = None if free is None else 2 * free
        return one.slot is not None

    def granted(self, epoch: int) -> Changes:
        """The proxy has granted an epoch."""
        self.epoch = epoch
        return {_EPOCH: _encode(epoch)}

    def write_note(self, note: bytes) -> Changes:
        """Set the note of the program."""
        self.note = note
        return {_NOTE: note}
