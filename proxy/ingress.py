"""The ingress: the socket that receives QoS 0 messages.

An XSUB, to which publishers connect an XPUB. It sends what is wanted as ZeroMQ subscriptions, so
that a message without a listener does not leave its publisher. The patterns are few (a cap), and
no high-water mark is between them and the publishers (decision 0013), so none is dropped.
"""

from __future__ import annotations

import time
from typing import Final

import zmq

from reliable_pubsub.common.core.limits import BODY_BYTES_MAX
from reliable_pubsub.common.core.status import IngressStatus
from reliable_pubsub.relay.authentication import Authentication
from reliable_pubsub.relay.sockets import NO_BOUND, Context, Listening, Receiver, listening

from .core.engine import Engine
from .core.qos0_interest import Want
from .push import EndpointSettings, bind

TURN_MAX: Final = 64  # batches that one turn of the loop takes


class Ingress:
    """The XSUB socket; used by the loop thread only."""

    def __init__(
        self,
        context: Context,
        settings: EndpointSettings,
        authentication: Authentication | None = None,
    ) -> None:
        """Bind.

        Args:
            authentication: as that of `FrontDoor`.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        listener = bind(settings, lambda to: _listening(context, to))
        self.socket, self.connections = listener.socket, listener.connections
        self._receiver = Receiver(self.socket)
        self._authentication = authentication
        self.endpoint = self.socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._counts = {"taken": 0, "unwanted": 0, "refused": 0}

    def tell(self, want: Want) -> None:
        """Send subscriptions to the publishers: new ones first."""
        for prefix in want.added:
            self.socket.send(b"\1" + prefix)
        for prefix in want.removed:
            self.socket.send(b"\0" + prefix)

    def turn(self, engine: Engine) -> None:
        """Take at most TURN_MAX batches; the rest waits for the next turn."""
        for _ in range(TURN_MAX):
            try:
                taken = self._receiver.take()
            except zmq.Again:
                return
            if taken is None:
                return
            first, frames = taken
            speaker = self.connections.heard(first)
            key: str | None = ""
            if self._authentication is not None:
                key = self._authentication.key_of(first)
                if key is not None and self._authentication.excess(speaker, key) is not None:
                    self._counts["refused"] += 1
                    continue
            # None: the key was revoked
            became = None if key is None else engine.offered(frames, now_ns=time.time_ns(), key=key)
            self._counts[became or "refused"] += 1
            if became is None and speaker is not None:
                self.connections.cut(speaker)

    def close(self) -> None:
        """Unbind."""
        self.connections.close()
        self.socket.close()

    def status(self, engine: Engine) -> IngressStatus:
        """The row of the ingress in a STATUS."""
        return IngressStatus(endpoint=self.endpoint, patterns=engine.wanted.count, **self._counts)


def _listening(context: Context, endpoint: str) -> Listening:
    return listening(
        context, zmq.XSUB, endpoint, "ingress", sent_max=NO_BOUND, frame_bytes_max=BODY_BYTES_MAX
    )
