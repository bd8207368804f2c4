"""IPv6 endpoints: every process and client, with and without keys, and both kinds at one socket."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from reliable_pubsub.common.access.listener import ListenerGate, listen
from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.lab.rig.keyed_service import KeyedService
from reliable_pubsub.relay.topology import ask_upwards

from .harness import PATIENCE_S, Service, eventually

ANY = "tcp://[::1]:*"

try:
    with socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
except OSError:
    pytest.skip("this system has no IPv6", allow_module_level=True)


def on_ipv6(service: Service) -> None:
    service.publisher_endpoint = service.subscriber_endpoint = ANY
    service.push_endpoint = service.ingress_endpoint = ANY


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[KeyedService]:
    with KeyedService(tmp_path) as service:
        yield service


def check_every_level_arrives(service: Service, subscriber_endpoint: str) -> None:
    with (
        service.open_subscriber("s", endpoint=subscriber_endpoint) as subscriber,
        service.open_publisher("p") as publisher,
    ):
        subscriber.subscribe("t", push=True)
        for qos in (2, 1):
            publisher.put("t", b"%d" % qos, qos=qos)
        stream = subscriber.messages("t")
        got = [next(stream).payload for _ in range(2)]
        eventually(lambda: publisher.put("t", b"0", qos=0).fate == "sent", "ingress")
        got.append(next(stream).payload)

    assert got == [b"2", b"1", b"0"]


@pytest.mark.filterwarnings("ignore::reliable_pubsub.QoSWarning")
def test_a_proxy_at_an_ipv6_address_serves_puts_gets_pushes_status_and_metrics(
    service: Service,
) -> None:
    on_ipv6(service)
    metrics = service.start_proxy("--metrics-endpoint", "[::1]:*").endpoints()["metrics"]

    check_every_level_arrives(service, service.subscriber_endpoint)

    assert service.status().topics_count == 1
    with urlopen(metrics.replace("/metrics", "/readyz")) as page:
        assert page.status == 200


@pytest.mark.filterwarnings("ignore::reliable_pubsub.QoSWarning")
def test_a_relay_at_every_address_is_reached_over_ipv6_and_over_ipv4(service: Service) -> None:
    on_ipv6(service)
    service.start_proxy()
    above = ("--upstream", service.subscriber_endpoint, "--allow-plaintext")
    everywhere = ("--endpoint", "tcp://[::]:*", "--push-endpoint", "tcp://[::]:*")
    relay = service.run("relay", *everywhere, *above)
    port = relay.endpoints()["requests"].rpartition(":")[2]

    for host in ("[::1]", "127.0.0.1"):
        endpoint = f"tcp://{host}:{port}"
        check_every_level_arrives(service, endpoint)
        reports = ask_upwards([endpoint])
        assert None not in reports.values()
        assert list(reports) == [endpoint, service.subscriber_endpoint]


@pytest.mark.filterwarnings("ignore::reliable_pubsub.QoSWarning")
def test_keys_encrypt_ipv6_endpoints(keyed: KeyedService) -> None:
    on_ipv6(keyed)
    keyed.start()

    check_every_level_arrives(keyed, keyed.subscriber_endpoint)


def test_the_next_of_several_endpoints_may_be_of_the_other_kind(service: Service) -> None:
    dead = service.own_endpoint()
    on_ipv6(service)
    service.start_proxy()

    several = f"{dead},{service.publisher_endpoint}"
    with service.open_publisher("p", endpoint=several) as publisher:
        assert publisher.put("t", b"x").offset == 0


def test_an_address_of_another_machine_is_refused_with_that_reason(service: Service) -> None:
    service.publisher_endpoint = "tcp://[2001:db8::1]:5555"

    proxy = service.launch_proxy("--allow-plaintext")

    assert proxy.wait() == 2
    assert "this machine does not have that address" in " ".join(proxy.stderr.split())


@pytest.mark.skipif(not IS_LINUX, reason="only Linux keeps connections out at the kernel")
def test_a_closed_gate_keeps_out_both_kinds_of_addresses_and_an_open_one_neither() -> None:
    descriptor = listen("tcp://[::]:*", 10)
    with socket.socket(fileno=descriptor):
        gate = ListenerGate(descriptor)
        gate.set_open(is_open=False)
        for host in ("::1", "127.0.0.1"):
            with pytest.raises(TimeoutError):
                socket.create_connection((host, gate.port), timeout=0.3)
        gate.set_open(is_open=True)
        for host in ("::1", "127.0.0.1"):
            socket.create_connection((host, gate.port), timeout=PATIENCE_S).close()
        gate.close()
