"""The link of a publisher to its proxy: sessions, and what both know of the numbering.

What a restart of the proxy asks for is done here, out of sight: a new session, and a comparison
of the numbering of each topic (rules R11 and R13).
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

from reliable_pubsub.common import names
from reliable_pubsub.common.messages import (
    Abort,
    AnyReply,
    Commit,
    Delivery,
    Hello,
    HelloAck,
    Listeners,
    ListenersReport,
    Put,
    Stage,
)
from reliable_pubsub.common.recorder import Recorder
from reliable_pubsub.common.retry import Clock, RetryPolicy, Silence, Transport, ask
from reliable_pubsub.common.session import claim_epoch, is_forgotten, refusal
from reliable_pubsub.common.state_file import ClientState

from .outbox import Outbox

OnLogChanged = Literal["stop", "adopt"]


class PublisherLink:
    """A session with the proxy, begun anew whenever it has to be."""

    def __init__(
        self,
        client: str,
        outbox: Outbox,
        state: ClientState,
        *,
        transport: Transport,
        clock: Clock,
        retry: RetryPolicy,
        on_log_changed: OnLogChanged,
        recorder: Recorder,
        on_silence: Silence,
    ) -> None:
        """Ask nothing yet."""
        self.client = client
        self.adopts = on_log_changed == "adopt"
        self.retry = retry
        self.connected = False
        self.met: set[str] = set()  # topics whose numbering was compared in this epoch
        self.last_transaction = 0  # that the proxy knows of this publisher, by its last HELLO_ACK
        self._outbox = outbox
        self._state = state
        self._transport = transport
        self._clock = clock
        self._recorder = recorder
        self._on_silence = on_silence
        self._nonce = secrets.token_bytes(16)
        self._request = 0
        self._asked_epoch = 0  # of the last HELLO; it may be granted though no answer came

    def connect(self) -> None:
        """Get an epoch; whatever older process has this id is fenced from now on (rule R11)."""
        with self._recorder.call("hello") as call:
            call.invoke(epoch=self._outbox.epoch + 1)
            epoch = claim_epoch(
                self._outbox.epoch,
                lambda epoch: self._hello(epoch, ()),
                asked_epoch=self._asked_epoch,
                client=self.client,
            )
            self._state.write(self._outbox.granted(epoch), durable=False)
            call.ok(epoch=epoch)
        self.connected = True
        self.met.clear()

    def meet(self, topic: str, *, conflict: bool = False) -> None:
        """Compare the numbering of a topic, in a session of our own.

        Args:
            conflict: our numbers stand for other content there.

        Raises:
            LogChangedError: the proxy does not have what it acknowledged, or has more than we
                sent, and nobody said to adopt its numbering.
        """
        if not self.connected:
            self.connect()
        reply = self._hello(self._outbox.epoch, (topic,))
        if self.is_forgotten(reply):
            self.connect()  # the proxy does not know us any more: what it lost shows below
            reply = self._hello(self._outbox.epoch, (topic,))
        if not isinstance(reply, HelloAck):
            self.refused(reply)
        # That this id numbers the topic must outlive power loss: a state that had forgotten it
        # would take the proxy's numbers, and a repeat would be stored twice. The rest may be lazy.
        first_time = topic not in self._outbox.topics
        self.last_transaction = reply.transaction or 0
        changes = self._outbox.meet(reply.positions[0], adopt=self.adopts, conflict=conflict)
        self._state.write(changes, durable=first_time)
        self.met.add(topic)

    def meet_all(self, topics: Sequence[str]) -> None:
        """Compare the numberings of all these topics in one session."""
        if not self.connected:
            self.connect()
        while missing := [topic for topic in topics if topic not in self.met]:
            self.meet(missing[0])

    def listeners(self, topic: str) -> ListenersReport:
        """Ask who would get what is put on a topic now."""
        reply = self.ask(Listeners(**self.facts(), topic=names.topic(topic)))
        if not isinstance(reply, ListenersReport):
            self.refused(reply)
        return reply

    def facts(self) -> dict[str, Any]:
        """What each request says of its sender; a new number each time."""
        self._request += 1
        return {"client": self.client, "epoch": self._outbox.epoch, "request": self._request}

    def ask(
        self,
        request: Hello | Put | Stage | Commit | Abort | Delivery | Listeners,
        body: bytes | None = None,
    ) -> AnyReply:
        """Send a request until it is answered.

        Raises:
            InDoubtError: no answer in time.
        """
        reply, _ = ask(
            request,
            body,
            transport=self._transport,
            clock=self._clock,
            retry=self.retry,
            chance=random.random,
            on_silence=self._on_silence,
        )
        return reply

    def is_forgotten(self, reply: AnyReply) -> bool:
        """Whether the proxy knows less of our session than it granted."""
        return is_forgotten(reply, self._outbox.epoch)

    def refused(self, reply: AnyReply) -> NoReturn:
        """Raise what an answer means."""
        raise refusal(reply, client=self.client, epoch=self._outbox.epoch)

    def _hello(self, epoch: int, topics: tuple[str, ...]) -> AnyReply:
        self._asked_epoch = epoch
        facts = self.facts() | {"epoch": epoch}
        return self.ask(Hello(**facts, role="publisher", nonce=self._nonce, topics=topics))
