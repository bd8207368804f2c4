"""What may go wrong in one seed, and the link that loses, repeats and delays.

Each seed switches whole classes of faults on or off ("swarm testing", Groce et al., ISSTA 2012):
a world in which everything fails at once never gets to the rare meetings of two faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from .world import Process, Turn, World

Answer = Callable[[list[bytes]], None]


class Faults(Struct, frozen=True, kw_only=True):
    """The faults of one seed: chances for each message or process, rates in 1/s."""

    drop_request: float = 0.0
    drop_reply: float = 0.0
    duplicate: float = 0.0  # a second copy of a request, soon
    late: float = 0.0  # a copy that arrives up to `late_s` later, long after its sender is gone
    late_s: float = 1.0
    slow: float = 0.0  # a message is overtaken by others
    stray: float = 0.0  # the answer to a copy reaches the sender's present socket
    partition_rate: float = 0.0  # a client is cut off for a while
    proxy_crash: float = 0.0  # chance that a life of the proxy ends early
    storage_full_rate: float = 0.0
    slow_commits: bool = False
    kill: float = 0.0  # chance that a life of a client ends early
    life_points: int = 100  # a life that ends early ends within so many points
    power_loss: float = 0.0  # chance that a kill is a power loss
    same_bytes: bool = False  # publishers make the same messages again, and may lose power too
    zombie_rate: float = 0.0
    clock_jump_rate: float = 0.0
    trim: bool = False  # retention keeps nothing that all have acknowledged
    topic_bytes_max: int = 2**32  # puts are refused (FULL) while a topic holds so much


def swarm(chance: random.Random) -> Faults:
    """Choose the faults of a seed."""

    def rate(highest: float) -> float:
        return chance.uniform(0.1, 1.0) * highest if chance.random() < 0.5 else 0.0

    trim = chance.random() < 0.3
    return Faults(
        drop_request=rate(0.25),
        drop_reply=rate(0.25),
        duplicate=rate(0.3),
        late=rate(0.3),
        late_s=chance.choice((0.2, 0.6, 1.5)),
        slow=rate(0.3),
        stray=rate(0.3),
        partition_rate=rate(2.0),
        proxy_crash=rate(1.0),
        storage_full_rate=rate(2.0),
        slow_commits=chance.random() < 0.4,
        kill=rate(0.9),
        life_points=chance.choice((15, 50, 100, 100)),
        power_loss=rate(0.9),
        zombie_rate=rate(4.0),
        clock_jump_rate=rate(3.0),
        same_bytes=not trim and chance.random() < 0.3,
        trim=trim,
        topic_bytes_max=chance.randint(80, 400) if trim and chance.random() < 0.5 else 2**32,
    )


class Door(Protocol):
    """Where requests arrive."""

    def receive(self, frames: Sequence[bytes], answer: Answer) -> None:
        """Take a request, if somebody is there; `answer` is called at most once."""


class Network:
    """The link between the clients and the proxy."""

    def __init__(self, world: World, faults: Faults, door: Door) -> None:
        """Connect all clients to one proxy."""
        self._world = world
        self._faults = faults
        self._door = door
        self._cut_until_s: dict[str, float] = {}

    def cut(self, client: str, seconds: float) -> None:
        """Partition a client from the proxy."""
        self._world.note("network", f"{client} is cut off for {seconds:.3f} s")
        self._cut_until_s[client] = self._world.now_s + seconds

    def request(self, transport: SimulatedTransport, frames: Sequence[bytes]) -> None:
        """Carry a request, and perhaps copies of it."""
        world, faults = self._world, self._faults
        kept = list(frames)
        socket = transport.socket

        def arrive() -> None:
            self._door.receive(kept, lambda reply: self._reply(transport, socket, reply))

        def arrive_as_copy() -> None:
            stray = world.chance(faults.stray)
            self._door.receive(
                kept, lambda reply: self._reply(transport, None, reply) if stray else None
            )

        if not self._is_cut(transport.client) and not world.chance(faults.drop_request):
            world.at(self._latency_s(), arrive)
        if world.chance(faults.duplicate):
            world.at(self._latency_s(), arrive_as_copy)
        if world.chance(faults.late):
            world.at(world.random.uniform(0.02, faults.late_s), arrive_as_copy)

    def _reply(
        self, transport: SimulatedTransport, socket: int | None, frames: list[bytes]
    ) -> None:
        if self._is_cut(transport.client) or self._world.chance(self._faults.drop_reply):
            return
        self._world.at(self._latency_s(), lambda: transport.arrive(socket, frames))

    def _is_cut(self, client: str) -> bool:
        return not self._world.quiet and self._cut_until_s.get(client, 0.0) > self._world.now_s

    def _latency_s(self) -> float:
        slow = self._world.chance(self._faults.slow)
        return self._world.random.uniform(0.0002, 0.080 if slow else 0.004)


class SimulatedTransport:
    """A REQ socket of a simulated process. Implements `retry.Transport`."""

    endpoint = "sim://proxy"

    def __init__(self, process: Process, network: Network, client: str) -> None:
        """Open the first socket."""
        self.client = client
        self.socket = 1  # number of the socket that is open now
        self._process = process
        self._network = network
        self._waiting = False
        self._arrived: list[bytes] | None = None

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a request; the process may die before and after it."""
        assert not self._waiting, "a REQ socket with a request under way cannot send"
        self._process.point("send")
        self._waiting = True
        self._arrived = None
        self._network.request(self, frames)
        self._process.point("sent")

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        """Let the world go on until the answer arrives or time is over."""
        if self._arrived is None:
            self._process.wait(timeout_s)
        self._process.point("receive")
        if self._arrived is not None:
            self._waiting = False
        return self._arrived

    def reopen(self) -> None:
        """Give up the socket: what is under way to it is lost."""
        self.socket += 1
        self._waiting = False
        self._arrived = None

    def arrive(self, socket: int | None, frames: list[bytes]) -> Turn | None:
        """An answer comes to a socket (None: to the present one). An event."""
        if (socket is None or socket == self.socket) and self._waiting and self._arrived is None:
            self._arrived = frames
            return self._process.wake()
        return None


class SimulatedClock:
    """The clock of a simulated process. Implements `retry.Clock`."""

    def __init__(self, process: Process) -> None:
        """Show the world's time."""
        self._process = process

    def now_s(self) -> float:
        """Seconds since the world began."""
        return self._process.world.now_s

    def sleep(self, seconds: float) -> None:
        """Let the world go on for a while."""
        self._process.point("sleep")
        self._process.wait(seconds)
        self._process.point("slept")
