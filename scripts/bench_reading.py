"""A group against a plain subscription, and a pattern over 1,000 topics against one topic."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

from reliable_pubsub import Earliest, Publisher, Subscriber, glob
from reliable_pubsub.common.core.pattern import Topics

from .measuring import PAYLOAD, Proxy, Row, compared, fill, proxy

BATCH = 1_000
MESSAGES = 200_000
IN_LOOP = 100_000
GOAL = 0.5
TOPICS = 1_000
TOPIC_BATCH = 100
PATTERN = glob("sensor/*/heat")


def group_rows(rounds: int) -> list[Row]:
    """Each round by a group and by a plain subscription: in batches, and one by one in a loop."""
    batches: tuple[list[float], list[float]] = ([], [])
    loops: tuple[list[float], list[float]] = ([], [])
    with proxy() as running:
        fill(running, MESSAGES, BATCH)
        for number in range(rounds):
            for index, group in enumerate((f"g{number}", None)):
                batches[index].append(in_batches(running, f"s{number}-{index}", group))
                named = group and f"{group}-loop"
                loops[index].append(in_loop(running, f"l{number}-{index}", "bench", named))
    against = "plain subscription"
    work = f"messages of a group, {BATCH:,} with each get"
    in_a_loop = "messages of a group, one by one in a loop"
    return [
        compared(work, "1/s", *batches, against, GOAL),
        compared(in_a_loop, "1/s", *loops, against, GOAL),
    ]


def pattern_rows(rounds: int) -> list[Row]:
    """Each round by a pattern and by one topic with as many messages, in a loop."""
    rates: tuple[list[float], list[float]] = ([], [])
    with proxy() as running:
        fill(running, IN_LOOP, TOPIC_BATCH)
        with Publisher("bench", endpoint=running.publishers) as publisher:
            for number in range(IN_LOOP // TOPIC_BATCH):
                publisher.put_many(f"sensor/{number % TOPICS}/heat", [PAYLOAD] * TOPIC_BATCH)
        of_both: tuple[Topics, Topics] = (PATTERN, "bench")
        for number in range(rounds):
            for index, topics in enumerate(of_both):
                rates[index].append(in_loop(running, f"s{number}-{index}", topics))
    what = f"messages of {TOPICS:,} topics by a pattern, in a loop"
    return [compared(what, "1/s", *rates, "one topic", GOAL)]


@contextmanager
def on_disk(running: Proxy, client: str) -> Iterator[Subscriber]:
    """A subscriber that keeps its state on disk."""
    with (
        tempfile.TemporaryDirectory() as state,
        Subscriber(client, endpoint=running.subscribers, state_dir=state) as subscriber,
    ):
        yield subscriber


def in_batches(running: Proxy, client: str, group: str | None) -> float:
    """Messages a second of one subscriber."""
    with on_disk(running, client) as subscriber:
        subscriber.subscribe("bench", start=Earliest, group=group)
        left, begin_s = MESSAGES, time.perf_counter()
        while left:
            left -= len(subscriber.get("bench", max_messages=BATCH, timeout_s=10))
        return MESSAGES / (time.perf_counter() - begin_s)


def in_loop(running: Proxy, client: str, topics: Topics, group: str | None = None) -> float:
    """The same, with a loop over messages."""
    with on_disk(running, client) as subscriber:
        if isinstance(topics, str):
            subscriber.subscribe(topics, start=Earliest, group=group)
        else:
            subscriber.subscribe(match=topics, start=Earliest)
        begin_s = time.perf_counter()
        for count, _ in enumerate(subscriber.messages(topics, timeout_s=10), start=1):
            if count == IN_LOOP:
                break
        return IN_LOOP / (time.perf_counter() - begin_s)
