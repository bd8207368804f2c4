"""A group against a plain subscription: batches of 1,000, and messages one by one."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

from reliable_pubsub import Earliest, Publisher, Subscriber

from .measuring import PAYLOAD, Proxy, Row, compared, proxy

BATCH = 1_000
MESSAGES = 200_000
IN_LOOP = 100_000
GOAL = 0.5
STEPS_PER_ROUND = 4


def group_rows(rounds: int, tick: Callable[[], None]) -> list[Row]:
    """Both, each round by a group and by a plain subscription, from the same topic."""
    batches: tuple[list[float], list[float]] = ([], [])
    loops: tuple[list[float], list[float]] = ([], [])
    with proxy() as running:
        with Publisher("bench", endpoint=running.publishers) as publisher:
            for _ in range(MESSAGES // BATCH):
                publisher.put_many("bench", [PAYLOAD] * BATCH)
        for number in range(rounds):
            for index, group in enumerate((f"g{number}", None)):
                batches[index].append(in_batches(running, f"s{number}-{index}", group))
                tick()
                loops[index].append(in_loop(running, f"l{number}-{index}", group))
                tick()
    return [
        compared(
            f"messages of a group, {BATCH:,} with each get",
            "1/s",
            *batches,
            "plain subscription",
            GOAL,
        ),
        compared(
            "messages of a group, one by one in a loop", "1/s", *loops, "plain subscription", GOAL
        ),
    ]


def in_batches(running: Proxy, client: str, group: str | None) -> float:
    """Messages a second of one subscriber, which keeps its state on disk."""
    with (
        tempfile.TemporaryDirectory() as state,
        Subscriber(client, endpoint=running.subscribers, state_dir=state) as subscriber,
    ):
        name = f"{group}-batches" if group else None
        subscriber.subscribe("bench", start=Earliest, group=name)
        left, begin_s = MESSAGES, time.perf_counter()
        while left:
            left -= len(subscriber.get("bench", max_messages=BATCH, timeout_s=10))
        return MESSAGES / (time.perf_counter() - begin_s)


def in_loop(running: Proxy, client: str, group: str | None) -> float:
    """The same, with a loop over messages."""
    with (
        tempfile.TemporaryDirectory() as state,
        Subscriber(client, endpoint=running.subscribers, state_dir=state) as subscriber,
    ):
        subscriber.subscribe("bench", start=Earliest, group=f"{group}-loop" if group else None)
        begin_s = time.perf_counter()
        for count, _ in enumerate(subscriber.messages("bench", timeout_s=10), start=1):
            if count == IN_LOOP:
                break
        return IN_LOOP / (time.perf_counter() - begin_s)
