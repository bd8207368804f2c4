"""Processes that run out of descriptors, or cannot do all they should: they survive, and say so."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
import zmq
from prometheus_client.parser import text_string_to_metric_families

from reliable_pubsub.common import threads
from reliable_pubsub.common.core.status import ConnectionsStatus
from reliable_pubsub.common.notify import ServiceManager
from reliable_pubsub.common.scrapes import Scrapes
from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.lab.rig.keyed_service import KeyedService
from reliable_pubsub.lab.rig.service import RelayProcess
from scripts.fuzzer import zmtp
from scripts.fuzzer.crowd import address_of
from tests.postgres import needs_postgresql, shared_server

from .harness import PATIENCE_S, REPOSITORY, Process, Service, eventually, zmq_context
from .test_operating import ANY_ADDRESS, Manager, metrics_url, page
from .test_standby import Pair

UNPRIVILEGED: Final = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
needs_capabilities = pytest.mark.skipif(not IS_LINUX, reason="capabilities are Linux's")
MOST, PEERS = 50, 300


def health(process: Process) -> dict[str, int]:
    """The codes of the health pages."""
    url = metrics_url(process)
    return {name: page(url.replace("/metrics", name))[0] for name in ("/healthz", "/readyz")}


def metric(process: Process, name: str, **labels: str) -> float | None:
    """One figure; None: it is not there."""
    for family in text_string_to_metric_families(page(metrics_url(process))[1]):
        for one in family.samples:
            if one.name == f"reliable_pubsub_{name}" and labels.items() <= one.labels.items():
                return one.value
    return None


def limited(descriptors: int) -> tuple[str, ...]:
    return ("bash", "-c", f'ulimit -n {descriptors}; exec "$@"', "bash")


@contextmanager
def raw_peers(endpoints: list[str], count: int) -> Iterator[None]:
    """So many connections that say nothing, begun at the same time."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 2 * count)), hard))
    with ExitStack() as peers:
        for number in range(count):
            peer = peers.enter_context(socket.socket())
            peer.setblocking(False)
            peer.connect_ex(address_of(endpoints[number % len(endpoints)]))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# Limits without privileges.


@needs_capabilities
@pytest.mark.parametrize("where", ["publisher", "push", "ingress", "relay"])
def test_connections_max_holds_without_privileges(where: str, service: Service) -> None:
    """The peers try again and again; those that are open at any moment are counted."""
    is_relay = where == "relay"
    setting = service.file(
        "proxy.yaml", "history_s: 60" if is_relay else f"connections_max: {MOST}"
    )
    prefix = ("env", f"RELIABLE_PUBSUB_CONNECTIONS_MAX={MOST}", *UNPRIVILEGED)
    process = service.start_proxy(
        *("-f", setting, "--metrics-endpoint", ANY_ADDRESS), prefix=UNPRIVILEGED
    )
    endpoint = {
        "publisher": service.publisher_endpoint,
        "push": service.push_endpoint,
        "ingress": service.ingress_endpoint,
    }.get(where, "")
    name, kind = "", {"push": zmq.SUB, "ingress": zmq.XPUB}.get(where, zmq.DEALER)
    if is_relay:
        options = ("--upstream", service.subscriber_endpoint, "--metrics-endpoint", ANY_ADDRESS)
        relay = RelayProcess(service, "relay", *options, prefix=prefix)
        process, endpoint, name = relay.process, relay.endpoint, "relay_"
    with zmq_context() as context:
        peers = [context.socket(kind) for _ in range(PEERS)]  # one that is forgotten is closed
        for peer in peers:
            peer.connect(endpoint)
        eventually(lambda: metric(process, f"{name}connections") == MOST, "all that may come in")
        eventually(lambda: metric(process, f"{name}connections_kept_out_total"), "others kept out")
        eventually(lambda: open_connections(endpoint) == MOST, "end of those kept out")
    eventually(lambda: metric(process, f"{name}connections") == 0, "end of them")
    with zmq_context() as context:
        newcomer = context.socket(kind)
        newcomer.connect(endpoint)
        eventually(lambda: metric(process, f"{name}connections") == 1, "a newcomer")


def open_connections(endpoint: str) -> int:
    """How many connections a port has, by the kernel's table."""
    port = f":{address_of(endpoint)[1]:04X}"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(port) and row[3] == "01" for row in rows)


