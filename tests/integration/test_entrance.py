"""More connections than a process may have, or more at once: they wait, the others continue.

What is decided is in tests/relay/test_inflow.py.
"""

from __future__ import annotations

import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
import zmq

from reliable_pubsub import Publisher
from reliable_pubsub.common.access import sockets
from reliable_pubsub.common.access.authentication import Authentication
from reliable_pubsub.common.core.errors import ProxyUnreachableError
from reliable_pubsub.common.core.keys import KeyPair, ServerKeys
from reliable_pubsub.common.core.status import ConnectionsStatus
from reliable_pubsub.common.core.tree_messages import NodeReport
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.lab.rig.service import RelayProcess
from reliable_pubsub.proxy.front_door import FrontDoor
from reliable_pubsub.relay.topology import ask_node
from scripts.fuzzer import zmtp
from scripts.fuzzer.crowd import address_of

from .harness import PATIENCE_S, STUBBORN, Process, Service, eventually, zmq_context

needs_filters = pytest.mark.skipif(not IS_LINUX, reason="the gate is Linux's")
MOST, PER_S, BURST = 8, 5, 50
PUTS = 20


class Watched:
    """A proxy with a setting, and an honest publisher and a watcher that are there."""

    def __init__(self, service: Service, setting: str) -> None:
        self.service = service
        self.proxy: Process = service.start_proxy("-f", service.file("proxy.yaml", setting))
        self.publisher: Publisher = service.open_publisher("there")
        self._watcher = StatusClient(service.subscriber_endpoint, STUBBORN)
        self.publisher.put("t", b"first")
        self.seen()

    def seen(self) -> ConnectionsStatus:
        """The connections, as STATUS shows them."""
        found = self._watcher.ask(rows_max=0).connections
        assert isinstance(found, ConnectionsStatus)
        return found

    def close(self) -> None:
        """Leave."""
        self._watcher.close()
        self.publisher.close()


