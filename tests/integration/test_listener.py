"""The listening socket of an endpoint: where it listens."""

from __future__ import annotations

import socket

import pytest

from reliable_pubsub.common.access.listener import listen


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "*"])
def test_a_port_of_the_systems_choice_is_one_that_takes_connections(host: str) -> None:
    with socket.socket(fileno=listen(f"tcp://{host}:*", 10)) as listening:
        port = listening.getsockname()[1]

        socket.create_connection(("127.0.0.1", port)).close()


def test_an_address_that_is_in_use_is_an_error() -> None:
    with (
        socket.socket(fileno=listen("tcp://127.0.0.1:*", 10)) as listening,
        pytest.raises(OSError, match="in use"),
    ):
        listen(f"tcp://127.0.0.1:{listening.getsockname()[1]}", 10)
