"""The smallest client: put two messages and get them, with ZeroMQ, msgpack and CRC-32 alone.

It keeps nothing and waits forever; docs/internals/protocol.md says what to add, level by level.
"""

import secrets
import sys
import zlib
from typing import Any

import zmq
from msgspec.msgpack import decode, encode  # any msgpack library will do


class Client:
    def __init__(self, client: str, role: str, endpoint: str, *topics: str) -> None:
        self.client, self.epoch, self.request = client, 1, 0
        self.socket: zmq.SyncSocket = zmq.Context.instance().socket(zmq.REQ)
        self.socket.connect(endpoint)
        nonce = secrets.token_bytes(16)  # one for each process
        while True:
            self.granted = self.ask("HELLO", role=role, nonce=nonce, topics=topics)
            if self.granted["answer"] == "HELLO_ACK":
                break
            self.epoch = self.granted["current_epoch"] + 1  # FENCED: an earlier process had it

    def ask(self, verb: str, frame: bytes | None = None, **fields: Any) -> dict[str, Any]:
        self.request += 1  # the first HELLO has 1
        head = {"client": self.client, "epoch": self.epoch, "request": self.request}
        frames = [b"RPS1", encode({"verb": verb, **head, **fields})]
        self.socket.send_multipart(frames if frame is None else [*frames, frame])
        _, header, *body = self.socket.recv_multipart()
        return {**decode(header), "body": body}


publisher = Client("sensor-1", "publisher", sys.argv[1], "topic1")
subscriber = Client("display-1", "subscriber", sys.argv[2])
place = subscriber.ask("SUB", topic="topic1", control=1)

batch = encode([[b"hello_1", b"hello_2"], None, None, None])
number = publisher.granted["positions"][0]["last_sequence"] + 1
head = {"topic": "topic1", "first_sequence": number, "count": 2, "crc": zlib.crc32(batch)}
print(publisher.ask("PUT", batch, **head)["answer"])

where = {"topic": "topic1", "generation": place["generation"], "boot": place["boot"]}
got = subscriber.ask("GET", cursor=place["cursor"], **where)
base, count, sender, first, _, crc = got["batches"][0][:6]  # one batch: messages_max is 1
assert zlib.crc32(got["body"][0]) == crc
for i, payload in enumerate(decode(got["body"][0])[0]):
    print(base + i, f"{sender}_{first + i}", payload)
print(subscriber.ask("GET", cursor=base + count, **where)["answer"])  # both are processed
