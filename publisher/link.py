"""The link of a publisher to its proxy: a session, and the comparison of numberings.

After a restart of the proxy this file restores what is needed: a new session, and a comparison of
the numbering of each topic (rules R11 and R13).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Literal, assert_never

from reliable_pubsub.common.asking import Asker, Session
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.messages import HelloAck, Listeners, ListenersReport
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.state_file import ClientState

from .core.outbox import Outbox

OnLogChanged = Literal["stop", "adopt"]


class PublisherLink(Session):
    """A session with the proxy, and the numberings that were compared in it."""

    def __init__(
        self,
        asker: Asker,
        outbox: Outbox,
        state: ClientState,
        *,
        on_log_changed: OnLogChanged,
        recorder: Recorder,
    ) -> None:
        """Create a link; the first call sends the first request."""
        super().__init__(asker, "publisher", memory=outbox, state=state, recorder=recorder)
        match on_log_changed:
            case "stop" | "adopt":
                self.adopts = on_log_changed == "adopt"
            case never:
                assert_never(never)
        self.met: set[str] = set()  # topics whose numbering was compared in this epoch
        self.last_transaction = 0  # that the proxy knows of this publisher, by its last HELLO_ACK
        self._outbox = outbox

    def connect(self) -> None:
        """Begin a session; see `Session.connect`."""
        super().connect()
        self.met.clear()

    def begin_again(self) -> None:
        """Drop what was read from the proxy; see `Session.begin_again`."""
        super().begin_again()
        self.met.clear()
        self.last_transaction = 0

    def meet(self, topic: str, *, conflict: bool = False) -> None:
        """Compare the numbering of a topic, in a session of our own.

        Args:
            conflict: our numbers have other content there.

        Raises:
            LogChangedError: the proxy does not have what it acknowledged, or has more than we
                sent, and `on_log_changed` is not adopt.
        """
        reply = self._converse(self.asking_as_known(lambda: self.positions(topic)))
        if not isinstance(reply, HelloAck):
            self.refused(reply)
        # That this id numbers the topic must outlive power loss: a state that had forgotten it
        # would take the proxy's numbers, and a plan's repeat would be stored twice. The rest may
        # be lazy.
        first_time = topic not in self._outbox.topics
        self.last_transaction = reply.transaction or 0
        before = self._outbox.topics.get(topic)
        changes = self._outbox.meet(reply.positions[0], adopt=self.adopts, conflict=conflict)
        after = self._outbox.topics[topic]
        if before is not None and self.adopts and after.last_sequence != before.last_sequence:
            adopts = f"adopts the numbering of the proxy: sequence {before.last_sequence} was the "
            adopts += f"last one, now it is {after.last_sequence}"
            self.tell(logging.WARNING, adopts, topic)
        self._state.write(changes, durable=first_time)
        self.met.add(topic)

    def meet_all(self, topics: Sequence[str]) -> None:
        """Compare the numberings of all these topics in one session."""
        if not self.connected:
            self.connect()
        while missing := [topic for topic in topics if topic not in self.met]:
            self.meet(missing[0])

    def listeners(self, topic: str) -> ListenersReport:
        """Ask for the listeners of a topic."""
        reply = self.ask(Listeners(**self.head(), topic=names.exact(topic)))
        if not isinstance(reply, ListenersReport):
            self.refused(reply)
        return reply
