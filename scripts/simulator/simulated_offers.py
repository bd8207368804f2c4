"""The way of what is put at QoS 0, in the simulated world: sent once, to a proxy that is there.

What is the shell's in a real process (`publisher/offer_link.py`, `proxy/ingress.py`) is here;
`QoS0Puts`, offers, `RingReading`, `Rings` and `QoS0Queue` are the real ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .swarm import Faults
from .world import Process, Turn, World


class OfferDoor(Protocol):
    """The ingress of a proxy."""

    def receive_offer(self, frames: Sequence[bytes]) -> None:
        """Take what was put, if it is wanted."""


class OfferNetwork:
    """Connections from publishers to the ingress; what a connection loses is lost."""

    def __init__(self, world: World, faults: Faults) -> None:
        self._world = world
        self._faults = faults
        self._door: OfferDoor | None = None  # of the proxy that runs
        self._life = 0  # of it
        self._told = (0, frozenset[bytes]())  # number of what it wants, and what
        self._links: list[SimulatedOfferLink] = []

    def connect(self, process: Process) -> SimulatedOfferLink:
        """A new link of a process; it hears after a while what is wanted."""
        link = SimulatedOfferLink(self, process)
        self._links.append(link)
        self._tell(link)
        return link

    def proxy_started(self, door: OfferDoor) -> None:
        """It sends every publisher what it wants, once it knows."""
        self._door = door
        self._life += 1
        self.wants(door, frozenset())

    def proxy_ended(self, door: OfferDoor) -> None:
        """All connections to it end, and what is under way on them."""
        if self._door is not door:
            return  # publishers have found another one
        self._life += 1
        self.wants(door, frozenset())
        self._door = None

    def wants(self, door: OfferDoor, prefixes: frozenset[bytes]) -> None:
        """A proxy wants these from here on."""
        if self._door is not door or prefixes == self._told[1]:
            return
        self._told = (self._told[0] + 1, prefixes)
        for link in self._links:
            self._tell(link)

    def _tell(self, link: SimulatedOfferLink) -> None:
        number, wanted = self._told
        delay_s = self._world.random.uniform(0.0002, 0.02)
        self._world.at(delay_s, lambda: link.hear(number, wanted))

    def send(self, frames: Sequence[bytes]) -> None:
        """Carry an offer to the proxy that runs, perhaps; never to another one, never twice."""
        if self._world.happens("offer_lost", self._faults.offer_lost):
            return
        life = self._life

        def arrive() -> None:
            if life == self._life and self._door is not None:
                self._door.receive_offer(frames)

        self._world.at(self._world.random.uniform(0.0002, 0.03), arrive)


class SimulatedOfferLink:
    """A link of one process. Implements `publisher.qos0.core.qos0_puts.OfferLink`."""

    def __init__(self, network: OfferNetwork, process: Process) -> None:
        self._network = network
        self._process = process
        self._heard = (0, frozenset[bytes]())
        self._waits = False
        self._is_closed = False

    def prefixes(self) -> frozenset[bytes]:
        return self._heard[1]

    def send(self, frames: Sequence[bytes]) -> bool:
        self._process.point("offer")
        self._network.send(list(frames))
        self._process.point("offered")
        return True

    def wait(self, seconds: float) -> None:
        self._process.point("waits for interest")
        self._waits = True
        self._process.wait(seconds)
        self._waits = False

    def close(self) -> None:
        self._is_closed = True

    def hear(self, number: int, prefixes: frozenset[bytes]) -> Turn | None:
        """What is wanted; what is older than what is known is late. An event."""
        if self._is_closed or number <= self._heard[0]:
            return None
        self._heard = (number, prefixes)
        return self._process.wake() if self._waits else None
