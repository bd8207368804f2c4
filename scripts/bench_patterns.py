"""A pattern over 1,000 topics against one topic with as many messages."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable

from reliable_pubsub import Earliest, Publisher, Subscriber, glob
from reliable_pubsub.common.core.pattern import Topics

from .measuring import PAYLOAD, Proxy, Row, compared, proxy

TOPICS = 1_000
MESSAGES = 100_000
BATCH = 100
GOAL = 0.5
STEPS_PER_ROUND = 2
PATTERN = glob("sensor/*/heat")


def pattern_rows(rounds: int, tick: Callable[[], None]) -> list[Row]:
    """Both, each round from the same log: a loop over messages, its state on disk."""
    rates: tuple[list[float], list[float]] = ([], [])
    with proxy() as running:
        with Publisher("bench", endpoint=running.publishers) as publisher:
            for number in range(MESSAGES // BATCH):
                publisher.put_many("bench", [PAYLOAD] * BATCH)
                publisher.put_many(f"sensor/{number % TOPICS}/heat", [PAYLOAD] * BATCH)
        for number in range(rounds):
            of_both: tuple[Topics, Topics] = (PATTERN, "bench")
            for index, topics in enumerate(of_both):
                rates[index].append(in_loop(running, f"s{number}-{index}", topics))
                tick()
    what = f"messages of {TOPICS:,} topics by a pattern, in a loop"
    return [compared(what, "1/s", *rates, "one topic", GOAL)]


def in_loop(running: Proxy, client: str, topics: Topics) -> float:
    """Messages a second of one subscriber."""
    with (
        tempfile.TemporaryDirectory() as state,
        Subscriber(client, endpoint=running.subscribers, state_dir=state) as subscriber,
    ):
        if isinstance(topics, str):
            subscriber.subscribe(topics, start=Earliest)
        else:
            subscriber.subscribe(match=topics, start=Earliest)
        begin_s = time.perf_counter()
        for count, _ in enumerate(subscriber.messages(topics, timeout_s=10), start=1):
            if count == MESSAGES:
                break
        return MESSAGES / (time.perf_counter() - begin_s)
