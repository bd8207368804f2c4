"""The clients' side of ZeroMQ: one REQ socket, and the real clock. No other client file knows zmq.

A REQ socket that misses its answer is closed and replaced (rule R1): the options that would let
it send again (REQ_RELAXED, REQ_CORRELATE) have open defects, libzmq issue 1695.
"""

from __future__ import annotations

import os
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from itertools import cycle

import zmq

from .core.endpoint import endpoints_of
from .core.keys import SecureEndpoint, keys_of
from .core.limits import FRAME_BYTES_MAX

RECONNECT_MS = 50  # interval of ZeroMQ's connection attempts while no proxy listens
RECONNECT_MS_MAX = 1_000
_DONT_WAIT = int(zmq.DONTWAIT)  # as ints: enumerations are converted at each call
_SEND_MORE = int(zmq.SNDMORE) | _DONT_WAIT
_MORE = int(zmq.RCVMORE)


class ClientContext(zmq.Context[zmq.Socket[bytes]]):
    """A context that closes its sockets, wherever a call that opened or closed one was broken off.

    pyzmq knows them by weak references. These are gone when a context is collected together with
    its sockets, and a socket whose `close` was broken off is no longer among them: `term` then
    waits for ever. Here a socket is held from before it is opened until it is closed.
    """

    _held: tuple[zmq.Socket[bytes], ...] = ()

    def socket(self, kind: int) -> zmq.Socket[bytes]:  # type: ignore[override]  # one class of them
        """Open a socket."""
        socket: zmq.Socket[bytes] = zmq.Socket.__new__(zmq.Socket)
        self._held = (*(one for one in self._held if not one.closed), socket)
        socket.__init__(self, kind)  # type: ignore[misc]  # only now there is something to close
        return socket

    def destroy(self, linger: int | None = None) -> None:
        """Close all sockets, then end."""
        for socket in self._held:
            socket.close(linger=linger)
        self.term()


def end_with(owner: object, context: ClientContext) -> None:
    """Close a context when its owner is collected, without waiting for a peer.

    Call it before the first socket is opened.
    """
    weakref.finalize(owner, _end, context, os.getpid()).atexit = False


def _end(context: ClientContext, pid: int) -> None:
    if context.closed or os.getpid() != pid:  # in a forked child the sockets are the parent's
        return
    warnings.warn(
        "a client was not closed: use it in a with block, or call close", ResourceWarning, 2
    )
    context.destroy(linger=0)


def sender_of(socket: zmq.Socket[bytes]) -> Callable[[bytes, int], object]:
    """What sends a frame: the method in C, without the one in Python around it.

    That one looks for options that only draft sockets have, for more time than sending takes.
    """
    send: Callable[[bytes, int], object] = super(zmq.Socket, socket).send
    return send


def use_keys_of(endpoint: str, socket: zmq.Socket[bytes]) -> None:
    """Encrypt the connections of a socket that is to be connected to an endpoint with keys."""
    if (keys := keys_of(endpoint)) is None:
        return
    socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.own.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.own.secret.encode())


class ReqTransport:
    """A REQ socket, to one endpoint at a time. Implements `retry.Transport`; used by one thread."""

    def __init__(self, endpoint: str) -> None:
        """Create a socket that connects in the background; without a proxy, requests time out.

        Args:
            endpoint: or several of one service (`endpoints_of`); after silence the next is tried.
        """
        self._turns = cycle(endpoints_of(endpoint))
        self._keys = keys_of(endpoint)
        self.endpoint = self._next()
        self._context = ClientContext()
        end_with(self, self._context)
        self._socket = self._open()

    def _next(self) -> str:
        endpoint = next(self._turns)
        return endpoint if self._keys is None else SecureEndpoint(endpoint, self._keys)

    def _open(self) -> zmq.Socket[bytes]:
        self._timeout_s: float | None = None  # of the socket; None: it is not known
        socket = self._context.socket(zmq.REQ)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, RECONNECT_MS_MAX)
        use_keys_of(self.endpoint, socket)
        socket.connect(self.endpoint)
        self._send = sender_of(socket)
        return socket

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a request; ZeroMQ queues it until it is connected. Never waits."""
        send = self._send
        try:
            for frame in frames[:-1]:
                send(frame, _SEND_MORE)
            send(frames[-1], _DONT_WAIT)
        except zmq.Again:  # the server refused our key for good: libzmq has given up the connection
            self.reopen()
            self._socket.send_multipart(frames, _DONT_WAIT)

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        """Wait for the answer; None after `timeout_s`."""
        socket = self._socket
        if timeout_s != self._timeout_s:
            self._timeout_s = None  # until it is set, also if this is interrupted
            socket.setsockopt(zmq.RCVTIMEO, max(int(timeout_s * 1000), 1))
            self._timeout_s = timeout_s
        try:
            frames = [socket.recv()]
            while socket.get(_MORE):  # as recv_multipart does, at half its cost
                frames.append(socket.recv())
            return frames
        except zmq.Again:
            return None

    def take(self) -> Sequence[bytes] | None:
        """The answer, if it has come. Never waits."""
        try:
            return self._socket.recv_multipart(zmq.DONTWAIT)
        except zmq.Again:
            return None

    @property
    def descriptor(self) -> int:
        """A file descriptor that becomes readable after a `take` that found nothing."""
        return int(self._socket.getsockopt(zmq.FD))

    def reopen(self) -> None:
        """Discard the socket and its request in flight; open a new one, to the next endpoint."""
        self._socket.close(linger=0)
        self.endpoint = self._next()
        self._socket = self._open()

    def close(self) -> None:
        """Close the socket and its context."""
        self._context.destroy(linger=0)


class DataLink:
    """The sockets of a link on which something may arrive. Implements `conversation.Hears`."""

    due_in_s = float("inf")  # when the link has something to do itself

    def __init__(self, *sockets: zmq.Socket[bytes]) -> None:
        """Wait on these sockets, which stay the same."""
        self._sockets = sockets
        self._poller = zmq.Poller()
        for socket in sockets:
            self._poller.register(socket, zmq.POLLIN)

    def wait(self, seconds: float) -> None:
        """See `Hears`."""
        self._poller.poll(max(int(min(seconds, self.due_in_s) * 1000), 1))

    def has_arrived(self) -> bool:
        """Whether a message waits to be received."""
        return any(int(socket.getsockopt(zmq.EVENTS)) & zmq.POLLIN for socket in self._sockets)

    @property
    def descriptors(self) -> tuple[int, ...]:
        """One becomes readable after `has_arrived` was false."""
        return tuple(int(socket.getsockopt(zmq.FD)) for socket in self._sockets)


class SystemClock:
    """The real clock. Implements `retry.Clock`."""

    def now_s(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep; a signal handler that raises ends it early."""
        time.sleep(seconds)
