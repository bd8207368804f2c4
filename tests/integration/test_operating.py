"""A proxy as an operator runs it: metrics, health, service manager, reload, JSON lines."""

from __future__ import annotations

import json
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from reliable_pubsub import LimitError
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.common.http_pages import CONNECTIONS_MAX
from reliable_pubsub.common.metrics_server import MetricsServer, Pages
from reliable_pubsub.common.scrapes import Scrapes
from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.proxy.status.figures import BOUNDS

from .harness import (
    BELIEVING,
    BELIEVING_OPTIONS,
    PATIENCE_S,
    REPOSITORY,
    Process,
    Service,
    eventually,
)

CONFIGS = REPOSITORY / "configs" / "operating"
ANY_ADDRESS = "127.0.0.1:*"
HARD_NAME = 'a"b\\c d{e="f"}'  # of a topic

HEAP_BYTES = 64 * MIB  # glibc reserves so much for each heap but the first, at a multiple of it

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def page(url: str) -> tuple[int, str]:
    """Status and text."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples_of(text: str) -> Samples:
    return {
        (one.name, tuple(sorted(one.labels.items()))): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def metrics_url(proxy: Process) -> str:
    return proxy.endpoints()["metrics"]


class Manager:
    """A service manager: the socket that it listens on."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.settimeout(PATIENCE_S)

    def until(self, *lines: str) -> list[str]:
        """Everything that was sent, up to and with a datagram that has these lines."""
        told: list[str] = []
        while True:
            one = self._socket.recv(4096).decode().splitlines()
            told += one
            if set(lines) <= set(one):
                return told

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(tmp_path / "notify")
    yield made
    made.close()


