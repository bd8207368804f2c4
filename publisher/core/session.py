"""The session of a publisher with its proxy: which numberings were compared in it. Pure.

After a restart of the proxy this file restores what is needed: a new session, and a comparison of
the numbering of each topic (rules R11 and R13).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal, assert_never

from reliable_pubsub.common.core.answers import HelloAck
from reliable_pubsub.common.core.conversation import Conversation, Save
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.requester import Requester
from reliable_pubsub.common.core.session import ClientSession

from .outbox import Outbox

OnLogChanged = Literal["stop", "adopt"]


class PublisherSession(ClientSession):
    """A session with the proxy, and the numberings that were compared in it."""

    def __init__(
        self,
        requester: Requester,
        outbox: Outbox,
        *,
        nonce: bytes,
        on_log_changed: OnLogChanged,
        recorder: Recorder,
    ) -> None:
        """Create a session that is not connected; see `ClientSession`."""
        super().__init__(requester, "publisher", nonce=nonce, memory=outbox, recorder=recorder)
        match on_log_changed:
            case "stop" | "adopt":
                self.adopts = on_log_changed == "adopt"
            case never:
                assert_never(never)
        self.met: set[str] = set()  # topics whose numbering was compared in this epoch
        self.last_transaction = 0  # that the proxy knows of this publisher, by its last HELLO_ACK
        self._outbox = outbox

    def connecting(self) -> Conversation[None]:
        """Begin a session; see `ClientSession.connecting`."""
        yield from super().connecting()
        self.met.clear()

    def begin_again(self) -> None:
        """Drop what was read from the proxy; see `ClientSession.begin_again`."""
        super().begin_again()
        self.met.clear()
        self.last_transaction = 0

    def meet(self, topic: str, *, conflict: bool = False) -> Conversation[None]:
        """Compare the numbering of a topic, in a session of our own.

        Args:
            conflict: our numbers have other content there.

        Raises:
            LogChangedError: the proxy does not have what it acknowledged, or has more than we
                sent, and `on_log_changed` is not adopt.
        """
        reply = yield from self.asking_as_known(lambda: self.positions(topic))
        if self.adopts and isinstance(reply, HelloAck) and self._outbox.differs(reply.positions[0]):
            # Late copies of what was sent under the old numbers would fit the new ones: fence them.
            yield from self.connecting()
            reply = yield from self.asking_as_known(lambda: self.positions(topic))
        if not isinstance(reply, HelloAck):
            self.refused(reply)
        # That this id numbers the topic must outlive power loss: a state that had forgotten it
        # would take the proxy's numbers, and what a run repeats would be stored twice. The rest
        # may be lazy.
        before = self._outbox.topics.get(topic)
        self.last_transaction = reply.transaction or 0
        changes = self._outbox.meet(reply.positions[0], adopt=self.adopts, conflict=conflict)
        after = self._outbox.topics[topic]
        if before is not None and self.adopts and after.last_sequence != before.last_sequence:
            adopts = f"adopts the numbering of the proxy: sequence {before.last_sequence} was the "
            adopts += f"last one, now it is {after.last_sequence}"
            self.tell(logging.WARNING, adopts, topic)
        yield Save(changes, durable=before is None)
        self.met.add(topic)

    def meet_all(self, topics: Iterable[str]) -> Conversation[None]:
        """Compare the numberings of all these topics in one session."""
        if not self.connected:
            yield from self.connecting()
        while not self.met.issuperset(topics):
            yield from self.meet(next(topic for topic in topics if topic not in self.met))
