"""What strangers may make an endpoint hold, at real sockets: peers above a bound are cut off."""

from __future__ import annotations

import os
import select
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest
import zmq

from reliable_pubsub.common.access import sockets
from reliable_pubsub.common.access.connections import (
    FRAMES_KEPT_MAX,
    FRAMES_TURN_MAX,
    counts_bytes,
    kernel_counts,
)
from reliable_pubsub.common.access.core import allowance
from reliable_pubsub.common.access.guard import Guard
from reliable_pubsub.common.access.listener import ListenerGate, cut, hear, listen
from reliable_pubsub.common.access.sockets import Listening, listening
from reliable_pubsub.common.core.limits import (
    GIB,
    MIB,
    PREFIX_BYTES,
    PREFIX_BYTES_MAX,
    PREFIX_BYTES_MAX_TOGETHER,
    PUSH_FRAME_BYTES_MAX,
    PUSH_WAITING_CONNECTIONS_MAX,
    UNHEARD_BYTES_MAX,
)
from reliable_pubsub.common.core.patterns.matching import Kinds
from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.lab.rig.child_process import ChildProcess
from reliable_pubsub.proxy.ingress import Ingress
from reliable_pubsub.proxy.push_sockets import Push
from reliable_pubsub.proxy.qos0.interest import Want
from reliable_pubsub.proxy.server_settings import EndpointSettings
from reliable_pubsub.relay.core.interest_link import Links
from reliable_pubsub.relay.core.interest_table import InterestTable
from reliable_pubsub.relay.fan_out import PLAIN, FanOut
from scripts.fuzzer import zmtp
from scripts.fuzzer.crowd import address_of
from tests.fakes import a_broker

from .harness import PATIENCE_S, REPOSITORY, eventually

JUNK = zmtp.framed(b"j" * 100) * 600
MORE_THAN_THE_KERNEL_HOLDS = 64 * MIB
STOPPED_S = 0.5
UNPRIVILEGED = 20_001  # a user id
needs_counts = pytest.mark.skipif(not counts_bytes(), reason="TCP_INFO is Linux's")


class Raw:
    """A peer that says bytes, and takes none in."""

    def __init__(self, endpoint: str, kind: bytes) -> None:
        self.socket = socket.create_connection(address_of(endpoint))
        self.socket.settimeout(PATIENCE_S)
        self.socket.sendall(zmtp.greeting() + zmtp.ready(kind))
        self._hear(zmtp.GREETING_BYTES)
        assert self._hear(self._hear(2)[1]).startswith(b"\x05READY")
        self.socket.setblocking(False)
        self.said_bytes = 0
        self._unsaid = b""

    def _hear(self, size: int) -> bytes:
        heard = b""
        while len(heard) < size:
            more = self.socket.recv(size - len(heard))
            assert more, "the connection has ended"
            heard += more
        return heard

    def says(self, data: bytes) -> None:
        """Say as much as is taken now, of this or of what is left of the last."""
        self._unsaid = self._unsaid or data
        try:
            said_bytes = self.socket.send(self._unsaid)
        except OSError:  # not now, or never more: `is_ended` tells
            return
        self._unsaid = self._unsaid[said_bytes:]
        self.said_bytes += said_bytes

    def may_say(self, timeout_s: float) -> bool:
        """Whether more is taken within this time."""
        return bool(select.select([], [self.socket], [], timeout_s)[1])

    @property
    def is_ended(self) -> bool:
        """Whether the other side has closed the connection."""
        try:
            while self.socket.recv(65_536):
                pass
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True


class Below:
    """A fan-out, and what it is asked by peers."""

    def __init__(self, context: sockets.Context) -> None:
        kinds = Kinds()
        self.table: InterestTable[bytes] = InterestTable(kinds=kinds)
        self.fan_out = FanOut(context, "tcp://127.0.0.1:*", self.table, kinds)
        self.links = Links(self.table, node="n", kinds=kinds, push_endpoint="", boot="b")

    def turn(self) -> None:
        """One turn of a loop."""
        self.fan_out.listen(self.links)
        self.fan_out.forget_ended()

    def turns_until(self, look: Callable[[], bool], what: str) -> None:
        """Turn until there is something to see."""

        def turn() -> bool:
            self.turn()
            return look()

        eventually(turn, what)


@pytest.fixture
def below(context: sockets.Context) -> Iterator[Below]:
    below = Below(context)
    yield below
    below.fan_out.close()


def until_ended(peer: Raw, turn: Callable[[], object], says: bytes = b"") -> None:
    def ended() -> bool:
        turn()
        if says:
            peer.says(says)
        return peer.is_ended

    eventually(ended, "end of the connection")


