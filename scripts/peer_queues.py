"""Clients that `scripts/bench peers` measures: those of Mosquitto and RabbitMQ."""

from __future__ import annotations

import importlib
import threading
import time
from collections.abc import Sequence
from typing import Any

from .peer_clients import NAME, QUIET_S, Handle

# Mosquitto, by MQTT.


def _mqtt(address: str, client: str) -> Any:
    """A client that is connected, with a thread of its own; its session outlives the connection."""
    paho = importlib.import_module("paho.mqtt.client")
    made = paho.Client(
        paho.CallbackAPIVersion.VERSION2, client_id=client, clean_session=False, manual_ack=False
    )
    made.max_inflight_messages_set(1_000)
    connected = threading.Event()
    made.on_connect = lambda *_: connected.set()
    made.connect("127.0.0.1", int(address))
    made.loop_start()
    if not connected.wait(QUIET_S):
        raise TimeoutError("Mosquitto did not answer")
    return made


class MqttSender:
    """Publish with QoS 2."""

    def __init__(self, address: str, topic: str, client: str) -> None:
        self._mqtt = _mqtt(address, client)
        self._topic = topic

    def put(self, body: bytes) -> None:
        self._mqtt.publish(self._topic, body, qos=2).wait_for_publish()

    def put_many(self, bodies: Sequence[bytes]) -> None:
        for sent in [self._mqtt.publish(self._topic, body, qos=2) for body in bodies]:
            sent.wait_for_publish()

    def close(self) -> None:
        self._mqtt.disconnect()
        self._mqtt.loop_stop()


class MqttReceiver:
    """A session with QoS 2; the broker keeps what comes while it is not connected."""

    def __init__(self, address: str, topic: str) -> None:
        self._address, self._topic = address, topic
        client = _mqtt(address, f"{NAME}-{topic}")
        subscribed = threading.Event()
        client.on_subscribe = lambda *_: subscribed.set()
        client.subscribe(topic, qos=2)
        if not subscribed.wait(QUIET_S):
            raise TimeoutError("Mosquitto did not answer")
        self._close(client)

    def receive(self, handle: Handle, batch: int) -> None:
        ended = threading.Event()
        heard_s = [time.monotonic()]

        def on_message(_client: object, _data: object, message: Any) -> None:
            heard_s[0] = time.monotonic()
            if handle(message.payload):
                ended.set()

        paho = importlib.import_module("paho.mqtt.client")
        client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, client_id=f"{NAME}-{self._topic}", clean_session=False
        )
        client.on_message = on_message
        client.connect("127.0.0.1", int(self._address))
        client.loop_start()
        while not ended.wait(0.5) and time.monotonic() < heard_s[0] + QUIET_S:
            pass
        self._close(client)

    @staticmethod
    def _close(client: Any) -> None:
        client.disconnect()
        client.loop_stop()

    def close(self) -> None:
        pass


# RabbitMQ.


class RabbitSender:
    """Publisher confirms, which the blocking connection of pika waits for one by one."""

    def __init__(self, address: str, topic: str, _client: str) -> None:
        pika = importlib.import_module("pika")
        self._topic = topic
        self._properties = pika.BasicProperties(delivery_mode=2)
        self._sent = 0
        self._unconfirmed: set[int] = set()
        self._channel: Any = None
        self._connection = pika.SelectConnection(
            pika.ConnectionParameters("127.0.0.1", int(address)), on_open_callback=self._opened
        )
        self._connection.ioloop.start()  # until confirms are on

    def _opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._ready)

    def _ready(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._answered, callback=lambda _: self._connection.ioloop.stop())

    def _answered(self, frame: Any) -> None:
        if type(frame.method).__name__ != "Ack":
            raise RuntimeError("RabbitMQ did not confirm a message")
        tag = frame.method.delivery_tag
        if frame.method.multiple:
            self._unconfirmed = {one for one in self._unconfirmed if one > tag}
        self._unconfirmed.discard(tag)
        if not self._unconfirmed:
            self._connection.ioloop.stop()

    def put(self, body: bytes) -> None:
        self.put_many([body])

    def put_many(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self._sent += 1
            self._unconfirmed.add(self._sent)
            self._channel.basic_publish("", self._topic, body, self._properties)
        self._connection.ioloop.start()

    def close(self) -> None:
        self._connection.add_on_close_callback(lambda *_: self._connection.ioloop.stop())
        self._connection.close()
        self._connection.ioloop.start()


class RabbitReceiver:
    """A consumer that acknowledges by hand."""

    def __init__(self, address: str, topic: str) -> None:
        self._pika = importlib.import_module("pika")
        self._address, self._topic = address, topic
        connection = self._connect()
        connection.channel().queue_declare(
            topic, durable=True, arguments={"x-queue-type": "quorum"}
        )
        connection.close()

    def _connect(self) -> Any:
        return self._pika.BlockingConnection(
            self._pika.ConnectionParameters("127.0.0.1", int(self._address), heartbeat=0)
        )

    def receive(self, handle: Handle, batch: int) -> None:
        connection = self._connect()
        channel = connection.channel()
        channel.basic_qos(prefetch_count=2 * batch)
        since = 0
        for method, _, body in channel.consume(self._topic, inactivity_timeout=QUIET_S):
            if method is None:
                break
            last = handle(body)
            since += 1
            if last or since == batch:
                channel.basic_ack(method.delivery_tag, multiple=True)
                since = 0
            if last:
                break
        channel.cancel()
        connection.close()

    def close(self) -> None:
        pass