class Silent:
    """Peers that connect, answer heartbeats and ask nothing."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self._context, self._endpoint = context, endpoint
        self._peers: list[zmq.Socket[bytes]] = []  # a socket that is forgotten is closed

    def come(self, count: int) -> None:
        """So many more of them connect."""
        for _ in range(count):
            peer = self._context.socket(zmq.DEALER)
            peer.setsockopt(zmq.LINGER, 0)
            peer.connect(self._endpoint)
            self._peers.append(peer)

    def come_until(self, look: Callable[[], object], what: str) -> None:
        """More of them connect than are let in, and more again until something is seen.

        A busy machine may take so long for some that each is let in.
        """

        def is_seen() -> bool:
            if look():
                return True
            self.come(PER_S)
            return False

        self.come(BURST + PER_S)
        eventually(is_seen, what)


@contextmanager
def silent(endpoint: str) -> Iterator[Silent]:
    with zmq_context() as context:
        yield Silent(context, endpoint)


def puts_in_a_thread(service: Service, payload: bytes) -> threading.Thread:
    """A newcomer that puts as soon as it is let in."""

    def put() -> None:
        with service.open_publisher("newcomer") as publisher:
            publisher.put("t", payload)

    thread = threading.Thread(target=put)
    thread.start()
    return thread


@contextmanager
def full(service: Service) -> Iterator[Watched]:
    """A proxy that has as many connections as it may; all but two say nothing."""
    with (
        closing(Watched(service, f"connections_max: {MOST}")) as watched,
        silent(service.publisher_endpoint) as peers,
    ):
        while (count := watched.seen().connections) < MOST:
            peers.come(1)
            eventually(lambda c=count: watched.seen().connections > c, "one connection more")  # type: ignore[misc]
        eventually(lambda: watched.seen().closed_by == "connections_max", "bound of connections")
        yield watched


@needs_filters
def test_beyond_connections_max_newcomers_wait_and_those_that_are_there_continue(
    service: Service,
) -> None:
    """Peers that say nothing count too."""
    with full(service) as watched:
        before = watched.seen()
        newcomer = puts_in_a_thread(service, b"last")
        eventually(lambda: watched.seen().kept_out > before.kept_out, "newcomer kept out")
        watched.publisher.put_many("t", [b"between"] * PUTS)
        during = watched.seen()
    newcomer.join(PATIENCE_S)

    assert (before.connections, during.connections, during.connections_max) == (MOST, MOST, MOST)
    assert service.payloads("t") == [b"first", *[b"between"] * PUTS, b"last"]
    assert watched.proxy.stderr.count("connections are kept out") == 1
    assert "(connections_max)" in watched.proxy.stderr


@needs_filters
def test_a_newcomer_comes_in_when_a_reload_raises_the_bound(service: Service) -> None:
    with full(service) as watched:
        newcomer = puts_in_a_thread(service, b"last")
        service.file("proxy.yaml", f"connections_max: {2 * MOST}")
        watched.proxy.signal(signal.SIGHUP)
        newcomer.join(PATIENCE_S)
        after = watched.seen()

    assert after.connections_max == 2 * MOST
    assert service.payloads("t") == [b"first", b"last"]


@needs_filters
def test_connections_that_come_too_fast_wait_and_then_come_in(service: Service) -> None:
    with (
        closing(Watched(service, f"connections_per_s_max: {PER_S}")) as watched,
        silent(service.publisher_endpoint) as peers,
    ):
        closed = "time in which connections were kept out"
        peers.come_until(lambda: watched.seen().closed_s, closed)
        watched.publisher.put_many("t", [b"between"] * PUTS)
        puts_in_a_thread(service, b"last").join(PATIENCE_S)
        eventually(lambda: watched.seen().came > BURST + PER_S, "last of those that came")

    assert service.payloads("t") == [b"first", *[b"between"] * PUTS, b"last"]
    assert watched.proxy.stderr.count("connections are kept out") == 1
    assert "(connections_per_s_max)" in watched.proxy.stderr


@needs_filters
def test_a_relay_keeps_connections_out_as_a_proxy_does(service: Service) -> None:
    service.start_proxy()
    relay = RelayProcess(
        service,
        "relay",
        *("--upstream", service.subscriber_endpoint),
        prefix=("env", f"RELIABLE_PUBSUB_CONNECTIONS_PER_S_MAX={PER_S}"),
    )

    with silent(relay.endpoint) as peers:
        peers.come_until(lambda: "connections are kept out" in relay.process.stderr, "warning")

    def answer() -> NodeReport | None:
        with suppress(ProxyUnreachableError):  # a question is lost with a connection that is ended
            return ask_node(relay.endpoint, timeout_s=2.0)
        return None

    found = eventually(answer, "answer of the relay").connections
    assert isinstance(found, ConnectionsStatus)
    assert found.connections_per_s_max == PER_S
    assert found.closed_s > 0


@pytest.mark.parametrize(("most", "for_connections"), [(128, 64), (1_024, 896), (65_536, 57_344)])
def test_descriptors_are_left_for_what_is_no_connection(
    most: int, for_connections: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any libzmq uses a whole core, and no connection ends that."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (most, most))

    assert sockets.descriptors_for_connections() == for_connections


# Handshakes that are never finished.

CURVE_GREETING = zmtp.greeting(mechanism=b"CURVE")


def hello_of_a_client(server: KeyPair) -> bytes:
    """What libzmq sends first to a server with this key; it opens its box for any copy of it."""
    with zmq_context() as context, socket.create_server(("127.0.0.1", 0)) as listening:
        client = context.socket(zmq.DEALER)
        client.curve_publickey, client.curve_secretkey = zmq.curve_keypair()
        client.curve_serverkey = server.public.encode()
        client.connect("tcp://{}:{}".format(*listening.getsockname()))
        heard, _ = listening.accept()
        with heard:
            heard.settimeout(PATIENCE_S)
            heard.sendall(CURVE_GREETING)
            said = b""
            while len(said) < zmtp.GREETING_BYTES + HELLO_BYTES:
                said += heard.recv(zmtp.GREETING_BYTES + HELLO_BYTES - len(said))
    return said[zmtp.GREETING_BYTES :]


HELLO_BYTES = 202  # with the head of its frame and its name
SAID = {"nothing": 0, "half a HELLO": HELLO_BYTES // 2, "a HELLO, which is answered": HELLO_BYTES}


@pytest.mark.parametrize("size", SAID.values(), ids=SAID)
def test_who_does_not_finish_a_handshake_with_keys_loses_the_connection(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "HANDSHAKE_MS", 200)
    public, secret = (key.decode() for key in zmq.curve_keypair())
    own = KeyPair(public=public, secret=secret)
    hello = hello_of_a_client(own)
    with ExitStack() as stack:
        context = stack.enter_context(zmq_context())
        authentication = Authentication(context, ServerKeys(own=own))
        stack.callback(authentication.close)
        door = FrontDoor(context, "publisher", "tcp://127.0.0.1:*", authentication)
        stack.callback(door.close)
        peer = stack.enter_context(socket.create_connection(address_of(door.endpoint)))
        peer.settimeout(PATIENCE_S)
        peer.sendall(CURVE_GREETING + hello[:size])

        heard = b""
        while more := peer.recv(65_536):
            heard += more
        is_answered = size == HELLO_BYTES
        assert (b"WELCOME" in heard) == is_answered
