"""The front door: ROUTER outside, DEALER inside, connected to a pool of REP sockets.

`zmq.proxy` in a thread is the ZeroMQ Guide's shared queue (chapter 2). A single REP socket holds
one request, so it would pay every fsync alone, and an envelope without delimiter from a peer that
has left makes it drop an honest answer (docs/decisions/0002).
"""

from __future__ import annotations

import threading

import zmq

from reliable_pubsub.common.core.messages import Role
from reliable_pubsub.relay.sockets import listening

PEER_ANSWERS_MAX = 32  # kept for one connection that does not read
WAITING_MAX = 2  # requests queued for a busy REP socket, at each end of its pipe


class FrontDoor:
    """One endpoint and its REP sockets. The sockets belong to the loop thread."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], role: Role, endpoint: str, sockets: int
    ) -> None:
        """Bind, and start the thread that passes requests on.

        Args:
            sockets: REP sockets; this many requests can share one commit.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        self.role = role
        # A REQ peer has one request in flight. A peer that does not read loses its replies, and one
        # that floods is blocked, so that replies do not pile up in memory.
        listener = listening(context, zmq.ROUTER, endpoint, role, sent_max=PEER_ANSWERS_MAX)
        outside, self.hears_resets = listener.socket, listener.hears_resets
        self.connections = listener.connections
        inside = context.socket(zmq.DEALER)
        inside.setsockopt(zmq.SNDHWM, WAITING_MAX)  # more requests wait outside
        inside.setsockopt(zmq.LINGER, 0)
        self.endpoint = outside.getsockopt_string(zmq.LAST_ENDPOINT)
        inside.bind(f"inproc://{role}")
        self.sockets: list[zmq.Socket[bytes]] = []
        for _ in range(sockets):
            socket = context.socket(zmq.REP)
            socket.setsockopt(zmq.RCVHWM, WAITING_MAX)
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(f"inproc://{role}")
            self.sockets.append(socket)
        self._thread = threading.Thread(
            target=_pass_on, args=(outside, inside), name=f"{role} door", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Close the REP sockets; the thread ends with its context."""
        for socket in self.sockets:
            socket.close()
        self.connections.close()

    def join(self) -> None:
        """Wait for the thread, once the context has ended."""
        self._thread.join()


def _pass_on(outside: zmq.Socket[bytes], inside: zmq.Socket[bytes]) -> None:
    """Pass requests in and answers out until the context ends."""
    try:
        zmq.proxy(outside, inside)
    except zmq.ContextTerminated:
        pass
    finally:
        outside.close()
        inside.close()
