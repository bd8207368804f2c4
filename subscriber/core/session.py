"""The session of a subscriber with its proxy, and its writes to the state. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from reliable_pubsub.common.core.conversation import Conversation, Save
from reliable_pubsub.common.core.errors import PubSubError
from reliable_pubsub.common.core.marks import Marks
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.requester import Requester
from reliable_pubsub.common.core.session import ClientSession

from .inbox import Inbox
from .pattern_subscription import PatternSubscription
from .place import run_batches
from .subscription import Running, Subscription


class SubscriberSession(ClientSession):
    """A session in which subscriptions are confirmed; a new one must confirm them again."""

    def __init__(
        self,
        requester: Requester,
        inbox: Inbox,
        *,
        nonce: bytes,
        marks: Callable[[], Marks],
        recorder: Recorder,
    ) -> None:
        """Create a session that is not connected.

        Args:
            nonce: of this process, random.
            marks: gives those of the state.
        """
        super().__init__(requester, "subscriber", nonce=nonce, memory=inbox, recorder=recorder)
        self.inbox = inbox
        self.recorder = recorder
        self._marks = marks
        self._control = 0
        self._with_next: Subscription | None = None  # its place is written with the next one
        self._run = int.from_bytes(nonce[:4], "big")

    def connecting(self) -> Conversation[None]:
        """Begin a session; see `ClientSession.connecting`."""
        yield from super().connecting()
        self._control = 0
        for subscription in self.inbox.subscriptions.values():
            subscription.forgotten()

    def control_head(self) -> dict[str, Any]:
        """The head of a SUB or UNSUB, with the number that orders them (rule R12)."""
        self._control += 1
        return {**self.head(), "control": self._control}

    def begin_run(self, subscription: Subscription) -> Conversation[Running]:
        """Let a loop take the fetched messages; all of them are one write."""
        before = subscription.slot
        run = subscription.join_run(self.next_run(subscription), run_batches(subscription.fetched))
        try:
            yield from self.save(subscription)
        except PubSubError:  # nothing was delivered, and the row of the run before still counts
            subscription.end_run(run.messages)
            subscription.slot = before
            raise
        return run

    def next_run(self, one: Subscription | PatternSubscription) -> Running:
        """A run without messages; the mark of the run before counts until its rows are written."""
        assert one.slot is not None
        one.slot ^= 1
        self._run = (self._run + 1) % 2**32 or 1  # a mark that was never set is 0
        run = Running([], self._marks(), one.slot, self._run << 32)
        run.marks[run.slot] = run.first
        return run

    def save(
        self,
        subscription: Subscription,
        *,
        durable: bool = False,
        also: Mapping[str, bytes | None] | None = None,
    ) -> Conversation[None]:
        """Write a place if it has changed, in one step with `also`.

        Args:
            durable: sync to disk, with all earlier writes; writes even an unchanged place.
        """
        changes = dict(also or {})
        other, self._with_next = self._with_next, None
        if other is not None and other is not subscription and not other.is_saved:
            changes |= other.row()
        else:
            other = None
        if not subscription.is_saved or (durable and subscription.is_subscribed):
            changes |= subscription.row()
        if changes:
            try:
                yield Save(changes, durable)
            except PubSubError:
                self._with_next = other
                raise
            subscription.written(durable=durable)
            if other is not None:
                other.written(durable=durable)

    def save_all(
        self,
        some: Collection[Subscription],
        *,
        durable: bool,
        also: Mapping[str, bytes | None] | None = None,
    ) -> Conversation[None]:
        """Write these places in one step, changed or not, and with `also`."""
        changes = dict(also or {})
        for each in some:
            changes |= each.row()
        if changes:
            yield Save(changes, durable)
            for each in some:
                each.written(durable=durable)

    def save_with_next(self, subscription: Subscription) -> None:
        """Write a place in one step with the next one; that is before anything is delivered."""
        self._with_next = subscription

    def save_before_telling(self, subscription: Subscription) -> Conversation[None]:
        """Write a place before its cursor is sent to the proxy: durably at QoS 2 (rule R9)."""
        place = subscription.place
        at_qos_2 = place.terms.qos == 2
        return self.save(
            subscription, durable=at_qos_2 and place.cursor > subscription.durable_cursor
        )
