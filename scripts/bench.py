"""The benchmark: every figure beside a bare ZeroMQ loop measured in the same run.

Rates of a shared machine vary twofold from run to run; ratios within one run do not. Each row is
measured in rounds, ours and the bare loop in turn, and shows the medians.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import msgspec
import zmq
from msgspec import Struct
from rich.console import Console
from rich.progress import Progress

from reliable_pubsub import Publisher, Subscriber
from reliable_pubsub.common.core.batch import Batch, crc32, encode_batch
from reliable_pubsub.common.core.limits import GIB
from reliable_pubsub.common.core.messages import Hello, HelloAck, Put, PutAck
from reliable_pubsub.common.core.wire import decode_reply, encode_request

from .bench_levels import level_rows
from .bench_peers import peers
from .bench_profile import profile
from .bench_push import push_rows
from .measuring import PAYLOAD, WORK, Proxy, Row, child, compared, proxy, show, spawn


def bare_sync(pipe: Any, path: str) -> None:
    """The bare loop of durable storage: one REP socket, write, fdatasync, answer."""
    socket = zmq.Context().socket(zmq.REP)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_TRUNC, 0o600)
    pipe.send(f"tcp://127.0.0.1:{port}")
    while True:
        frames = socket.recv_multipart()
        os.write(descriptor, b"".join(frames))
        os.fdatasync(descriptor)
        socket.send_multipart([b"RPS1", b"ok"])


def bare_echo(pipe: Any) -> None:
    """The bare loop of transport: one REP socket that gives back what it gets."""
    socket = zmq.Context().socket(zmq.REP)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    pipe.send(f"tcp://127.0.0.1:{port}")
    while True:
        socket.send_multipart(socket.recv_multipart())


class Load:
    """REQ sockets that put single messages; the requests are encoded before the clock runs."""

    def __init__(self, endpoint: str, clients: int, requests: int, *, hello: bool) -> None:
        """Connect, and say HELLO where a real proxy listens."""
        self._context = zmq.Context()
        self._sockets: dict[Any, Iterator[list[bytes]]] = {}
        body = encode_batch(Batch([PAYLOAD]))
        for index in range(clients):
            name = f"load-{clients}-{index}"
            socket = self._context.socket(zmq.REQ)
            socket.connect(endpoint)
            if hello:
                first = Hello(client=name, epoch=1, request=0, role="publisher", nonce=b"bench-00")
                socket.send_multipart(encode_request(first))
                assert isinstance(decode_reply(socket.recv_multipart())[0], HelloAck)
            self._sockets[socket] = iter(self._requests(name, requests, body))

    def _requests(self, name: str, count: int, body: bytes) -> list[list[bytes]]:
        return [
            encode_request(
                Put(
                    client=name,
                    epoch=1,
                    request=sequence,
                    topic="bench",
                    first_sequence=sequence,
                    count=1,
                    crc=crc32(body),
                ),
                body,
            )
            for sequence in range(1, count + 1)
        ]

    def run(self) -> float:
        """Requests a second, each socket with one under way at a time."""
        poller = zmq.Poller()
        for socket, requests in self._sockets.items():
            poller.register(socket, zmq.POLLIN)
            socket.send_multipart(next(requests))
        left, done = len(self._sockets), 0
        reply: list[bytes] = []
        begin_s = time.perf_counter()
        while left:
            for socket, _ in poller.poll():
                reply = socket.recv_multipart()
                done += 1
                following = next(self._sockets[socket], None)
                if following is None:
                    left -= 1
                else:
                    socket.send_multipart(following)
        rate = done / (time.perf_counter() - begin_s)
        if reply[1] != b"ok":
            assert isinstance(decode_reply(reply)[0], PutAck)
        self._context.destroy(linger=0)
        return rate


def puts(clients: int, at_least: float, rounds: int, tick: Callable[[], None]) -> Row:
    """Single-message puts against a bare REP loop with write and fdatasync."""
    requests = 4000 if clients == 1 else 30_000 // clients
    ours, bare = [], []
    for _ in range(rounds):
        with child(bare_sync, str(WORK / "bare.log")) as endpoint:
            bare.append(Load(endpoint, clients, requests, hello=False).run())
        with proxy() as running:
            ours.append(Load(running.publishers, clients, requests, hello=True).run())
        tick()
    name = "1 client" if clients == 1 else f"{clients} clients"
    return compared(
        f"{name}, one message per put, sync",
        "puts/s",
        ours,
        bare,
        f"bare REP loop with write + fdatasync, {name}",
        at_least,
    )


def put_from_threads(endpoint: str, threads: int) -> float:
    """Puts a second of a publisher that several threads use, one message each."""
    each = 2000 // threads
    with Publisher("bench-threads", endpoint=endpoint) as publisher:
        publisher.put("bench", PAYLOAD)

        def puts_of_thread(_: int) -> None:
            for _ in range(each):
                publisher.put("bench", PAYLOAD)

        with ThreadPoolExecutor(threads) as pool:
            begin_s = time.perf_counter()
            list(pool.map(puts_of_thread, range(threads)))
            return each * threads / (time.perf_counter() - begin_s)


def shared_puts(rounds: int, tick: Callable[[], None]) -> Row:
    """Eight threads with one publisher, whose waiting puts share requests, against one thread."""
    alone, together = [], []
    for _ in range(rounds):
        with proxy() as running:
            alone.append(put_from_threads(running.publishers, 1))
            together.append(put_from_threads(running.publishers, 8))
        tick()
    name = "1 publisher used by 8 threads, one message per put"
    return compared(name, "puts/s", together, alone, "the same by 1 thread", 1.5)


def publish(pipe: Any, endpoint: str, batch: int, messages: int, streamed: bool) -> None:
    """Put messages, in batches by hand or through a stream."""
    with Publisher("bench-publisher", endpoint=endpoint) as publisher:
        publisher.connect()
        pipe.send("ready")
        pipe.recv()
        if streamed:
            with publisher.stream() as stream:
                for _ in range(messages):
                    stream.put("bench", PAYLOAD)
        else:
            payloads = [PAYLOAD] * batch
            for _ in range(messages // batch):
                publisher.put_many("bench", payloads)
        pipe.send("done")
        pipe.recv()


def end_to_end(running: Proxy, batch: int, messages: int, *, streamed: bool = False) -> float:
    """Messages a second from the first put to the last message in a subscriber's hands."""
    mine, its = spawn.Pipe()
    process = spawn.Process(
        target=publish, args=(its, running.publishers, batch, messages, streamed), daemon=True
    )
    process.start()
    mine.recv()
    with Subscriber("bench-subscriber", endpoint=running.subscribers) as subscriber:
        subscriber.subscribe("bench")
        mine.send("go")
        begin_s = time.perf_counter()
        received = 0
        while received < messages:
            received += len(subscriber.get("bench", max_messages=batch, timeout_s=10))
        seconds = time.perf_counter() - begin_s
    mine.recv()
    mine.send("end")
    process.join()
    return messages / seconds


