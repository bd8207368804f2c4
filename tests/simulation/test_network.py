"""The simulated link between clients and a proxy."""

from __future__ import annotations

from collections.abc import Sequence

from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.wire import encode_request
from reliable_pubsub.relay.core.messages import DIGEST_BYTES, Interest
from simulator.network import Network, Reply, SimulatedTransport
from simulator.swarm import Faults
from simulator.world import Process, World


class Listener:
    """A proxy that keeps what comes, and answers nothing."""

    name = "proxy"
    listens = True

    def __init__(self) -> None:
        self.heard: list[Sequence[bytes]] = []

    def receive(self, frames: Sequence[bytes], role: Role, reply: Reply) -> None:
        self.heard.append(frames)


def test_interest_of_a_link_whose_random_name_has_the_bytes_GET_is_carried_as_it_is() -> None:
    world, proxy = World(1), Listener()
    network = Network(world, Faults(get_waits=1.0), [proxy])
    link = b"GET".ljust(16, b".")
    interest = Interest(
        client="s1", epoch=0, request=1, link=link, version=1, digest=bytes(DIGEST_BYTES)
    )
    frames = encode_request(interest)

    process = Process(world, "s1", lambda process: None)
    network.request(SimulatedTransport(process, network, "s1", "subscriber"), frames)
    world.run(1.0)

    assert proxy.heard == [frames]
