"""Quotas over real CURVE connections: one key at its bounds, another beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from reliable_pubsub import LimitError
from reliable_pubsub.common.status_client import StatusClient
from reliable_pubsub.lab.rig.keyed_service import KeyedService

from .harness import IMPATIENT, PATIENCE_S, eventually

ALL: dict[str, object] = {right: ["*"] for right in ("ids", "put", "get", "status")}


@pytest.fixture
def governed(tmp_path: Path) -> Iterator[KeyedService]:
    """`sensor-1` has quotas, `operator` has none."""
    one = KeyedService(tmp_path)
    try:
        one.add_key("operator")
        bounded = ALL | {"clients_max": 2, "topics_max": 1, "subscriptions_max": 1}
        one.say_rights(sensor_1=bounded, operator=ALL)
        one.more_options = ("--metrics-endpoint", "127.0.0.1:*")
        one.start()
        yield one
    finally:
        one.close()


def test_a_key_has_as_much_as_its_quotas_and_another_key_continues(governed: KeyedService) -> None:
    with (
        governed.open_publisher("p", retry=IMPATIENT) as publisher,
        governed.open_subscriber("s", retry=IMPATIENT) as subscriber,
    ):
        publisher.put("t1", b"1")
        with pytest.raises(LimitError, match="topics_max"):
            publisher.put("t2", b"2")
        subscriber.subscribe("t1")
        with pytest.raises(LimitError, match="clients_max"):
            governed.open_publisher("p2", retry=IMPATIENT).connect()

        of_operator = governed.reach(str(governed.publisher_endpoint), "operator")
        with governed.open_publisher("other", endpoint=of_operator) as other:
            other.put("t2", b"of another key")
        with pytest.raises(LimitError, match="subscriptions_max"):
            subscriber.subscribe("t2")

        publisher.put("t1", b"2")
        assert [m.payload for m in subscriber.get("t1", timeout_s=PATIENCE_S)] == [b"2"]


def test_connections_are_bounded_by_key_and_the_killed_give_their_place_back(
    governed: KeyedService,
) -> None:
    governed.say_rights(sensor_1=ALL | {"connections_max": 2}, operator=ALL)
    steps = governed.directory / "waits.yaml"
    steps.write_text(
        "steps: [{action: subscribe, topic: t}, {action: get, topic: t, number_of_times: 1000}]\n"
    )
    keys = (
        "--secret-key",
        governed.secret("sensor-1"),
        "--server-key",
        governed.keys / "proxy.key",
    )
    endpoint = str(governed.subscriber_endpoint)
    options = ("-f", steps, "-i", "s1", "--endpoint", endpoint, *keys)
    subscriber = governed.run("subscriber", *options)
    subscriber.ready()
    with governed.open_publisher("p1", retry=IMPATIENT) as publisher:

        def is_refused() -> bool:
            publisher.put("t", b"1")  # what was there before the quota counts when it speaks
            with governed.open_publisher("p2", retry=IMPATIENT) as other:
                try:
                    other.connect()
                except LimitError as error:
                    return "connections_max" in str(error) and "'sensor-1'" in str(error)
            return False

        eventually(is_refused, "refusal of a third connection")
        (line, *_) = governed.audit(1)
        assert (line["verb"], line["right"], line["name"]) == (
            "CONNECT",
            "connections_max",
            "sensor-1",
        )
        of_operator = governed.reach(str(governed.publisher_endpoint), "operator")
        with governed.open_publisher("other", endpoint=of_operator) as other:
            other.put("t2", b"of another key")

        subscriber.kill()

        eventually(lambda: not is_refused(), "the place of a killed client")


def test_a_quota_is_raised_without_a_restart(governed: KeyedService) -> None:
    with governed.open_publisher("p", retry=IMPATIENT) as publisher:
        publisher.put("t1", b"1")
        governed.say_rights(sensor_1=ALL | {"topics_max": 2}, operator=ALL)

        def is_taken() -> bool:
            try:
                publisher.put("t2", b"2")
            except LimitError:
                return False
            return True

        eventually(is_taken, "put to another topic")


def test_an_operator_sees_what_each_key_uses_beside_its_bounds(governed: KeyedService) -> None:
    bounds = {"connections_max": 5, "clients_max": 2, "topics_max": 1}
    governed.say_rights(sensor_1=ALL | bounds, operator=ALL)
    client = StatusClient(
        governed.reach(str(governed.subscriber_endpoint), "operator"), retry=IMPATIENT
    )

    def used() -> dict[str, int]:
        accounts = client.ask().accounts
        return {
            use.quota: use.used
            for account in (accounts if isinstance(accounts, tuple) else ())
            if account.key == "sensor-1"
            for use in account.uses
        }

    try:
        with governed.open_publisher("p", retry=IMPATIENT) as publisher:

            def counts() -> bool:
                publisher.put("t1", b"12345")
                return used().get("connections_max") == 1

            eventually(counts, "connection of the publisher in STATUS")
            seen = used()
            assert (seen["clients_max"], seen["topics_max"]) == (1, 1)
            assert seen["stored_bytes_max"] >= 5
        eventually(lambda: used()["connections_max"] == 0, "end of the connection in STATUS")
    finally:
        client.close()
    shown = governed.run(
        *("", "status", "--endpoint", str(governed.subscriber_endpoint)),
        *("--secret-key", governed.secret("operator")),
        *("--server-key", governed.keys / "proxy.key"),
    )
    assert shown.wait() == 0, shown.stderr
    with urlopen(governed.proxy.endpoints()["metrics"], timeout=PATIENCE_S) as metrics:
        lines = metrics.read().decode().splitlines()
    which = '{key="sensor-1",quota="topics_max"} 1.0'
    assert f"reliable_pubsub_key_used{which}" in lines
    assert f"reliable_pubsub_key_bound_used_ratio{which}" in lines
    assert ["sensor-1", "topics", "1", "1"] in [line.split() for line in shown.stdout.splitlines()]
