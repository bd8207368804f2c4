"""What strangers send: each request gets one answer, the rest of the world goes on."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import pytest
import zmq

from reliable_pubsub.common.batch import Batch, crc32, encode_batch
from reliable_pubsub.common.limits import BODY_BYTES_MAX, FRAME_BYTES_MAX, HEADER_BYTES_MAX
from reliable_pubsub.common.messages import AnyReply, Hello, Malformed, Put, Request, Status
from reliable_pubsub.common.wire import PROTOCOL, decode_reply, encode_request

from .harness import Process, Service, eventually

BODY = encode_batch(Batch([b"m"]))
ANSWER_MS = 20_000  # an answer that is owed comes within this time
SILENCE_MS = 200  # long enough for an answer that must not come
HOSTILE_PEERS = 300
FLOODS = 3  # of them at the same time


@contextmanager
def peer(endpoint: str, kind: int = zmq.REQ) -> Iterator[zmq.Socket[bytes]]:
    """A raw socket. A send waits for the connection; what was sent goes out before the end."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    try:
        one = context.socket(kind)
        one.setsockopt(zmq.IMMEDIATE, 1)
        one.setsockopt(zmq.SNDTIMEO, ANSWER_MS)
        one.setsockopt(zmq.RCVTIMEO, ANSWER_MS)
        one.connect(endpoint)
        yield one
    finally:
        context.destroy(linger=1000)


def answer_to(endpoint: str, frames: Sequence[bytes]) -> AnyReply:
    """Send frames as a REQ socket does; give the answer."""
    with peer(endpoint) as one:
        one.send_multipart(frames)
        return decode_reply(one.recv_multipart())[0]


def a_put(**changed: object) -> Put:
    fields = {"client": "stranger", "epoch": 1, "request": 7, "topic": "t", "first_sequence": 1}
    return msgspec.convert(fields | {"count": 1, "crc": crc32(BODY)} | changed, Put)


def header(fields: object) -> bytes:
    return msgspec.msgpack.encode(fields)


STATUS = Status(client="stranger", epoch=0, request=1)
STATUS_FIELDS = {"verb": "STATUS", "client": "stranger", "epoch": 0, "request": 1}

MALFORMED: dict[str, list[bytes]] = {
    "nothing": [b""],
    "no header": [PROTOCOL],
    "another protocol": [b"RPS2", header(STATUS_FIELDS)],
    "text": [b"hello"],
    "empty header": [PROTOCOL, b""],
    "header is no msgpack": [PROTOCOL, b"\xc1\xc1\xc1"],
    "header is a list": [PROTOCOL, header([1, 2, 3])],
    "cut header": [PROTOCOL, header(STATUS_FIELDS)[:-2]],
    "something behind the header": [PROTOCOL, header(STATUS_FIELDS) + b"x"],
    "nested deeper than the stack": [PROTOCOL, b"\x91" * 100_000],
    "huge map": [PROTOCOL, b"\xdf\xff\xff\xff\xff"],
    "unknown verb": [PROTOCOL, header(STATUS_FIELDS | {"verb": "DELETE"})],
    "no verb": [PROTOCOL, header({"client": "stranger"})],
    "unknown field": [PROTOCOL, header(STATUS_FIELDS | {"password": "x"})],
    "bad id": [PROTOCOL, header(STATUS_FIELDS | {"client": "../etc"})],
    "negative number": [PROTOCOL, header(STATUS_FIELDS | {"request": -1})],
    "number above 2^63": [PROTOCOL, header(STATUS_FIELDS | {"request": 2**63})],
    "id is a number": [PROTOCOL, header(STATUS_FIELDS | {"client": 5})],
    "not UTF-8": [PROTOCOL, header(STATUS_FIELDS).replace(b"stranger", b"\xff" * 8)],
    "body where none belongs": [PROTOCOL, header(STATUS_FIELDS), b"body"],
    "nine frames": [PROTOCOL, header(STATUS_FIELDS), *[b"x"] * 7],
    "put without body": encode_request(a_put()),
    "put with another crc": encode_request(a_put(crc=1), BODY),
    "long topic": encode_request(a_put(topic="\u00fc" * 200), BODY),
    "topic with a control character": [
        PROTOCOL,
        encode_request(a_put(topic="tab."))[1].replace(b"tab.", b"tab\t"),
        BODY,
    ],
    "large header": [PROTOCOL, b"\xc0" * (HEADER_BYTES_MAX + 1)],
    "large body": encode_request(a_put(), b"x" * (BODY_BYTES_MAX + 1)),
    "largest frame that is read": encode_request(a_put(), b"x" * FRAME_BYTES_MAX),
}