@needs_counts
def test_who_says_more_than_is_taken_on_a_push_endpoint_is_cut_off(below: Below) -> None:
    """P7: libzmq's own thread reads it without a bound."""
    peer = Raw(below.fan_out.endpoint, b"SUB")

    until_ended(peer, lambda: None, JUNK)
    assert peer.said_bytes < MORE_THAN_THE_KERNEL_HOLDS


def test_who_says_what_is_no_subscription_is_cut_off(below: Below) -> None:
    peer = Raw(below.fan_out.endpoint, b"SUB")

    until_ended(peer, below.turn, JUNK)


@needs_counts
def test_of_many_connections_at_once_few_come_in_before_they_are_looked_at(below: Below) -> None:
    """What they say costs the loop its square, so the kernel keeps the others out."""
    backlog_of_tcp_info = 28  # linux/tcp.h: tcpi_sacked, which has it where a socket listens
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as one:
            if one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and (
                one.getsockname() == address_of(below.fan_out.endpoint)
            ):
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                (backlog,) = struct.unpack_from("=I", info, backlog_of_tcp_info)

    assert backlog == PUSH_WAITING_CONNECTIONS_MAX


def test_who_subscribes_to_more_bytes_than_a_topic_has_is_cut_off(below: Below) -> None:
    peer = Raw(below.fan_out.endpoint, b"SUB")

    until_ended(peer, below.turn, zmtp.framed(b"\1" + b"x" * PUSH_FRAME_BYTES_MAX))


def test_who_says_to_be_two_links_is_cut_off(below: Below) -> None:
    peer = Raw(below.fan_out.endpoint, b"SUB")
    peer.says(zmtp.framed(b"\1\0" + b"a" * 16) * 3)
    below.turns_until(lambda: bool(below.fan_out._said), "word of the peer")
    assert not peer.is_ended

    until_ended(peer, below.turn, zmtp.framed(b"\1\0" + b"b" * 16))


def subscriptions(first: int, count: int) -> bytes:
    return b"".join(zmtp.framed(b"\1%032d" % number) for number in range(first, first + count))


def test_who_subscribes_without_end_is_cut_off_and_all_of_it_is_forgotten(below: Below) -> None:
    peer = Raw(below.fan_out.endpoint, b"SUB")
    number = 0

    def turn() -> None:
        nonlocal number
        below.turn()
        if not peer._unsaid:
            peer.says(subscriptions(number, 100))
            number += 100
        peer.says(b"")
        assert below.fan_out.plain_count <= PREFIX_BYTES_MAX / PREFIX_BYTES + 300

    until_ended(peer, turn)
    below.turns_until(lambda: not below.fan_out.plain_count, "end of what it wanted")
    assert below.table.patterns_of(PLAIN) == frozenset()


def test_of_all_that_subscribe_too_much_together_the_largest_is_cut_off(below: Below) -> None:
    each = PREFIX_BYTES_MAX // (32 + PREFIX_BYTES) - 100
    peers = [Raw(below.fan_out.endpoint, b"SUB") for _ in range(8)]
    for place, peer in enumerate(peers):
        count = each - place
        peer.says(subscriptions(place * 10_000, count))

        def is_heard(count: int = count) -> bool:
            return any(len(one.prefixes) == count for one in below.fan_out._said.values())

        below.turns_until(is_heard, "words of all of them, one after another")

    def is_settled() -> bool:
        return below.fan_out._size_bytes <= PREFIX_BYTES_MAX_TOGETHER and any(
            peer.is_ended for peer in peers
        )

    below.turns_until(is_settled, "end of the largest")
    assert not peers[-1].is_ended


def test_who_subscribes_twice_and_leaves_is_forgotten(below: Below) -> None:
    first, second = (Raw(below.fan_out.endpoint, b"SUB") for _ in range(2))
    first.says(zmtp.framed(b"\1topic") * 2)
    second.says(zmtp.framed(b"\1topic"))
    below.turns_until(lambda: len(below.fan_out._said) == 2, "words of both")

    first.socket.close()
    below.turns_until(lambda: len(below.fan_out._said) == 1, "end of the first")
    assert below.table.is_wanted("topic")
    second.socket.close()
    below.turns_until(lambda: not below.table.is_wanted("topic"), "end of the second")


@pytest.mark.skipif(not IS_LINUX, reason="TCP_INFO and packet filters are Linux's")
def test_who_says_too_much_is_cut_off_while_the_loop_is_busy(below: Below) -> None:
    """Libzmq's own thread answers PINGs, so nothing here waits for a turn of the loop."""
    peer = Raw(below.fan_out.endpoint, b"SUB")

    until_ended(peer, lambda: None, zmtp.command(b"PING", bytes(2)) * 100)


