"""`examples/bridge.py`: subscriptions at one broker decide what comes from another (row 4.18)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reliable_pubsub import glob

from .harness import PATIENCE_S, REPOSITORY, Process, Service, eventually

EXAMPLE = REPOSITORY / "examples" / "bridge.py"


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Service]:
    """Another broker."""
    directory = tmp_path / "far"
    directory.mkdir()
    service = Service(directory)
    service.start_proxy()
    try:
        yield service
    finally:
        service.close()


def start(near: Service, far: Service) -> Process:
    endpoints = (
        "--far-endpoint",
        far.subscriber_endpoint,
        "--near-endpoint",
        near.publisher_endpoint,
    )
    return near.run_command("bridge", [sys.executable, str(EXAMPLE), *endpoints])


def test_the_bridge_subscribes_to_what_is_wanted_and_brings_it_also_after_its_death(
    service: Service, far: Service
) -> None:
    service.start_proxy()
    with service.open_subscriber("s") as subscriber, far.open_publisher("p") as publisher:
        subscriber.subscribe("news")
        subscriber.subscribe(match=glob("heat/*"))
        publisher.put("heat/1", b"before")
        bridge = start(service, far)
        eventually(lambda: bridge.stdout.count("bridged") >= 2, "bridged topics")
        publisher.put("news", b"one", key=b"k", headers={"a": "b"})
        publisher.put("other", b"nobody wants it")

        (first,) = subscriber.get("news", timeout_s=PATIENCE_S)
        assert (first.payload, first.key) == (b"one", b"k")
        assert first.headers == {"a": "b", "origin": "news 0"}

        bridge.kill()
        publisher.put("news", b"two")
        publisher.put("heat/1", b"warm")
        start(service, far)
        (second,) = subscriber.get("news", timeout_s=PATIENCE_S)
        if second.headers == first.headers:  # the bridge died before its acknowledgement
            (second,) = subscriber.get("news", timeout_s=PATIENCE_S)
        assert second.payload == b"two"
        assert b"warm" in [
            one.payload for one in subscriber.get(glob("heat/*"), timeout_s=PATIENCE_S)
        ]

        subscriber.unsubscribe("news")

        def given_back() -> bool:
            return not far.topic("news").subscriptions

        eventually(given_back, "unsubscription at the far broker")
    assert [topic.topic for topic in service.status().topics] == ["heat/1", "news"]
