"""GETs that wait at a real proxy: they keep no client from asking, and all are answered."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import zmq
from msgspec import UNSET

from reliable_pubsub.common.core.answers import AnyReply, HelloAck, MessageBatches, NoMessagesYet
from reliable_pubsub.common.core.wire import decode_reply, encode
from tests.fakes import a_get, a_hello, a_sub, sub_ack

from .harness import Process, Service, eventually
from .test_front_door import peer

READERS = 40
FEW = 4  # that a proxy answers in its last second, on a busy machine too
LONG_MS = 30_000  # the longest that a GET may ask for


def answer(socket: zmq.Socket[bytes]) -> AnyReply:
    return decode_reply(socket.recv_multipart())[0]


@pytest.fixture
def peers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def proxy(service: Service) -> Process:
    return service.start_proxy()


def a_reader(peers: ExitStack, service: Service, client: str, wait_ms: int) -> zmq.Socket[bytes]:
    """A subscriber of an empty topic whose GET waits."""
    socket = peers.enter_context(peer(service.subscriber_endpoint))
    socket.send_multipart(encode(a_hello("subscriber", client)))
    assert isinstance(answer(socket), HelloAck)
    socket.send_multipart(encode(a_sub(client=client)))
    place = sub_ack(answer(socket))
    get = a_get(0, client=client, boot=place.boot, request=2, wait_ms=wait_ms)
    socket.send_multipart(encode(get))
    return socket


def test_are_all_answered_by_one_put_and_keep_no_client_from_asking(
    service: Service, proxy: Process, peers: ExitStack
) -> None:
    assert proxy.exit_code is None
    readers = [a_reader(peers, service, f"r{n}", LONG_MS) for n in range(READERS)]
    eventually(lambda: service.status().waiting_gets == READERS, "GETs that wait")

    with service.open_publisher("p") as publisher:
        publisher.put("t", b"hello")

    assert all(isinstance(answer(one), MessageBatches) for one in readers)
    assert service.status().waiting_gets is UNSET


@pytest.mark.usefixtures("proxy")
def test_are_answered_when_their_time_is_over(service: Service, peers: ExitStack) -> None:
    assert isinstance(answer(a_reader(peers, service, "r", 50)), NoMessagesYet)


def test_are_answered_by_a_proxy_that_stops(
    service: Service, proxy: Process, peers: ExitStack
) -> None:
    readers = [a_reader(peers, service, f"r{n}", LONG_MS) for n in range(FEW)]
    eventually(lambda: service.status().waiting_gets == FEW, "GETs that wait")

    proxy.signal(signal.SIGTERM)

    assert all(isinstance(answer(one), NoMessagesYet) for one in readers)
