"""The ingress: the socket that receives QoS 0 messages.

An XSUB, to which publishers connect an XPUB. It sends what is wanted as ZeroMQ subscriptions, so
that a message without a listener does not leave its publisher. The patterns are few (a cap), and
no high-water mark is between them and the publishers (decision 0016), so none is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import zmq

from reliable_pubsub.common.access.authentication import Authentication
from reliable_pubsub.common.access.connections import Connections
from reliable_pubsub.common.access.entrance import Entrance
from reliable_pubsub.common.access.sockets import NO_BOUND, Context, listening
from reliable_pubsub.common.core.limits import BODY_BYTES_MAX

from .core.engine import Engine
from .extension import Extension, bind
from .qos0.interest import Want, Wanted
from .qos0.verbs import BecameOfOffer, offered
from .server_settings import EndpointSettings

TURN_MAX: Final = 64  # batches that one turn of the loop takes


class Ingress(Extension):
    """The XSUB socket."""

    def __init__(
        self,
        context: Context,
        settings: EndpointSettings,
        authentication: Authentication | None = None,
        entrance: Entrance | None = None,
    ) -> None:
        """Bind.

        Args:
            authentication, entrance: as those of `FrontDoor`.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        listener = bind(
            settings,
            lambda endpoint: listening(
                context,
                zmq.XSUB,
                endpoint,
                "ingress",
                authentication=authentication,
                entrance=entrance,
                sent_max=NO_BOUND,
                frame_bytes_max=BODY_BYTES_MAX,
            ),
        )
        self.socket: zmq.Socket[bytes] = listener.socket
        self.connections: Connections = listener.connections
        self.endpoint = listener.endpoint
        self.ready = f"ingress={self.endpoint}"
        self._wanted = Wanted(self.endpoint)

    def parts(self) -> Sequence[object]:
        """Return what is announced to publishers, with the counts of what came."""
        return (self._wanted,)

    def outputs(self) -> Mapping[type[Any], Callable[[Any], None]]:
        """Send subscriptions to the publishers."""
        return {Want: self.announce}

    def announce(self, want: Want) -> None:
        """Send subscriptions to the publishers: new ones first."""
        for prefix in want.added:
            self.socket.send(b"\1" + prefix)
        for prefix in want.removed:
            self.socket.send(b"\0" + prefix)

    def take(self, engine: Engine) -> bool:
        """Take at most TURN_MAX batches; the rest waits for the next turn.

        Returns:
            Whether to look for more.
        """
        for _ in range(TURN_MAX):
            try:
                received = self.connections.take()
            except zmq.Again:
                break
            if received is None:
                break
            if received.excess is not None:
                self._wanted.counts["refused"] += 1
                continue
            became: BecameOfOffer | None = None
            if received.key is not None:  # else it was revoked
                now_ns = time.time_ns()
                became = offered(engine, received.frames, now_ns=now_ns, key=received.key)
            self._wanted.counts[became or "refused"] += 1
            if became is None and received.connection is not None:
                self.connections.cut(received.connection)
        return True

    def close(self) -> None:
        """Unbind."""
        self.connections.close()
        self.socket.close()
