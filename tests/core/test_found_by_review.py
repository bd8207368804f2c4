"""Faults that readers of the code found, each as the shortest story that shows it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest

from reliable_pubsub.common.errors import ConfigurationError, LostError, StorageFailedError
from reliable_pubsub.common.limits import KIB, MIB
from reliable_pubsub.common.messages import TopicPosition
from reliable_pubsub.common.plan_mark import PlanMark
from reliable_pubsub.common.retry import RetryPolicy, ask
from reliable_pubsub.common.state_file import MemoryState
from reliable_pubsub.proxy.log_reader import StoreReader
from reliable_pubsub.proxy.schema import TABLES
from reliable_pubsub.proxy.state import BrokerSettings
from reliable_pubsub.proxy.topic_log import Retention
from reliable_pubsub.publisher.outbox import Outbox
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.output import begin_output
from tests.fakes import (
    FakeClock,
    FakeTransport,
    Link,
    a_body,
    a_broker,
    a_hello,
    a_put,
    an_append,
)


def position(last_sequence: int) -> TopicPosition:
    return TopicPosition(topic="t", log="store.1", last_sequence=last_sequence, offset=None)


def test_to_adopt_takes_no_duplicate_that_cannot_be_compared_for_a_success() -> None:
    """The message would be stored nowhere, and its put would have returned."""
    outbox = Outbox({})
    outbox.meet(position(3), adopt=False)
    outbox.number("t", 1, 0, b"new")

    outbox.meet(position(9), adopt=True)

    assert outbox.is_unproven(None)
    outbox.meet(position(9), adopt=True, conflict=True)
    assert outbox.pending is not None
    assert outbox.pending.first_sequence == 10
    assert not outbox.is_unproven(None)


def test_the_middle_of_a_batch_that_is_not_written_yet_can_be_read() -> None:
    """Durability `snapshot`: it was reported as LOST, without any crash."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(TABLES)
    reader = StoreReader(connection)
    batch = an_append(4, count=3)
    reader.add([batch])

    found = reader.read(1, 5, messages_max=1, bytes_max=0)

    assert found == [batch]


def test_an_output_file_of_somebody_else_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "precious.txt"
    path.write_text("not ours\n")

    with pytest.raises(ConfigurationError, match="is not empty"):
        begin_output(PlanMark("digest"), path, again=False)

    assert path.read_text() == "not ours\n"


def test_a_run_goes_on_in_the_output_file_it_began(tmp_path: Path) -> None:
    mark = begin_output(PlanMark("digest"), tmp_path / "a.jsonl", again=False)

    assert begin_output(mark, tmp_path / "a.jsonl", again=False) == mark
    with pytest.raises(ConfigurationError, match=r"a\.jsonl"):
        begin_output(mark, tmp_path / "b.jsonl", again=False)
    assert begin_output(mark, tmp_path / "b.jsonl", again=True).output_bytes == 0


def test_an_interrupt_leaves_a_socket_that_can_send_again() -> None:
    class Interrupted(FakeTransport):
        def receive(self, timeout_s: float) -> list[bytes] | None:
            raise KeyboardInterrupt

    clock = FakeClock()
    transport = Interrupted(lambda frames: None, clock)
    request = a_hello("publisher", "p")

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            ask(
                request,
                None,
                transport=transport,
                clock=clock,
                retry=RetryPolicy(),
                chance=lambda: 0.0,
            )

    assert transport.reopened == 2


def test_a_loss_is_reported_until_the_program_comes_back() -> None:
    """P6: the place was moved before the report; a kill between the two silenced it."""
    retention = Retention(topic_bytes_max=3 * MIB, lose_oldest=True)
    link = Link(a_broker(settings=BrokerSettings(retention=retention)))
    clock = FakeClock()
    subscriber = Subscriber("s", transport=FakeTransport(link, clock), clock=clock)
    subscriber.subscribe("t")
    body = a_body(b"x" * 700 * KIB)
    for sequence in range(1, 8):
        link.proxy.ask(a_put(sequence, body=body), body)

    with pytest.raises(LostError) as lost:
        subscriber.get("t")
    place_at_the_report = subscriber.inbox.places["t"].cursor
    messages = subscriber.get("t")

    assert place_at_the_report == lost.value.first == 0
    assert messages[0].offset == lost.value.end


def test_a_full_disk_of_the_subscriber_makes_no_message_be_skipped() -> None:
    """The message had left the queue when its hand-over could not be written."""

    class FullOnce(MemoryState):
        def __init__(self) -> None:
            self.full = False

        def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
            if self.full:
                self.full = False
                raise StorageFailedError("no space")

    link, clock, state = Link(a_broker()), FakeClock(), FullOnce()
    subscriber = Subscriber("s", transport=FakeTransport(link, clock), clock=clock, state=state)
    subscriber.subscribe("t")
    for sequence in range(1, 4):
        link.proxy.put(sequence)
    first = subscriber.get("t")

    state.full = True
    with pytest.raises(StorageFailedError):
        subscriber.get("t")
    rest = subscriber.get("t") + subscriber.get("t")

    assert [message.offset for message in first + rest] == [0, 1, 2]
