"""The simulated link between clients and a proxy."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from reliable_pubsub.common.core.answers import HelloAck
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requester import Requester
from reliable_pubsub.common.core.retry import RetryPolicy
from reliable_pubsub.common.core.tree_messages import DIGEST_BYTES, InterestRequest
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.common.transport import Shell
from scripts.simulator.network import Network, Reply, SimulatedClock, SimulatedTransport
from scripts.simulator.swarm import Faults
from scripts.simulator.world import Process, World
from tests.fakes import a_hello


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
    interest = InterestRequest(
        client="s1", epoch=0, request=1, link=link, version=1, digest=bytes(DIGEST_BYTES)
    )
    frames = encode(interest)

    process = Process(world, "s1", lambda process: None)
    network.request(SimulatedTransport(process, network, "s1", "subscriber"), frames)
    world.run(1.0)

    assert proxy.heard == [frames]


class Standby(Listener):
    """A proxy that listens from a time on; ZeroMQ keeps for it what it was asked before."""

    def __init__(self, world: World, takes_over_s: float) -> None:
        super().__init__()
        self._world = world
        self._takes_over_s = takes_over_s

    def receive(self, frames: Sequence[bytes], role: Role, reply: Reply) -> None:
        answer = encode(HelloAck(client="p", epoch=1, request=1))
        waits_s = max(self._takes_over_s - self._world.now_s, 0.0)
        self._world.at(waits_s, lambda: reply(answer))


@pytest.mark.parametrize("takes_over_s", [3.0, 3.9, 4.1, 4.8, 6.5])
@pytest.mark.parametrize("hangs_first", [False, True], ids=["asked second", "asked first"])
def test_a_standby_that_was_asked_answers_as_soon_as_it_serves_also_in_the_turn_of_another(
    takes_over_s: float, hangs_first: bool
) -> None:
    """The other one hangs, and is asked for as long as the client is patient."""
    world = World(1)
    doors = [Standby(world, takes_over_s), Listener()]
    network = Network(world, Faults(), doors[::-1] if hangs_first else doors)
    answered_s: list[float] = []

    def asks(process: Process) -> None:
        transport = SimulatedTransport(process, network, "p", "publisher")
        service = Requester(
            "p", "tcp://a:5555,tcp://b:5555", retry=RetryPolicy(), chance=lambda: 0.0
        )
        Shell(transport, SimulatedClock(process)).run(service.asking(a_hello("publisher", "p")))
        answered_s.append(world.now_s)

    Process(world, "p", asks).start(0.0)
    world.run(60.0)

    assert answered_s == pytest.approx([takes_over_s], abs=0.25)
