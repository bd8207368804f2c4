"""The work of `scripts/bench peers`: what a publisher's and a subscriber's process do."""

from __future__ import annotations

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any, Final

import zmq

from .measuring import Worker, child, percentiles
from .peer_clients import (
    BareReceiver,
    BareSender,
    NatsReceiver,
    NatsSender,
    OurReceiver,
    OurSender,
    Receiver,
    RedisReceiver,
    RedisSender,
    Sender,
)
from .peer_queues import MqttReceiver, MqttSender, RabbitReceiver, RabbitSender

WARM: Final = 20  # messages whose age does not count
PAUSE_S: Final = 0.004  # between two messages whose age is taken
MOST_PER_S: Final = {100: 100_000, 1000: 300_000}  # messages put, by those of a batch
READY_S: Final = 60.0
LAST: Final = b"9999".ljust(100, b"x")
PUSHED, STREAMED = "ours, pushed", "ours, streamed"  # ways to use ours

CLIENTS: Final[dict[str, tuple[Callable[..., Sender], Callable[..., Receiver]]]] = {
    "ours": (OurSender, OurReceiver),
    "bare": (BareSender, BareReceiver),
    "redis": (RedisSender, RedisReceiver),
    "nats": (NatsSender, NatsReceiver),
    "mosquitto": (MqttSender, MqttReceiver),
    "rabbitmq": (RabbitSender, RabbitReceiver),
}


def body(sender: int, number: int) -> bytes:
    """A message of 100 bytes: who sent it, its number from 1 on, when."""
    return (b"%04d%09d%020d" % (sender, number, time.monotonic_ns())).ljust(100, b"x")


# The processes.


class Sending:
    """A process that publishes."""

    def __init__(self, system: str, address: str) -> None:
        """Remember the broker; each piece of work connects for itself."""
        self._streams = system == STREAMED
        self._system = "ours" if system in (PUSHED, STREAMED) else system
        self._address = address

    def close(self) -> None:
        """Nothing is open between two pieces of work."""

    def _sender(self, topic: str, client: str = "bench") -> Sender:
        return CLIENTS[self._system][0](self._address, topic, client)

    def puts(self, topic: str, seconds: float, batch: int, most: int) -> tuple[float, float, int]:
        """Publish for some time, then the last message: when it began and ended, how many."""
        bodies = [body(0, number) for number in range(1, most + 1)]
        with closing(self._sender(topic)) as sender:
            put: Callable[[Sequence[bytes]], object] = sender.put_many
            if self._streams and isinstance(sender, OurSender):
                put, batch = sender.put_stream, most  # the stream makes the batches
            sent, begin_s = 0, time.monotonic()
            while sent < most and time.monotonic() < begin_s + seconds:
                if batch == 1:
                    sender.put(bodies[sent])
                else:
                    put(bodies[sent : sent + batch])
                sent += batch
            end_s = time.monotonic()
            sender.put(LAST)
        return begin_s, end_s, min(sent, most)

    def paced(self, topic: str, messages: int) -> int:
        """Publish with pauses, then the last message."""
        with closing(self._sender(topic)) as sender:
            for number in range(1, messages + 1):
                sender.put(body(0, number))
                time.sleep(PAUSE_S)
            sender.put(LAST)
        return messages

    def crowd(
        self, topic: str, seconds: float, clients: int
    ) -> tuple[float, float, dict[int, int]]:
        """Many processes that publish: messages a second, p99 in ms, how many of each."""
        fork = multiprocessing.get_context("fork")  # they share what was imported
        pipes, members = [], []
        for number in range(1, clients + 1):
            mine, its = fork.Pipe()
            members.append(fork.Process(target=self._member, args=(its, topic, number, seconds)))
            members[-1].start()
            its.close()
            pipes.append(mine)
        try:
            for pipe in pipes:
                _heard(pipe)
            for pipe in pipes:
                pipe.send("go")
            begins_s, ends_s, times_ms = zip(*map(_heard, pipes), strict=True)
        finally:
            for one in members:
                one.kill()
                one.join()
        sent = {number: len(times) for number, times in enumerate(times_ms, start=1)}
        with closing(self._sender(topic)) as sender:
            sender.put(LAST)
        rate = sum(sent.values()) / (max(ends_s) - min(begins_s))
        return rate, percentiles([ms for times in times_ms for ms in times])[1], sent

    def _member(self, pipe: Any, topic: str, number: int, seconds: float) -> None:
        times_ms: list[float] = []
        with closing(self._sender(topic, f"bench-{number}")) as sender:
            pipe.send("ready")
            pipe.recv()
            begin_s = now_s = time.monotonic()
            while now_s < begin_s + seconds:
                sender.put(body(number, len(times_ms) + 1))
                before_s, now_s = now_s, time.monotonic()
                times_ms.append((now_s - before_s) * 1e3)
            pipe.send((begin_s, now_s, times_ms))


def _heard(pipe: Any) -> Any:
    if not pipe.poll(READY_S):
        raise TimeoutError(f"one of many publishers did not answer within {READY_S:g} s")
    return pipe.recv()


