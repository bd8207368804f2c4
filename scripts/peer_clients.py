"""Clients that `scripts/bench peers` measures, with two interfaces: ours, bare, Redis, NATS.

Each is written as the manual of its library shows it, and acknowledges what it has received.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import zmq

from reliable_pubsub import Publisher, Subscriber

QUIET_S: Final = 10.0  # without a message: the rest is lost
NAME: Final = "bench"

Handle = Callable[[bytes], bool]  # True: that was the last one


class Sender(Protocol):
    """Publishes; each call returns when the broker has acknowledged all of it."""

    def put(self, body: bytes) -> object:
        """Publish one message."""
        ...

    def put_many(self, bodies: Sequence[bytes]) -> object:
        """Publish messages in one go."""
        ...

    def close(self) -> None: ...


class Receiver(Protocol):
    """Receives what is published from the time on at which it was made."""

    def receive(self, handle: Handle, batch: int) -> None:
        """Hand over and acknowledge messages until `handle` says so, or none come any more.

        Args:
            batch: how many are fetched and acknowledged at a time, where one can choose.
        """
        ...

    def close(self) -> None: ...


# Ours, by the library that the README shows.


class OurSender:
    """A publisher."""

    def __init__(self, address: str, topic: str, client: str) -> None:
        self._publisher = Publisher(client, endpoint=address.split()[0])
        self._topic = topic

    def put(self, body: bytes) -> None:
        self._publisher.put(self._topic, body)

    def put_many(self, bodies: Sequence[bytes]) -> None:
        self._publisher.put_many(self._topic, bodies)

    def put_stream(self, bodies: Sequence[bytes]) -> None:
        """Publish them through a stream."""
        with self._publisher.stream() as stream:
            for body in bodies:
                stream.put(self._topic, body)

    def close(self) -> None:
        self._publisher.close()


class OurReceiver:
    """A subscriber with default settings, or with push."""

    def __init__(self, address: str, topic: str, *, push: bool = False) -> None:
        self._subscriber = Subscriber(f"{NAME}-{topic}", endpoint=address.split()[1])
        self._topic = topic
        self._subscriber.subscribe(topic, push=push)

    def receive(self, handle: Handle, batch: int) -> None:
        for message in self._subscriber.messages(self._topic, timeout_s=QUIET_S):
            if handle(message.payload):
                break

    def close(self) -> None:
        self._subscriber.close()


class BareSender:
    """A REQ socket."""

    def __init__(self, address: str, topic: str, _client: str) -> None:
        self._context: Any = zmq.Context()
        self._socket = self._context.socket(zmq.REQ)
        self._socket.connect(address.split()[0])
        self._topic = topic.encode()

    def put(self, body: bytes) -> None:
        self._socket.send_multipart([self._topic, body])
        self._socket.recv()

    def put_many(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self.put(body)

    def close(self) -> None:
        self._context.destroy(linger=0)


class BareReceiver:
    """A SUB socket."""

    def __init__(self, address: str, topic: str) -> None:
        self._context: Any = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
        self._socket.connect(address.split()[1])
        time.sleep(0.2)  # PUB does not report when a subscription has arrived

    def receive(self, handle: Handle, batch: int) -> None:
        while self._socket.poll(int(QUIET_S * 1000)):
            if handle(self._socket.recv_multipart()[1]):
                return

    def close(self) -> None:
        self._context.destroy(linger=0)


# Redis Streams.


class RedisSender:
    """XADD, and pipelines of it."""

    def __init__(self, address: str, topic: str, _client: str) -> None:
        self._redis = importlib.import_module("redis").Redis(port=int(address))
        self._topic = topic

    def put(self, body: bytes) -> None:
        self._redis.xadd(self._topic, {b"b": body})

    def put_many(self, bodies: Sequence[bytes]) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(self._topic, {b"b": body})
        pipeline.execute()

    def close(self) -> None:
        self._redis.close()


class RedisReceiver:
    """XREADGROUP BLOCK, and XACK of what it gave."""

    def __init__(self, address: str, topic: str) -> None:
        self._redis = importlib.import_module("redis").Redis(port=int(address))
        self._topic = topic
        self._redis.xgroup_create(topic, NAME, id="0", mkstream=True)

    def receive(self, handle: Handle, batch: int) -> None:
        block_ms = int(QUIET_S * 1000)
        while found := self._redis.xreadgroup(
            NAME, NAME, {self._topic: ">"}, count=batch, block=block_ms
        ):
            entries = found[0][1] if isinstance(found, list) else next(iter(found.values()))[0]
            last = False
            for _, fields in entries:
                last = handle(fields[b"b"])
            self._redis.xack(self._topic, NAME, *[number for number, _ in entries])
            if last:
                return

    def close(self) -> None:
        self._redis.delete(self._topic)
        self._redis.close()


# NATS JetStream.


class _Nats:
    """A connection, whose calls are run to their end."""

    def __init__(self, address: str) -> None:
        self._loop = asyncio.new_event_loop()
        nats = importlib.import_module("nats")
        self._nats: Any = self._run(nats.connect(f"nats://127.0.0.1:{address}"))
        self._stream: Any = self._nats.jetstream()

    def _run(self, what: Any) -> Any:
        return self._loop.run_until_complete(what)

    def close(self) -> None:
        self._run(self._nats.close())
        self._loop.close()


class NatsSender(_Nats):
    """Publish with a message id, so that the broker can tell a retry."""

    def __init__(self, address: str, topic: str, client: str) -> None:
        super().__init__(address)
        self._topic = topic
        self._ids = (f"{topic}-{client}-{number}" for number in itertools.count())

    def _publish(self, body: bytes) -> Any:
        return self._stream.publish(
            self._topic, body, headers={"Nats-Msg-Id": next(self._ids)}, timeout=60
        )

    def put(self, body: bytes) -> None:
        self._run(self._publish(body))

    def put_many(self, bodies: Sequence[bytes]) -> None:
        async def publish_all() -> None:
            await asyncio.gather(*map(self._publish, bodies))

        self._run(publish_all())


class NatsReceiver(_Nats):
    """A pull consumer; the acknowledgement of a message is that of all before it."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(address)
        api = importlib.import_module("nats.js.api")
        self._topic = topic
        config = api.ConsumerConfig(ack_policy=api.AckPolicy.ALL, max_ack_pending=100_000)
        self._run(self._stream.add_stream(name=topic, subjects=[topic]))
        self._pull: Any = self._run(
            self._stream.pull_subscribe(topic, durable=topic, config=config)
        )

    def receive(self, handle: Handle, batch: int) -> None:
        timed_out = importlib.import_module("nats.errors").TimeoutError

        async def receive_all() -> None:
            last = False
            while not last:
                try:
                    found = await self._pull.fetch(batch, timeout=QUIET_S)
                except timed_out:
                    return
                for message in found:
                    last = handle(message.data)
                await found[-1].ack()

        self._run(receive_all())

    def close(self) -> None:
        self._run(self._stream.delete_stream(self._topic))
        super().close()
