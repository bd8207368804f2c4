"""A disk that does not answer: what needs it is put off, what is stored is served."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import zmq

from reliable_pubsub import Earliest, Publisher, RetryPolicy, TryLaterError
from reliable_pubsub.common.core.answers import AnyReply, Busy, Duplicate, HelloAck, PutAck, SubAck
from reliable_pubsub.common.core.message_base import Reply, Request
from reliable_pubsub.common.core.requests import Ack, Hello
from reliable_pubsub.common.core.status import CommitterStatus, Status, StatusReport
from reliable_pubsub.common.core.wire import decode_reply, encode
from reliable_pubsub.proxy import committer
from tests.fakes import a_hello, a_put, a_sub, put_body

from .gated_store import GatedStore
from .harness import PATIENCE_S, Service, eventually
from .test_front_door import peer

MESSAGES = 20
ACKNOWLEDGERS = 9
# Every answer comes; one that does not, because it waits for the disk, is not waited for again.
AT_ONCE = RetryPolicy(timeout_s=PATIENCE_S / 2, retries_max=0)


class Peer:
    """A REQ socket that may leave its answer where it is."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket

    def send(self, request: Request, body: bytes | None = None) -> None:
        self._socket.send_multipart(encode(request, body))

    def answer(self) -> AnyReply:
        return decode_reply(self._socket.recv_multipart())[0]

    def ask(self, request: Request, body: bytes | None = None) -> AnyReply:
        self.send(request, body)
        return self.answer()

    def ask_until_settled(self, request: Request, body: bytes | None = None) -> Reply:
        """Ask as long as the answer is BUSY."""

        def look() -> Reply | None:
            reply = self.ask(request, body)
            return None if isinstance(reply, Busy) else reply

        return eventually(look, "definite answer")


@pytest.fixture(autouse=True, params=["the loop", "the committer"])
def who_commits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever thread is in the commit that hangs, the other one continues."""
    monkeypatch.setattr(committer, "FAST_S", math.inf if request.param == "the loop" else -1.0)


@pytest.fixture
def peers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connected(peers: ExitStack, endpoint: str) -> Peer:
    return Peer(peers.enter_context(peer(endpoint)))


def an_acknowledger(peers: ExitStack, service: Service, client: str) -> tuple[Peer, Ack]:
    """A subscriber, and the acknowledgement of its first message."""
    one = connected(peers, service.subscriber_endpoint)
    assert isinstance(one.ask(a_hello("subscriber", client)), HelloAck)
    subscribed = one.ask(a_sub(client=client, cursor=0))
    assert isinstance(subscribed, SubAck)
    generation, boot = subscribed.generation, subscribed.boot
    ack = Ack(
        client=client, epoch=1, request=2, topic="t", generation=generation, boot=boot, cursor=1
    )
    return one, ack


@pytest.mark.usefixtures("server")
class TestWhileTheDiskDoesNotAnswer:
    def test_gets_continue_though_other_subscribers_acknowledge(
        self, store: GatedStore, service: Service, peers: ExitStack
    ) -> None:
        with service.open_publisher("p") as publisher:
            publisher.put_many("t", [b"%d" % n for n in range(MESSAGES)])
        reader = peers.enter_context(service.open_subscriber("reader", retry=AT_ONCE))
        reader.subscribe("t", start=Earliest)
        clients = [an_acknowledger(peers, service, f"s{n}") for n in range(ACKNOWLEDGERS)]
        store.hang()

        for one, ack in clients:
            one.send(ack)
        store.reach()
        got = [message.payload for n in range(MESSAGES) for message in reader.get("t")]

        assert got == [b"%d" % n for n in range(MESSAGES)]
        assert all(isinstance(one.answer(), Busy) for one, _ in clients)
        store.gate.set()
        for one, ack in clients:
            assert isinstance(one.ask_until_settled(ack), PutAck)

    def test_a_put_is_put_off_and_stored_once(
        self, store: GatedStore, service: Service, peers: ExitStack
    ) -> None:
        publisher = connected(peers, service.publisher_endpoint)
        publisher.ask(a_hello("publisher", "p"))
        store.hang()

        first = publisher.ask(a_put(1), put_body(1))
        second = publisher.ask(a_put(1), put_body(1))
        report = connected(peers, service.publisher_endpoint).ask(
            Status(client="w", epoch=0, request=1)
        )
        store.gate.set()
        stored = publisher.ask_until_settled(a_put(1), put_body(1))

        assert (type(first), type(second)) == (Busy, Busy)
        assert isinstance(report, StatusReport)
        assert isinstance(stored, Duplicate)
        assert (stored.offset, service.topic("t").end) == (0, 1)

    def test_nothing_new_is_taken_that_would_have_to_be_kept_for_it(
        self, store: GatedStore, service: Service, peers: ExitStack
    ) -> None:
        publisher = connected(peers, service.publisher_endpoint)
        publisher.ask(a_hello("publisher", "p"))
        store.hang()
        publisher.ask(a_put(1), put_body(1))

        for sequence in range(2, 30):
            assert isinstance(publisher.ask(a_put(sequence), put_body(sequence)), Busy)
        stranger = Hello(client="q", epoch=1, request=1, role="publisher", nonce=b"12345678")
        assert isinstance(publisher.ask(stranger), Busy)

        report = service.status().committer
        assert isinstance(report, CommitterStatus)
        assert report.queued_records == 2  # the topic and its first batch


@pytest.mark.usefixtures("server")
def test_a_full_disk_is_reported_in_the_log_once_and_so_is_its_end(
    store: GatedStore, service: Service
) -> None:
    with service.open_publisher("p", retry=AT_ONCE) as publisher:
        publisher.put("t", b"1")
        store.is_full = True
        for _ in range(3):
            with pytest.raises(TryLaterError):
                publisher.put("t", b"2")
        told = list(store.warnings)
        store.is_full = False
        eventually(lambda: settled(publisher), "space for the message in doubt")
        eventually(lambda: len(store.warnings) > 1, "word of the space")

    assert len(told) == 1
    assert "puts are refused" in told[0]
    assert "puts continue" in store.warnings[1]


def settled(publisher: Publisher) -> bool:
    try:
        return publisher.resume() is not None
    except TryLaterError:
        return False
