"""The front door: ROUTER outside, DEALER inside, a pool of REP sockets behind it.

`zmq.proxy` in a thread is the ZeroMQ Guide's shared queue (chapter 2). A single REP socket holds
one request, so it would pay every fsync alone, and an envelope without delimiter from a peer that
has left makes it drop an honest answer (docs/decisions/0002).
"""

from __future__ import annotations

import resource
import threading

import zmq

from reliable_pubsub.common.errors import ConfigurationError
from reliable_pubsub.common.limits import FRAME_BYTES_MAX
from reliable_pubsub.common.messages import Role

from .listener import listen

HANDSHAKE_MS = 2_000  # a connection that says nothing is closed
HEARTBEAT_MS = 5_000
HEARTBEAT_TIMEOUT_MS = 15_000
BACKLOG = 1024  # connections that wait for their turn; ZeroMQ's own 100 is less than one burst
PEER_ANSWERS_MAX = 32  # kept for one connection that does not read
PEER_REQUESTS_MAX = 8  # kept of one connection, before its input is stopped
NO_BOUND = 0
WAITING_MAX = 2  # requests behind a busy REP socket, at each end of its pipe


def allow_connections() -> None:
    """Take as many descriptors as this process may have; each connection needs one.

    The usual 1024 are used up by silent peers that come at 50 a second: each may stay until the
    heartbeat ends it, and nobody else comes in meanwhile.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class FrontDoor:
    """One endpoint and its REP sockets. The sockets belong to the loop thread."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], role: Role, endpoint: str, sockets: int
    ) -> None:
        """Bind, and start the thread that passes requests on.

        Args:
            sockets: REP sockets; so many requests can wait for one commit.

        Raises:
            ConfigurationError: the endpoint cannot be bound.
        """
        self.role = role
        outside = context.socket(zmq.ROUTER)
        outside.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        outside.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
        outside.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        outside.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
        # Without an authenticator the domain changes nothing for ZMTP 3. Peers of ZMTP 1 and 2 are
        # refused because of it: they know no heartbeat, so a silent one would stay for ever.
        outside.setsockopt(zmq.ZAP_DOMAIN, b"reliable-pubsub")
        outside.setsockopt(zmq.LINGER, 0)
        # A REQ peer has one request under way. One that does not read loses its answers, one that
        # asks without end is stopped: it must not make us keep them.
        outside.setsockopt(zmq.SNDHWM, PEER_ANSWERS_MAX)
        bounded = endpoint.startswith("tcp:")  # a stopped local peer that ends would end us
        outside.setsockopt(zmq.RCVHWM, PEER_REQUESTS_MAX if bounded else NO_BOUND)
        inside = context.socket(zmq.DEALER)
        inside.setsockopt(zmq.SNDHWM, WAITING_MAX)  # more requests wait outside
        inside.setsockopt(zmq.LINGER, 0)
        try:
            if bounded:
                outside.setsockopt(zmq.USE_FD, listen(endpoint, BACKLOG))
            outside.bind(endpoint)
        except (OSError, zmq.ZMQError) as error:
            outside.close()
            inside.close()
            raise ConfigurationError(
                f"cannot bind the {role} endpoint {endpoint}: {error.strerror}; is another proxy "
                "running there?"
            ) from error
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
