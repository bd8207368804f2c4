"""The lab's link, by plain sockets: what passes, what is cut, what comes late."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.lab.rig.link import TcpLink, TcpLinks
from scripts.fuzzer import zmtp

PATIENCE_S = 600.0


class Listener:
    """The proxy's side."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(PATIENCE_S)
        self.address: tuple[str, int] | None = self._socket.getsockname()
        self.taken: list[socket.socket] = []

    def accept(self) -> socket.socket:
        one, _ = self._socket.accept()
        one.settimeout(PATIENCE_S)
        self.taken.append(one)
        return one

    def close(self) -> None:
        for one in (self._socket, *self.taken):
            one.close()


Connect = Callable[[], socket.socket]


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.close()


@pytest.fixture
def links() -> Iterator[TcpLinks]:
    links = TcpLinks()
    yield links
    links.close()


@pytest.fixture
def link(links: TcpLinks, listener: Listener) -> TcpLink:
    return links.open(lambda: listener.address)


@pytest.fixture
def connect(link: TcpLink) -> Iterator[Connect]:
    opened: list[socket.socket] = []

    def connect() -> socket.socket:
        one = socket.create_connection(link.address, PATIENCE_S)
        opened.append(one)
        return one

    yield connect
    for one in opened:
        one.close()


def everything(one: socket.socket) -> bytes:
    """The bytes that come until the end, or until the connection is reset."""
    found = b""
    with suppress(ConnectionResetError):
        while data := one.recv(65_536):
            found += data
    return found


