"""Ports of processes that are started again where they were."""

from __future__ import annotations

import os
import socket

import pytest

from reliable_pubsub.common.access.listener import listen
from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.lab.rig.own_ports import OwnPorts


@pytest.mark.skipif(not IS_LINUX, reason="other systems keep no port for a socket without a peer")
def test_a_port_stays_ours_while_its_process_is_dead_and_is_listened_at_by_name() -> None:
    with OwnPorts() as ports:
        endpoint = ports.endpoint()
        port = int(endpoint.rsplit(":", 1)[1])
        for _ in range(2):
            os.close(listen(endpoint, 1))

            with socket.socket() as other, pytest.raises(OSError, match="already in use"):
                other.bind(("127.0.0.1", port))

    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
