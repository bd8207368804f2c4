"""Hostile peers at the sockets of a real proxy: the honest lose nothing, and nothing is left over.

The table of kinds is `scripts/fuzzer/attacks.py`; the long form is `scripts/fuzz`.
"""

from __future__ import annotations

import math
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, cast, get_args

import pytest
from msgspec.structs import replace

from reliable_pubsub import Publisher, RetryPolicy, Subscriber
from reliable_pubsub.common.access import guard as guard_module
from reliable_pubsub.common.access import sockets
from reliable_pubsub.common.access.connections import kernel_counts
from reliable_pubsub.common.access.core import allowance
from reliable_pubsub.common.access.core.allowance import TcpCounters
from reliable_pubsub.common.access.guard import guard_of
from reliable_pubsub.common.core.limits import BODY_BYTES_MAX
from reliable_pubsub.common.core.message_base import Role
from reliable_pubsub.common.core.requests import AnyRequest, Hello, History
from reliable_pubsub.common.core.status import Status
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.lab.rig.child_process import ChildProcess
from reliable_pubsub.proxy.core.engine import Engine
from reliable_pubsub.proxy.front_door import FrontDoor, ReturnAddress
from scripts.fuzzer import zmtp
from scripts.fuzzer.attacks import KINDS, attack, requests_of
from scripts.fuzzer.crowd import Crowd, address_of
from scripts.fuzzer.floods import PUSH, REQUEST, SCENE, Place, flood_of
from scripts.fuzzer.siege import DESCRIPTORS_SPARE, Siege, descriptors_of, make_known

from .harness import PATIENCE_S, REPOSITORY, Process, Service, eventually, zmq_context

SEED = 20
ATTACKS = 10  # of one kind at each endpoint
STAYS_S_MAX = 0.2
FLOOD, AT_ONCE = 400, 20
FLOOD_S = 4.0
ENDLESS = 200  # requests of full size: more than both sides and the kernel keep of a connection
STOPPED_MS = 2000  # a connection that takes nothing for this long is stopped
ONCE = RetryPolicy(timeout_s=PATIENCE_S, retries_max=0)  # a request that goes unanswered is a fault


def test_strangers_send_every_verb() -> None:
    sent = {
        type(one)
        for role in get_args(Role)
        for one in requests_of(SCENE, role, client="stranger", epoch=1)
    }
    assert sent | {Hello, History, Status} == set(get_args(AnyRequest))  # these have kinds


class Pair:
    """An honest publisher and an honest subscriber of one proxy."""

    def __init__(self, publisher: Publisher, subscriber: Subscriber) -> None:
        self._publisher = publisher
        self._subscriber = subscriber
        self._next = 0

    def passes_a_message(self) -> None:
        """The next message goes through once, at the next offset, as it was put."""
        content = b"message %d" % self._next
        assert not self._publisher.put(SCENE.topic, content).duplicate
        (message,) = self._subscriber.get(SCENE.topic, timeout_s=PATIENCE_S)
        assert (message.offset, message.publisher) == (self._next, SCENE.publisher)
        assert message.payload == content
        self._next += 1


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Service, Process, Pair]]:
    """One proxy for all kinds: what one of them spoils, the next one shows."""
    service = Service(tmp_path_factory.mktemp("hostile"))
    try:
        proxy = service.start_proxy()
        make_known(service)
        with (
            service.open_publisher(SCENE.publisher, retry=ONCE) as publisher,
            service.open_subscriber(SCENE.subscriber, retry=ONCE) as subscriber,
        ):
            subscriber.subscribe(SCENE.topic)
            yield service, proxy, Pair(publisher, subscriber)
    finally:
        service.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_proxy_survives(kind: str, shared: tuple[Service, Process, Pair]) -> None:
    service, proxy, honest = shared
    chance = random.Random(f"{SEED} {kind}")
    places: dict[Role, str] = {
        "publisher": service.publisher_endpoint,
        "subscriber": service.subscriber_endpoint,
    }
    honest.passes_a_message()
    before = descriptors_of(proxy.pid)
    crowd = Crowd(stays_s_max=STAYS_S_MAX)
    for _ in range(ATTACKS):
        for role, endpoint in places.items():
            crowd.begin(attack(kind, chance, SCENE, role), address_of(endpoint))

    while crowd.size:
        crowd.turn(0.01)
        honest.passes_a_message()

    honest.passes_a_message()
    assert proxy.exit_code is None, proxy.stderr
    assert proxy.complaints == ""
    eventually(
        lambda: descriptors_of(proxy.pid) <= before + DESCRIPTORS_SPARE,
        f"end of the connections that {kind}",
    )


