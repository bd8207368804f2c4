"""`examples/service.py`, a FastAPI service: real requests, real kills."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from .harness import PATIENCE_S, REPOSITORY, Process, Service, children, eventually

pytestmark = pytest.mark.slow


class Web:
    """The service in a process of its own, at a port that stays its own."""

    def __init__(self, service: Service, workers: int = 1) -> None:
        self.service, self.workers = service, workers
        self.port = service.own_endpoint().rsplit(":", 1)[1]
        self.process = self.start()

    def start(self) -> Process:
        """Start it, and wait until it answers."""
        settings = {
            "RELIABLE_PUBSUB_PUBLISHER_ENDPOINT": self.service.publisher_endpoint,
            "RELIABLE_PUBSUB_SUBSCRIBER_ENDPOINT": self.service.subscriber_endpoint,
            "RELIABLE_PUBSUB_ACK_TIMEOUT": "0.5",
            "SERVICE_DIR": str(self.service.directory / "web"),
            "PYTHONPATH": str(REPOSITORY),
        }
        self.process = self.service.run_command(
            "web",
            [
                "env", *(f"{name}={value}" for name, value in settings.items()),
                sys.executable, "-m", "uvicorn", "examples.service:app", "--port", self.port,
                "--log-level", "warning", "--workers", str(self.workers),
            ],
        )  # fmt: skip
        eventually(lambda: self.ask("GET", "health")[0] in (200, 503), "answer")
        return self.process

    def ask(self, method: str, path: str) -> tuple[int, Any]:
        """The status and the answer; 0: no answer."""
        url = f"http://127.0.0.1:{self.port}/{path}"
        try:
            request = urllib.request.Request(url, method=method)
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except (OSError, HTTPException):
            return 0, None

    def put(self, number: str) -> bool:
        """Whether an order was accepted."""
        return self.ask("POST", f"orders/{number}")[0] == 201


def command_of(pid: int) -> bytes:
    """The command line of a process."""
    return Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.fixture
def web(service: Service) -> Web:
    service.start_proxy()
    return Web(service)


def test_handles_each_accepted_order_once_although_service_and_proxy_are_killed(web: Web) -> None:
    accepted = []
    for number in range(12):
        if number == 4:
            web.process.kill()
            web.start()
        if number == 8:
            web.service.restart_proxy()
        if web.put(str(number)):
            accepted.append(str(number))
    web.process.kill()
    web.start()

    assert accepted[-1] == "11"
    eventually(lambda: set(accepted) <= set(web.ask("GET", "orders")[1] or ()), "orders")
    handled = web.ask("GET", "orders")[1]
    assert len(handled) == len(set(handled))
    assert web.process.terminate() == -signal.SIGTERM  # uvicorn ends itself by it, when all is done


def test_two_workers_accept_and_handle_each_order_once_although_one_is_killed(
    service: Service,
) -> None:
    service.start_proxy()
    web = Web(service, workers=2)
    accepted = [str(number) for number in range(10) if web.put(str(number))]
    workers = [one for one in children(web.process.pid) if b"spawn_main" in command_of(one)]
    os.kill(workers[0], signal.SIGKILL)
    accepted += [str(number) for number in range(10, 40) if web.put(str(number))]

    assert len(accepted) >= 38  # those that the killed worker held have no answer
    eventually(lambda: set(accepted) <= set(web.ask("GET", "orders")[1] or ()), "orders")
    handled = web.ask("GET", "orders")[1]
    assert len(handled) == len(set(handled))
    web.process.terminate()


def test_its_health_says_whether_the_proxy_answers(web: Web) -> None:
    eventually(
        lambda: web.ask("GET", "health") == (200, {"proxy": True, "handling": True}), "health"
    )
    web.service.proxy.kill()
    assert web.ask("GET", "health") == (503, {"proxy": False, "handling": True})
    web.service.start_proxy()
    eventually(lambda: web.ask("GET", "health")[0] == 200, "health")
    assert web.process.terminate() == -signal.SIGTERM  # uvicorn ends itself by it, when all is done
