"""`publisher.stream()` against a real proxy: order, one outcome for each ticket, errors."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator

import pytest

from reliable_pubsub import InDoubtError, InvalidNameError, Publisher, TooLargeError, UsageError
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.limits import MIB
from reliable_pubsub.publisher.core.receipt import Receipt
from reliable_pubsub.publisher.streams.stream import LOOK_S, Stream, Ticket

from .harness import IMPATIENT, PATIENCE_S, Service, eventually


def test_a_stream_keeps_the_order_and_tells_the_place_of_each_message(running: Service) -> None:
    with running.open_publisher("p") as publisher:
        publisher.put("t", b"before")
        with publisher.stream(linger_s=0.002) as stream:
            tickets = [stream.put("t", b"%d" % number) for number in range(5000)]
            receipts = [ticket.result(timeout_s=PATIENCE_S) for ticket in tickets]
        after = publisher.put("t", b"after")

    assert [receipt.offset for receipt in receipts] == list(range(1, 5001))
    assert [receipt.first_sequence for receipt in receipts] == list(range(2, 5002))
    assert {receipt.count for receipt in receipts} == {1}
    assert after.first_sequence == 5002
    expected = [b"before", *(b"%d" % number for number in range(5000)), b"after"]
    assert running.payloads("t") == expected


def test_topics_and_sizes_may_alternate(running: Service, chance: random.Random) -> None:
    sizes = [chance.choice([0, 1, 100, 70_000, 400_000]) for _ in range(60)]
    with running.open_publisher("p") as publisher, publisher.stream() as stream:
        tickets = [
            stream.put(f"t{number % 3}", bytes([number]) * size)
            for number, size in enumerate(sizes)
        ]
        stream.flush()
        assert all(ticket.result(timeout_s=0).topic for ticket in tickets)
    for topic in range(3):
        expected = [bytes([n]) * size for n, size in enumerate(sizes) if n % 3 == topic]
        assert running.payloads(f"t{topic}") == expected


def test_flush_returns_when_everything_is_stored(running: Service) -> None:
    with running.open_publisher("p") as publisher, publisher.stream(linger_s=3600) as stream:
        ticket = stream.put("t", b"waits for company")
        with pytest.raises(TimeoutError):
            ticket.result(timeout_s=0.05)
        stream.flush()
        assert ticket.result(timeout_s=0).offset == 0
        stream.flush()  # of nothing


def test_a_stream_has_its_publisher_alone_until_it_is_closed(running: Service) -> None:
    with running.open_publisher("p") as publisher:
        with publisher.stream() as stream:
            with pytest.raises(UsageError):
                publisher.put("t", b"between")
            with pytest.raises(UsageError):
                publisher.stream()
            with pytest.raises(TooLargeError):
                stream.put("t", b"x" * MIB)
            with pytest.raises(InvalidNameError):
                stream.put("", b"x")
            stream.put("t", b"good")
        assert publisher.put("t", b"after").offset == 1
        with pytest.raises(UsageError):
            stream.put("t", b"closed")


@pytest.mark.parametrize("with_state", [False, True])
def test_after_an_error_every_ticket_has_it_and_nothing_is_lost_or_doubled(
    with_state: bool, running: Service
) -> None:
    state_dir = running.state_dir if with_state else None
    with running.open_publisher("p", retry=IMPATIENT, state_dir=state_dir) as publisher:
        stream = publisher.stream(linger_s=0.001)
        stored = [stream.put("t", b"%d" % number) for number in range(100)]
        stream.flush()
        running.proxy.kill()
        failed = [stream.put("t", b"failed")]
        with pytest.raises(InDoubtError) as error:
            failed[0].result(timeout_s=PATIENCE_S)
        with pytest.raises(InDoubtError) as again:
            stream.put("t", b"refused at once")
        with pytest.raises(InDoubtError) as at_flush:
            stream.flush()
        with pytest.raises(InDoubtError) as at_close:
            stream.close()
        assert at_flush.value is at_close.value is error.value
        assert error.value.kept
        assert not again.value.kept
        assert [ticket.result(timeout_s=0).offset for ticket in stored] == list(range(100))

        assert publisher.in_doubt is not None
        assert publisher.in_doubt.count == 1
        running.start_proxy()
        receipt = publisher.resume()
        assert receipt is not None
        assert (receipt.offset, receipt.count) == (100, 1)
        with publisher.stream() as stream:
            assert stream.put("t", b"next").result(timeout_s=PATIENCE_S).offset == 101

    expected = [*(b"%d" % number for number in range(100)), b"failed", b"next"]
    assert running.payloads("t") == expected


def test_messages_after_the_one_in_doubt_were_never_sent(running: Service) -> None:
    with running.open_publisher("p", retry=IMPATIENT) as publisher:
        stream = publisher.stream(linger_s=3600)
        stream.put("t", b"first")
        stream.flush()
        running.proxy.kill()
        tickets = [stream.put("t", bytes([n]) * 700_000) for n in range(4)]  # one batch each
        with pytest.raises(InDoubtError):
            stream.flush()
        assert [_error_of(ticket).kept for ticket in tickets] == [True, False, False, False]
        with pytest.raises(InDoubtError):
            stream.close()
        running.start_proxy()
        publisher.resume()
        publisher.put("t", b"last")

    assert running.payloads("t") == [b"first", bytes([0]) * 700_000, b"last"]


def _error_of(ticket: Ticket) -> InDoubtError:
    with pytest.raises(InDoubtError) as error:
        ticket.result(timeout_s=PATIENCE_S)
    return error.value


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Python's own handler, also where a shell began the tests with SIGINT ignored (`&`)."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("moment", ["in the block", "while it is flushed"])
def test_ctrl_c_ends_a_stream_soon_and_names_what_is_not_stored(
    moment: str, running: Service
) -> None:
    tickets: list[Ticket] = []

    def stream_to_a_dead_proxy(publisher: Publisher) -> None:
        with publisher.stream(linger_s=0) as stream:
            stream.put("t", b"stored").result(timeout_s=PATIENCE_S)
            running.proxy.kill()
            tickets.append(stream.put("t", b"in doubt"))
            eventually(lambda: publisher.outbox.pending, "batch in doubt")
            tickets.extend(stream.put(topic, b"not sent") for topic in ("u", "t", "u"))
            if moment == "in the block":
                raise KeyboardInterrupt
            threading.Thread(target=interrupt_flush, args=(stream,)).start()

    def interrupt_flush(stream: Stream) -> None:
        eventually(lambda: stream.sender._flushing, "flush")
        os.kill(os.getpid(), signal.SIGINT)

    with running.open_publisher("p", state_dir=running.state_dir) as publisher:
        with pytest.raises(KeyboardInterrupt) as interrupt:
            stream_to_a_dead_proxy(publisher)
        assert "interrupted" in str(_error_of(tickets[0]))  # not after all retries: a minute
        assert [_error_of(ticket).kept for ticket in tickets] == [True, False, False, False]
        (note,) = interrupt.value.__notes__
        assert "In doubt, and kept: 1 on 't'" in note
        assert "Not sent: 2 on 'u', 1 on 't'; put those again" in note
    running.start_proxy()
    with running.open_publisher("p", state_dir=running.state_dir) as publisher:
        publisher.put("t", b"after")
    assert running.payloads("t") == [b"stored", b"in doubt", b"after"]


def test_a_wait_for_a_stream_ends_soon_and_begins_again_so_no_ctrl_c_before_it_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits: list[float | None] = []
    may_be_stored = threading.Event()

    def put_batch(_topic: str, _batch: Batch) -> Receipt:
        may_be_stored.wait()
        raise InDoubtError("of no interest")

    def wait(timeout_s: float | None = None) -> bool:
        waits.append(timeout_s)
        if len(waits) > 1:
            raise KeyboardInterrupt
        return False

    stream = Stream(put_batch, linger_s=0)
    stream.put("t", b"1")
    monkeypatch.setattr(stream.sender._room, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        stream.flush()
    monkeypatch.undo()
    may_be_stored.set()
    with pytest.raises(InDoubtError):
        stream.close()

    assert waits == [pytest.approx(LOOK_S)] * 2


def test_ctrl_c_lets_a_stream_send_what_it_has_to_a_proxy_that_answers(running: Service) -> None:
    tickets: list[Ticket] = []

    def stream_and_interrupt(publisher: Publisher) -> None:
        with publisher.stream(linger_s=9) as stream:
            tickets.extend(stream.put("t", b"%d" % number) for number in range(9))
            raise KeyboardInterrupt

    with running.open_publisher("p") as publisher:
        with pytest.raises(KeyboardInterrupt) as interrupt:
            stream_and_interrupt(publisher)
        assert [ticket.result(timeout_s=0).offset for ticket in tickets] == list(range(9))
        assert not hasattr(interrupt.value, "__notes__")


def test_a_stream_lives_through_restarts_of_the_proxy(running: Service) -> None:
    with running.open_publisher("p") as publisher, publisher.stream(linger_s=0.001) as stream:
        tickets = []
        for number in range(3000):
            tickets.append(stream.put("t", b"%d" % number))
            if number % 1000 == 500:
                tickets[-50].result(timeout_s=PATIENCE_S)
                running.restart_proxy()
        offsets = [ticket.result(timeout_s=PATIENCE_S).offset for ticket in tickets]

    assert offsets == list(range(3000))
    assert running.payloads("t") == [b"%d" % number for number in range(3000)]