class Receiving:
    """A process that subscribes."""

    def __init__(self, system: str, address: str) -> None:
        self._system = system
        self._address = address
        self._receiver: Receiver | None = None
        self._bodies: list[bytes] = []

    def close(self) -> None:
        if self._receiver is not None:
            self._receiver.close()

    def subscribe(self, topic: str) -> None:
        """Subscribe; what is published from now on will come."""
        self.close()
        if self._system == PUSHED:
            self._receiver = OurReceiver(self._address, topic, push=True)
        else:
            name = "ours" if self._system == STREAMED else self._system
            self._receiver = CLIENTS[name][1](self._address, topic)

    def receive(self, batch: int, timed: bool = False) -> tuple[float, list[float]]:
        """Receive to the last message: when it came, and the ages in ms, if they are asked for."""
        bodies, ages_ms = [], []

        def keep(payload: bytes) -> bool:
            bodies.append(payload)
            return payload == LAST

        def keep_age(payload: bytes) -> bool:
            if payload == LAST:
                return True
            ages_ms.append((time.monotonic_ns() - int(payload[13:33])) / 1e6)
            bodies.append(payload)
            return False

        assert self._receiver is not None
        self._receiver.receive(keep_age if timed else keep, batch)
        self._bodies = bodies
        return time.monotonic(), ages_ms[WARM:]

    def verdict(self, sent: dict[int, int]) -> Counter[str]:
        """How many of what was sent came, were lost, and came twice."""
        found = Counter((int(one[:4]), int(one[4:13])) for one in self._bodies if one != LAST)
        expected = {(one, number) for one, last in sent.items() for number in range(1, last + 1)}
        return Counter(
            sent=len(expected),
            lost=len(expected - found.keys()),
            doubled=sum(found.values()) - len(found),
        )


class Station:
    """One broker (or one way to use it), with a publisher's and a subscriber's process."""

    def __init__(self, stack: ExitStack, name: str, address: str) -> None:
        self.counted: Counter[str] = Counter()
        self._echoes = name == "bare"
        self._sending = stack.enter_context(Worker(Sending, name, address))
        self._receiving = stack.enter_context(Worker(Receiving, name, address))
        self._topics = (f"t{number}-{name.split()[-1]}" for number in range(1, 1_000_000))

    def _subscribed(self) -> str:
        topic = next(self._topics)
        self._receiving.call("subscribe", topic)
        return topic

    def _judge(self, sent: dict[int, int]) -> None:
        self.counted.update(self._receiving.call("verdict", sent))

    def put(self, seconds: float) -> list[float]:
        """Puts a second of one publisher."""
        topic = self._subscribed()
        begin_s, end_s, sent = self._sending.call("puts", topic, seconds, 1, 100_000)
        self._receiving.call("receive", 100)
        self._judge({0: sent})
        return [sent / (end_s - begin_s)]

    def crowd(self, seconds: float, clients: int) -> list[float]:
        """Puts a second of many publishers, and the p99 of one, in ms."""
        topic = self._subscribed()
        rate, p99_ms, sent = self._sending.call("crowd", topic, seconds, clients)
        self._receiving.call("receive", 100)
        self._judge(sent)
        return [rate, p99_ms]

    def latency(self, seconds: float) -> list[float]:
        """Milliseconds from the begin of a put to the handler: p50 and p99."""
        topic = self._subscribed()
        self._receiving.begin("receive", 100, True)
        sent = self._sending.call("paced", topic, max(int(seconds / PAUSE_S), 2 * WARM))
        _, ages_ms = self._receiving.result()
        self._judge({0: sent})
        return percentiles(ages_ms)

    def end_to_end(self, seconds: float, batch: int) -> list[float]:
        """Messages a second from the first put to the last message in the reader's hands."""
        most = max(int(seconds * MOST_PER_S.get(batch, 10_000)) // batch, 1) * batch
        if self._echoes and batch > 1:
            return [echo(batch, seconds)]
        topic = self._subscribed()
        self._receiving.begin("receive", batch)
        begin_s, _, sent = self._sending.call("puts", topic, seconds, batch, most)
        end_s, _ = self._receiving.result()
        self._judge({0: sent})
        return [sent / (end_s - begin_s)]


def bare_echo(pipe: Any) -> None:
    """Be the bare loop of transport: one REP socket that gives back what it gets."""
    socket: Any = zmq.Context().socket(zmq.REP)
    pipe.send(f"tcp://127.0.0.1:{socket.bind_to_random_port('tcp://127.0.0.1')}")
    while True:
        socket.send(socket.recv())


def echo(batch: int, seconds: float) -> float:
    """Messages a second through a bare echo of bodies as large as a batch."""
    whole, count = b"x" * 100 * batch, 0
    with child(bare_echo) as endpoint, zmq.Context() as context:
        socket: Any = context.socket(zmq.REQ)
        socket.connect(endpoint)
        begin_s = time.perf_counter()
        while (now_s := time.perf_counter()) < begin_s + seconds:
            socket.send(whole)
            socket.recv()
            count += batch
        socket.close(linger=0)
    return count / (now_s - begin_s)
