"""`scripts/bench operating`: what watching costs a put, and how long a clean stop takes.

Scrapes come ten times a second, far more often than any Prometheus asks, from a process of their
own, while one client puts; rounds with and without them take turns at the same proxy. It holds
10,000 subscriptions, all of which lag, so that a survey has the most work that it can have.
"""

from __future__ import annotations

import os
import resource
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final
from urllib.request import urlopen

import zmq

from reliable_pubsub import Subscriber
from reliable_pubsub.common.core.status import Status
from reliable_pubsub.common.core.wire import encode
from reliable_pubsub.proxy.stored_state import FILE_NAME

from .cpu_costs import cpu_ns
from .measuring import (
    ANSWER_S,
    PAYLOAD,
    Proxy,
    Putting,
    Row,
    Worker,
    compared,
    fill,
    folder,
    percentiles,
    proxy,
)

TOPICS: Final = 100
SUBSCRIBERS: Final = 100
PUTS: Final = 2_000  # of a round
SCRAPES_PER_S: Final = 10
IDLE_S: Final = 5.0
STORED: Final = 5_000  # requests that are stored
BATCH: Final = 100  # messages
CONNECTIONS: Final = 10_000
PER_PROCESS: Final = 2_500  # connections
TOGETHER: Final = 50  # of them that are made at once
AGAIN_S: Final = 5.0
STOP_S_MAX: Final = 2.0


class PuttingBesideLag(Putting):
    """A process that puts, and makes the subscriptions that lag."""

    def __init__(self, publishers: str, subscribers: str) -> None:
        super().__init__("bench", publishers, "hot")
        self._subscribers = subscribers

    def subscribe(self, number: int) -> None:
        """Make the subscriptions of one subscriber."""
        with Subscriber(f"lagging-{number}", endpoint=self._subscribers) as one:
            for topic in range(TOPICS):
                one.subscribe(f"topic-{topic}")

    def let_lag(self) -> None:
        """Put what they do not get."""
        for topic in range(TOPICS):
            self.publisher.put(f"topic-{topic}", PAYLOAD)


