"""The library against a real proxy: what a program sees when all is well, and at the limits."""

from __future__ import annotations

import os
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zmq

from reliable_pubsub import (
    FencedError,
    InDoubtError,
    InvalidNameError,
    LostError,
    Message,
    NotSubscribedError,
    Publisher,
    QoSWarning,
    Receipt,
    Subscriber,
    TooLargeError,
    TruncatedError,
    TryLaterError,
)
from reliable_pubsub.common.core.answers import PutAck
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX, MIB, PAYLOAD_BYTES_MAX

from .harness import BELIEVING, IMPATIENT, NOWHERE, PATIENCE_S, Service, eventually, losing_link


def put_numbers(service: Service, count: int, batch: int = 1, topic: str = "t") -> None:
    """Put b"0", b"1", ... in batches."""
    with service.open_publisher("numbers") as publisher:
        for first in range(0, count, batch):
            numbers = range(first, min(first + batch, count))
            publisher.put_many(topic, [b"%d" % number for number in numbers])


# Puts.


@pytest.fixture
def socket_kinds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every kind of socket that this process opens from here on."""
    kinds: list[int] = []
    opened = zmq.Socket.__init__

    def opening(socket: Any, context: Any, kind: int, *args: Any, **more: Any) -> None:
        kinds.append(kind)
        opened(socket, context, kind, *args, **more)

    monkeypatch.setattr(zmq.Socket, "__init__", opening)
    return kinds


@pytest.mark.filterwarnings("ignore::reliable_pubsub.QoSWarning")
def test_clients_use_req_alone_until_push_or_level_0_is_asked_for(
    running: Service, socket_kinds: list[int]
) -> None:
    """Row 1.2: a message comes when it is asked for, and what is pushed only goes ahead of that."""
    with running.open_subscriber("s") as subscriber, running.open_publisher("p") as publisher:
        subscriber.subscribe("t")
        publisher.put("t", b"m")
        assert len(subscriber.get("t", timeout_s=PATIENCE_S)) == 1
        subscriber.history("t", 0)
        assert set(socket_kinds) == {zmq.REQ}

        publisher.put("t", b"m", qos=0)
        assert set(socket_kinds) == {zmq.REQ, zmq.XPUB}
        subscriber.use_push("t", True)
        subscriber.get("t", timeout_s=0.01)
        assert set(socket_kinds) == {zmq.REQ, zmq.XPUB, zmq.XSUB, zmq.DEALER}


def test_every_endpoint_can_be_ipc(service: Service) -> None:
    """Row 1.20: requests of both sides, what is pushed, and what is put at QoS 0."""
    with tempfile.TemporaryDirectory() as short:  # the path of such a socket has 107 bytes at most
        service.publisher_endpoint = f"ipc://{short}/publishers"
        service.subscriber_endpoint = f"ipc://{short}/subscribers"
        service.push_endpoint = f"ipc://{short}/push"
        service.ingress_endpoint = f"ipc://{short}/ingress"
        service.start_proxy()
        assert {Path(short, name).is_socket() for name in os.listdir(short)} == {True}
        with service.open_subscriber("s") as subscriber, service.open_publisher("p") as publisher:
            subscriber.subscribe("t", push=True)

            def is_pushed() -> bool:
                publisher.put("t", b"stored")
                assert [m.payload for m in subscriber.get("t", timeout_s=PATIENCE_S)] == [b"stored"]
                return subscriber.push_counts("t").taken > 0

            eventually(is_pushed, "a push over ipc")
            eventually(
                lambda: publisher.put("t", b"not stored", qos=0).fate == "sent", "the ingress"
            )
            with pytest.warns(QoSWarning):
                assert [m.payload for m in subscriber.get("t", timeout_s=PATIENCE_S)] == [
                    b"not stored"
                ]


def test_libzmq_has_no_multicast_to_offer_here() -> None:
    """Row 4.13: the day that this fails, the row and decision 0016 can be thought over."""
    assert not zmq.has("pgm")


def test_a_receipt_names_the_message_and_its_place(running: Service) -> None:
    with running.open_publisher("sensor-1", retry=BELIEVING) as publisher:
        one = publisher.put("t", b"one")
        many = publisher.put_many("t", [b"two", b"three", b"four"])
        other = publisher.put("other", b"five")

    assert one == Receipt("t", "sensor-1", 1, 1, 0, "sync", False)
    assert one.message_id == "sensor-1_1"
    assert many == Receipt("t", "sensor-1", 2, 3, 1, "sync", False)
    assert other == Receipt("other", "sensor-1", 1, 1, 0, "sync", False)
    assert running.payloads("t") == [b"one", b"two", b"three", b"four"]


@pytest.mark.parametrize("durability", ["sync", "os", "snapshot"])
def test_a_receipt_names_how_often_and_how_surely(service: Service, durability: str) -> None:
    """Rows 0.22 and 1.42: the level is the publisher's, the durability the proxy's."""
    service.start_proxy("--durability", durability)
    with service.open_publisher("p") as publisher:
        receipts = [publisher.put("t", b"m", qos=1), publisher.put("t", b"m", qos=2)]

    assert [(one.qos, one.durability) for one in receipts] == [(1, durability), (2, durability)]


def test_a_publisher_without_state_takes_its_numbering_from_the_proxy(running: Service) -> None:
    with running.open_publisher("p", retry=BELIEVING) as first:
        first.put_many("t", [b"1", b"2", b"3"])
        with running.open_publisher("p", retry=BELIEVING) as second:
            assert second.put("t", b"4") == Receipt("t", "p", 4, 1, 3, "sync", False)
            with pytest.raises(FencedError) as fenced:
                first.put("t", b"never")
    assert (fenced.value.epoch, fenced.value.current_epoch) == (1, 2)
    assert running.payloads("t") == [b"1", b"2", b"3", b"4"]


def test_a_publisher_with_state_continues_in_the_next_process(
    running: Service, tmp_path: Path
) -> None:
    for number in range(3):
        with running.open_publisher("p", state_dir=tmp_path / "own") as publisher:
            assert publisher.put("t", b"%d" % number).first_sequence == number + 1


def test_a_put_in_doubt_is_kept_and_stored_once(running: Service) -> None:
    with (
        losing_link(running.publisher_endpoint, answers=0, kind=PutAck) as link,
        running.open_publisher("p", endpoint=link.endpoint, retry=IMPATIENT) as publisher,
    ):
        with pytest.raises(InDoubtError):
            publisher.put("t", b"heard of too late")
        assert publisher.in_doubt is not None
        link.heal()
        receipt = publisher.resume()
        assert receipt == Receipt("t", "p", 1, 1, 0, "sync", True)
        assert publisher.put("t", b"next").offset == 1
    assert running.payloads("t") == [b"heard of too late", b"next"]


def test_keys_headers_and_event_times_arrive_as_they_were(running: Service) -> None:
    with running.open_subscriber("s") as subscriber, running.open_publisher("p") as publisher:
        subscriber.subscribe("t")
        publisher.put("t", b"a", key=b"\xff", headers={"kind": "\u00fc"}, event_time_ns=-5)
        publisher.put_many("t", [b"b", b"c"], keys=[None, b""], event_times_ns=[1, None])
        a, b, c = (subscriber.get("t", timeout_s=PATIENCE_S)[0] for _ in range(3))

    assert (a.key, a.headers, a.event_time_ns) == (b"\xff", {"kind": "\u00fc"}, -5)
    assert (b.key, b.headers, b.event_time_ns) == (None, None, 1)
    assert (c.key, c.headers, c.event_time_ns) == (b"", None, None)
    assert [m.message_id for m in (a, b, c)] == ["p_1", "p_2", "p_3"]
    assert a.timestamp_ns < b.timestamp_ns == c.timestamp_ns


def test_limits_are_refused_before_anything_is_sent() -> None:
    with Publisher("p", endpoint=NOWHERE, retry=IMPATIENT) as publisher:
        for payloads in ([b"x" * MIB], [b"x" * 500_000] * 3, [b""] * (BATCH_MESSAGES_MAX + 1)):
            with pytest.raises(TooLargeError):
                publisher.put_many("t", payloads)
        for topic in ("", "a\nb", "\u00fc" * 128, "\ud800"):
            with pytest.raises(InvalidNameError):
                publisher.put(topic, b"x")
        assert publisher.in_doubt is None
    for client in ("a_b", "", ".a", "x" * 65):
        with pytest.raises(InvalidNameError):
            Publisher(client)
        with pytest.raises(InvalidNameError):
            Subscriber(client)


def test_the_largest_and_the_emptiest_messages_pass(running: Service) -> None:
    topic = "\u00fc" * 127 + "/"  # 255 bytes
    with running.open_subscriber("s") as subscriber, running.open_publisher("x" * 64) as publisher:
        subscriber.subscribe(topic)
        publisher.put(topic, b"x" * PAYLOAD_BYTES_MAX)
        publisher.put_many(topic, [b""] * BATCH_MESSAGES_MAX)

        assert subscriber.get(topic, timeout_s=PATIENCE_S)[0].payload == b"x" * PAYLOAD_BYTES_MAX
        messages = subscriber.get(topic, max_messages=BATCH_MESSAGES_MAX, timeout_s=PATIENCE_S)
        assert [message.offset for message in messages] == list(range(1, BATCH_MESSAGES_MAX + 1))


# Gets.


def test_a_subscription_begins_at_the_end_and_hears_every_later_put(running: Service) -> None:
    put_numbers(running, 5)
    with running.open_subscriber("s") as subscriber, running.open_publisher("p") as publisher:
        assert subscriber.subscribe("t") == 5
        assert subscriber.get("t") == []
        publisher.put("t", b"later")
        (message,) = subscriber.get("t", timeout_s=PATIENCE_S)
        assert (message.offset, message.payload, message.redelivered) == (5, b"later", False)


def test_a_message_is_acknowledged_when_the_loop_comes_back(
    running: Service, tmp_path: Path
) -> None:
    subscriber = running.open_subscriber("s", state_dir=tmp_path / "own")
    subscriber.subscribe("t")
    put_numbers(running, 6, batch=3)

    def show(message: Message) -> None:
        if message.offset == 2:
            raise RuntimeError("in the middle of the third message")

    with pytest.raises(RuntimeError, match="third"), subscriber:
        deque(map(show, subscriber.messages("t")))

    with running.open_subscriber("s", state_dir=tmp_path / "own") as subscriber:
        again, *_ = subscriber.get("t", timeout_s=PATIENCE_S)
        assert (again.offset, again.redelivered, again.delivery_count) == (2, True, 2)
        (new,) = subscriber.get("t", timeout_s=PATIENCE_S)
        assert (new.offset, new.redelivered, new.delivery_count) == (3, False, 1)
    # Leaving the block without an error acknowledges what was in hand.
    assert running.topic("t").subscriptions[0].cursor == 4
    with running.open_subscriber("s", state_dir=tmp_path / "own") as subscriber:
        left = list(subscriber.messages("t", timeout_s=0.1))
        assert [(message.offset, message.redelivered) for message in left] == [
            (4, False),
            (5, False),
        ]


@pytest.mark.parametrize("calls_again", [True, False], ids=["call", "close"])
def test_a_message_whose_exception_is_caught_within_the_block_counts_as_processed(
    calls_again: bool, running: Service, tmp_path: Path
) -> None:
    with running.open_subscriber("s", state_dir=tmp_path / "own") as subscriber:
        subscriber.subscribe("t")
        put_numbers(running, 3)
        with suppress(RuntimeError):
            for message in subscriber.messages("t"):
                raise RuntimeError(message)
        if calls_again:
            assert [one.offset for one in subscriber.get("t", timeout_s=PATIENCE_S)] == [1]

    assert running.topic("t").subscriptions[0].cursor == 1 + calls_again


def test_every_new_crash_counts_as_a_delivery(running: Service, tmp_path: Path) -> None:
    with running.open_subscriber("s", state_dir=tmp_path / "own") as subscriber:
        subscriber.subscribe("t")
    put_numbers(running, 3, batch=3)
    for attempt in range(1, 4):
        subscriber = running.open_subscriber("s", state_dir=tmp_path / "own")
        messages = subscriber.get("t", max_messages=2, timeout_s=PATIENCE_S)
        assert [message.delivery_count for message in messages] == [attempt, attempt]
        subscriber.abandon()


@pytest.mark.parametrize("with_state", [True, False])
def test_a_get_inside_a_batch_continues_inside_it(
    with_state: bool, running: Service, tmp_path: Path
) -> None:
    state_dir = tmp_path / "own" if with_state else None
    with running.open_subscriber("s", state_dir=state_dir) as subscriber:
        subscriber.subscribe("t")
        put_numbers(running, 20, batch=10)
        offsets = [m.offset for m in subscriber.get("t", max_messages=7, timeout_s=PATIENCE_S)]
    assert running.topic("t").subscriptions[0].cursor == 7
    running.restart_proxy()
    with running.open_subscriber("s", state_dir=state_dir) as subscriber:
        subscriber.subscribe("t")
        while messages := subscriber.get("t", max_messages=4, timeout_s=0.1):
            assert not any(message.redelivered for message in messages)
            offsets += [message.offset for message in messages]
    assert offsets == list(range(20))


def test_an_acknowledgement_is_durable_at_the_proxy(running: Service) -> None:
    with running.open_subscriber("s") as subscriber:
        subscriber.subscribe("t")
        put_numbers(running, 4)
        subscriber.get("t", max_messages=3, timeout_s=PATIENCE_S)
        subscriber.acknowledge("t")
        running.restart_proxy()
        assert running.topic("t").subscriptions[0].cursor == 3
        assert subscriber.get("t", timeout_s=PATIENCE_S)[0].offset == 3


def test_after_unsubscribe_there_is_nothing_to_get(running: Service) -> None:
    with running.open_subscriber("s") as subscriber:
        with pytest.raises(NotSubscribedError):
            subscriber.get("t")
        subscriber.subscribe("t")
        put_numbers(running, 3)
        subscriber.get("t", timeout_s=PATIENCE_S)
        subscriber.unsubscribe("t")
        subscriber.unsubscribe("t")  # idempotent
        with pytest.raises(NotSubscribedError):
            subscriber.get("t")
        assert running.topic("t").subscriptions == ()
        assert subscriber.subscribe("t") == 3
        assert running.topic("t").subscriptions[0].generation == 2


def test_history_needs_no_subscription_and_moves_nothing(running: Service) -> None:
    put_numbers(running, 10, batch=4)
    with running.open_subscriber("s") as subscriber:
        assert [m.offset for m in subscriber.history("t", 3, max_messages=3)] == [3, 4, 5]
        assert [m.payload for m in subscriber.history("t", 9)] == [b"9"]
        assert subscriber.history("t", 10) == []
        assert subscriber.history("never put", 0) == []
    assert running.topic("t").subscriptions == ()


# Bounds of a topic.


def test_acknowledged_history_goes_and_is_reported_as_gone(service: Service) -> None:
    service.start_proxy("-f", service.file("proxy.yaml", "history_bytes: 0\n"))
    with service.open_subscriber("s") as subscriber, service.open_publisher("p") as publisher:
        subscriber.subscribe("t")
        for _ in range(6):
            publisher.put("t", b"x" * 600_000)
        assert service.topic("t").start == 0  # the subscriber has not read it
        for _ in range(5):
            subscriber.get("t", timeout_s=PATIENCE_S)
        subscriber.acknowledge("t")
        start = service.removed("t")
        assert start <= 5
        with pytest.raises(TruncatedError) as truncated:
            subscriber.history("t", 0)
        assert truncated.value.start == start
        assert subscriber.get("t", timeout_s=PATIENCE_S)[0].offset == 5


def test_a_full_topic_refuses_puts_until_it_is_read(service: Service) -> None:
    bounds = "topic_bytes_max: 2000000\nhistory_bytes: 0\n"
    service.start_proxy("-f", service.file("proxy.yaml", bounds))
    subscriber = service.open_subscriber("s")
    publisher = service.open_publisher("p", retry=BELIEVING)
    with subscriber, publisher:
        subscriber.subscribe("t")
        for _ in range(3):
            publisher.put("t", b"x" * 600_000)
        with pytest.raises(TryLaterError) as full:
            publisher.put("t", b"y" * 600_000)
        assert full.value.code == "FULL"
        assert service.topic("t").end == 3

        assert len([subscriber.get("t", timeout_s=PATIENCE_S) for _ in range(3)]) == 3
        subscriber.acknowledge("t")
        service.removed("t")
        receipt = publisher.resume()
        assert receipt is not None
        assert (receipt.offset, receipt.duplicate) == (3, False)
        assert subscriber.get("t", timeout_s=PATIENCE_S)[0].payload == b"y" * 600_000


def test_a_topic_may_lose_its_oldest_but_never_silently(service: Service) -> None:
    bounds = "topic_bytes_max: 2500000\non_bound: lose_oldest\n"
    service.start_proxy("-f", service.file("proxy.yaml", bounds))
    with service.open_subscriber("s") as subscriber, service.open_publisher("p") as publisher:
        subscriber.subscribe("t")
        for _ in range(8):
            publisher.put("t", b"x" * 600_000)
        start = service.topic("t").start
        assert start > 0
        with pytest.raises(LostError) as lost:
            subscriber.get("t")
        assert (lost.value.first, lost.value.end) == (0, start)
        offsets = [m.offset for m in subscriber.messages("t", timeout_s=0.1)]
        assert offsets == list(range(start, 8))