# Without descriptors.


@pytest.mark.parametrize("descriptors", [160, 400])
def test_a_burst_above_all_descriptors_leaves_a_proxy_as_it_was(
    descriptors: int, service: Service
) -> None:
    proxy = service.start_proxy("--metrics-endpoint", ANY_ADDRESS, prefix=limited(descriptors))
    endpoints = [
        *(str(service.publisher_endpoint), str(service.subscriber_endpoint)),
        *(service.push_endpoint, service.ingress_endpoint),
    ]
    with service.open_publisher("there") as there:
        there.put("t", b"before")
        with raw_peers(endpoints, 3 * descriptors):
            there.put("t", b"during")
        with service.open_publisher("newcomer") as newcomer:
            newcomer.put("t", b"after")
    eventually(lambda: metric(proxy, "connections") in (0, 1), "end of the burst")

    assert service.payloads("t") == [b"before", b"during", b"after"]
    assert health(proxy) == {"/healthz": 200, "/readyz": 200}
    assert metric(proxy, "dead_threads") == 0
    assert "Traceback" not in proxy.stderr


MANY_CLIENTS = """
import sys
from pathlib import Path
from reliable_pubsub import Admin, Publisher, Subscriber, aio
from reliable_pubsub.common.core.errors import DescriptorsError

kept = []
make = {
    "publisher": lambda: Publisher(f"p{len(kept)}", state_dir=Path(sys.argv[2])),
    "subscriber": lambda: Subscriber(f"s{len(kept)}"),
    "asyncio": lambda: aio.Publisher(f"a{len(kept)}"),
    "admin": lambda: Admin(),
}[sys.argv[1]]
try:
    while True:
        kept.append(make())
except DescriptorsError as error:
    print(len(kept), error.limit, error.free < error.needed, error)
"""


@pytest.mark.parametrize("kind", ["publisher", "subscriber", "asyncio", "admin"])
@pytest.mark.parametrize("descriptors", [40, 48, 64, 80, 128])
def test_a_client_that_finds_too_few_descriptors_is_refused(
    kind: str, descriptors: int, tmp_path: Path
) -> None:
    """libzmq would end the process, with SIGABRT, or one of several other errors comes."""
    command = [*limited(descriptors), sys.executable, "-c", MANY_CLIENTS, kind, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)

    assert done.returncode == 0, done.stderr
    count, limit, is_short, text = done.stdout.split(maxsplit=3)
    assert int(count) > 0
    assert (limit, is_short) == (str(descriptors), "True")
    assert "ulimit -n" in text


def test_a_proxy_without_descriptors_to_start_is_refused(service: Service) -> None:
    proxy = service.launch_proxy(prefix=limited(70))

    assert proxy.wait() == 3
    assert "DESCRIPTORS" in proxy.stderr


# Threads.


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found: dict[str, str] = {}
    monkeypatch.setattr(threads, "_deaths", found)
    monkeypatch.setattr(threads, "writes_json", lambda: True)  # no traceback of this test
    return found


def dies() -> None:
    raise LookupError("a bug")