class Scraping:
    """A process that scrapes between `start` and `stop`."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._ending = threading.Event()
        self.close = self._ending.set
        self._thread: threading.Thread | None = None
        self._count = 0

    def begin(self) -> None:
        """Scrape from now on."""
        self._ending.clear()
        self._count = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> int:
        """Stop it, and return how many scrapes there were."""
        assert self._thread is not None
        self._ending.set()
        self._thread.join()
        return self._count

    def _run(self) -> None:
        while not self._ending.wait(1 / SCRAPES_PER_S):
            with urlopen(self._url, timeout=ANSWER_S) as page:
                if b"reliable_pubsub_subscriptions" not in page.read():
                    raise RuntimeError("the page has no subscriptions")
            self._count += 1


class Connected:
    """A process that holds connections, each of which has had an answer."""

    def __init__(self, endpoint: str) -> None:
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
        self._sockets: list[zmq.Socket[bytes]] = []
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, PER_PROCESS + 2 * TOGETHER)
        client = f"status-{os.getpid():08x}"
        self._request = encode(Status(client=client, epoch=0, request=1))
        self._endpoint = endpoint

    def more(self) -> None:
        """Make some connections."""
        asking = [self._asking() for _ in range(TOGETHER)]
        while asking:  # one that is not answered is asked again, as clients do
            asking = [self._asking() for socket in asking if not self._is_answered(socket)]

    def _asking(self) -> zmq.Socket[bytes]:
        socket = self._context.socket(zmq.REQ)
        socket.linger = 0
        socket.rcvtimeo = int(1000 * AGAIN_S)
        socket.connect(self._endpoint)
        socket.send_multipart(self._request)
        return socket

    def _is_answered(self, socket: zmq.Socket[bytes]) -> bool:
        try:
            socket.recv_multipart()
        except zmq.Again:
            socket.close()
            return False
        self._sockets.append(socket)
        return True

    def close(self) -> None:
        self._context.destroy(linger=0)


def scrape_rows(rounds: int) -> list[Row]:
    """Puts with scrapes against puts without."""
    with ExitStack() as stack:
        running = stack.enter_context(proxy("metrics_endpoint: 127.0.0.1:*\n"))
        url = running.endpoints["metrics"]
        putting = stack.enter_context(
            Worker(PuttingBesideLag, running.publishers, running.subscribers)
        )
        scraping = stack.enter_context(Worker(Scraping, url))
        before_mib = running.resident_mib()
        for number in range(SUBSCRIBERS):
            putting.call("subscribe", number)
        putting.call("let_lag")
        used_mib = running.resident_mib() - before_mib
        putting.call("put", PUTS)
        quiet: list[list[float]] = []
        scraped: list[list[float]] = []
        scrapes = 0
        for _ in range(rounds):
            quiet.append(putting.call("put", PUTS))
            scraping.call("begin")
            scraped.append(putting.call("put", PUTS))
            scrapes += scraping.call("end")
        calm_ms = _cpu_ms(running.pid)
        scraping.call("begin")
        busy_ms = _cpu_ms(running.pid)
        scraping.call("end")
    if not scrapes:
        raise RuntimeError("no scrape fell into the rounds")
    of_round: list[tuple[str, str, Callable[[Sequence[float]], float]]] = [
        ("puts beside 10 scrapes/s, 10,000 subscriptions", "/s", lambda s: 1 / statistics.fmean(s)),
        ("the same, p50", "us", lambda s: 1e6 * percentiles(s)[0]),
        ("the same, p99", "us", lambda s: 1e6 * percentiles(s)[1]),
        ("the same, longest", "us", lambda s: 1e6 * max(s)),
    ]
    return [
        *(
            compared(work, unit, list(map(of, scraped)), list(map(of, quiet)), "no scrapes")
            for work, unit, of in of_round
        ),
        Row(
            work="memory of a subscription",
            ours=1024 * used_mib / (TOPICS * SUBSCRIBERS),
            unit="KiB",
        ),
        Row(
            work="CPU of a proxy without traffic beside 10 scrapes/s",
            ours=busy_ms,
            unit="ms/s",
            bare=calm_ms,
            against="no scrapes",
        ),
    ]


def _cpu_ms(pid: int) -> float:
    """CPU of a process in a second."""
    before_ns = cpu_ns(pid)
    time.sleep(IDLE_S)
    return (cpu_ns(pid) - before_ns) / 1e6 / IDLE_S


def stop_rows() -> list[Row]:
    """How long a proxy with many connections takes from SIGTERM to its end, and its memory."""
    with ExitStack() as stack:
        running = stack.enter_context(proxy())
        before_mib = running.resident_mib()
        for _ in range(CONNECTIONS // PER_PROCESS):
            connected = stack.enter_context(Worker(Connected, running.subscribers))
            for _ in range(PER_PROCESS // TOGETHER):
                connected.call("more")
        used_mib = running.resident_mib() - before_mib
        begun_s = time.perf_counter()
        running.close()
        taken_s = time.perf_counter() - begun_s
    return [
        Row(
            work="clean stop with 10,000 connections",
            ours=taken_s,
            unit="s",
            at_most=STOP_S_MAX,
        ),
        Row(work="memory of a connection", ours=1024 * used_mib / CONNECTIONS, unit="KiB"),
    ]


def size_rows() -> list[Row]:
    """What a stored message takes on disk: alone, and in a batch."""
    rows = []
    for count, batch in ((STORED, 1), (STORED * BATCH, BATCH)):
        with folder() as directory:
            running = Proxy(directory / "data")
            fill(running, count, batch)
            running.close()  # which moves the log into the file
            size = (directory / "data" / FILE_NAME).stat().st_size
        work = f"disk of a message of {len(PAYLOAD)} bytes, put {batch} at a time"
        rows.append(Row(work=work, ours=size / count, unit="bytes"))
    return rows


def operating_rows(rounds: int) -> list[Row]:
    """All of it."""
    return [*scrape_rows(rounds), *stop_rows(), *size_rows()]
