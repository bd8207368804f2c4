"""What strangers send: each request gets one answer, the rest of the world continues."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest
import zmq
from msgspec import UNSET

from reliable_pubsub.common.core.answers import AnyReply, Malformed, PutAck
from reliable_pubsub.common.core.limits import FRAME_BYTES_MAX
from reliable_pubsub.common.core.message_base import Request
from reliable_pubsub.common.core.requests import Hello, Put
from reliable_pubsub.common.core.status import Status, StatusReport
from reliable_pubsub.common.core.wire import PROTOCOL, decode_reply, encode
from reliable_pubsub.common.system import IS_LINUX
from reliable_pubsub.proxy import front_door
from scripts.fuzzer.malformed import BODY, MALFORMED, a_put, header

from .harness import ANY_PORT, Process, Service, eventually, zmq_context

PUTS_AT_ONCE = 24
ANSWER_MS = 600_000  # an answer that is owed comes within this time
SILENCE_MS = 200  # long enough for an answer that must not come


@contextmanager
def peer(endpoint: str, kind: int = zmq.REQ) -> Iterator[zmq.Socket[bytes]]:
    """A raw socket. A send waits for the connection; what was sent goes out before the end."""
    with zmq_context(linger_ms=1000) as context:
        one = context.socket(kind)
        one.setsockopt(zmq.IMMEDIATE, 1)
        one.setsockopt(zmq.SNDTIMEO, ANSWER_MS)
        one.setsockopt(zmq.RCVTIMEO, ANSWER_MS)
        one.connect(endpoint)
        yield one


def answer_to(endpoint: str, frames: Sequence[bytes]) -> AnyReply:
    """Send frames as a REQ socket does; return the answer."""
    with peer(endpoint) as one:
        one.send_multipart(frames)
        return decode_reply(one.recv_multipart())[0]


STATUS = Status(client="stranger", epoch=0, request=1)


@pytest.fixture
def proxy(service: Service) -> Iterator[Process]:
    """A proxy that is as alive after the test as before."""
    proxy = service.start_proxy()
    yield proxy
    assert proxy.exit_code is None, proxy.stderr
    assert proxy.complaints == ""


def test_a_turn_takes_few_requests_of_one_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come, the other endpoint has its turn, and commits have theirs."""
    monkeypatch.setattr(front_door, "REQUESTS_TURN_MAX", 4)
    engine = Mock(outputs=())
    with zmq_context() as context:
        door = front_door.FrontDoor(context, "publisher", ANY_PORT)
        with peer(door.endpoint, zmq.DEALER) as one:
            for _ in range(40):
                one.send_multipart([b"", *encode(STATUS)])
            taken = [0]
            while taken[-1] < 40:
                assert door.socket.poll(ANSWER_MS)
                assert door.turn(engine, Mock())
                taken.append(engine.receive.call_count)
        door.close()

    assert max(later - before for before, later in pairwise(taken)) <= 4


def test_few_answers_are_kept_for_a_peer_that_does_not_read() -> None:
    """Promise P7; beyond the bound of its socket ZeroMQ drops them, without a word."""
    with zmq_context() as context:
        door = front_door.FrontDoor(context, "publisher", ANY_PORT)
        kept = door.socket.getsockopt(zmq.SNDHWM)
        door.close()

    assert kept == front_door.PEER_ANSWERS_MAX == 32


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
        (True, {"verb": "BYE"}),
        (True, {"verb": "ACK", "topic": "t", "generation": 1, "boot": "", "cursor": 0}),
        (True, {"verb": "HISTORY", "topic": "t", "start": ["now"]}),
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
        frames = encode(request_, BODY)
    else:
        echo = {"client": "stranger", "epoch": 1, "request": 7}
        frames = [PROTOCOL, header(request_ | echo)]

    reply = answer_to(endpoint, frames)

    assert isinstance(reply, Malformed)
    assert "does not belong" in reply.text
    assert (reply.client, reply.epoch, reply.request) == ("stranger", 1, 7)


@pytest.mark.usefixtures("proxy")
def test_status_is_answered_at_both_endpoints(service: Service) -> None:
    """Row 1.28: one that is busy or out of reach hides nothing."""
    for endpoint in (service.publisher_endpoint, service.subscriber_endpoint):
        assert isinstance(answer_to(endpoint, encode(STATUS)), StatusReport)


