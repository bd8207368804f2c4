"""Outages and pauses longer than a lease: what they may not change (rules R29 and R30)."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reliable_pubsub import Message, RetryPolicy, Subscriber, aio, glob

from .harness import PATIENCE_S, STUBBORN, Process, Service, eventually

LEASE_S = 1.0
OUTAGE_S = 2.5

# A worker that notes each message, with its delivery number, when it has it; poison kills it.
WORKER = """
import os, signal, sys
from reliable_pubsub import RetryPolicy, Subscriber

name, endpoint, seen, lease_s, bound = sys.argv[1:]
retry = RetryPolicy(timeout_s=0.5, retries_max=1000, pause_s=0.05, pause_s_max=0.3)
terms = {"lease_s": float(lease_s), "max_deliveries": int(bound) or None}
with Subscriber(name, endpoint=endpoint, retry=retry) as worker, open(seen, "a") as file:
    worker.subscribe("jobs", group="workers", **terms)
    print("ready", flush=True)
    for message in worker.messages("jobs"):
        print(message.payload.decode(), message.delivery_count, file=file, flush=True)
        if message.payload == b"poison":
            os.kill(os.getpid(), signal.SIGKILL)
"""


class Workers:
    """The members of a group, each in a process, and what their programs saw."""

    def __init__(self, service: Service, *, lease_s: float, bound: int) -> None:
        self.service = service
        self._terms = (str(lease_s), str(bound))
        self.processes: list[Process] = []
        service.start_proxy()

    def start(self, name: str) -> Process:
        seen = str(self.service.directory / f"{name}.seen")
        arguments = [name, self.service.subscriber_endpoint, seen, *self._terms]
        process = self.service.run_command(name, [sys.executable, "-c", WORKER, *arguments])
        eventually(lambda: process.stdout, f"subscription of {name}")
        self.processes.append(process)
        return process

    def seen(self) -> list[tuple[str, int]]:
        """Each payload that a program saw, with its delivery number."""
        lines = [
            line.split()
            for file in sorted(self.service.directory.glob("*.seen"))
            for line in file.read_text().splitlines()
        ]
        return [(payload, int(delivery)) for payload, delivery in lines]

    def judge(self, *payloads: str) -> None:
        """Each message came to a program, first as delivery 1, and none died unseen."""
        eventually(lambda: {one for one, _ in self.seen()} >= set(payloads), "every message")
        first = dict(sorted(self.seen(), reverse=True))
        assert first == dict.fromkeys(payloads, 1)
        topics = {one.topic for one in self.service.status().topics}
        dead = self.service.payloads("jobs.dead") if "jobs.dead" in topics else []
        assert {one.decode() for one in dead} <= {one for one, _ in self.seen()}


def pass_time(seconds: float) -> None:
    end_s = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= end_s, "end of the outage")


@pytest.mark.parametrize("bound", [0, 1, 3])
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_an_outage_longer_than_the_lease_delivers_nothing_that_no_program_saw(
    service: Service, how: str, bound: int
) -> None:
    workers = Workers(service, lease_s=LEASE_S, bound=bound)
    workers.start("w1")
    workers.start("w2")
    with service.open_publisher("p") as publisher:
        publisher.put("other", b"so that it is known")

        if how == "killed":
            service.proxy.kill()
            pass_time(OUTAGE_S)
            service.start_proxy()
        else:
            service.proxy.pause()
            pass_time(OUTAGE_S)
            service.proxy.signal(signal.SIGCONT)
        for number in range(3):
            publisher.put("jobs", b"%d" % number)

    workers.judge("0", "1", "2")


def test_a_message_that_was_granted_to_a_frozen_member_is_no_delivery(service: Service) -> None:
    workers = Workers(service, lease_s=LEASE_S, bound=1)
    frozen = workers.start("w1")
    frozen.pause()
    with service.open_publisher("p") as publisher:
        publisher.put("jobs", b"0")
    workers.start("w2")

    workers.judge("0")
    frozen.signal(signal.SIGCONT)

    with service.open_publisher("p") as publisher:
        publisher.put("jobs", b"1")
    workers.judge("0", "1")
    assert len(workers.seen()) == 2


def test_a_message_that_kills_its_members_still_dies(service: Service) -> None:
    workers = Workers(service, lease_s=LEASE_S, bound=2)
    workers.start("w1")
    with service.open_publisher("p") as publisher:
        publisher.put("jobs", b"poison")
        workers.start("w2")
        eventually(lambda: workers.seen() == [("poison", 1), ("poison", 2)], "two deaths")
        workers.start("w3")
        publisher.put("jobs", b"next")

        eventually(lambda: ("next", 1) in workers.seen(), "the message after it")
    eventually(lambda: service.payloads("jobs.dead") == [b"poison"], "dead letter")


@pytest.mark.parametrize("kind", ["topic", "pattern"])
def test_a_pause_of_the_proxy_ends_no_clean_session(service: Service, kind: str) -> None:
    service.start_proxy()
    topic = glob("*") if kind == "pattern" else "t"
    with (
        service.open_publisher("p") as publisher,
        service.open_subscriber("s") as subscriber,
        ThreadPoolExecutor(1) as another,
    ):
        publisher.put("t", b"before")
        what: dict[str, Any] = {"match": topic} if kind == "pattern" else {"topic": topic}
        subscriber.subscribe(**what, session="clean", lease_s=0.5)
        waiting = another.submit(subscriber.get, topic, timeout_s=PATIENCE_S)

        service.proxy.pause()
        pass_time(OUTAGE_S)
        service.proxy.signal(signal.SIGCONT)
        publisher.put("t", b"after")

        assert [one.payload for one in waiting.result()] == [b"after"]


class TestAMemberThatLeavesThroughAnException:
    """The lease is long: other members do not get in time what it does not give back."""

    def test_gives_its_messages_back_immediately(self, service: Service) -> None:
        service.start_proxy()
        with service.open_publisher("p") as publisher, service.open_subscriber("w2") as other:
            other.subscribe("jobs", group="workers", lease_s=600)
            publisher.put_many("jobs", [b"%d" % n for n in range(50)])
            with pytest.raises(ZeroDivisionError), service.open_subscriber("w1") as one:
                self.work(one)

            found = self.rest(other)

        assert found == {10: 2, **dict.fromkeys(range(11, 50), 1)}

    def work(self, member: Subscriber) -> None:
        member.subscribe("jobs", group="workers", lease_s=600)
        for message in member.messages("jobs"):
            _ = 1 / (10 - message.offset)

    def rest(self, member: Subscriber) -> dict[int, int]:
        """Offset and delivery number of all that is left."""
        found: list[Message] = []
        while more := member.get("jobs", max_messages=50, timeout_s=0 if found else PATIENCE_S):
            found += more
        return {one.offset: one.delivery_count for one in found}

    def test_so_does_one_that_is_awaited_and_cancelled(self, service: Service) -> None:
        service.start_proxy()

        async def work(started: asyncio.Event) -> None:
            async with aio.Subscriber("w1", endpoint=service.subscriber_endpoint) as one:
                await one.subscribe("jobs", group="workers", lease_s=600)
                async for message in one.messages("jobs"):
                    if message.offset == 10:
                        started.set()
                        await asyncio.Event().wait()

        async def cancel() -> None:
            started = asyncio.Event()
            task = asyncio.create_task(work(started))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        with service.open_publisher("p") as publisher, service.open_subscriber("w2") as other:
            other.subscribe("jobs", group="workers", lease_s=600)
            publisher.put_many("jobs", [b"%d" % n for n in range(50)])
            asyncio.run(cancel())

            assert self.rest(other) == {10: 2, **dict.fromkeys(range(11, 50), 1)}

    def test_while_the_proxy_is_unreachable_its_exception_comes_through(
        self, service: Service
    ) -> None:
        service.start_proxy()
        retry = RetryPolicy(timeout_s=0.2, retries_max=STUBBORN.retries_max)
        with service.open_publisher("p") as publisher:
            publisher.put("jobs", b"0")

        def work(member: Subscriber) -> None:
            member.subscribe("jobs", group="workers")
            service.proxy.kill()
            raise ZeroDivisionError

        with (
            pytest.raises(ZeroDivisionError),
            service.open_subscriber("w1", retry=retry) as one,
        ):
            work(one)
