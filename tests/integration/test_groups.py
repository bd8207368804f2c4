"""A group against a real proxy: members and proxy are killed, and every message ends once."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from reliable_pubsub import Message, UsageError, aio

from .harness import PATIENCE_S, Process, Service, eventually

MESSAGES = 120

# A worker that notes each message when it is done, in a loop or in a handler.
WORKER = """
import signal, sys
from reliable_pubsub import Subscriber

signal.signal(signal.SIGTERM, lambda *_: sys.exit())
name, endpoint, journal, done, way = sys.argv[1:]
with Subscriber(name, endpoint=endpoint, journal=journal) as worker, open(done, "a") as file:
    worker.subscribe("jobs", group="workers", lease_s=1.0)
    print("ready", flush=True)
    def work(message):
        print(message.offset, message.delivery_count, file=file, flush=True)
    if way == "handler":
        worker.on("jobs", work, group="workers")
        worker.run(timeout_s=3600)
    else:
        for message in worker.messages("jobs", timeout_s=3600):
            work(message)
"""


def a_worker(service: Service, folder: Path, name: str, way: str) -> Process:
    journal = str(folder / f"{name}.jsonl")
    done = str(service.directory / f"{name}.done")
    arguments = [name, service.subscriber_endpoint, journal, done, way]
    return service.run_command(name, [sys.executable, "-c", WORKER, *arguments])


def test_each_message_of_a_group_ends_once_whichever_process_is_killed(
    service: Service, chance: random.Random
) -> None:
    folder = service.directory / "journals"
    folder.mkdir()
    service.start_proxy("--journal", folder / "proxy.jsonl")
    with service.open_subscriber("first") as member:
        member.subscribe("jobs", group="workers", lease_s=1.0)
    ways = {"w1": "handler", "w2": "loop", "w3": "handler"}
    workers = {name: a_worker(service, folder, name, way) for name, way in ways.items()}
    with service.open_publisher("p", journal=folder / "p.jsonl") as publisher:
        for first in range(0, MESSAGES, 6):
            publisher.put_many("jobs", [b"%d" % n for n in range(first, first + 6)])
            if first == 36:
                workers["w1"].kill()
            elif first == 72:
                service.restart_proxy()
            elif first == 96:
                workers["w4"] = a_worker(service, folder, "w4", "loop")

    def ended() -> tuple[int, int, int]:
        (group,) = service.topic("jobs").groups or ()
        return (group.cursor, group.held, group.waiting)

    eventually(lambda: ended() == (MESSAGES, 0, 0), "end of every message")
    for name in ("w2", "w3", "w4"):
        eventually(lambda n=name: workers[n].stdout, f"subscription of {name}")  # type: ignore[misc]
        assert workers[name].terminate() == 0, workers[name].stderr
    done: defaultdict[int, list[int]] = defaultdict(list)
    for name in workers:
        file = service.directory / f"{name}.done"
        lines = file.read_text().splitlines() if file.exists() else []
        for offset, delivery in (map(int, line.split()) for line in lines):
            assert delivery not in done[offset], "a repeat is marked"  # whichever worker was first
            done[offset].append(delivery)
    assert sorted(done) == list(range(MESSAGES))
    check = service.run("", "lab", "check", folder)
    assert check.wait() == 0, check.stdout


def test_members_may_await(service: Service) -> None:
    """The asyncio client is a shell of the same engine."""
    service.start_proxy()

    async def work() -> list[list[bytes]]:
        at = service.subscriber_endpoint
        async with (
            aio.Subscriber("w1", endpoint=at) as one,
            aio.Subscriber("w2", endpoint=at) as other,
            aio.Publisher("p", endpoint=service.publisher_endpoint) as publisher,
        ):
            for member in (one, other):
                await member.subscribe("jobs", group="workers", lease_s=30)
            await publisher.put_many("jobs", [b"a", b"b", b"c"])
            (message,) = await one.get("jobs", timeout_s=PATIENCE_S)
            rest = [m.payload async for m in other.messages("jobs", timeout_s=0)]
            with pytest.raises(UsageError, match="delay_s"):  # so it stays in hand
                await one.nack(message, delay_s=-1)
            (message,) = await one.get("jobs", timeout_s=PATIENCE_S)
            await one.nack(message)
            handled = []

            async def handle(message: Message) -> None:
                await other.extend(message)
                handled.append(message.payload)
                if message.delivery_count == 3:
                    raise ValueError("not this time")
                other.stop()

            other.on("jobs", handle, group="workers", pause_s=0)
            await other.run(timeout_s=PATIENCE_S)
            return [rest, handled]

    assert asyncio.run(work()) == [[b"b", b"c"], [b"a", b"a"]]
    (group,) = service.topic("jobs").groups or ()
    assert (group.cursor, group.members) == (3, 0)
