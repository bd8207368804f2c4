"""The sockets of a node, with the options that bound what strangers can make it hold."""

from __future__ import annotations

import resource
import secrets

import zmq

from reliable_pubsub.common.errors import ConfigurationError
from reliable_pubsub.common.limits import FRAME_BYTES_MAX

Context = zmq.Context[zmq.Socket[bytes]]
Socket = zmq.Socket[bytes]

HANDSHAKE_MS = 2_000
HEARTBEAT_MS = 5_000
HEARTBEAT_TIMEOUT_MS = 15_000
BACKLOG = 1024
DATA_MESSAGES_MAX = 256  # pushed batches kept for one peer, at most 64 KiB each
ANSWERS_MAX = 64  # kept for one peer that does not read
RECONNECT_MS = 50
RECONNECT_MS_MAX = 1_000


def listening(context: Context, kind: int, endpoint: str, what: str) -> Socket:
    """Bind a socket that strangers connect to.

    Raises:
        ConfigurationError: the endpoint cannot be bound.
    """
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
    socket.setsockopt(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
    socket.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
    socket.setsockopt(zmq.BACKLOG, BACKLOG)
    # libzmq 4.3.5 ends the process when a peer resets while its input is stopped at a bound.
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.SNDHWM, DATA_MESSAGES_MAX if kind == zmq.XPUB else ANSWERS_MAX)
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        socket.close()
        raise ConfigurationError(
            f"cannot bind the {what} endpoint {endpoint}: {error.strerror}; is another process "
            "running there?"
        ) from error
    return socket


def connecting(context: Context, kind: int, *, sent_max: int, received_max: int) -> Socket:
    """A socket that is to be connected, and tries again when nobody listens.

    Args:
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
    return socket


def allow_connections() -> None:
    """Take as many descriptors as this process may have; each connection needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def a_node_name() -> str:
    """A name that no other node has."""
    return f"relay-{secrets.token_hex(4)}"
