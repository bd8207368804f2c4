"""The listening socket of the front door: real connections, and resets that go unheard."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator

import pytest

from reliable_pubsub.relay.listener import listen

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection: ours, and that of a peer."""
    listener = listen("tcp://127.0.0.1:*", 10)
    with socket.socket(fileno=listener.descriptor) as listening:
        if listener.hears_resets:
            pytest.skip("on this system only root may set a packet filter")
        listening.setblocking(True)
        peer = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
        with ours, peer:
            ours.settimeout(20)
            yield ours, peer


def test_a_reset_is_not_heard_and_what_came_before_it_is_read(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, peer = pair
    peer.sendall(b"before")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    peer.close()

    assert ours.recv(100) == b"before"
    watch = select.poll()
    watch.register(ours, select.POLLIN)
    ours.sendall(b"unread")  # the answer to this is a reset, too
    assert watch.poll(100) == []


def test_an_ordinary_end_is_heard(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, peer = pair
    peer.sendall(b"before")
    peer.close()

    assert ours.recv(100) == b"before"
    assert ours.recv(100) == b""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "*"])
def test_a_port_of_the_systems_choice_is_one_that_takes_connections(host: str) -> None:
    with socket.socket(fileno=listen(f"tcp://{host}:*", 10).descriptor) as listening:
        port = listening.getsockname()[1]

        socket.create_connection(("127.0.0.1", port)).close()


def test_an_address_that_is_in_use_is_an_error() -> None:
    with (
        socket.socket(fileno=listen("tcp://127.0.0.1:*", 10).descriptor) as listening,
        pytest.raises(OSError, match="in use"),
    ):
        listen(f"tcp://127.0.0.1:{listening.getsockname()[1]}", 10)


def test_a_system_that_takes_no_filter_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reliable_pubsub.relay.listener._SO_ATTACH_FILTER", 9999)

    listener = listen("tcp://127.0.0.1:*", 10)

    socket.socket(fileno=listener.descriptor).close()
    assert listener.hears_resets
