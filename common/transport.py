"""What a client has outside its engine: ZeroMQ sockets, the real clock, and the blocking shell."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar, assert_never

import zmq

from .core.client_state import ClientState, MemoryState
from .core.conversation import (
    Await,
    Conversation,
    Exchange,
    Listen,
    Reopen,
    Save,
    ShellEffect,
    Sleep,
)
from .core.endpoint import endpoints_of, is_ipv6
from .core.errors import DescriptorsError, PubSubError
from .core.keys import SecureEndpoint, keys_of_endpoint
from .core.limits import FRAME_BYTES_MAX
from .core.retry import Clock, Transport
from .descriptors import CONTEXT_DESCRIPTORS, SOCKET_DESCRIPTORS, need_descriptors

T = TypeVar("T")

IO_THREADS_MAX: Final = 63  # of a context; an option of ZeroMQ names them by the bits of a number
RECONNECT_MS = 50  # interval of ZeroMQ's connection attempts while no proxy listens
RECONNECT_MS_MAX = 1_000
RECONNECT_MS_MAX_OF_SEVERAL = 250  # of a service that a standby may take over
_DONT_WAIT = int(zmq.DONTWAIT)  # as ints: enumerations are converted at each call
_SEND_MORE = int(zmq.SNDMORE) | _DONT_WAIT
# From the look for free descriptors until a socket has taken them. A signal handler may open one.
_opening = threading.RLock()


def _open_in_child() -> None:
    global _opening
    _opening = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_open_in_child)


class ClientContext(zmq.Context[zmq.Socket[bytes]]):
    """A context that closes its sockets, wherever a call that opened or closed one was broken off.

    pyzmq knows them by weak references. These are gone when a context is collected together with
    its sockets, and a socket whose `close` was broken off is no longer among them: `term` then
    waits forever. Here a socket is held from before it is opened until it is closed.
    """

    _held: tuple[zmq.Socket[bytes], ...] = ()

    def socket(self, kind: int) -> zmq.Socket[bytes]:  # type: ignore[override]  # one class of them
        """Open a socket.

        Raises:
            DescriptorsError: this process may not open as many files as that takes.
        """
        socket: zmq.Socket[bytes] = zmq.Socket.__new__(zmq.Socket)
        needed = SOCKET_DESCRIPTORS if self._held else CONTEXT_DESCRIPTORS + SOCKET_DESCRIPTORS
        with _opening:
            need_descriptors(needed, "a connection to the proxy")
            self._held = (*(one for one in self._held if not one.closed), socket)
            socket.__init__(self, kind)  # type: ignore[misc]  # only now it can be closed
        return socket

    def close_sockets(self, linger: int | None = None) -> None:
        """Close all sockets."""
        for socket in self._held:
            socket.close(linger=linger)

    def destroy(self, linger: int | None = None) -> None:
        """Close all sockets, then end."""
        self.close_sockets(linger)
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
    if (keys := keys_of_endpoint(endpoint)) is None:
        return
    socket.setsockopt(zmq.CURVE_SERVERKEY, keys.server.encode())
    socket.setsockopt(zmq.CURVE_PUBLICKEY, keys.own.public.encode())
    socket.setsockopt(zmq.CURVE_SECRETKEY, keys.own.secret.encode())


def connect(socket: zmq.Socket[bytes], endpoint: str, io_thread: int = 0) -> None:
    """Connect a socket to one more endpoint.

    IPv6 is an option of each connection. It is set for IPv6 addresses only, because libzmq then
    looks up the IPv6 addresses of a host name and no others.

    Args:
        io_thread: of the context, which serves this connection. While it looks up a host name it
            serves no other, for 10 s and more where no name server answers, again and again. So
            each endpoint has a thread, and a missing name stalls nothing else.
    """
    socket.setsockopt(zmq.AFFINITY, 1 << io_thread % IO_THREADS_MAX)
    socket.setsockopt(zmq.IPV6, int(is_ipv6(endpoint)))
    socket.connect(endpoint)


class ReqTransport:
    """REQ sockets with one request under way. Implements `retry.Transport`; used by one thread.

    One that misses its answer never sends again (rule R1): the options that would let it
    (REQ_RELAXED, REQ_CORRELATE) have open defects, libzmq issue 1695. It is closed and replaced; of
    a service at several endpoints it is kept until the request is answered, because a standby
    begins to listen at any time, and the endpoint whose turn it is then may be that of a proxy that
    hangs.
    """

    def __init__(self, endpoint: str) -> None:
        """Create a socket that connects in the background; without a proxy, requests time out.

        Args:
            endpoint: or several of one service (`endpoints_of`); after silence the next is tried.
        """
        keys = keys_of_endpoint(endpoint)
        several = endpoints_of(endpoint)
        self._endpoints = (
            several if keys is None else [SecureEndpoint(one, keys) for one in several]
        )
        self._turn = 0
        self._earlier: dict[int, zmq.Socket[bytes]] = {}  # by turn; asked the same, not answered
        self._context = ClientContext(min(len(several), IO_THREADS_MAX))
        end_with(self, self._context)
        self._go_on_with(self._open(self._turn))

    @property
    def endpoint(self) -> str:
        """The endpoint in use."""
        return self._endpoints[self._turn]

    def _open(self, turn: int) -> zmq.Socket[bytes]:
        endpoint, is_one = self._endpoints[turn], len(self._endpoints) == 1
        socket = self._context.socket(zmq.REQ)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, FRAME_BYTES_MAX)
        socket.setsockopt(zmq.RECONNECT_IVL, RECONNECT_MS)
        longest_ms = RECONNECT_MS_MAX if is_one else RECONNECT_MS_MAX_OF_SEVERAL
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, longest_ms)
        use_keys_of(endpoint, socket)
        connect(socket, endpoint, turn)
        return socket

    def _go_on_with(self, socket: zmq.Socket[bytes]) -> None:
        self._timeout_s: float | None = None  # of the socket; None: it is not known
        self._socket = socket
        self._send = sender_of(socket)

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a request; ZeroMQ queues it until it is connected. Never waits.

        Raises:
            DescriptorsError: there was none to open a socket again, and is none now.
        """
        if self._socket.closed:  # there was no descriptor for it
            self._go_on_with(self._open(self._turn))
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
        if self._earlier:
            return self._receive_from_any(timeout_s)
        socket = self._socket
        if timeout_s != self._timeout_s:
            self._timeout_s = None  # until it is set, also if this is interrupted
            socket.setsockopt(zmq.RCVTIMEO, max(int(timeout_s * 1000), 1))
            self._timeout_s = timeout_s
        try:
            frame = socket.recv(copy=False)  # knows if there are more; to ask the socket takes 1 us
            frames = [frame.bytes]
            while frame.more:
                frame = socket.recv(copy=False)
                frames.append(frame.bytes)
            return frames
        except zmq.Again:
            return None

    def _receive_from_any(self, timeout_s: float) -> Sequence[bytes] | None:
        poller = zmq.Poller()
        for socket in (self._socket, *self._earlier.values()):
            poller.register(socket, zmq.POLLIN)
        poller.poll(max(int(timeout_s * 1000), 1))
        return self.take()

    def take(self) -> Sequence[bytes] | None:
        """The answer, if it has come. Never waits."""
        for turn, socket in ((self._turn, self._socket), *self._earlier.items()):
            with suppress(zmq.Again):
                frames = socket.recv_multipart(zmq.DONTWAIT)
                if self._earlier:
                    self._answered(turn, socket)
                return frames
        return None

    def _answered(self, turn: int, by: zmq.Socket[bytes]) -> None:
        """Go on with the endpoint that has answered; the others are not asked any longer."""
        for socket in (self._socket, *self._earlier.values()):
            if socket is not by:
                socket.close(linger=0)
        self._earlier = {}
        self._turn = turn
        self._go_on_with(by)

    @property
    def descriptors(self) -> list[int]:
        """File descriptors; one becomes readable after a `take` that found nothing."""
        sockets = (self._socket, *self._earlier.values())
        return [int(socket.getsockopt(zmq.FD)) for socket in sockets]

    def move_on(self) -> None:
        """Use the next endpoint; earlier ones may still answer."""
        if len(self._endpoints) == 1:
            self.reopen()
            return
        following = (self._turn + 1) % len(self._endpoints)
        try:
            socket = self._open(following)
        except DescriptorsError:
            self.reopen()
            return
        self._earlier[self._turn], self._turn = self._socket, following
        if (silent := self._earlier.pop(self._turn, None)) is not None:
            silent.close(linger=0)
        self._go_on_with(socket)

    def reopen(self) -> None:
        """Discard every request in flight; open a new socket, to the next endpoint."""
        self._context.close_sockets(linger=0)
        self._earlier = {}
        self._turn = (self._turn + 1) % len(self._endpoints)
        with suppress(DescriptorsError):  # then the next `send` tries again
            self._go_on_with(self._open(self._turn))

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

    now_s = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)  # a signal handler that raises ends it early