class TestTheMetricsEndpoint:
    def test_shows_traffic_lag_refusals_bounds_memory_and_disk(self, service: Service) -> None:
        proxy = service.start_proxy("--metrics-endpoint", ANY_ADDRESS)
        with (
            service.open_subscriber("s") as subscriber,
            service.open_publisher("p", retry=BELIEVING) as publisher,
        ):
            subscriber.subscribe(HARD_NAME)
            publisher.put_many(HARD_NAME, [b"x"] * 5)
            assert len(subscriber.get(HARD_NAME, max_messages=2)) == 2

            def scrape() -> Samples:
                return samples_of(page(metrics_url(proxy))[1])

            if IS_LINUX:
                came = "reliable_pubsub_connections_came_total", ()
                eventually(lambda: scrape()[came] >= 2, "connections that came")
            found = scrape()

        which = (("subscriber", "s"), ("topic", HARD_NAME))
        assert found["reliable_pubsub_subscription_lag_messages", which] == 5
        assert found["reliable_pubsub_subscription_lag_seconds", which] > 0
        assert found["reliable_pubsub_topic_messages_total", (("topic", HARD_NAME),)] == 5
        assert found["reliable_pubsub_messages_stored_total", ()] == 5
        assert found["reliable_pubsub_messages_sent_total", ()] >= 2
        assert found["reliable_pubsub_requests_total", (("verb", "PUT"),)] == 1
        assert found["reliable_pubsub_refusals_total", (("code", "STORAGE_FULL"),)] == 0
        assert found["reliable_pubsub_commit_duration_seconds_count", ()] >= 1
        assert found["reliable_pubsub_ready", ()] == 1
        for name in ("disk_free_bytes", "disk_size_bytes", "data_dir_bytes"):
            assert found[f"reliable_pubsub_{name}", ()] > 0
        for bound in BOUNDS:
            assert 0 <= found["reliable_pubsub_bound_used_ratio", (("bound", bound),)] < 1
        if IS_LINUX:
            assert found["reliable_pubsub_connections", ()] >= 2
            assert found["reliable_pubsub_connections_kept_out_total", ()] >= 0
            assert found["reliable_pubsub_entrance_closed_seconds_total", ()] == 0
        assert found["process_resident_memory_bytes", ()] > 0

    def test_says_whether_it_lives_and_is_ready(self, service: Service) -> None:
        url = metrics_url(service.start_proxy("--metrics-endpoint", ANY_ADDRESS))

        def ready() -> bool:
            return page(url.replace("/metrics", "/readyz")) == (200, "ok\n")

        eventually(ready, "readiness")
        assert page(url.replace("/metrics", "/healthz")) == (200, "ok\n")
        assert page(url.replace("/metrics", "/other"))[0] == 404

    @pytest.mark.parametrize(
        ("address", "part"),
        [
            ("0.0.0.0:9464", "is not a loopback address"),
            ("*:9464", "is not a loopback address"),
            ("tcp://127.0.0.1:9464", "expected an address such as 127.0.0.1:9464"),
            ("127.0.0.1", "expected an address such as 127.0.0.1:9464"),
        ],
    )
    def test_stays_on_this_machine_unless_that_is_allowed(
        self, address: str, part: str, service: Service
    ) -> None:
        proxy = service.launch_proxy("--metrics-endpoint", address)

        assert proxy.wait() == 2
        assert part in proxy.complaints

    def test_answers_a_supervisor_while_many_peers_say_nothing(self) -> None:
        scrapes: Scrapes[None] = Scrapes(lambda: None)
        scrapes.beat()
        server = MetricsServer(ANY_ADDRESS, Pages(scrapes, lambda _: ()))
        url = server.url.replace("/metrics", "/readyz")
        address = ("127.0.0.1", int(server.url.rpartition(":")[2].partition("/")[0]))

        with ExitStack() as silent:
            for _ in range(3 * CONNECTIONS_MAX):
                peer = silent.enter_context(socket.create_connection(address))
                peer.sendall(b"GET /metrics")
                assert page(url) == (200, "ok\n")
        server.close()

    def test_has_every_metric_of_the_dashboard_and_the_alerts(
        self, service: Service, tmp_path: Path
    ) -> None:
        """The metrics of a subscription and of a topic are there when one exists."""
        proxy = service.start_proxy("--metrics-endpoint", ANY_ADDRESS)
        with service.open_subscriber("s") as subscriber, service.open_publisher("p") as publisher:
            subscriber.subscribe("t")
            publisher.put("t", b"x")
            (message,) = subscriber.get("t", timeout_s=PATIENCE_S)
            subscriber.reject(message, "not today")
        backup = service.run("", "backup", tmp_path / "copy", "--data-dir", service.data_dir)
        backup.done()
        shown = {name for name, _ in samples_of(page(metrics_url(proxy))[1])}
        dashboard = json.loads((CONFIGS / "dashboard.json").read_text())
        rules = msgspec.yaml.decode((CONFIGS / "alerts.yaml").read_bytes())
        expressions = [one["expr"] for panel in dashboard["panels"] for one in panel["targets"]]
        expressions += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]

        used = {
            name
            for expression in expressions
            for name in re.findall(r"\b(?:reliable_pubsub|process)_\w+", expression)
        }

        # Relays, keys, and proxies with a store in PostgreSQL, have tests of their own.
        used = {name for name in used if not name.startswith("reliable_pubsub_relay_")}
        used -= {"reliable_pubsub_standbys", "reliable_pubsub_key_bound_used_ratio"}

        assert len(expressions) > 20
        assert used <= shown, used - shown


def test_a_relay_has_an_endpoint_of_its_own(service: Service) -> None:
    service.start_proxy()
    relay = service.run(
        "relay", "--upstream", service.subscriber_endpoint, "--endpoint", "tcp://127.0.0.1:*",
        "--push-endpoint", "tcp://127.0.0.1:*", "--metrics-endpoint", ANY_ADDRESS,
    )  # fmt: skip
    url = metrics_url(relay)

    eventually(lambda: page(url.replace("/metrics", "/readyz"))[0] == 200, "readiness")
    found = samples_of(page(url)[1])

    assert found["reliable_pubsub_ready", ()] == 1
    assert found["reliable_pubsub_relay_links", ()] == 0
    if IS_LINUX:
        assert found["reliable_pubsub_relay_connections", ()] >= 0
    assert ("reliable_pubsub_relay_requests_total", (("how", "passed"),)) in found
    assert relay.terminate() == 0


