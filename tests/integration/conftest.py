"""Fixtures of the tests with real processes."""

from __future__ import annotations

import os
import random
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
import zmq

from reliable_pubsub.proxy.server import Server
from reliable_pubsub.proxy.server_settings import EndpointSettings, ServerSettings

from .gated_store import GatedStore
from .harness import ANY_PORT, PATIENCE_S, Service, zmq_context

SEED_VARIABLE = "TEST_SEED"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A service in an empty directory; nothing runs yet, and nothing will be left."""
    with Service(tmp_path) as service:
        yield service


@pytest.fixture
def running(service: Service) -> Service:
    """A service whose proxy runs."""
    service.start_proxy()
    return service


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq_context() as context:
        yield context


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Chance with a seed that a failing test shows, and that can be given again."""
    seed = int(os.environ.get(SEED_VARIABLE) or secrets.randbits(32))
    request.node.add_report_section("call", "seed", f"the same moments: {SEED_VARIABLE}={seed}")
    return random.Random(seed)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> GatedStore:
    return GatedStore(monkeypatch)


@pytest.fixture
def server(store: GatedStore, tmp_path: Path, service: Service) -> Iterator[None]:
    """A proxy in a thread of this process."""
    settings = ServerSettings(
        data_dir=tmp_path / "data",
        publisher_endpoint=ANY_PORT,
        subscriber_endpoint=ANY_PORT,
        push=EndpointSettings(endpoint=ANY_PORT),
        ingress=EndpointSettings(endpoint=ANY_PORT),
    )
    opened: SimpleQueue[Server] = SimpleQueue()

    def run() -> None:
        server = Server(settings, warn=store.warnings.append)
        opened.put(server)
        server.run()

    thread = threading.Thread(target=run)
    thread.start()
    server = opened.get(timeout=PATIENCE_S)
    service.publisher_endpoint, service.subscriber_endpoint = (
        d.endpoint for d in server.endpoints.doors
    )
    yield
    store.gate.set()
    server.stop()
    thread.join()
