"""PostgreSQL beside SQLite: puts, a takeover, a restart.

Both proxies run at durability `sync` and are measured in turn; the database server is one of its
own, on the same disk, with its default settings.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from math import ceil
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.batch import Batch, crc32
from reliable_pubsub.common.core.wire import encode_batch
from reliable_pubsub.lab.rig.child_process import ChildProcess, proxy_command
from reliable_pubsub.lab.rig.postgres_server import PostgresServer
from reliable_pubsub.proxy.core.records import Appended, Granted, TopicCreated
from reliable_pubsub.proxy.postgres_store import PostgresStore
from reliable_pubsub.proxy.store import Store

from .cpu_costs import cpu_ns
from .measuring import PAYLOAD, Proxy, Row, Worker, compared, folder
from .peer_stations import Sending

SECONDS: Final = 2.0  # of each measurement
CLIENTS: Final = 64
TAKEOVERS: Final = 4  # of a round
RECORDS: Final = 4096  # of a commit, while a large log is made
_MOST: Final = 1_000_000
_SINGLE: Final = f"single puts of {CLIENTS} clients"


class _Side(Struct, frozen=True):
    """A proxy on one of the stores, and what was measured there, by work."""

    proxy: Proxy
    sending: Worker
    per_s: dict[str, list[float]]
    cpu_us: dict[str, list[float]]  # of the proxy, for each message


@contextmanager
def database() -> Iterator[PostgresServer]:
    """A server that ends with the block."""
    with closing(PostgresServer()) as server:
        yield server


def store_rows(rounds: int, stored: int) -> list[Row]:
    """All of it.

    Args:
        stored: messages of the log with which a proxy starts.
    """
    return [
        *put_rows(rounds),
        takeover_row(rounds * TAKEOVERS),
        *(restart_row(store, stored) for store in ("PostgreSQL", "SQLite")),
    ]


# Puts.


def put_rows(rounds: int) -> list[Row]:
    """Messages a second, and CPU of the proxy."""
    goals = {"in batches of 100": 0.4, "in batches of 1000": 0.4, _SINGLE: 0.5}
    with ExitStack() as stack:
        server = stack.enter_context(database())
        sides = [_started(stack, "--store", server.dsn()), _started(stack)]
        for _ in range(rounds):
            for side in sides:
                _measure(side)
    ours, bare = sides
    rows = []
    for work, goal in goals.items():
        per_s = (ours.per_s[work], bare.per_s[work])
        rows.append(compared(f"messages {work}", "/s", *per_s, "SQLite", at_least=goal))
        cpu_us = (ours.cpu_us[work], bare.cpu_us[work])
        rows.append(compared(f"messages {work}, CPU of the proxy", "us", *cpu_us, "SQLite"))
    return rows


def _started(stack: ExitStack, *options: str) -> _Side:
    running = Proxy(stack.enter_context(folder()) / "data", *options)
    stack.callback(running.close)
    sending = stack.enter_context(Worker(Sending, "ours", running.publishers))
    return _Side(running, sending, {}, {})


def _measure(side: _Side) -> None:
    def used(work: str, call: Callable[[], tuple[float, int]]) -> None:
        before_ns = cpu_ns(side.proxy.pid)
        per_s, messages = call()
        used_ns = cpu_ns(side.proxy.pid) - before_ns
        side.per_s.setdefault(work, []).append(per_s)
        side.cpu_us.setdefault(work, []).append(1e-3 * used_ns / messages)

    def batches(size: int) -> tuple[float, int]:
        begin_s, end_s, sent = side.sending.call("puts", "batches", SECONDS, size, _MOST)
        return sent / (end_s - begin_s), sent

    def singles() -> tuple[float, int]:
        per_s, _, sent = side.sending.call("crowd", "singles", SECONDS, CLIENTS)
        return per_s, sum(sent.values())

    used("in batches of 100", lambda: batches(100))
    used("in batches of 1000", lambda: batches(1000))
    used(_SINGLE, singles)


# A takeover.


def takeover_row(times: int) -> Row:
    """From a kill -9 of the proxy that serves until the other one is ready."""
    taken_s = []
    with ExitStack() as stack:
        server, directory = stack.enter_context(database()), stack.enter_context(folder())

        def started(number: int) -> ChildProcess:
            command = proxy_command(directory / str(number), "--store", server.dsn())
            return stack.enter_context(ChildProcess(command, directory / f"{number}.log"))

        serving = started(0)
        serving.ready()
        for number in range(1, times + 1):
            standby = started(number)
            standby.standing_by()
            begun_s = time.perf_counter()
            serving.kill()
            standby.ready()
            taken_s.append(time.perf_counter() - begun_s)
            serving = standby
    return Row(
        work=f"takeover after kill -9, p99 of {times}",
        ours=sorted(taken_s)[ceil(0.99 * times) - 1],
        unit="s",
        bare=statistics.median(taken_s),
        against="median",
        at_most=5.0,
    )


# A restart.


def restart_row(store: str, messages: int) -> Row:
    """Until a proxy is ready with a log of messages that were put one by one."""
    with ExitStack() as stack:
        data = stack.enter_context(folder()) / "data"
        options: Sequence[str] = ()
        if store == "PostgreSQL":
            server = stack.enter_context(database())
            options = ("--store", server.dsn())
            with closing(PostgresStore(server.dsn(), "os")) as made:
                _fill(made, messages)
        else:
            with closing(Store(data, "os")) as file:
                _fill(file, messages)
        times = []
        for _ in range(3):
            running = Proxy(data, *options)
            times.append(running.ready_s)
            running.close()
    return Row(
        work=f"restart on {store} with {messages:,} single messages: ready after",
        ours=statistics.median(times),
        unit="s",
        at_most=5.0 if store == "PostgreSQL" else None,
    )


def _fill(store: Store | PostgresStore, messages: int) -> None:
    """One publisher has put messages one by one."""
    store.commit([Granted("publisher", "p", 1, b"n" * 16), TopicCreated(1, "bench", "log")])
    body = encode_batch(Batch([PAYLOAD]))
    one = Appended(1, 0, 1, "p", 1, 1, time.time_ns(), crc32(body), body)
    for first in range(0, messages, RECORDS):
        numbers = range(first, min(first + RECORDS, messages))
        store.commit(
            [
                replace(one, base=n, first_sequence=n + 1, timestamp_ns=one.timestamp_ns + n)
                for n in numbers
            ]
        )