def unread(endpoint: str) -> int:
    """Connections of an endpoint on which something has come and was not read, by the kernel."""
    port = f":{int(endpoint.rpartition(':')[2]):04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    fields = [line.split()[1:5] for line in lines]
    established = "01"
    return sum(
        int(queues.partition(":")[2], 16) > 0
        for local, _, state, queues in fields
        if local.endswith(port) and state == established
    )


def test_puts_of_many_clients_share_a_commit(service: Service, proxy: Process) -> None:
    """Row 1.5: a REP socket would hold one request, and each would have a commit alone.

    The proxy is stopped until all have asked, so how fast they ask plays no part.
    """
    with ExitStack() as stack:
        clients = [
            stack.enter_context(peer(service.publisher_endpoint)) for _ in range(PUTS_AT_ONCE)
        ]
        for number, client in enumerate(clients):
            who = {"client": f"c{number}", "epoch": 1}
            hello = Hello(**who, request=1, role="publisher", nonce=b"12345678")  # type: ignore[arg-type]
            client.send_multipart(encode(hello))
            client.recv_multipart()
        before = service.status().committer

        proxy.pause()
        for number, client in enumerate(clients):
            put = a_put(client=f"c{number}", epoch=1, request=2, first_sequence=1)
            client.send_multipart(encode(put, BODY))
        if IS_LINUX:  # what is sent may still be in this process
            at_the_proxy = "puts at the proxy"
            eventually(lambda: unread(service.publisher_endpoint) >= PUTS_AT_ONCE, at_the_proxy)
        proxy.signal(signal.SIGCONT)
        for client in clients:
            assert isinstance(decode_reply(client.recv_multipart())[0], PutAck)

        after = service.status().committer
    assert before is not UNSET
    assert after is not UNSET
    assert 1 <= after.commits - before.commits <= PUTS_AT_ONCE // 2


@pytest.mark.usefixtures("proxy")
def test_a_frame_above_the_maximum_ends_the_connection_and_nothing_else(
    service: Service,
) -> None:
    with peer(service.publisher_endpoint, zmq.DEALER) as honest:
        with peer(service.publisher_endpoint) as hostile:
            monitor = hostile.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            hostile.send_multipart(encode(a_put(), b"x" * (FRAME_BYTES_MAX + 1)))
            assert monitor.poll(ANSWER_MS), "the proxy kept the connection"
            assert not hostile.poll(SILENCE_MS), "there was an answer"
            hostile.disable_monitor()
        honest.send_multipart([b"", *encode(STATUS)])
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
        dealer.send_multipart([b"", *encode(hello)])
        decode_reply(dealer.recv_multipart()[1:])
        answers = []
        for number in range(2, 402):
            if chance.random() < 0.3:
                dealer.send_multipart([b"", *chance.choice(malformed)])
            elif chance.random() < 0.5:
                readable.append(Status(client="stranger", epoch=1, request=number))
                dealer.send_multipart([b"", *encode(readable[-1])])
            else:
                readable.append(a_put(request=number, first_sequence=1 + chance.randrange(3)))
                dealer.send_multipart([b"", *encode(readable[-1], BODY)])
            if number % 10 == 1:
                answers += [decode_reply(dealer.recv_multipart()[1:])[0] for _ in range(10)]

        assert not dealer.poll(SILENCE_MS), "a request got two answers"
    echoed = sorted(answer.request for answer in answers if not isinstance(answer, Malformed))
    assert echoed == [request.request for request in readable]
    assert sum(isinstance(answer, Malformed) for answer in answers) == 400 - len(readable)
    assert {answer.client for answer in answers} == {"stranger", ""}


@pytest.mark.usefixtures("proxy")
def test_a_put_whose_sender_left_is_stored_once(service: Service) -> None:
    hello = Hello(client="stranger", epoch=1, request=1, role="publisher", nonce=b"12345678")
    answer_to(service.publisher_endpoint, encode(hello))
    with peer(service.publisher_endpoint) as one:
        one.send_multipart(encode(a_put(), BODY))
        eventually(lambda: service.status().topics, "topic of the put")

    reply = answer_to(service.publisher_endpoint, encode(a_put(), BODY))

    assert type(reply).__name__ == "Duplicate"
    assert service.payloads("t") == [b"hostile"]