def echo(batch: int) -> float:
    """Messages a second through a bare echo of the same bodies."""
    body = encode_batch(Batch([PAYLOAD] * batch))
    count = 6000 if batch == 100 else 1500
    with child(bare_echo) as endpoint:
        context: Any = zmq.Context()
        socket = context.socket(zmq.REQ)
        socket.connect(endpoint)
        socket.send_multipart([body])
        socket.recv_multipart()
        begin_s = time.perf_counter()
        for _ in range(count):
            socket.send_multipart([body])
            socket.recv_multipart()
        seconds = time.perf_counter() - begin_s
        context.destroy(linger=0)
    return count * batch / seconds


def flows(rounds: int, tick: Callable[[], None]) -> list[Row]:
    """End to end, in batches of 100 and 1000 and through a stream."""
    small, large, streamed, echo_small, echo_large = [], [], [], [], []
    for _ in range(rounds):
        echo_small.append(echo(100))
        with proxy() as running:
            small.append(end_to_end(running, 100, 400_000))
        tick()
        echo_large.append(echo(1000))
        with proxy() as running:
            large.append(end_to_end(running, 1000, 2_000_000))
        with proxy() as running:
            streamed.append(end_to_end(running, 1000, 2_000_000, streamed=True))
        tick()
    unit = "messages/s"
    bare = "bare REQ/REP echo of the same bodies"
    return [
        compared("1 publisher, 1 subscriber, batches of 100", unit, small, echo_small, bare, 0.12),
        compared("the same, batches of 1000", unit, large, echo_large, bare, 0.06),
        compared("the same, publisher.stream()", unit, streamed, large, "batches of 1000", 1.0),
    ]


def memory(messages: int, tick: Callable[[], None]) -> list[Row]:
    """Resident memory while messages pass with the subscriber keeping up."""
    part = messages // 10
    sizes = []
    with proxy() as running:
        for _ in range(10):
            end_to_end(running, 1000, part)
            sizes.append(running.resident_mib())
            tick()
    # The cache of newest bodies fills first; flat means flat from there on.
    return [
        Row(
            work=f"resident memory after {messages:,} messages, against after a tenth of them",
            ours=sizes[-1],
            unit="MiB",
            bare=sizes[0],
            against="after a tenth of them",
            ratio=sizes[-1] / sizes[0],
            at_most=1.2,
        )
    ]


def history(tick: Callable[[], None]) -> list[Row]:
    """A gibibyte of history: highest memory while it is written and read back from the disk."""
    settings = WORK / "history.yaml"
    settings.write_text(f"history_bytes: {3 * GIB}\n")
    payloads = [PAYLOAD] * 9000
    with proxy("-f", str(settings)) as running:
        written = 0
        with Publisher("bench-history", endpoint=running.publishers) as publisher:
            while written < GIB:
                publisher.put_many("bench", payloads)
                written += len(PAYLOAD) * len(payloads)
        tick()
        read = 0
        with Subscriber("bench-reader", endpoint=running.subscribers) as reader:
            while messages := reader.history("bench", read, max_messages=len(payloads)):
                read += len(messages)
        tick()
        assert read * len(PAYLOAD) == written
        highest = running.resident_mib("VmHWM")
    return [
        Row(
            work=f"highest resident memory with {written / GIB:.1f} GiB of history, all read",
            ours=highest,
            unit="MiB",
            at_most=200,
        )
    ]


