"""Replay against a real proxy: begin in the past, continue into the present, and miss nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reliable_pubsub import (
    Earliest,
    LastReceived,
    Now,
    OutOfRangeError,
    Publisher,
    Start,
    TruncatedError,
    UsageError,
    at_offset,
    at_time,
    newest,
)

from .harness import PATIENCE_S, Service

RACE_MESSAGES = 20_000


@pytest.fixture
def running(service: Service) -> Service:
    """A service whose proxy runs, with ten messages on topic t."""
    service.start_proxy()
    with service.open_publisher("p") as publisher:
        for number in range(10):
            publisher.put("t", b"%d" % number)
    return service


@contextmanager
def racing(publisher: Publisher) -> Iterator[None]:
    """Put at full speed beside the block, a bounded number of messages."""

    def put() -> None:
        with publisher:
            for first in range(0, RACE_MESSAGES, 50):
                publisher.put_many("race", [b"%d" % n for n in range(first, first + 50)])

    thread = threading.Thread(target=put)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@pytest.mark.parametrize(
    ("start", "first"), [(Earliest, 0), (at_offset(4), 4), (newest(3), 7), (at_time(0), 0)]
)
def test_a_subscription_begins_where_it_says_and_continues_with_what_comes(
    running: Service, start: Start, first: int
) -> None:
    with running.open_subscriber("s") as subscriber, running.open_publisher("p") as publisher:
        assert subscriber.subscribe("t", start=start) == first
        publisher.put("t", b"10")
        found = [subscriber.get("t", timeout_s=PATIENCE_S)[0].offset for _ in range(first, 11)]
        assert subscriber.get("t") == []
    assert found == list(range(first, 11))


def test_a_replay_flows_into_the_present_while_a_publisher_runs_at_full_speed(
    service: Service,
) -> None:
    """Rows 0.18 and 2.8: three readers jump into a running stream; no seam, nothing twice."""
    service.start_proxy()
    publisher = service.open_publisher("p")
    publisher.put("race", b"-1")
    with racing(publisher):
        for number, start in enumerate((Earliest, newest(100), at_offset(1), Now)):
            with service.open_subscriber(f"s{number}") as subscriber:
                first = subscriber.subscribe("race", start=start)
                expected = first
                while expected <= RACE_MESSAGES:
                    for message in subscriber.get("race", max_messages=500, timeout_s=PATIENCE_S):
                        assert (message.offset, message.payload) == (
                            expected,
                            b"%d" % (expected - 1),
                        )
                        expected += 1


def test_a_position_that_was_read_begins_with_exactly_what_came_since(service: Service) -> None:
    """Row 2.2: between the reading and the subscription messages come; none falls between."""
    service.start_proxy()
    publisher = service.open_publisher("p")
    publisher.put("race", b"-1")
    with racing(publisher), service.open_subscriber("s") as subscriber:
        for _ in range(20):
            reading = subscriber.read("race")
            assert reading.message is not None
            assert reading.position.offset == reading.message.offset + 1
            assert subscriber.subscribe("race", start=reading.position) == reading.position.offset
            subscriber.unsubscribe("race")
        subscriber.subscribe("race")
        assert subscriber.seek("race", reading.position) == reading.position.offset
        (after,) = subscriber.get("race", timeout_s=PATIENCE_S)
        assert after.offset == reading.position.offset


def test_a_topic_that_does_not_exist_can_be_read_and_subscribed_to(running: Service) -> None:
    with running.open_subscriber("s") as subscriber, running.open_publisher("p") as publisher:
        reading = subscriber.read("new")
        assert reading.message is None
        publisher.put("new", b"in between")
        subscriber.subscribe("new", start=reading.position)
        assert [m.payload for m in subscriber.get("new", timeout_s=PATIENCE_S)] == [b"in between"]
        with pytest.raises(UsageError, match="position is one of 'new'"):
            subscriber.subscribe("t", start=reading.position)


def test_the_last_received_continues_after_an_unsubscribe(running: Service) -> None:
    """Row 0.16: what was not delivered yet, also while it was not subscribed."""
    with running.open_subscriber("s") as subscriber, running.open_publisher("p") as publisher:
        assert subscriber.subscribe("t", start=LastReceived) == 0
        assert len(subscriber.get("t", max_messages=4, timeout_s=PATIENCE_S)) == 4
        subscriber.acknowledge("t")
        subscriber.unsubscribe("t")
        publisher.put("t", b"10")
        assert subscriber.subscribe("t", start=LastReceived) == 4
        assert subscriber.subscribe("t", start=LastReceived) == 4
        assert subscriber.subscribe("t", start=Now) == 4
        assert subscriber.seek("t", Now) == 11


def test_history_is_read_by_time_page_by_page_without_what_was_seen(running: Service) -> None:
    """Row 2.5: since a message, and not with it."""
    with running.open_subscriber("s") as subscriber:
        fifth = subscriber.history("t", 5)[0]
        page = subscriber.history("t", at_time(fifth.timestamp_ns + 1), max_messages=3)
        rest = subscriber.history("t", page[-1].offset + 1)
    assert [m.offset for m in page] == [6, 7, 8]
    assert [m.offset for m in rest] == [9]


def test_a_place_that_cannot_be_is_refused_with_what_can_be(running: Service) -> None:
    with running.open_subscriber("s") as subscriber:
        with pytest.raises(OutOfRangeError) as future:
            subscriber.subscribe("t", start=at_offset(99))
        assert (future.value.start, future.value.end) == (0, 10)
        with pytest.raises(OutOfRangeError, match="in the future"):
            subscriber.subscribe("t", start=at_time(2**62))
    assert running.topic("t").subscriptions == ()


def test_a_place_that_is_gone_is_refused_with_the_first_that_is_left(service: Service) -> None:
    service.start_proxy("-f", service.file("proxy.yaml", "history_bytes: 0\n"))
    with service.open_subscriber("s") as subscriber, service.open_publisher("p") as publisher:
        for _ in range(6):
            publisher.put("t", b"x" * 600_000)
        start = service.removed("t")
        with pytest.raises(TruncatedError) as gone:
            subscriber.subscribe("t", start=at_time(1))
        left = subscriber.history("t", Earliest)
        assert gone.value.start == start
        assert [m.offset for m in left][:1] == ([start] if left else [])


def test_a_step_file_says_where_to_begin_and_a_bad_word_is_reported_with_its_line(
    running: Service,
) -> None:
    steps = """\
steps:
  - action: subscribe
    topic: t
    from: offset 7
  - action: get
    topic: t
    number_of_times: 3
"""
    running.subscriber("s", steps).done()
    assert running.line_count("s") == 3

    bad = running.subscriber("s2", steps.replace("offset 7", "offset seven"))
    assert bad.wait() == 2
    assert "line 4, steps[0].from: 'offset seven' says no place to begin" in " ".join(
        bad.stderr.split()
    )

    future = running.subscriber("s3", steps.replace("offset 7", "offset 70"))
    assert future.wait() == 4
    assert "offset 70 is not reached yet; 0 to 10 can be" in " ".join(future.stderr.split())
