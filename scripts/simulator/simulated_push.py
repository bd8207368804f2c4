"""Pushing in the simulated world: the real rules of interest, over a link that fails in every way.

What is the shell's in a real process (`proxy/push_sockets.py`, `relay/above.py`,
`relay/fan_out.py`) is here; `Wish`, `Links`, `InterestTable`, push frames and `PushQueue` are the
real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.patterns.matching import Pattern
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.proxy.push.pushes import Down, Pushes
from reliable_pubsub.relay.core.interest_link import Wish
from reliable_pubsub.relay.core.push import (
    AnyPush,
    PushFrames,
    decode_any_push,
    decode_push,
    encode_push,
)
from reliable_pubsub.relay.core.wire import decode_node_reply
from reliable_pubsub.subscriber.core.push_timing import PushTiming

from .network import Network
from .swarm import Faults
from .world import Process, Turn, World

# The real times, shorter: a seed has little more than a second of trouble.
RESEND_S: Final = 0.05
LEASE_S: Final = 0.3
RECONNECT_S: Final = 0.1
TIMING: Final = PushTiming(silence_s_min=0.01, silence_s_max=0.2, tell_s=0.1, misses_max=2)


class SimulatedFanOut:
    """The upper end, of one start of the proxy: where each link is, and what it is sent."""

    def __init__(
        self, pushes: Pushes, send: Callable[[bytes, list[bytes]], None], *, key: str
    ) -> None:
        """Begin without links.

        Args:
            send: carries frames to a link, named by its 16 bytes.
            key: of every data socket; "": none.
        """
        self._pushes = pushes
        self._key = key
        self._send = send
        self._served: dict[bytes, frozenset[Pattern]] = {}  # by link, where its data socket is

    def is_here(self, link: bytes) -> None:
        """The data socket of a link has said its name."""
        self._served[link] = self._pushes.links.applied(link, self._key)

    def expire(self, now_s: float) -> None:
        """Forget the links whose lease has ended."""
        for link in self._pushes.links.expire(now_s):
            self._served.pop(link, None)

    def send(self, down: Down) -> None:
        """Push frames to every link that wants their topic."""
        for link, patterns in self._served.items():
            if any(self._pushes.kinds.test(one)(down.topic) for one in patterns):
                self._send(link, down.frames)


class PushNetwork:
    """The way of pushes: what comes down is lost, doubled, overtaken, late, or of another log."""

    def __init__(self, world: World, faults: Faults, network: Network) -> None:
        self.network = network
        self._tops: list[SimulatedFanOut] = []  # of the proxies that run
        self._world = world
        self._faults = faults
        self._links: dict[bytes, SimulatedPushLink] = {}
        self._cut_until_s: dict[str, float] = {}

    def connect(self, process: Process, client: str) -> SimulatedPushLink:
        """A new link of a process."""
        name = self._world.random.randbytes(16)
        self._links[name] = link = SimulatedPushLink(self, process, client, name)
        return link

    def cut(self, client: str, seconds: float) -> None:
        """Let no push come to a client."""
        self._world.happened("push_cut", "network", f"no pushes to {client} for {seconds:.3f} s")
        self._cut_until_s[client] = self._world.now_s + seconds

    def says_where(self, link: bytes) -> None:
        """A data socket says its name; ZeroMQ repeats it at each connection."""

        def arrive() -> None:
            for top in self._tops if self._links[link].is_open else ():
                top.is_here(link)

        self._world.at(self._world.random.uniform(0.0002, 0.003), arrive)

    def proxy_started(self, top: SimulatedFanOut) -> None:
        """Every client finds it, after a while."""
        self._tops.append(top)
        for name, link in self._links.items():
            if link.is_open:
                delay_s = self._world.random.uniform(0.0, RECONNECT_S)
                self._world.at(delay_s, lambda name=name: self.says_where(name))  # type: ignore[misc]

    def proxy_ended(self, top: SimulatedFanOut) -> None:
        """Its connections end."""
        self._tops.remove(top)

    def send(self, link: bytes, frames: list[bytes]) -> None:
        """Carry a push down, perhaps."""
        world, faults, to = self._world, self._faults, self._links[link]
        if not to.is_open:
            return
        cut = not world.quiet and self._cut_until_s.get(to.client, 0.0) > world.now_s
        lost = world.happens("push_lost", faults.push_lost)
        copies = 1 + world.happens("push_doubled", faults.push_doubled)
        for _ in range(0 if cut or lost else copies):
            overtaken = world.happens("push_overtaken", faults.push_overtaken)
            latency_s = world.random.uniform(0.0002, 0.05 if overtaken else 0.002)
            world.at(latency_s, lambda: to.arrive_push(frames))
        if world.happens("push_late", faults.push_late):
            late_s = world.random.uniform(0.02, faults.late_s)
            world.at(late_s, lambda: to.arrive_push(frames))
        stored = isinstance(decode_any_push(frames), PushFrames)
        if stored and world.happens("push_foreign", faults.push_foreign):
            foreign = _of_another_life(frames, log=world.random.random() < 0.5)
            world.at(world.random.uniform(0.0, 0.002), lambda: to.arrive_push(foreign))


def _of_another_life(frames: list[bytes], *, log: bool) -> list[bytes]:
    """The same offsets, as another log or another start of the proxy has them."""
    push = decode_push(frames)
    header = push.pushed.batch
    other = replace(header, first_sequence=header.first_sequence + 1)
    changed = {"log": "another"} if log else {"boot": "another"}
    assert push.body is not None
    return encode_push(push.topic, replace(push.pushed, batch=other, **changed), push.body)


class SimulatedPushLink:
    """The lower end of one link. Implements `PushLink`, and what `Network` asks of a transport."""

    def __init__(self, network: PushNetwork, process: Process, client: str, name: bytes) -> None:
        self.client = client
        self.role: Role = "subscriber"
        self.socket = 0  # it is never reopened
        self._network = network
        self._process = process
        self._is_closed = False
        self._wish = Wish(client=client, link=name)
        self._replies: list[Sequence[bytes]] = []
        self._pushes: list[AnyPush] = []
        self._waits = False
        self._due_in_s = 0.0
        network.says_where(name)

    @property
    def is_open(self) -> bool:
        """Whether its connection stands."""
        return self._process.alive and not self._is_closed

    @property
    def is_refused(self) -> bool:
        return bool(self._wish.refused)

    def want(self, patterns: frozenset[Pattern]) -> None:
        self._wish.want(patterns)

    def turn(self, now_s: float) -> bool:
        """See `PushLink`; the same steps as those of `relay.above.NodeAbove`."""
        replies, self._replies = self._replies, []
        for frames in replies:
            self._wish.answered(decode_node_reply(frames), now_s)
            if self._wish.acknowledged != self._wish.applied:
                self._network.says_where(self._wish.link)
                self._wish.ask_soon(now_s)
        message = self._wish.message(now_s)
        if message is not None:
            self._network.network.request(self, encode(message))
        self._due_in_s = self._wish.due_in_s(now_s)
        return self._wish.settled

    def doubt(self, now_s: float) -> None:
        self._wish.ask_soon(now_s)

    def receive(self) -> list[AnyPush]:
        found, self._pushes = self._pushes, []
        return found

    def wait(self, seconds: float) -> None:
        self._process.point("waits for a push")
        if not self._pushes and not self._replies:
            self._waits = True
            self._process.wait(max(min(seconds, self._due_in_s), 0.001))
            self._waits = False

    def close(self) -> None:
        self._is_closed = True

    def arrive(self, _socket: int | None, frames: list[bytes]) -> Turn | None:
        """An answer about interest comes. An event."""
        self._replies.append(frames)
        return self._woken()

    def arrive_push(self, frames: list[bytes]) -> Turn | None:
        """A push arrives, perhaps without a receiver. An event."""
        if self._is_closed:
            return None
        try:
            self._pushes.append(decode_any_push(frames))
        except MalformedError as error:
            raise AssertionError(f"a push that cannot be read: {error}") from error
        return self._woken()

    def _woken(self) -> Turn | None:
        return self._process.wake() if self._waits and not self._is_closed else None
