"""The session of a subscriber with its proxy, and its writes to the state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reliable_pubsub.common.asking import Asker, Session
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.state_file import ClientState

from .core.inbox import Inbox
from .core.subscription import Running, Subscription


class SubscriberSession(Session):
    """A session in which subscriptions are confirmed; a new one must confirm them again."""

    def __init__(
        self, asker: Asker, inbox: Inbox, state: ClientState, *, recorder: Recorder
    ) -> None:
        """Create a session; the first call sends the first request."""
        super().__init__(asker, "subscriber", memory=inbox, state=state, recorder=recorder)
        self.inbox = inbox
        self.recorder = recorder
        self._control = 0
        self._run = int.from_bytes(self.nonce[:4], "big")

    def connect(self) -> None:
        """Begin a session; see `Session.connect`."""
        super().connect()
        self._control = 0
        for subscription in self.inbox.subscriptions.values():
            subscription.forgotten()

    def control_head(self) -> dict[str, Any]:
        """The head of a SUB or UNSUB, with the number that orders them (rule R12)."""
        self._control += 1
        return {**self.head(), "control": self._control}

    def begin_run(self, subscription: Subscription) -> Running:
        """Let a loop take the fetched messages; all of them are one write."""
        self._run = (self._run + 1) % 2**32 or 1  # a mark that was never set is 0
        run = subscription.begin_run(self._run, self._state.marks)
        try:
            self.save(subscription)
        except BaseException:  # nothing was delivered
            subscription.end_run(run.messages)
            raise
        return run

    def save(
        self,
        subscription: Subscription,
        *,
        durable: bool = False,
        also: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Write a place if it has changed, in one step with `also`.

        Args:
            durable: sync to disk, with all earlier writes; writes even an unchanged place.
        """
        changes = dict(also or {})
        if not subscription.is_saved or (durable and subscription.is_subscribed):
            changes |= subscription.row()
        if changes:
            self._state.write(changes, durable=durable)
            subscription.written(durable=durable)

    def save_before_telling(self, subscription: Subscription) -> None:
        """Write a place before its cursor is sent to the proxy: durably at QoS 2 (rule R9)."""
        place = subscription.place
        at_qos_2 = place.terms.qos == 2
        self.save(subscription, durable=at_qos_2 and place.cursor > subscription.durable_cursor)
