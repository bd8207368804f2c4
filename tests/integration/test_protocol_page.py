"""What docs/internals/protocol.md promises to clients that know nothing else, with a real proxy."""

from __future__ import annotations

import hashlib
import secrets
import sys
import zlib
from typing import Any

import msgspec
import zmq

from tests.wire.vectors import MALFORMED

from .harness import PATIENCE_S, REPOSITORY, Service, eventually

EXAMPLE = REPOSITORY / "examples" / "smallest_client.py"


def test_the_smallest_client_runs_as_it_stands(service: Service) -> None:
    """It continues where it was, because its second process gets the next epoch and numbering."""
    service.start_proxy()
    endpoints = [service.publisher_endpoint, service.subscriber_endpoint]

    for first in (0, 2):
        run = service.run_command("smallest", [sys.executable, str(EXAMPLE), *endpoints])
        run.done()
        assert run.stdout.splitlines() == [
            "ACK",
            f"{first} sensor-1_{first + 1} b'hello_1'",
            f"{first + 1} sensor-1_{first + 2} b'hello_2'",
            "NO_MESSAGES_YET",
        ]


def test_every_malformed_vector_is_answered_malformed(service: Service) -> None:
    """Also those that a DEALER can send and a REQ could not; each has exactly one answer."""
    service.start_proxy()
    context: zmq.Context[zmq.SyncSocket] = zmq.Context.instance()
    endpoints = {
        "publisher": service.publisher_endpoint,
        "subscriber": service.subscriber_endpoint,
    }
    for name, one in MALFORMED.items():
        with context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(endpoints[one.to])

            socket.send_multipart([b"", *one.frames])

            assert socket.poll(int(PATIENCE_S * 1000)), name
            delimiter, protocol, header = socket.recv_multipart()
            answer = msgspec.msgpack.decode(header)
            assert (delimiter, protocol, answer["answer"]) == (b"", b"RPS1", "MALFORMED"), name
            repeated = (answer["client"], answer["epoch"], answer["request"])
            assert (repeated != ("", 0, 0)) == one.echo, name


class Foreign:
    """A client of the page: REQ and msgpack, and nothing of this package."""

    def __init__(self, role: str, endpoint: str) -> None:
        self.request = 0
        self.socket: zmq.SyncSocket = zmq.Context.instance().socket(zmq.REQ)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.connect(endpoint)
        assert self.ask("HELLO", role=role, nonce=secrets.token_bytes(8))["answer"] == "HELLO_ACK"

    def ask(self, verb: str, frame: bytes | None = None, **fields: Any) -> dict[str, Any]:
        self.request += 1
        header = {"verb": verb, "client": "foreign", "epoch": 1, "request": self.request, **fields}
        body = [] if frame is None else [frame]
        self.socket.send_multipart([b"RPS1", msgspec.msgpack.encode(header), *body])
        assert self.socket.poll(int(PATIENCE_S * 1000))
        answer: dict[str, Any] = msgspec.msgpack.decode(self.socket.recv_multipart()[1])
        return answer

    def put(self, topic: str, sequence: int, payload: bytes) -> None:
        batch = msgspec.msgpack.encode([[payload], None, None, None])
        numbers = {"first_sequence": sequence, "count": 1, "crc": zlib.crc32(batch)}
        assert self.ask("PUT", batch, topic=topic, **numbers)["answer"] == "ACK"


def pushed(socket: zmq.SyncSocket) -> tuple[bytes, dict[str, Any], list[bytes]]:
    """One push frame: topic frame, header, payloads."""
    assert socket.poll(int(PATIENCE_S * 1000))
    topic, _, header, body = socket.recv_multipart()
    return topic, msgspec.msgpack.decode(header), msgspec.msgpack.decode(body)[0]


def test_a_client_of_the_second_page_is_pushed_to_and_puts_at_level_0(service: Service) -> None:
    service.start_proxy()
    publisher = Foreign("publisher", service.publisher_endpoint)
    subscriber = Foreign("subscriber", service.subscriber_endpoint)
    place = subscriber.ask("SUB", topic="é", control=1)
    context: zmq.Context[zmq.SyncSocket] = zmq.Context.instance()
    link, data = secrets.token_bytes(16), context.socket(zmq.XSUB)
    patterns, below = [["exact", "Z"], ["exact", "a"], ["exact", "é"], ["prefix", "A"]], ["r"]
    digest = hashlib.sha256(msgspec.msgpack.encode([patterns, below])).digest()
    node: dict[str, Any] = {"link": link, "version": 1, "digest": digest}

    said = subscriber.ask("INTEREST", **node, patterns=patterns[::-1], below=below)
    data.connect(said["push_endpoint"])
    data.send(b"\x01\x00" + link)
    known = eventually(
        lambda: [said for said in [subscriber.ask("INTEREST", **node)] if said["applied"]], "link"
    )
    assert (known[0]["version"], known[0]["wanted"]) == (1, False)

    publisher.put("é", 1, b"stored")
    topic, header, payloads = pushed(data)
    assert (topic, header["push"], payloads) == ("é\0".encode(), "BATCH", [b"stored"])
    assert (header["log"], header["boot"]) == (place["log"], place["boot"])

    offers = context.socket(zmq.XPUB)
    offers.setsockopt(zmq.IMMEDIATE, 1)
    offers.setsockopt(zmq.RCVTIMEO, int(PATIENCE_S * 1000))
    offers.connect(publisher.ask("LISTENERS", topic="é")["ingress_endpoint"])
    missing = {b"\x01\xff", "\x01é\0".encode()}  # that there is a link, and one of what it wants
    while missing:
        missing.discard(offers.recv())
    batch = msgspec.msgpack.encode([[b"not stored"], None, None, None])
    offer: dict[str, Any] = {
        "push": "OFFER",
        "publisher": "foreign",
        "epoch": 1,
        "first_sequence": 2**32,
    }
    offer |= {"count": 1, "crc": zlib.crc32(batch)}
    offers.send_multipart(["é\0".encode(), b"RPS1", msgspec.msgpack.encode(offer), batch])
    topic, header, payloads = pushed(data)
    assert (header["push"], header["batch"][0], payloads) == ("UNSTORED", 0, [b"not stored"])

    for socket in (data, offers, publisher.socket, subscriber.socket):
        socket.close(linger=0)