def test_the_death_of_a_thread_is_seen_by_health_checks_and_the_watchdog(
    deaths: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    mine, scrapes = ServiceManager(), Scrapes[object]()
    scrapes.beat()
    mine.alive(time.monotonic())
    before = scrapes.why_dead(), scrapes.why_not_ready()
    threads.start(dies, name="guard").join(PATIENCE_S)
    mine.alive(time.monotonic() + 10)
    mine.stopping()

    assert before == ("", "")
    assert scrapes.why_dead() == "the thread guard has died: LookupError: a bug"
    assert scrapes.why_not_ready() == scrapes.why_dead()
    assert manager.until("STOPPING=1") == ["WATCHDOG=1", "STOPPING=1"]
    assert "a bug" in caplog.text
    assert "Traceback" in caplog.text
    manager.close()


def test_threads_are_started_where_their_death_is_recorded() -> None:
    rooms = ("common", "console", "proxy", "publisher", "relay", "subscriber")
    found = {
        str(file.relative_to(REPOSITORY))
        for room in rooms
        for file in (REPOSITORY / room).rglob("*.py")
        if "Thread(target" in file.read_text()
    }
    assert found == {"common/threads.py", "common/access/sockets.py"}  # that one ends the process


def test_a_thread_survives_a_lack_of_descriptors_and_reports_it_once() -> None:
    warnings: list[str] = []
    shortage = threads.Shortage("the watch", warnings.append)
    for _ in range(3):
        with shortage.survived(pause_s=0.0):
            raise OSError(24, "Too many open files")
    with pytest.raises(OSError, match="other"), shortage.survived():
        raise OSError(5, "other")

    assert len(warnings) == 1
    assert "LimitNOFILE" in warnings[0]


# Health that says what is.


def test_a_relay_is_ready_while_its_way_up_works(service: Service) -> None:
    options = ("--upstream", str(service.subscriber_endpoint), "--metrics-endpoint", ANY_ADDRESS)
    relay = RelayProcess(service, "relay", *options).process
    assert health(relay) == {"/healthz": 200, "/readyz": 503}
    assert metric(relay, "relay_way_up") == 0
    eventually(lambda: "is down" in relay.stderr, "line in the log")

    proxy = service.start_proxy()
    eventually(lambda: health(relay)["/readyz"] == 200, "way up")
    eventually(lambda: metric(relay, "relay_way_up") == 1, "metric of it")
    used = metric(relay, "relay_bound_used_ratio", bound="connections")
    assert used is not None
    assert 0 <= used < 1
    eventually(lambda: "work again" in relay.stderr, "line that it works")

    proxy.kill()
    eventually(lambda: health(relay)["/readyz"] == 503, "loss of the way up")
    assert health(relay)["/healthz"] == 200
    assert relay.stderr.count("is down") == 1


@needs_postgresql
def test_a_standby_is_alive_and_not_ready_and_the_serving_proxy_counts_it(
    service: Service,
) -> None:
    pair = Pair(service, shared_server().new_schema())
    urls = [service.own_endpoint().removeprefix("tcp://") for _ in range(2)]
    first = pair.start(0, "--metrics-endpoint", urls[0])
    first.ready()
    eventually(lambda: metric(first, "standbys") == 0, "count without a standby")
    second = pair.start(1, "--metrics-endpoint", urls[1])

    def of_second(name: str) -> tuple[int, str]:
        return page(f"http://{urls[1]}{name}")

    eventually(lambda: "standby: proxy" in second.stdout, "standby")
    code, text = of_second("/readyz")
    assert (code, "standby" in text) == (503, True)
    assert of_second("/healthz")[0] == 200
    assert 'reliable_pubsub_role{role="standby"} 1.0' in of_second("/metrics")[1]
    eventually(lambda: metric(first, "standbys") == 1, "count of the standby")
    assert service.status().standbys == 1

    first.kill()
    second.ready()
    eventually(lambda: of_second("/readyz")[0] == 200, "readiness")
    assert 'reliable_pubsub_role{role="serving"} 1.0' in of_second("/metrics")[1]


def test_unknown_keys_are_counted_logged_and_in_the_audit_log(tmp_path: Path) -> None:
    service = KeyedService(tmp_path)
    try:
        service.start()
        with zmq_context() as context, ExitStack() as stack:
            peers = [context.socket(zmq.DEALER) for _ in range(3)]
            for peer in peers:
                peer.curve_publickey, peer.curve_secretkey = zmq.curve_keypair()
                peer.curve_serverkey = service.public("proxy").encode()
                peer.connect(str(service.publisher_endpoint))
            # A socket of libzmq would see the other mechanism too, and might leave first.
            plain = stack.enter_context(
                socket.create_connection(address_of(str(service.publisher_endpoint)))
            )
            plain.sendall(zmtp.greeting())
            found: Callable[[], ConnectionsStatus] = lambda: _connections(service)  # noqa: E731
            eventually(lambda: found().unknown_keys >= 3, "count of unknown keys")
            eventually(lambda: found().failed_handshakes >= 1, "count of a peer without a key")
            said = "unknown keys were refused"
            eventually(lambda: said in service.proxy.stderr, "line of the refused keys")
        audit = [one for one in service.audit(1) if one["event"] == "unknown_key"]
        assert audit
        assert len(audit[0]["key"]) == 40
        assert service.proxy.stderr.count(said) == 1
    finally:
        service.close()


def _connections(service: Service) -> ConnectionsStatus:
    found = service.status().connections
    assert isinstance(found, ConnectionsStatus)
    return found
