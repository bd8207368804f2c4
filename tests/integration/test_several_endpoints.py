"""A service at several endpoints, whose proxies hang, listen late, or answer late."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
import zmq

from reliable_pubsub.common.transport import ReqTransport

from .harness import PATIENCE_S, Service, zmq_context

SHORTLY_S = 0.05


class Node:
    """A ROUTER that answers when the test says so."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], endpoint: str) -> None:
        self.endpoint = endpoint
        self._socket = context.socket(zmq.ROUTER)

    def listen(self) -> Node:
        self._socket.bind(self.endpoint)
        return self

    def await_request(self) -> None:
        assert self._socket.poll(int(PATIENCE_S * 1000)), "a request"

    def answer(self, answer: bytes) -> None:
        """Answer the next request."""
        self.await_request()
        *envelope, _request = self._socket.recv_multipart()
        self._socket.send_multipart([*envelope, answer])


@pytest.fixture
def nodes(service: Service) -> Iterator[tuple[Node, Node]]:
    with zmq_context() as context:
        yield Node(context, service.own_endpoint()), Node(context, service.own_endpoint())


@pytest.fixture
def asking(nodes: tuple[Node, Node]) -> Iterator[ReqTransport]:
    with closing(ReqTransport(",".join(node.endpoint for node in nodes))) as transport:
        yield transport


def is_silent(asking: ReqTransport) -> None:
    asking.send([b"request"])
    assert asking.receive(SHORTLY_S) is None
    asking.move_on()


def test_one_that_begins_to_listen_answers_although_it_is_the_turn_of_one_that_hangs(
    nodes: tuple[Node, Node], asking: ReqTransport
) -> None:
    _hangs, standby = nodes[0].listen(), nodes[1]
    for _ in nodes:
        is_silent(asking)
    asking.send([b"request"])

    standby.listen().answer(b"answer")

    assert asking.receive(PATIENCE_S) == [b"answer"]
    assert asking.endpoint == standby.endpoint
    asking.send([b"next"])
    standby.answer(b"next answer")
    assert asking.receive(PATIENCE_S) == [b"next answer"]


def test_one_that_answers_late_is_heard_while_the_next_is_asked_and_asked_again(
    nodes: tuple[Node, Node], asking: ReqTransport
) -> None:
    slow = nodes[0].listen()
    is_silent(asking)
    asking.send([b"request"])

    slow.answer(b"answer")

    assert asking.receive(PATIENCE_S) == [b"answer"]
    assert asking.endpoint == slow.endpoint


def test_an_answer_to_a_request_that_was_given_up_is_never_heard(
    nodes: tuple[Node, Node], asking: ReqTransport
) -> None:
    slow = nodes[0].listen()
    is_silent(asking)
    slow.await_request()  # a socket that is closed drops what has not left yet
    asking.reopen()
    asking.send([b"another request"])
    slow.answer(b"too late")
    slow.answer(b"answer")

    assert asking.receive(PATIENCE_S) == [b"answer"]