@pytest.fixture
def no_privileges() -> Iterator[None]:
    """This thread as an unprivileged user, if the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(UNPRIVILEGED)
    try:
        yield
    finally:
        os.seteuid(0)


def comes_in(endpoint: str, timeout_s: float) -> bool:
    """Whether a connection is there within this time."""
    with socket.socket() as peer:
        peer.settimeout(timeout_s)
        with suppress(TimeoutError):
            peer.connect(address_of(endpoint))
            return True
    return False


@pytest.mark.skipif(not IS_LINUX, reason="IP_MINTTL of a listening socket is Linux's")
@pytest.mark.usefixtures("no_privileges")
def test_a_closed_gate_lets_no_connection_in_until_it_is_open() -> None:
    descriptor = listen("tcp://127.0.0.1:*", 8)
    with (
        socket.socket(fileno=descriptor) as listening_socket,
        closing(ListenerGate(descriptor)) as gate,
    ):
        endpoint = "tcp://{}:{}".format(*listening_socket.getsockname())
        gate.set_open(is_open=False)
        assert not comes_in(endpoint, STOPPED_S)
        gate.set_open(is_open=True)
        assert comes_in(endpoint, PATIENCE_S)


@pytest.mark.skipif(not IS_LINUX, reason="IP_MINTTL of a listening socket is Linux's")
def test_a_connection_that_came_through_a_closing_gate_is_heard() -> None:
    descriptor = listen("tcp://127.0.0.1:*", 8)
    with socket.socket(fileno=descriptor) as listening, closing(ListenerGate(descriptor)) as gate:
        gate.set_open(is_open=False)
        with socket.socket() as peer:
            peer.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)
            peer.connect(listening.getsockname())
            peer.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 64)
            listening.setblocking(True)
            ours, _ = listening.accept()
            with ours:
                hear(ours)
                ours.settimeout(PATIENCE_S)
                peer.sendall(b"heard")
                assert ours.recv(100) == b"heard"


@pytest.fixture
def ingress(context: sockets.Context) -> Iterator[Ingress]:
    ingress = Ingress(context, EndpointSettings(endpoint="tcp://127.0.0.1:*"))
    ingress.announce(Want(frozenset({b"t"}), frozenset()))
    yield ingress
    ingress.close()


def test_who_sends_the_ingress_what_is_no_offer_is_cut_off(ingress: Ingress) -> None:
    engine = a_broker().engine
    peer = Raw(ingress.endpoint, b"PUB")

    until_ended(peer, lambda: ingress.take(engine), JUNK)


def test_who_is_cut_off_learns_of_it_at_once() -> None:
    """Whatever it has not read, or sends."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
    connection.sendall(b"not read")
    cut(connection)
    connection.close()

    with peer:
        peer.settimeout(PATIENCE_S)
        with suppress(ConnectionResetError):
            assert b"".join(iter(lambda: peer.recv(100), b"")) == b"not read"


# Messages without end.


@pytest.fixture
def guarded(context: sockets.Context) -> Iterator[Callable[[int], Listening]]:
    """Binds a socket that a guard watches."""
    guards = []

    def bind(kind: int) -> Listening:
        listener = listening(context, kind, "tcp://127.0.0.1:*", "tested", sent_max=1)
        if counts_bytes():
            guards.append(Guard([listener.connections]))
        return listener

    yield bind
    for guard in guards:
        guard.close()


def endpoint_of(listener: Listening) -> str:
    return listener.socket.getsockopt_string(zmq.LAST_ENDPOINT)


LARGE_PARTS, EMPTY_PARTS = zmtp.unfinished([b"x" * 400]), zmtp.unfinished([b""])