class TestAServiceManager:
    def test_is_notified_of_the_start_of_turns_of_reloads_and_of_the_end(
        self, manager: Manager, service: Service
    ) -> None:
        """WATCHDOG_USEC asks for a word every 0.1 s."""
        settings = service.file("proxy.yaml", "topic_bytes_max: 2097152\n")
        told = (f"NOTIFY_SOCKET={service.directory / 'notify'}", "WATCHDOG_USEC=200000")
        proxy = service.start_proxy("-f", settings, prefix=["env", *told])

        manager.until("READY=1")
        manager.until("WATCHDOG=1")
        manager.until("WATCHDOG=1")
        proxy.signal(signal.SIGHUP)
        manager.until("RELOADING=1")
        manager.until("READY=1")
        proxy.signal(signal.SIGTERM)
        manager.until("STOPPING=1")
        assert proxy.wait() == 0


class TestAReload:
    def test_changes_bounds_names_what_waits_for_a_restart_and_refuses_mistakes(
        self, service: Service
    ) -> None:
        settings = service.file("proxy.yaml", "waiting_messages_max: 100\n")
        proxy = service.start_proxy("-f", settings, "--log-format", "json")

        def lines(part: str) -> list[dict[str, Any]]:
            found = [json.loads(line) for line in proxy.stderr.splitlines()]
            return [one for one in found if part in one["message"]]

        settings.write_text("waiting_messages_max: 2\ndurability: os\ntopics: {t: {}}\n")
        proxy.signal(signal.SIGHUP)
        eventually(lambda: lines("at the next start only"), "reload")
        settings.write_text("waiting_messages_max: none\n")
        proxy.signal(signal.SIGHUP)
        eventually(lambda: lines("nothing was reloaded"), "refusal")

        (done,) = lines("reloaded: waiting")
        assert (done["level"], done["message"]) == (
            "info",
            "reloaded: waiting_messages_max 100 -> 2, topics.t",
        )
        (fixed,) = lines("next start only")
        assert fixed["level"] == "warning"
        assert fixed["message"].endswith("only: durability")
        (mistake,) = lines("nothing was reloaded")
        assert (mistake["level"], mistake["code"]) == ("error", "CONFIGURATION")
        with service.open_subscriber("s") as subscriber, service.open_publisher("p") as publisher:
            subscriber.subscribe("t")
            with pytest.raises(LimitError):
                publisher.put_many("t", [b"x"] * 3)
        assert lines("ready: proxy ")


class TestLinesForPrograms:
    def test_are_json_in_clients_too_with_code_and_facts(self, service: Service) -> None:
        service.start_proxy()
        words = ("--log-format", "json")
        publisher = service.publisher(
            "p", "steps: [{topic: t, message: m}]", *words, options=BELIEVING_OPTIONS
        )
        publisher.done()
        mistaken = service.publisher("q", "steps: [{topic: t}]", *words)
        assert mistaken.wait() == 2

        (session,) = [json.loads(line) for line in publisher.stderr.splitlines()]
        assert (session["level"], session["logger"]) == ("info", "reliable_pubsub.publisher")
        assert (session["client"], session["message"]) == ("p", "p: begins session 1")
        (error,) = [json.loads(line) for line in mistaken.stderr.splitlines()]
        assert (error["level"], error["code"]) == ("error", "CONFIGURATION")
        assert publisher.stdout.startswith("ready: publisher p ")


def heaps_of(pid: int) -> int:
    """How many heaps glibc has made for threads of a process: the used part, then the reserved."""
    mappings = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, access = line.split()[:2]
        begin, end = (int(address, 16) for address in addresses.split("-"))
        mappings.append((begin, end, access))
    return sum(
        used == "rw-p" and reserved == "---p" and not begin % HEAP_BYTES and not end % HEAP_BYTES
        for (begin, _, used), (_, end, reserved) in pairwise(mappings)
    )


@pytest.mark.skipif(not IS_LINUX, reason="mallopt is glibc's")
def test_the_threads_of_a_proxy_or_relay_share_one_heap_so_memory_freed_by_one_serves_all(
    service: Service,
) -> None:
    proxy = service.start_proxy()
    relay = service.run(
        "relay", "--upstream", service.subscriber_endpoint, "--endpoint", "tcp://127.0.0.1:*",
        "--push-endpoint", "tcp://127.0.0.1:*",
    )  # fmt: skip
    relay.ready()
    with service.open_publisher("p") as publisher:
        publisher.put("t", b"m")

    assert [heaps_of(proxy.pid), heaps_of(relay.pid)] == [0, 0]
