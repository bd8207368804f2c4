"""`scripts/bench scale`: what a put and a get cost with more topics, subscriptions and messages.

The cost is CPU of proxy and client together, in proxies of several sizes that take turns: it must
be flat within 1.3.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from reliable_pubsub import Publisher, Subscriber
from reliable_pubsub.common.core.limits import GIB

from .cpu_costs import cpu_ns
from .measuring import PAYLOAD, Proxy, Row, Worker, compared, fill, folder, proxy

FLAT: Final = 1.3
PAIRS: Final = 100  # puts and gets of a pass
PER_TRANSACTION: Final = 200  # topics
PER_CLIENT: Final = 100  # leased subscriptions
LEASE_S: Final = 86_400.0
BATCH: Final = 1_000
HISTORY_BATCH: Final = 9_000
HOT: Final = "hot"  # the topic that is measured
LARGE: Final = (
    "topics_max: 20000\nclients_max: 20000\nsubscriptions_per_topic_max: 2000\n"
    f"history_bytes: {8 * GIB}\ntopic_bytes_max: {8 * GIB}\n"
)
FILLED: Final = 500_000  # messages that fill the cache
RESTARTED: Final = 1_000_000  # messages


class Client:
    """A process with a publisher and a subscriber."""

    def __init__(self, publishers: str, subscribers: str) -> None:
        self._endpoint = subscribers
        self._publisher = Publisher("scale", endpoint=publishers)
        self._subscriber = Subscriber("scale", endpoint=subscribers)
        self._measured: list[str] = []

    def close(self) -> None:
        self._publisher.close()
        self._subscriber.close()

    def _measure(self, topics: Sequence[str]) -> None:
        self._measured = list(topics)
        for topic in topics:
            self._subscriber.subscribe(topic)

    def topics(self, count: int) -> None:
        """Make topics; some of them are measured."""
        names = [f"topic-{number}" for number in range(count)]
        for first in range(0, count, PER_TRANSACTION):
            with self._publisher.transaction() as transaction:
                for name in names[first : first + PER_TRANSACTION]:
                    transaction.put(name, PAYLOAD)
        self._measure(names[:: max(count // PAIRS, 1)])

    def subscriptions(self, count: int) -> None:
        """Make subscriptions of one topic, by clients of their own."""
        for number in range(count - 1):
            with Subscriber(f"other-{number}", endpoint=self._endpoint) as other:
                other.subscribe(HOT)
        self._measure([HOT])

    def leases(self, count: int) -> None:
        """Make leased subscriptions, of other topics than the one that is measured."""
        for client in range(-(-count // PER_CLIENT)):
            with Subscriber(f"leased-{client}", endpoint=self._endpoint) as other:
                for topic in range(min(PER_CLIENT, count - client * PER_CLIENT)):
                    other.subscribe(f"topic-{topic}", lease_s=LEASE_S)
        self._measure([HOT])

    def messages(self, count: int) -> None:
        """Store messages, which a subscription keeps."""
        with Subscriber("keeps", endpoint=self._endpoint) as keeper:
            keeper.subscribe(HOT)
        for _ in range(count // BATCH):
            self._publisher.put_many(HOT, [PAYLOAD] * BATCH)
        self._measure([HOT])

    def put_and_get(self, pairs: int) -> None:
        """Put and get, one message at a time, on all measured topics in turn."""
        for number in range(pairs):
            topic = self._measured[number % len(self._measured)]
            self._publisher.put(topic, PAYLOAD)
            while not self._subscriber.get(topic, timeout_s=10.0):
                pass

    def pass_through(self, messages: int) -> None:
        """Put messages through a stream, with the subscriber keeping up."""
        self._subscriber.subscribe(HOT)
        received = 0
        with self._publisher.stream() as stream:
            for number in range(1, messages + 1):
                stream.put(HOT, PAYLOAD)
                if number % BATCH == 0:
                    received += len(self._subscriber.get(HOT, max_messages=BATCH))
        while received < messages:
            received += len(self._subscriber.get(HOT, max_messages=BATCH, timeout_s=10.0))


class Side:
    """A proxy of one size, with its client."""

    def __init__(self, stack: ExitStack, kind: str, size: int) -> None:
        """Start both, and make the topics, subscriptions and messages of this size."""
        running = self._proxy = stack.enter_context(proxy(LARGE))
        self._client = stack.enter_context(Worker(Client, running.publishers, running.subscribers))
        self._client.call(kind, size)
        self._client.call("put_and_get", PAIRS)  # warm

    def cost_us(self) -> float:
        """CPU of one put and one get, proxy and client."""
        pids = (self._proxy.pid, self._client.pid)
        before = sum(cpu_ns(pid) for pid in pids)
        self._client.call("put_and_get", PAIRS)
        return (sum(cpu_ns(pid) for pid in pids) - before) / PAIRS / 1e3


def flat(kind: str, sizes: Sequence[int], passes: int) -> list[Row]:
    """A row for each size but the first, with which they are compared."""
    costs: list[list[float]] = [[] for _ in sizes]
    with ExitStack() as stack:
        sides = []
        for size in sizes:
            sides.append(Side(stack, kind, size))
        for _ in range(passes):
            for side, found in zip(sides, costs, strict=True):
                found.append(side.cost_us())
    unit, against = "us of CPU", f"{sizes[0]:,}"
    return [
        compared(f"put and get with {size:,} {kind}", unit, found, costs[0], against, at_most=FLAT)
        for size, found in zip(sizes[1:], costs[1:], strict=True)
    ]


def memory(messages: int) -> Row:
    """Resident memory while messages pass through `stream()`.

    It is compared with that when the cache of newest bodies is full, after half a million.
    """
    sizes_mib = []
    with proxy() as running, Worker(Client, running.publishers, running.subscribers) as client:
        for part in (min(messages // 2, FILLED), messages):
            client.begin("pass_through", part)
            client.result(timeout_s=7200.0)
            sizes_mib.append(running.resident_mib())
    return Row(
        work=f"resident memory after {messages:,} messages through stream()",
        ours=sizes_mib[1],
        unit="MiB",
        bare=sizes_mib[0],
        against="before them",
        ratio=sizes_mib[1] / sizes_mib[0],
        at_most=1.2,
    )


def history(stored_bytes: int) -> Row:
    """Highest memory while a long history is written, and read back from the disk."""
    count = -(-stored_bytes // len(PAYLOAD))
    with proxy(f"history_bytes: {3 * GIB}\n") as running:
        fill(running, count, HISTORY_BATCH)
        read = 0
        with Subscriber("bench-reader", endpoint=running.subscribers) as reader:
            while messages := reader.history("bench", read, max_messages=HISTORY_BATCH):
                read += len(messages)
        assert read == count
        highest = running.resident_mib("VmHWM")
    return Row(
        work=f"highest resident memory with {stored_bytes / GIB:.1f} GiB of history, all read",
        ours=highest,
        unit="MiB",
        at_most=200,
    )


def restart(messages: int) -> Row:
    """How long a proxy with many messages needs until it is ready, store check included."""
    times = []
    with folder() as directory:
        running = Proxy(directory)
        fill(running, messages, 100)
        running.process.kill()  # the log of SQLite is not tidied up: the harder case
        running.close()
        for _ in range(3):
            running = Proxy(directory)
            times.append(running.ready_s)
            running.close()
    return Row(
        work=f"restart with {messages:,} messages in batches of 100: ready after",
        ours=statistics.median(times),
        unit="s",
        at_most=2.0,
    )


def scale_rows(rounds: int, stored: int, streamed: int, share: float) -> list[Row]:
    """All of it.

    Args:
        stored: messages of the largest store.
        streamed: messages that pass through a stream.
        share: of the usual sizes, for tests.
    """

    def sized(size: int) -> int:
        return max(int(size * share), 2)

    passes = 3 * rounds
    rows = flat("topics", [1, sized(100), sized(10_000)], passes)
    rows += flat("subscriptions", [1, sized(1_000)], passes)
    rows += flat("leases", [1, sized(10_000)], passes)
    rows += flat("messages", [BATCH, max(int(stored * share), BATCH)], passes)
    rows.append(memory(max(int(streamed * share), 10 * BATCH)))
    rows.append(history(int(GIB * share)))
    rows.append(restart(max(int(RESTARTED * share), 100)))
    return rows