def carry_out(save: Save, state: ClientState) -> None:
    """Write values of a state."""
    if save.mark is not None:
        slot, number = save.mark
        state.marks[slot] = number
    state.write(save.changes, durable=save.durable)


class Shell:
    """A socket, a clock and a state; for one conversation at a time."""

    def __init__(
        self, transport: Transport, clock: Clock, state: ClientState | None = None
    ) -> None:
        """Put them together; without a state, what is saved ends with the process."""
        self._transport = transport
        self._clock = clock
        self._state = state or MemoryState()

    def run(self, conversation: Conversation[T]) -> T:
        """Carry out each effect, until the conversation returns.

        Raises:
            PubSubError: what the conversation raises.
        """
        send: Callable[[Any], ShellEffect] = conversation.send
        transport, step = self._transport, send
        value: object = None
        try:
            while True:
                try:
                    effect = step(value)
                except StopIteration as end:
                    result: T = end.value
                    return result
                step, value = send, None
                try:
                    if isinstance(effect, Save):
                        carry_out(effect, self._state)
                    elif isinstance(effect, Exchange):
                        transport.send(effect.frames)
                        value = transport.receive(effect.timeout_s)
                    elif isinstance(effect, Await):
                        value = transport.receive(effect.timeout_s)
                    elif isinstance(effect, Sleep):
                        self._clock.sleep(effect.seconds)
                    elif isinstance(effect, Reopen):
                        (transport.move_on if effect.is_wanted else transport.reopen)()
                    elif isinstance(effect, Listen):
                        effect.link.wait(effect.seconds)
                    else:
                        assert_never(effect)
                except PubSubError as error:
                    step, value = conversation.throw, error
        except PubSubError:
            raise
        except BaseException:  # an interrupt: as after silence
            transport.reopen()
            raise
        finally:
            value = None  # an error refers to this frame, and must not be referred to by it
