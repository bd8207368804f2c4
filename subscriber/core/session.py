"""The session of a subscriber with its proxy. Pure."""

from __future__ import annotations

from typing import Any

from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.requester import Requester
from reliable_pubsub.common.core.session import ClientSession

from .inbox import Inbox


class SubscriberSession(ClientSession):
    """A session in which subscriptions are confirmed; a new one must confirm them again."""

    def __init__(
        self, requester: Requester, inbox: Inbox, *, nonce: bytes, recorder: Recorder
    ) -> None:
        """Create a session that is not connected.

        Args:
            nonce: of this process, random.
        """
        super().__init__(requester, "subscriber", nonce=nonce, memory=inbox, recorder=recorder)
        self.inbox = inbox
        self.recorder = recorder
        self._control = 0

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