def restart(tick: Callable[[], None]) -> list[Row]:
    """How long a proxy with a million messages needs until it is ready, store check included."""
    directory = Path(tempfile.mkdtemp(prefix="bench-", dir=WORK))
    running = Proxy(directory)
    with Publisher("bench-restart", endpoint=running.publishers) as publisher:
        for _ in range(10_000):
            publisher.put_many("bench", [PAYLOAD] * 100)
    running.process.kill()  # the log of SQLite is not tidied up: the harder case
    running.process.wait()
    tick()
    times = []
    for _ in range(3):
        running = Proxy(directory)
        times.append(running.ready_s)
        running.close()
    shutil.rmtree(directory)
    return [
        Row(
            work="restart with 1,000,000 messages in batches of 100: ready after",
            ours=statistics.median(times),
            unit="s",
            at_most=2.0,
        )
    ]


def pipeline(rounds: int, tick: Callable[[], None]) -> list[Row]:
    """The part of the pipeline; Spark is loaded only for it."""
    from .bench_pipeline import pipeline_rows

    return pipeline_rows(rounds, tick)


Tick = Callable[[], None]


class Part(Struct, frozen=True):
    """A subcommand that measures rows; both functions take the rounds."""

    steps: Callable[[int], int]
    rows: Callable[[int, Tick], list[Row]]
    help: str


PARTS: dict[str, Part] = {
    "puts": Part(
        lambda rounds: 2 * rounds,
        lambda rounds, tick: [puts(1, 0.6, rounds, tick), puts(64, 2.5, rounds, tick)],
        "Single puts, encoded beforehand, against a bare REP loop with fdatasync.",
    ),
    "threads": Part(
        lambda rounds: rounds,
        lambda rounds, tick: [shared_puts(rounds, tick)],
        "Eight threads with one publisher against one thread.",
    ),
    "flows": Part(
        lambda rounds: 2 * rounds,
        flows,
        "End to end with get() of whole batches, against a bare echo.",
    ),
    "memory": Part(
        lambda _: 10,
        lambda _, tick: memory(5_000_000, tick),
        "Resident memory while 5,000,000 messages pass.",
    ),
    "history": Part(
        lambda _: 2,
        lambda _, tick: history(tick),
        "A gibibyte of history: memory while it is written and read.",
    ),
    "restart": Part(
        lambda _: 1,
        lambda _, tick: restart(tick),
        "How long a start with 1,000,000 stored messages takes.",
    ),
    "push": Part(
        lambda rounds: rounds + 2,
        push_rows,
        "Latency pushed and polled, bytes of a fan-out, interest under zapping.",
    ),
    "levels": Part(
        lambda rounds: 2 * rounds + 1,
        lambda rounds, tick: level_rows(rounds, 1_000_000, tick),
        "QoS 0, 1 and 2 against each other, and replay against live.",
    ),
    "pipeline": Part(
        lambda rounds: rounds + 2,
        pipeline,
        "Archive, sink and source beside Spark's own jobs; needs Spark.",
    ),
}


@click.group(no_args_is_help=True)
def main() -> None:
    """Measure speed, CPU and memory.

    Rates of a shared machine vary twofold from run to run; ratios within one run do not. So each
    figure is taken beside another in the same run, in turn, and the medians are shown. Exit code 1
    if a goal is missed.

    \b
    scripts/bench profile                     what a put and a message cost in CPU; 40 s
    scripts/bench profile --against HEAD~1    the same of both versions, and what became worse
    scripts/bench all                         every part that has a goal; 10 minutes
    """


def measured(names: Sequence[str], rounds: int, *, as_json: bool) -> None:
    """Measure parts, show the table, and exit."""
    WORK.mkdir(exist_ok=True)
    rows: list[Row] = []
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("measuring", total=sum(PARTS[one].steps(rounds) for one in names))
        for name in names:
            progress.update(task, description=name)
            rows += PARTS[name].rows(rounds, lambda: progress.advance(task))
    if as_json:
        click.echo(msgspec.json.encode(rows).decode())
    else:
        show(rows, Console(width=None if sys.stdout.isatty() else 150))
    sys.exit(0 if all(row.reached for row in rows) else 1)


def add_part(name: str, names: Sequence[str], text: str) -> None:
    """Make a subcommand that measures these parts."""

    @main.command(name, help=text)
    @click.option("--rounds", default=5, show_default=True, type=click.IntRange(1, 100))
    @click.option("--json", "as_json", is_flag=True, help="One JSON document, for programs.")
    def command(rounds: int, as_json: bool) -> None:
        measured(names, rounds, as_json=as_json)


main.add_command(peers)
main.add_command(profile)
for _name, _part in PARTS.items():
    add_part(_name, [_name], _part.help)
add_part("all", list(PARTS), "All of these parts.")

if __name__ == "__main__":
    main(prog_name="scripts/bench")
