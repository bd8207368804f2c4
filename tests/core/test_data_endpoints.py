"""Data endpoints that were not chosen are on the interface where requests come in."""

from __future__ import annotations

import pytest

from reliable_pubsub.common.core.endpoint import (
    data_endpoint_of,
    reaches_requests_only,
    with_any_port,
)
from reliable_pubsub.common.core.resolving import resolve, typed_settings
from reliable_pubsub.proxy.__main__ import broker_settings, reachability_warnings, server_settings
from reliable_pubsub.proxy.reloading import Configured
from reliable_pubsub.proxy.server_settings import EndpointSettings, ServerSettings

INGRESS = "tcp://127.0.0.1:5554"


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ("tcp://127.0.0.1:5555", INGRESS),
        ("tcp://10.0.0.7:5555", "tcp://10.0.0.7:5554"),
        ("tcp://10.0.0.7:*", "tcp://10.0.0.7:5554"),
        ("tcp://*:5555", "tcp://*:5554"),
        ("tcp://host.example:5555", "tcp://host.example:5554"),
        ("tcp://[fe80::1]:5555", "tcp://[fe80::1]:5554"),
        ("ipc:///run/pubsub.sock", INGRESS),
    ],
)
def test_an_endpoint_that_was_not_chosen_has_the_interface_of_the_requests_and_its_own_port(
    requests: str, expected: str
) -> None:
    assert data_endpoint_of(requests, INGRESS) == expected


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [
        ("tcp://10.0.0.7:5554", "tcp://10.0.0.7:*"),
        ("tcp://[::1]:5554", "tcp://[::1]:*"),
        ("ipc:///run/pubsub.sock", "tcp://127.0.0.1:*"),
    ],
)
def test_another_port_is_sought_on_the_same_interface(endpoint: str, expected: str) -> None:
    assert with_any_port(endpoint) == expected


def settings_with(**chosen: str) -> ServerSettings:
    resolved = resolve(chosen, {}, {})
    configured = Configured(typed_settings(resolved), broker_settings(resolved, {}))
    return server_settings(resolved, configured, None, accept_loss=False)


def test_ingress_follows_the_publishers_and_push_the_subscribers() -> None:
    wanted = settings_with(
        publisher_endpoint="tcp://10.0.0.7:6000", subscriber_endpoint="tcp://10.0.0.8:6001"
    )

    assert wanted.ingress == EndpointSettings(endpoint="tcp://10.0.0.7:5554", is_default=True)
    assert wanted.push == EndpointSettings(endpoint="tcp://10.0.0.8:5557", is_default=True)
    assert reachability_warnings(wanted) == []


def test_what_is_chosen_stays_and_is_warned_of_where_others_do_not_reach_it() -> None:
    wanted = settings_with(
        publisher_endpoint="tcp://*:6000",
        subscriber_endpoint="tcp://10.0.0.8:6001",
        ingress_endpoint=INGRESS,
        push_endpoint="tcp://127.0.0.1:5557",
    )

    assert wanted.ingress == EndpointSettings(endpoint=INGRESS)
    first, second = reachability_warnings(wanted)
    assert INGRESS in first
    assert "QoS 0 is dropped" in first
    assert "they poll" in second


def test_one_machine_is_not_warned() -> None:
    assert not reaches_requests_only("ipc:///run/pubsub.sock", INGRESS)
    assert not reaches_requests_only("tcp://localhost:5555", INGRESS)
    assert not reaches_requests_only("tcp://10.0.0.7:5555", "tcp://*:5554")
    assert reachability_warnings(settings_with()) == []
