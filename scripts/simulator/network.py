"""The link between the clients and the proxy: it loses, repeats and delays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requests import Get
from reliable_pubsub.common.core.wire import decode_request, encode
from reliable_pubsub.relay.core.wire import is_for_node

from .swarm import Faults
from .world import Process, Turn, World

Reply = Callable[[list[bytes]], None]


class Asker(Protocol):
    """Who sends a request: a client's transport, or its link for pushes."""

    client: str
    role: Role
    socket: int

    def arrive(self, socket: int | None, frames: list[bytes]) -> Turn | None:
        """An answer comes. An event."""


class Door(Protocol):
    """Where requests arrive."""

    name: str

    @property
    def listens(self) -> bool:
        """Whether its endpoints are bound."""

    def receive(self, frames: Sequence[bytes], role: Role, reply: Reply) -> None:
        """Take a request, if the proxy runs; `reply` is called at most once.

        Args:
            role: of the endpoint at which it comes in.
        """


class Network:
    """The link between the clients and the proxy."""

    def __init__(self, world: World, faults: Faults, doors: Sequence[Door]) -> None:
        """Connect all clients to one proxy, or to several of one service."""
        self._world = world
        self._faults = faults
        self._doors = doors
        self._cut_until_s: dict[str, float] = {}
        self._deaf_until_s: dict[str, float] = {}

    @property
    def doors_count(self) -> int:
        """Of how many proxies the service is."""
        return len(self._doors)

    def cut(self, client: str, seconds: float) -> None:
        """Partition a client from the proxy."""
        self._world.happened("partition", "network", f"{client} is cut off for {seconds:.3f} s")
        self._cut_until_s[client] = self._world.now_s + seconds

    def half_open(self, client: str, seconds: float) -> None:
        """Deliver a client's requests, and none of the answers."""
        self._world.happened("half_open", "network", f"{client} hears nothing for {seconds:.3f} s")
        self._deaf_until_s[client] = self._world.now_s + seconds

    def cut_door(self, door: str, seconds: float) -> None:
        """Partition a proxy from all clients."""
        self._world.happened("proxy_cut", door, f"has no clients for {seconds:.3f} s")
        self._cut_until_s[door] = self._world.now_s + seconds

    def _door_of(self, transport: Asker) -> Door:
        """As `ReqTransport`: the next endpoint for each socket; links go to one that listens."""
        if transport.socket:
            return self._doors[transport.socket % len(self._doors)]
        listening = [door for door in self._doors if door.listens]
        return self._world.random.choice(listening or self._doors)

    def request(self, transport: Asker, frames: Sequence[bytes]) -> None:
        """Carry a request, and perhaps copies of it."""
        world, faults = self._world, self._faults
        kept = self._waiting(list(frames))
        socket = transport.socket
        door = self._doors[0] if len(self._doors) == 1 else self._door_of(transport)

        def arrive() -> None:
            if not self._until(self._cut_until_s, door.name):
                door.receive(
                    kept, transport.role, lambda reply: self._reply(transport, socket, reply, door)
                )

        def arrive_as_copy() -> None:
            stray = world.happens("stray", faults.stray)
            door.receive(
                kept,
                transport.role,
                lambda reply: self._reply(transport, None, reply, door) if stray else None,
            )

        cut = self._until(self._cut_until_s, transport.client)
        if not cut and not world.happens("drop_request", faults.drop_request):
            latency_s = self._latency_s()
            world.at(latency_s, arrive)
            if world.happens("echo", faults.echo):
                world.at(latency_s + world.random.uniform(0.0001, 0.003), arrive)
        if world.happens("duplicate", faults.duplicate):
            world.at(self._latency_s(), arrive_as_copy)
        if world.happens("late", faults.late):
            world.at(world.random.uniform(0.02, faults.late_s), arrive_as_copy)

    def _waiting(self, frames: list[bytes]) -> list[bytes]:
        """Make a GET wait, perhaps for longer than its sender does."""
        if not self._faults.get_waits or b"GET" not in frames[1]:
            return frames
        if is_for_node(frames):  # the random name of its link has these bytes
            return frames
        request, _ = decode_request(frames)
        chance = self._world.random
        if not isinstance(request, Get) or chance.random() >= self._faults.get_waits:
            return frames
        return encode(replace(request, wait_ms=chance.choice((5, 20, 60, 1000))))

    def _reply(self, transport: Asker, socket: int | None, frames: list[bytes], door: Door) -> None:
        if self._until(self._cut_until_s, door.name):
            return
        for until_s in (self._cut_until_s, self._deaf_until_s):
            if self._until(until_s, transport.client):
                return
        if not self._world.happens("drop_reply", self._faults.drop_reply):
            self._world.at(self._latency_s(), lambda: transport.arrive(socket, frames))

    def _until(self, until_s: Mapping[str, float], client: str) -> bool:
        return not self._world.quiet and until_s.get(client, 0.0) > self._world.now_s

    def _latency_s(self) -> float:
        slow = self._world.happens("slow", self._faults.slow)
        return self._world.random.uniform(0.0002, 0.080 if slow else 0.004)


class SimulatedTransport:
    """A REQ socket of a simulated process. Implements `retry.Transport`."""

    endpoint = "sim://proxy"

    def __init__(self, process: Process, network: Network, client: str, role: Role) -> None:
        self.client = client
        self.role: Role = role
        self.socket = 1  # number of the socket whose turn it is
        self._earliest = 1  # that may still be answered
        self._process = process
        self._network = network
        self._waiting = False
        self._arrived: tuple[int, list[bytes]] | None = None  # at which socket

    def send(self, frames: Sequence[bytes]) -> None:
        """Send a request; the process may die before and after it."""
        assert not self._waiting, "a REQ socket with a request under way cannot send"
        self._process.step("send")
        self._waiting = True
        self._network.request(self, frames)
        self._process.step("sent")

    def receive(self, timeout_s: float) -> Sequence[bytes] | None:
        """Run the world until the answer arrives or time is over."""
        if self._arrived is None:
            self._process.wait(timeout_s)
        self._process.step("receive")
        if self._arrived is None:
            return None
        by, frames = self._arrived
        if by != self.socket:
            self.socket += 1
            while (self.socket - by) % self._network.doors_count:
                self.socket += 1  # continue with the proxy that has answered
        self._have_nothing_under_way()
        return frames

    def move_on(self) -> None:
        """Continue at the next proxy of several; those that were asked before may still answer."""
        doors = self._network.doors_count
        earliest = self._earliest if doors > 1 else self.socket + 1
        self.reopen()
        self._earliest = max(earliest, self.socket + 1 - doors)

    def reopen(self) -> None:
        """Give up the sockets: what is under way to them is lost."""
        self.socket += 1
        self._have_nothing_under_way()

    def _have_nothing_under_way(self) -> None:
        self._earliest = self.socket
        self._waiting = False
        self._arrived = None

    def arrive(self, socket: int | None, frames: list[bytes]) -> Turn | None:
        """An answer comes to a socket (None: to the present one). An event."""
        by = self.socket if socket is None else socket
        is_closed = by < self._earliest or (by == self.socket and not self._waiting)
        if is_closed or self._arrived is not None:
            return None
        self._arrived = by, frames
        return self._process.wake() if self._waiting else None


class SimulatedClock:
    """The clock of a simulated process. Implements `retry.Clock`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now_s(self) -> float:
        """Seconds since the world began."""
        return self._process.world.now_s

    def sleep(self, seconds: float) -> None:
        """Run the world for a while."""
        self._process.step("sleep")
        self._process.wait(seconds)
        self._process.step("slept")
