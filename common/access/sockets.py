"""Sockets that strangers reach or that reach strangers, with the options that bound both. One copy.

The proxy's front door binds by `listening` too.
"""

from __future__ import annotations

import errno
import resource
import secrets
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import zmq
from msgspec import Struct

from ..core.endpoint import endpoints_of
from ..core.errors import ConfigurationError
from ..core.limits import FRAME_BYTES_MAX
from ..descriptors import need_descriptors
from ..transport import (
    RECONNECT_MS,
    RECONNECT_MS_MAX,
    connect,
    use_keys_of,
)
from .connections import Admits, Authenticates, Connections
from .listener import ListenerGate, listen

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]

HANDSHAKE_MS = 2_000  # a connection that says nothing is closed
HEARTBEAT_MS = 5_000
HEARTBEAT_TIMEOUT_MS = 15_000
END_S_MAX = 0.5  # for freeing sockets; last answers have 0.2 s of it
ZAP_DOMAIN = "reliable-pubsub"
BACKLOG = 1024  # connections that wait for their turn; ZeroMQ's own 100 is less than one burst
DATA_MESSAGES_MAX = 256  # pushed batches kept for one peer, at most 64 KiB each
ANSWERS_MAX = 64  # kept for one peer that does not read
NO_BOUND = 0
_BIND_HINTS = {
    errno.EADDRINUSE: "; is another proxy or relay running there?",
    errno.EADDRNOTAVAIL: "; this machine does not have that address",
    errno.EAFNOSUPPORT: "; this system has no IPv6",
}
DESCRIPTORS = 10_240  # OPEN_MAX of macOS
DESCRIPTORS_LEFT = 64  # not for connections: a proxy has about 40; where there are many, an eighth


class Listening(Struct, frozen=True):
    """A socket that strangers connect to."""

    socket: Socket
    connections: Connections
    endpoint: str  # with the port that was bound


def listening(
    context: Context,
    kind: int,
    endpoint: str,
    what: str,
    *,
    authentication: Authenticates | None = None,
    entrance: Admits | None = None,
    sent_max: int,
    frame_bytes_max: int = FRAME_BYTES_MAX,
    receive_buffer_bytes: int | None = None,
    waiting_max: int = BACKLOG,
) -> Listening:
    """Bind a socket that strangers connect to.

    Args:
        what: of the endpoint, for the sentence of an error.
        authentication: says whose a connection is; None: each may speak.
        entrance: decides who comes in; None: each connection does.
        sent_max: messages kept for one peer that does not read; more are dropped.
        frame_bytes_max: a peer that sends a longer frame is cut off.
        receive_buffer_bytes: of each TCP connection, in the kernel; None: as the system has it.
        waiting_max: TCP connections that the kernel keeps until libzmq takes them in.

    Raises:
        ConfigurationError: the endpoint cannot be bound.
    """
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, frame_bytes_max)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    socket.setsockopt(zmq.AFFINITY, 1)  # the first I/O thread, which looks up no names
    # Without an authenticator the domain changes nothing for ZMTP 3. Peers of ZMTP 1 and 2 are
    # refused because of it: they know no heartbeat, so a silent one would stay forever.
    socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN.encode())
    # At a mark libzmq would stop to read, and would not survive a reset then (zeromq/libzmq, issue
    # 4364; docs/decisions/0026). A guard bounds the bytes instead.
    socket.setsockopt(zmq.RCVHWM, NO_BOUND)
    socket.setsockopt(zmq.SNDHWM, sent_max)
    connections = Connections(context, socket, authentication)
    connections.entrance = entrance
    try:
        if endpoint.startswith("tcp:"):
            descriptor = listen(endpoint, waiting_max, receive_buffer_bytes)
            socket.setsockopt(zmq.USE_FD, descriptor)
        socket.bind(endpoint)
        if endpoint.startswith("tcp:"):
            connections.gate = ListenerGate(descriptor)
    except (OSError, zmq.ZMQError) as error:
        connections.close()
        socket.close()
        hint = _BIND_HINTS.get(error.errno or 0, "")
        raise ConfigurationError(
            f"cannot bind the {what} endpoint {endpoint}: {error.strerror}{hint}"
        ) from error
    if entrance is not None:
        entrance.leads_to(connections)
    return Listening(socket, connections, socket.getsockopt_string(zmq.LAST_ENDPOINT))


def connecting(
    context: Context, kind: int, node: str, *, sent_max: int, received_max: int
) -> Socket:
    """A socket that is to be connected, and retries while there is no listener.

    Args:
        node: an endpoint of the node that it is to reach; its keys count.
        sent_max, received_max: messages that wait, each way; 0: no bound.
    """
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
    socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.SNDHWM, sent_max)
    socket.setsockopt(zmq.RCVHWM, received_max)
    socket.setsockopt(zmq.CURVE_SERVER, 0)  # whatever the context says of those that are bound
    use_keys_of(node, socket)
    return socket


def connect_to_any(socket: Socket, node: str, io_thread: int = 0) -> None:
    """Connect to each endpoint at which a node may be (`endpoints_of`).

    Messages go only to those that answer ZeroMQ's greeting: of several proxies on one database
    the one that serves.

    Args:
        io_thread: of the first endpoint; each has one of its own (`transport.connect`).
    """
    several = endpoints_of(node)
    if len(several) > 1:
        socket.setsockopt(zmq.IMMEDIATE, 1)
    for number, endpoint in enumerate(several, io_thread):
        connect(socket, endpoint, number)


def allow_connections() -> None:
    """Raise the descriptor limit as far as allowed; each connection needs one.

    The usual 1024 are used up by silent peers that come at 50 a second: each may stay until the
    heartbeat ends it, and no other peer connects meanwhile.

    Raises:
        DescriptorsError: there are too few to start.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, max(soft, DESCRIPTORS)):
        with suppress(OSError, ValueError):  # macOS says that there is no limit, and has one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            break
    need_descriptors(DESCRIPTORS_LEFT, "a proxy or relay")


def descriptors_for_connections() -> int:
    """How many connections this process may have, so that descriptors are left for the rest.

    Without any, libzmq asks the kernel for the next connection again and again, with a whole core.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(soft - max(soft // 8, DESCRIPTORS_LEFT), 1)


def end_context(end: Callable[[], None]) -> None:
    """Free the sockets of a process that ends; what takes longer is left to the system.

    Libzmq looks through the heartbeat timers of all connections to end each of them
    (`poller_base_t::cancel_timer`): with 10,000 that takes seconds, and the end of the process does
    the same at once. What was sent leaves first: libzmq takes commands in their order.

    Args:
        end: `term` or `destroy` of the context; runs in a thread that may outlive this call.
    """
    ending = threading.Thread(target=end, name="ending", daemon=True)
    ending.start()
    ending.join(END_S_MAX)


def a_node_name() -> str:
    """A name that no other node has."""
    return f"relay-{secrets.token_hex(4)}"