@pytest.fixture
def proxy(service: Service) -> Iterator[Process]:
    """A proxy that is as alive behind the test as before."""
    proxy = service.start_proxy()
    yield proxy
    assert proxy.exit_code is None, proxy.stderr
    assert proxy.stderr == ""


def test_what_cannot_be_read_is_answered_malformed(service: Service, proxy: Process) -> None:
    assert proxy.exit_code is None
    for endpoint in (service.publisher_endpoint, service.subscriber_endpoint):
        for name, frames in MALFORMED.items():
            reply = answer_to(endpoint, frames)
            assert isinstance(reply, Malformed), (name, reply)
            assert reply.text, name
            assert (reply.client, reply.epoch, reply.request) == ("", 0, 0), name

    assert service.status().dropped_requests == 2 * len(MALFORMED)


@pytest.mark.parametrize(
    ("at_publishers", "request_"),
    [
        (False, a_put()),
        (True, {"verb": "SUB", "topic": "t", "control": 1}),
        (True, {"verb": "UNSUB", "topic": "t", "control": 1}),
        (True, {"verb": "GET", "topic": "t", "generation": 1, "boot": "", "cursor": 0}),
        (True, {"verb": "ACK", "topic": "t", "generation": 1, "boot": "", "cursor": 0}),
        (True, {"verb": "HISTORY", "topic": "t", "offset": 0}),
        (True, {"verb": "HELLO", "role": "subscriber", "nonce": b"12345678"}),
        (False, {"verb": "HELLO", "role": "publisher", "nonce": b"12345678"}),
    ],
    ids=lambda value: value["verb"] if isinstance(value, dict) else None,
)
@pytest.mark.usefixtures("proxy")
def test_a_verb_at_the_wrong_endpoint_is_refused_by_name(
    at_publishers: bool, request_: Put | dict[str, object], service: Service
) -> None:
    endpoint = service.publisher_endpoint if at_publishers else service.subscriber_endpoint
    if isinstance(request_, Put):
        frames = encode_request(request_, BODY)
    else:
        echo = {"client": "stranger", "epoch": 1, "request": 7}
        frames = [PROTOCOL, header(request_ | echo)]

    reply = answer_to(endpoint, frames)

    assert isinstance(reply, Malformed)
    assert "does not belong" in reply.text
    assert (reply.client, reply.epoch, reply.request) == ("stranger", 1, 7)


@pytest.mark.usefixtures("proxy")
def test_a_frame_above_the_maximum_ends_the_connection_and_nothing_else(
    service: Service,
) -> None:
    with peer(service.publisher_endpoint, zmq.DEALER) as honest:
        with peer(service.publisher_endpoint) as hostile:
            monitor = hostile.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            hostile.send_multipart(encode_request(a_put(), b"x" * (FRAME_BYTES_MAX + 1)))
            assert monitor.poll(ANSWER_MS), "the proxy kept the connection"
            assert not hostile.poll(SILENCE_MS), "there was an answer"
            hostile.disable_monitor()
        honest.send_multipart([b"", *encode_request(STATUS)])
        assert decode_reply(honest.recv_multipart()[1:])[0].client == "stranger"


@pytest.mark.usefixtures("proxy")
def test_every_request_of_a_queue_gets_exactly_one_answer_with_its_echo(
    service: Service, chance: random.Random
) -> None:
    """A DEALER does not wait for answers, so ten requests are there at once, 400 in all."""
    malformed = list(MALFORMED.values())
    readable: list[Request] = []
    with peer(service.publisher_endpoint, zmq.DEALER) as dealer:
        hello = Hello(client="stranger", epoch=1, request=1, role="publisher", nonce=b"12345678")
        dealer.send_multipart([b"", *encode_request(hello)])
        decode_reply(dealer.recv_multipart()[1:])
        answers = []
        for number in range(2, 402):
            if chance.random() < 0.3:
                dealer.send_multipart([b"", *chance.choice(malformed)])
            elif chance.random() < 0.5:
                readable.append(Status(client="stranger", epoch=1, request=number))
                dealer.send_multipart([b"", *encode_request(readable[-1])])
            else:
                readable.append(a_put(request=number, first_sequence=1 + chance.randrange(3)))
                dealer.send_multipart([b"", *encode_request(readable[-1], BODY)])
            if number % 10 == 1:
                answers += [decode_reply(dealer.recv_multipart()[1:])[0] for _ in range(10)]

        assert not dealer.poll(SILENCE_MS), "a request got two answers"
    echoed = sorted(answer.request for answer in answers if not isinstance(answer, Malformed))
    assert echoed == [request.request for request in readable]
    assert sum(isinstance(answer, Malformed) for answer in answers) == 400 - len(readable)
    assert {answer.client for answer in answers} == {"stranger", ""}