def exactly(one: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        data = one.recv(count - len(found))
        assert data, f"it ended after {found!r}"
        found += data
    return found


def connected(connect: Connect, listener: Listener) -> tuple[socket.socket, socket.socket]:
    """A connection over which a byte has passed: the link knows of it."""
    client = connect()
    proxy = listener.accept()
    client.sendall(b"1")
    assert exactly(proxy, 1) == b"1"
    return client, proxy


def done(links: TcpLinks) -> None:
    """Wait until the links have done what was requested before."""

    async def nothing() -> None:
        pass

    links.wait_for(nothing())


def test_bytes_pass_in_both_ways_and_so_does_the_end(connect: Connect, listener: Listener) -> None:
    client = connect()
    proxy = listener.accept()
    body = bytes(range(256)) * 4000

    client.sendall(body)
    assert exactly(proxy, len(body)) == body
    proxy.sendall(b"answer")
    proxy.close()

    assert everything(client) == b"answer"


def test_a_cut_link_closes_its_connections_and_refuses_new_ones_until_it_is_healed(
    connect: Connect, listener: Listener, link: TcpLink, links: TcpLinks
) -> None:
    client, proxy = connected(connect, listener)

    link.cut()

    assert everything(client) == everything(proxy) == b""
    assert everything(connect()) == b""
    link.heal()
    done(links)
    connect().sendall(b"again")
    assert exactly(listener.accept(), 5) == b"again"


def test_a_dropped_link_closes_its_connections_and_new_ones_pass(
    connect: Connect, listener: Listener, link: TcpLink
) -> None:
    client, proxy = connected(connect, listener)

    link.drop()

    assert everything(client) == everything(proxy) == b""
    connected(connect, listener)


def test_what_passes_is_counted_before_it_arrives(
    connect: Connect, listener: Listener, link: TcpLink
) -> None:
    client = connect()
    proxy = listener.accept()
    client.sendall(zmtp.greeting() + zmtp.framed(b"one") + zmtp.framed(b"two"))
    exactly(proxy, zmtp.GREETING_BYTES + 10)
    proxy.sendall(zmtp.greeting() + zmtp.command(b"READY"))
    exactly(client, zmtp.GREETING_BYTES + 8)

    assert (link.up_bytes, link.down_bytes) == (zmtp.GREETING_BYTES + 10, zmtp.GREETING_BYTES + 8)
    assert link.passed.frames == 2
    assert link.up_reads > 0


def test_a_link_that_hangs_takes_no_more_than_its_buffers_hold(
    connect: Connect, listener: Listener, link: TcpLink, links: TcpLinks
) -> None:
    client, proxy = connected(connect, listener)
    link.hang()
    done(links)
    client.settimeout(0.2)

    with pytest.raises(TimeoutError):
        client.sendall(bytes(64 * MIB))
    proxy.settimeout(0.0)
    with pytest.raises(BlockingIOError):
        proxy.recv(1)


def test_a_cut_may_fall_into_the_middle_of_a_frame(
    connect: Connect, listener: Listener, link: TcpLink, links: TcpLinks
) -> None:
    client, proxy = connected(connect, listener)

    link.cut(after_bytes=3)
    done(links)
    client.sendall(b"frame")

    assert everything(proxy) in (b"fra", b"")  # a reset may overtake what was on its way
    assert everything(client) == b""


@pytest.mark.parametrize("_", range(20))  # without the wait about every sixth leaves some
def test_links_that_are_closed_leave_no_task(listener: Listener, _: int) -> None:
    """Else one ends when it is collected, in a loop that is closed."""
    links = TcpLinks()
    asked = threading.Event()

    def target() -> tuple[str, int] | None:
        asked.set()
        return listener.address

    link = links.open(target)
    with socket.create_connection(link.address, PATIENCE_S):
        assert asked.wait(PATIENCE_S)
        links.close()  # while the connection to the proxy is being made

    assert asyncio.all_tasks(links._loop) == set()


def test_a_half_open_link_loses_what_goes_one_way(
    connect: Connect, listener: Listener, link: TcpLink, links: TcpLinks
) -> None:
    client = connect()
    proxy = listener.accept()
    link.half_open("answers")
    done(links)

    client.sendall(b"request")
    assert exactly(proxy, 7) == b"request"
    proxy.sendall(b"lost")
    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.recv(1)

    client.settimeout(PATIENCE_S)
    link.heal()
    done(links)
    proxy.sendall(b"heard")
    assert exactly(client, 5) == b"heard"


@pytest.mark.parametrize("passing", [0, 2])
def test_a_half_open_link_may_begin_with_what_is_said_for_so_manieth_time(
    connect: Connect, listener: Listener, link: TcpLink, links: TcpLinks, passing: int
) -> None:
    client, proxy = connected(connect, listener)
    link.half_open("answers", awaited=[b"ACK"] * (passing + 1))
    done(links)

    for said in [b"before", *[b"an ACK"] * passing, b"also"]:
        proxy.sendall(said)
        assert exactly(client, len(said)) == said
    assert not link.is_losing
    proxy.sendall(b"an ACK")
    while not link.is_losing:
        done(links)
    proxy.sendall(b"after")

    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.recv(1)


def test_what_is_held_back_arrives_after_its_sender_has_gone_and_after_a_later_connection(
    connect: Connect, listener: Listener, link: TcpLink, links: TcpLinks
) -> None:
    old, old_proxy = connected(connect, listener)
    link.delay(0.5)
    done(links)

    old.sendall(b"late")
    old.close()
    connect().sendall(b"quick")
    new_proxy = listener.accept()
    assert exactly(new_proxy, 5) == b"quick"
    old_proxy.setblocking(False)
    with pytest.raises(BlockingIOError):
        old_proxy.recv(1)

    old_proxy.settimeout(PATIENCE_S)
    assert everything(old_proxy) == b"late"


def test_a_slow_link_passes_everything_in_the_end(
    connect: Connect, listener: Listener, link: TcpLink, links: TcpLinks
) -> None:
    link.slow(1_000_000)
    done(links)
    client = connect()
    proxy = listener.accept()

    client.sendall(b"x" * 100_000)

    assert exactly(proxy, 100_000) == b"x" * 100_000


def test_without_a_proxy_connections_are_refused(
    connect: Connect, listener: Listener, links: TcpLinks
) -> None:
    address, listener.address = listener.address, None
    assert everything(connect()) == b""

    listener.address = address
    connect().sendall(b"x")
    assert exactly(listener.accept(), 1) == b"x"
