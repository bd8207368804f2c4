"""`stop` and time limits with real processes: a proxy that is killed, SIGTERM, threads, asyncio."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from reliable_pubsub import InDoubtError, Publisher, Subscriber, aio
from tests.integration.harness import PATIENCE_S, Service, eventually

WORKER = """
import signal, sys
from reliable_pubsub import Subscriber

endpoint, state_dir = sys.argv[1:]
with Subscriber("worker", endpoint=endpoint, state_dir=state_dir or None) as worker:
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.on("jobs", print, group="workers")
    print("ready", flush=True)
    worker.run()
sys.exit(7)
"""


@pytest.fixture
def dead(service: Service) -> Service:
    """A service whose proxy has been killed after a subscription was made."""
    service.start_proxy()
    with Subscriber("s", endpoint=service.subscriber_endpoint, state_dir=service.state_dir) as one:
        one.subscribe("t")
    service.proxy.kill()
    return service


@pytest.mark.parametrize("remembers", [True, False], ids=["with state_dir", "in memory"])
def test_a_worker_that_gets_sigterm_without_a_proxy_ends_with_its_own_exit_code(
    dead: Service, tmp_path: Path, remembers: bool
) -> None:
    state_dir = str(tmp_path / "worker") if remembers else ""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, dead.subscriber_endpoint, state_dir],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    assert worker.stderr is not None
    assert "no answer from" in worker.stderr.readline()

    worker.send_signal(signal.SIGTERM)
    _, complaint = worker.communicate(timeout=PATIENCE_S)

    assert worker.returncode == 7
    assert "Traceback" not in complaint


def test_a_loop_in_another_thread_ends(dead: Service) -> None:
    with Subscriber("s", endpoint=dead.subscriber_endpoint, state_dir=dead.state_dir) as subscriber:
        thread = threading.Thread(target=lambda: list(subscriber.messages("t")))
        thread.start()
        subscriber.stop()
        thread.join(PATIENCE_S)

        assert not thread.is_alive()


def test_run_and_loop_of_asyncio_end(dead: Service) -> None:
    async def program() -> None:
        async with aio.Subscriber("s", endpoint=dead.subscriber_endpoint) as subscriber:
            subscriber.on("t", print, group="g")
            running = asyncio.create_task(subscriber.run())
            await asyncio.sleep(0)
            subscriber.stop()
            await asyncio.wait_for(running, PATIENCE_S)

    asyncio.run(program())


def test_a_put_that_waits_for_the_turn_of_another_has_its_own_time(dead: Service) -> None:
    with Publisher("p", endpoint=dead.publisher_endpoint) as publisher:
        put = {"timeout_s": PATIENCE_S}
        patient = threading.Thread(target=publisher.put, args=["t", b"x"], kwargs=put)
        patient.start()
        eventually(lambda: publisher._gate._turns, "turn of the patient put")

        _put_in_vain(publisher, 0.5)

        assert patient.is_alive()
        dead.start_proxy()
        patient.join(PATIENCE_S)
        assert not patient.is_alive()


def test_tasks_that_put_have_each_their_own_time(dead: Service) -> None:
    async def put(publisher: aio.Publisher, timeout_s: float) -> bool:
        try:
            await publisher.put("t", b"x", timeout_s=timeout_s)
        except InDoubtError as error:
            return error.timeout_s == timeout_s
        return False

    async def program() -> list[bool]:
        async with aio.Publisher("p", endpoint=dead.publisher_endpoint) as publisher:
            return await asyncio.gather(*(put(publisher, 0.1 * n) for n in (5, 1, 2)))

    assert asyncio.run(program()) == [True, True, True]


def _put_in_vain(publisher: Publisher, timeout_s: float) -> None:
    with pytest.raises(InDoubtError) as error:
        publisher.put("t", b"x", timeout_s=timeout_s)
    assert error.value.timeout_s == timeout_s


def test_a_loop_resumes_when_the_proxy_is_back(dead: Service) -> None:
    found: list[bytes] = []
    with Subscriber("s", endpoint=dead.subscriber_endpoint, state_dir=dead.state_dir) as subscriber:

        def take() -> None:
            for message in subscriber.messages("t"):
                found.append(message.payload)
                subscriber.stop()

        thread = threading.Thread(target=take)
        thread.start()
        dead.start_proxy()
        with dead.open_publisher("p") as publisher:
            publisher.put("t", b"back")
        thread.join(PATIENCE_S)

    assert found == [b"back"]