# Hostile peers. Each leaves without waiting for an answer.


def _no_delimiter(endpoint: str, chance: random.Random) -> None:
    with peer(endpoint, zmq.DEALER) as dealer:
        for _ in range(chance.randrange(1, 4)):
            dealer.send_multipart(encode_request(STATUS))


def _only_frames(endpoint: str, chance: random.Random) -> None:
    with peer(endpoint, zmq.DEALER) as dealer:
        for _ in range(chance.randrange(1, 4)):
            dealer.send_multipart([chance.randbytes(5), b"", b"", chance.randbytes(50)])
        dealer.poll(chance.randrange(10))


def _empty_frames(endpoint: str, chance: random.Random) -> None:
    with peer(endpoint, zmq.DEALER) as dealer:
        dealer.send_multipart([b""] * chance.randrange(1, 12))
        dealer.poll(chance.randrange(10))


def _leaves_before_the_answer(endpoint: str, chance: random.Random) -> None:
    with peer(endpoint) as one:
        one.send_multipart(chance.choice(list(MALFORMED.values())))
        one.poll(chance.randrange(10))


def _asks_and_leaves(endpoint: str, chance: random.Random) -> None:
    with peer(endpoint, zmq.DEALER) as dealer:
        for _ in range(20):
            dealer.send_multipart([b"", *encode_request(STATUS)])
        dealer.poll(chance.randrange(10))


def _other_socket_kind(endpoint: str, chance: random.Random) -> None:
    with peer(endpoint, chance.choice([zmq.SUB, zmq.PULL, zmq.REP])) as one:
        one.poll(chance.randrange(10))


def _raw(content: Callable[[random.Random], bytes]) -> Callable[[str, random.Random], None]:
    def send(endpoint: str, chance: random.Random) -> None:
        host, port = endpoint.removeprefix("tcp://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(content(chance))

    return send


ZMTP_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)

HOSTILE: list[Callable[[str, random.Random], None]] = [
    _no_delimiter,
    _only_frames,
    _empty_frames,
    _leaves_before_the_answer,
    _asks_and_leaves,
    _other_socket_kind,
    _raw(lambda chance: chance.randbytes(chance.randrange(2000))),
    _raw(lambda _: b"GET / HTTP/1.1\r\nHost: proxy\r\n\r\n"),
    _raw(lambda chance: ZMTP_GREETING[: chance.randrange(64)]),
    _raw(lambda chance: ZMTP_GREETING + chance.randbytes(chance.randrange(300))),
    _raw(lambda _: ZMTP_GREETING + b"\x06\xff\xff\xff\xff\xff\xff\xff\xff"),
]


def test_honest_clients_lose_nothing_beside_a_hostile_flood(
    service: Service, proxy: Process, chance: random.Random
) -> None:
    gone: list[int] = []

    def flood(chance: random.Random) -> None:
        endpoints = (service.publisher_endpoint, service.subscriber_endpoint)
        for number in range(HOSTILE_PEERS // FLOODS):
            HOSTILE[number % len(HOSTILE)](endpoints[chance.randrange(2)], chance)
            gone.append(number)

    floods = [
        threading.Thread(target=flood, args=(random.Random(chance.random()),), daemon=True)
        for _ in range(FLOODS)
    ]
    count = 0
    with service.open_subscriber("s") as subscriber, service.open_publisher("p") as publisher:
        subscriber.subscribe("t")
        for thread in floods:
            thread.start()
        while any(thread.is_alive() for thread in floods) or count < 200:
            assert not publisher.put("t", b"%d" % count).duplicate
            (message,) = subscriber.get("t", timeout_s=10)
            assert (message.offset, message.payload) == (count, b"%d" % count)
            count += 1
    assert len(gone) == HOSTILE_PEERS
    assert proxy.exit_code is None
    assert service.status().dropped_requests >= HOSTILE_PEERS // len(HOSTILE)
    assert service.payloads("t") == [b"%d" % n for n in range(count)]


@pytest.mark.usefixtures("proxy")
def test_a_put_whose_sender_left_is_stored_once(service: Service) -> None:
    hello = Hello(client="stranger", epoch=1, request=1, role="publisher", nonce=b"12345678")
    answer_to(service.publisher_endpoint, encode_request(hello))
    with peer(service.publisher_endpoint) as one:
        one.send_multipart(encode_request(a_put(), BODY))
        eventually(lambda: service.status().topics, "topic of the put")

    reply = answer_to(service.publisher_endpoint, encode_request(a_put(), BODY))

    assert type(reply).__name__ == "Duplicate"
    assert service.payloads("t") == [b"m"]