@needs_counts
@pytest.mark.parametrize(
    ("kind", "peer_kind"),
    [(zmq.ROUTER, b"DEALER"), (zmq.XPUB, b"SUB"), (zmq.XSUB, b"PUB")],
    ids=["request", "push", "ingress"],
)
@pytest.mark.parametrize(
    ("said", "bytes_max"),
    [(LARGE_PARTS * 2000, UNHEARD_BYTES_MAX), (EMPTY_PARTS * 100_000, GIB)],
    ids=["of large parts", "of empty parts"],
)
def test_a_message_without_end_is_cut_off(
    kind: int,
    peer_kind: bytes,
    said: bytes,
    bytes_max: int,
    guarded: Callable[[int], Listening],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Empty parts have a bound of their own: libzmq holds 32 times as much for them."""
    monkeypatch.setattr(allowance, "UNHEARD_BYTES_MAX", bytes_max)
    monkeypatch.setattr(allowance, "UNHEARD_BYTES_MAX_TOGETHER", bytes_max)
    listener = guarded(kind)
    peer = Raw(endpoint_of(listener), peer_kind)

    while not peer.is_ended:
        peer.says(said)
        assert peer.said_bytes < MORE_THAN_THE_KERNEL_HOLDS


@needs_counts
def test_what_has_come_of_a_connection_that_is_cut_is_not_read() -> None:
    """Megabytes may have come, and libzmq would read them to the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
    with peer, connection:
        peer.sendall(bytes(100_000))
        eventually(lambda: len(connection.recv(100_000, socket.MSG_PEEK)) == 100_000, "all of it")

        cut(connection)

        assert connection.recv(1) == b""


@needs_counts
def test_a_connection_that_has_ended_between_two_looks_has_not_arrived(
    context: sockets.Context,
) -> None:
    """Its descriptor may be that of another endpoint's connection now, which it would hide."""
    listener = listening(context, zmq.XSUB, "tcp://127.0.0.1:*", "tested", sent_max=1)
    connections = listener.connections
    assert connections.arrived() == ([], False)
    peer = Raw(endpoint_of(listener), b"PUB")
    eventually(lambda: not connections.ended() and len(connections) == 1, "connection")
    peer.socket.close()
    eventually(lambda: bool(connections.ended()), "end of the connection")

    assert connections.arrived() == ([], False)


@needs_counts
def test_the_kernel_counts_bytes_and_segments() -> None:
    """Each segment may cost a buffer (docs/decisions/0026)."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
    with peer, connection:
        for number in range(1, 4):
            peer.sendall(b"40 bytes".ljust(40))
            assert connection.recv(40)
            counts = kernel_counts(connection.fileno())
            assert counts is not None
            assert (counts.received_bytes, counts.received_segments) == (40 * number, number)


def test_a_descriptor_that_was_closed_meanwhile_is_not_looked_at() -> None:
    closed = os.dup(0)
    os.close(closed)

    assert kernel_counts(closed) is None


def test_a_message_of_many_frames_is_taken_in_parts(context: sockets.Context) -> None:
    listener: Listening = listening(context, zmq.ROUTER, "tcp://127.0.0.1:*", "t", sent_max=1)
    sender = context.socket(zmq.DEALER)
    sender.connect(listener.endpoint)
    sender.send_multipart([b"part"] * (2 * FRAMES_TURN_MAX + 1))
    sender.send(b"next")
    assert listener.socket.poll(int(PATIENCE_S * 1000))

    assert listener.connections.take() is None
    assert listener.connections.take() is None
    taken = listener.connections.take()
    assert taken is not None
    assert len(taken.frames) == FRAMES_KEPT_MAX
    assert listener.socket.poll(int(PATIENCE_S * 1000))
    after = listener.connections.take()
    assert after is not None
    assert after.frames[1:] == [b"next"]


CUT_WHILE_STOPPED = """
import sys, time
import zmq
from reliable_pubsub.common.access import sockets

sockets.HEARTBEAT_MS = 50
context = zmq.Context()
listener = sockets.listening(context, zmq.ROUTER, "tcp://127.0.0.1:*", "tested", sent_max=1)
print("ready:", listener.endpoint, flush=True)
listener.socket.poll()
received = listener.connections.take()
sys.stdin.readline()
listener.connections.cut(received.connection)
print("cut", flush=True)
sys.stdin.readline()
while listener.socket.poll(500):
    listener.socket.recv_multipart()
print("all served")
"""


def test_a_connection_that_is_cut_while_its_input_is_stopped_does_not_end_the_process(
    tmp_path: Path,
) -> None:
    """Shut down in both directions, an assertion of libzmq does (docs/decisions/0026)."""
    command = [sys.executable, "-c", CUT_WHILE_STOPPED]
    with (
        ExitStack() as stack,
        ChildProcess(command, tmp_path / "log", cwd=REPOSITORY, talks=True) as process,
    ):
        endpoint = process.ready().split()[1]
        stopped, alive = Raw(endpoint, b"DEALER"), Raw(endpoint, b"DEALER")
        for peer in (stopped, alive):
            stack.enter_context(peer.socket)
            peer.socket.setblocking(True)
        stopped.socket.sendall(zmtp.asked([b"?"]) * 2000)
        assert process.ask("cut") == "cut"
        for _ in range(4):
            assert alive.socket.recv(9), "no PING"
        assert process.ask("continue") == "all served"
        assert process.wait(PATIENCE_S) == 0


def test_another_port_that_is_found_is_on_the_same_interface(context: sockets.Context) -> None:
    taken = Push(context, EndpointSettings(endpoint="tcp://127.0.0.2:*"), boot="b")
    other = Push(context, EndpointSettings(endpoint=taken.endpoint, is_default=True), boot="b")
    for push in (taken, other):
        push.close()

    assert other.endpoint.startswith("tcp://127.0.0.2:")
    assert other.endpoint != taken.endpoint
