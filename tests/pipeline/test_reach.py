"""A task on another machine does not ask a loopback endpoint for minutes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliable_pubsub.common.core.errors import ConfigurationError
from reliable_pubsub.pipeline.reach import ReachCheck, check_reachable, machine, reach_checks

ANOTHER = "another machine"


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def endpoint_of(server: socket.socket) -> str:
    return f"tcp://127.0.0.1:{server.getsockname()[1]}"


def test_on_another_machine_learns_that_the_endpoint_is_not_of_it(
    listening: socket.socket, tmp_path: Path
) -> None:
    endpoint = endpoint_of(listening)
    listening.close()

    for one in (endpoint, f"ipc://{tmp_path}/none"):
        with pytest.raises(ConfigurationError, match=r"runs on another one.*--endpoint"):
            check_reachable(ReachCheck(one, ANOTHER))
        assert check_reachable(ReachCheck(one, machine()))  # a proxy that is away comes back


def test_on_another_machine_with_a_tunnel_there_is_content(listening: socket.socket) -> None:
    assert check_reachable(ReachCheck(endpoint_of(listening), ANOTHER))


def test_is_content_with_an_address_that_all_machines_have() -> None:
    endpoints = ["tcp://10.1.2.3:5556", "tcp://127.0.0.1:1", "tcp://127.0.0.1:1", "ipc:///x"]

    assert check_reachable(ReachCheck(endpoints[0], ANOTHER))
    assert [one.endpoint for one in reach_checks(endpoints)] == ["tcp://127.0.0.1:1", "ipc:///x"]