def test_honest_clients_lose_nothing_beside_a_hostile_flood(tmp_path: Path) -> None:
    siege = Siege(tmp_path, frozenset({REQUEST}), seed=SEED, attacks_per_s=100)
    with siege.running():
        outcome = siege.run(connections=8 * len(KINDS))

    assert outcome.problems == []
    assert outcome.puts > 0
    assert outcome.verdicts[SCENE.subscriber].perfect


@pytest.mark.skipif(not IS_LINUX, reason="TCP_INFO and packet filters are Linux's")
def test_honest_clients_get_each_message_once_beside_a_flood_of_the_push_endpoint(
    tmp_path: Path,
) -> None:
    """P7: at 100 connections a second; one subscriber polls, one is pushed to."""
    siege = Siege(tmp_path, frozenset({PUSH}), seed=SEED, attacks_per_s=100)
    with siege.running():
        outcome = siege.run(FLOOD_S)

    assert outcome.problems == []  # among them: more memory than its limits add up to
    assert outcome.attacks > 0
    assert outcome.deliveries_beside > 0, "nothing was delivered beside the flood"


@pytest.mark.parametrize("stays", [True, False], ids=["a moment later", "at once"])
def test_peers_that_ask_too_much_and_reset_do_not_end_the_proxy(
    stays: bool, shared: tuple[Service, Process, Pair]
) -> None:
    """An assertion of libzmq would fail within the first hundred connections."""
    service, proxy, honest = shared
    one = attack("asks too much and resets", random.Random(SEED), SCENE, "publisher")
    one = replace(one, rest=one.rest * 4, stays_s=0.001 if stays else 0.0)
    crowd = Crowd()
    for _ in range(FLOOD // AT_ONCE):
        for _ in range(AT_ONCE):
            crowd.begin(one, address_of(service.publisher_endpoint))
        while crowd.size:
            crowd.turn(0.01)

    honest.passes_a_message()
    assert proxy.exit_code is None, proxy.stderr


def test_a_seed_gives_the_same_attacks_again_and_every_kind_as_often() -> None:
    places = [Place("nowhere", "publisher", tuple(KINDS.values()))]
    first, again = flood_of(places, SEED), flood_of(places, SEED)
    other = flood_of(places, SEED + 1)
    some = [first() for _ in range(5 * len(KINDS))]

    assert some == [again() for _ in some]
    assert some != [other() for _ in some]


STATUS = encode(Status(client="stranger", epoch=0, request=1))
SILENT = {
    "before a greeting": (b"", b""),
    "in half a greeting": (zmtp.greeting()[:30], b""),
    "after a greeting": (zmtp.greeting(), b""),
    "after the handshake": (zmtp.OPENED, b""),
    "in ZMTP 3.0": (zmtp.greeting(3, 0) + zmtp.ready(), b""),
    "in ZMTP 2": (zmtp.V2_OPENED, b""),
    "in ZMTP 1": (zmtp.V1_OPENED, b""),
    "in an unfinished message": (zmtp.OPENED, zmtp.unfinished([b"", b"part"])),
    "in an unfinished frame": (zmtp.OPENED, zmtp.announced(1000)),
    "after a request": (zmtp.OPENED, zmtp.asked(STATUS)),
}


class Talkative:
    """A stand-in for an engine: gives a long answer to every request."""

    outputs = ()

    def takes_more(self, role: Role) -> bool:
        return True

    def receive(self, frames: Sequence[bytes], reply_to: ReturnAddress, **facts: Any) -> None:
        reply_to.answer([b"x" * 500_000])


@pytest.fixture
def idle_door() -> Iterator[FrontDoor]:
    """A front door whose requests no loop takes."""
    with zmq_context() as context:
        door = FrontDoor(context, "publisher", "tcp://127.0.0.1:*")
        yield door
        door.close()


@pytest.fixture
def door() -> Iterator[FrontDoor]:
    """A front door that gives a long answer to every request."""
    with zmq_context() as context:
        door = FrontDoor(context, "publisher", "tcp://127.0.0.1:*")
        ending = threading.Event()

        def answer() -> None:
            while not ending.is_set():
                if door.socket.poll(20):
                    door.turn(cast(Engine, Talkative()), lambda: None)

        thread = threading.Thread(target=answer)
        thread.start()
        yield door
        ending.set()
        thread.join()
        door.close()


@pytest.fixture
def no_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """No heartbeats at doors that are opened after this."""
    monkeypatch.setattr(sockets, "HEARTBEAT_MS", 0)


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timeouts at doors that are opened after this."""
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", 200)
    monkeypatch.setattr(sockets, "HEARTBEAT_MS", 100)
    monkeypatch.setattr(sockets, "HEARTBEAT_TIMEOUT_MS", 200)


def connected(endpoint: str, opening: bytes, rest: bytes, *, resets: bool = False) -> socket.socket:
    """A raw peer that has said all this; with `resets` its end is a reset."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    if resets:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.settimeout(PATIENCE_S)
    with ExitStack() as failing:
        failing.enter_context(one)
        one.connect(address_of(endpoint))
        one.sendall(opening)
        if rest:
            read_handshake(one)
            one.sendall(rest)
        failing.pop_all()
    return one


def read_handshake(peer: socket.socket) -> None:
    """To its end: libzmq ends a connection of which a message comes before it has sent its READY.

    MSG_WAITALL would not do: on a socket with a timeout it waits for nothing.
    """
    left = zmtp.HANDSHAKE_BYTES
    while left:
        part = peer.recv(left)
        if not part:
            raise ConnectionResetError("before the end of the handshake")
        left -= len(part)


@pytest.mark.usefixtures("little_patience")
@pytest.mark.parametrize(("opening", "rest"), SILENT.values(), ids=SILENT)
def test_a_peer_that_falls_silent_loses_its_connection(
    opening: bytes, rest: bytes, door: FrontDoor
) -> None:
    """Also in versions 1 and 2, which know no heartbeat: they are refused."""

    def in_time() -> socket.socket | None:
        with suppress(ConnectionError):  # this machine was too slow for so little patience
            return connected(door.endpoint, opening, rest)
        return None

    peer = eventually(in_time, "peer that has said all of it")
    with peer as silent, suppress(ConnectionError):
        while silent.recv(65_536):
            pass


@pytest.mark.usefixtures("no_heartbeats")
def test_a_peer_that_reads_nothing_loses_its_connection_and_its_answers(
    door: FrontDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard ends it: where no PING gets past answers that are not read, libzmq never does."""
    monkeypatch.setattr(allowance, "STALLED_S_MAX", math.inf)  # until we have seen it
    monkeypatch.setattr(allowance, "GROWTH_BYTES_MAX", math.inf)  # this process grows by more
    guard = guard_of(door.connections)
    if guard is None:
        pytest.skip("this system does not count bytes for us")
    with closing(guard), connected(door.endpoint, zmtp.OPENED, zmtp.asked(STATUS) * 50) as deaf:
        inode = eventually(lambda: inode_of(door, deaf), "connection in the kernel's table")
        assert is_open_here(inode)

        monkeypatch.setattr(allowance, "STALLED_S_MAX", 1.0)
        eventually(lambda: not is_open_here(inode), "end of the connection")


def test_connections_that_say_nothing_are_looked_at_about_once_a_second(
    idle_door: FrontDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many of them must cost little."""
    looks: dict[int, list[float]] = {}

    def seen(descriptor: int) -> TcpCounters | None:
        looks.setdefault(descriptor, []).append(time.monotonic())
        return kernel_counts(descriptor)

    monkeypatch.setattr(guard_module, "kernel_counts", seen)
    guard = guard_of(idle_door.connections)
    if guard is None:
        pytest.skip("this system does not count bytes for us")
    with closing(guard), ExitStack() as peers:
        for _ in range(40):
            peers.enter_context(connected(idle_door.endpoint, zmtp.OPENED, b""))
        quiet_s = time.monotonic() + 2 * guard_module.RECENT_S

        def late() -> list[list[float]]:
            return [[at_s for at_s in one if at_s > quiet_s] for one in looks.copy().values()]

        eventually(lambda: len(late()) == 40 and min(map(len, late())) >= 2, "two sweeps")
        gaps = [after - before for one in late() for before, after in pairwise(one)]

    assert median(gaps) > guard_module.SWEEP_S / 2  # of one, a busy machine may have delayed a look


def test_a_peer_that_asks_without_end_is_cut_off(idle_door: FrontDoor) -> None:
    """P7: its messages are complete, and come faster than they are taken."""
    guard = guard_of(idle_door.connections)
    if guard is None:
        pytest.skip("this system does not count bytes for us")
    request = zmtp.asked([bytes(BODY_BYTES_MAX)])
    with closing(guard), connected(idle_door.endpoint, zmtp.OPENED, b"") as fast:
        fast.settimeout(PATIENCE_S)
        sent = 0
        with suppress(ConnectionError):
            while sent < ENDLESS:
                fast.sendall(request)
                sent += 1

    assert sent < ENDLESS


STOPPED_AND_RESET = """
import sys
import zmq
from reliable_pubsub.proxy import front_door
from reliable_pubsub.common.access import sockets

sockets.HEARTBEAT_MS = int(sys.argv[1])
context = zmq.Context()
door = front_door.FrontDoor(context, "publisher", "tcp://127.0.0.1:*")
print("ready:", door.endpoint, flush=True)
sys.stdin.readline()
class Engine:
    outputs = ()
    takes_more = lambda self, role: True
    receive = lambda self, frames, reply_to, **facts: reply_to.answer([b""])
while door.socket.poll(1000):
    door.turn(Engine(), lambda: None)
print("all served")
"""


@pytest.mark.parametrize("heartbeat_ms", [0, 50], ids=["a PING of the peer", "a PING of its own"])
def test_a_reset_while_messages_of_a_peer_wait_does_not_end_the_process(
    heartbeat_ms: int, tmp_path: Path
) -> None:
    """With a high-water mark an assertion of libzmq does."""
    command = [sys.executable, "-c", STOPPED_AND_RESET, str(heartbeat_ms)]
    with ChildProcess(command, tmp_path / "log", cwd=REPOSITORY, talks=True) as door:
        endpoint = door.ready().split()[1]
        rest = zmtp.asked([b"?"]) * 40 + (b"" if heartbeat_ms else zmtp.command(b"PING", b"\0\0x"))
        with connected(endpoint, zmtp.OPENED, rest), connected(endpoint, zmtp.OPENED, b"") as alive:
            for _ in range(AT_ONCE):
                connected(endpoint, zmtp.OPENED, rest, resets=True).close()
            read_handshake(alive)
            for _ in range(2 if heartbeat_ms else 0):
                assert alive.recv(1), "no PING"
            assert door.ask("serve") == "all served"
            assert door.wait(PATIENCE_S) == 0


def inode_of(door: FrontDoor, peer: socket.socket) -> str | None:
    """The door's side of the connection, by the kernel's table.

    While others change the table a line can be missed: what is not in it has not ended therefore.
    """
    ends = f":{address_of(door.endpoint)[1]:04X}", f":{peer.getsockname()[1]:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, *_ = fields = line.split()[1:]
        if (local[-5:], remote[-5:]) == ends:
            return fields[8]
    return None


def is_open_here(inode: str) -> bool:
    """Whether a descriptor of this process is this socket."""
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since it was listed
            if descriptor.readlink() == Path(f"socket:[{inode}]"):
                return True
    return False


def test_more_peers_than_the_usual_limit_of_descriptors_keep_no_client_out(
    service: Service,
) -> None:
    proxy = service.start_proxy(prefix=("bash", "-c", 'ulimit -Sn 128; exec "$@"', "bash"))
    address = address_of(service.publisher_endpoint)
    with ExitStack() as silent:
        for _ in range(200):
            silent.enter_context(socket.create_connection(address)).sendall(zmtp.OPENED)
        eventually(lambda: descriptors_of(proxy.pid) > 200, "connection above the limit")

        with service.open_publisher("newcomer", retry=ONCE) as publisher:
            assert not publisher.put("t", b"m").duplicate
    assert service.payloads("t") == [b"m"]
