"""Faults that readers of the code found, each as the shortest story that shows it."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

import pytest

from reliable_pubsub.common.batch import Message
from reliable_pubsub.common.errors import (
    ConfigurationError,
    DamagedError,
    InUseError,
    LostError,
    StorageFailedError,
)
from reliable_pubsub.common.limits import KIB, MIB
from reliable_pubsub.common.messages import LogChanged, TopicPosition
from reliable_pubsub.common.plan_mark import PlanMark, begin_plan
from reliable_pubsub.common.retry import RetryPolicy, ask
from reliable_pubsub.common.state_file import MemoryState
from reliable_pubsub.common.steps import PlanPosition
from reliable_pubsub.proxy.log_reader import StoreReader
from reliable_pubsub.proxy.schema import TABLES
from reliable_pubsub.proxy.state import BrokerSettings
from reliable_pubsub.proxy.topic_log import Retention
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.publisher.outbox import Outbox
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.output import Output, Shown, begin_output
from tests.fakes import (
    FakeClock,
    FakeTransport,
    Link,
    MemoryProxy,
    a_body,
    a_broker,
    a_hello,
    a_put,
    a_sub,
    an_append,
    as_stored,
    sub_ack,
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
    """P4: with another file in between, or with none, the first one had a hole."""
    begun = begin_output(PlanMark("digest", 2), tmp_path / "a.jsonl", again=False)
    mark = begun.at(PlanPosition(1, 0), 120)

    assert begin_output(mark, tmp_path / "a.jsonl", again=False) == mark
    for other in (tmp_path / "b.jsonl", None):
        with pytest.raises(ConfigurationError, match=r"a\.jsonl"):
            begin_output(mark, other, again=False)
    assert begin_output(mark, tmp_path / "b.jsonl", again=True).output_bytes == 0


def test_a_run_that_began_without_an_output_file_gets_none_later(tmp_path: Path) -> None:
    mark = PlanMark("digest", 2).at(PlanPosition(0, 1))

    with pytest.raises(ConfigurationError, match="without --output"):
        begin_output(mark, tmp_path / "a.jsonl", again=False)


@pytest.mark.parametrize(("step", "told"), [(1, "at step 2 of 2"), (2, "has finished another")])
def test_a_refused_plan_is_told_how_far_the_other_one_is(step: int, told: str) -> None:
    mark = PlanMark("first", 2, step=step)

    with pytest.raises(ConfigurationError, match=told):
        begin_plan(mark, "second", steps=3, again=False, file="second.yaml")
    following = begin_plan(mark, "second", steps=3, again=True, file="second.yaml")

    assert (following.position, following.run) == (PlanPosition(), 2)


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
    retention = Retention(topic_bytes_max=3 * MIB, on_bound="lose_oldest")
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
            super().__init__()
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


def test_a_topic_that_is_refused_leaves_its_messages_in_the_plan() -> None:
    """R16: LIMIT gave up the batch and left the plan behind it; the run then ended with 0."""
    outbox = Outbox({})
    outbox.meet(position(0), adopt=False)
    before, behind = PlanMark("digest", 1), PlanMark("digest", 1, step=1)
    outbox.mark_plan(before)
    outbox.number("t", 1, 0, b"body", behind)

    outbox.dropped()

    assert outbox.plan == before
    assert outbox.next_sequence("t") == 1


def test_a_refused_start_leaves_the_output_file_as_it_is(tmp_path: Path) -> None:
    """It was cut at the opening, before the proxy had seen that the state was an old copy."""
    path = tmp_path / "got.jsonl"
    path.write_bytes(b"one\ntwo\n")

    Output(path, recorded_bytes=4).close()

    assert path.read_bytes() == b"one\ntwo\n"


def test_a_second_process_on_an_output_file_is_refused(tmp_path: Path) -> None:
    first = Output(tmp_path / "got.jsonl", 0)

    with pytest.raises(InUseError):
        Output(tmp_path / "got.jsonl", 0)

    first.close()


@pytest.mark.parametrize("clock_is_behind", [False, True])
def test_a_fresh_subscription_knows_its_log_again(clock_is_behind: bool) -> None:
    """P6: set back to a copy and grown again, the log had other messages at the same offsets."""
    proxy = a_broker()
    for sequence in range(1, 4):
        proxy.put(sequence)
    copy = as_stored(proxy.durable)
    if clock_is_behind:
        proxy.now_ns = 5
    proxy.put(4)
    confirmed = sub_ack(proxy.ask(a_sub(1)))

    grown = MemoryProxy(copy, boot="boot-2")
    grown.now_ns = proxy.now_ns if clock_is_behind else proxy.now_ns + 10**9
    grown.ask(a_hello("publisher", "p", epoch=2))
    grown.ask(a_hello("subscriber", "s", epoch=2))
    body = a_body(b"another")
    grown.ask(a_put(4, epoch=2, body=body), body)
    answer = grown.ask(
        a_sub(
            1, epoch=2, log=confirmed.log, cursor=confirmed.cursor, witness_ns=confirmed.witness_ns
        )
    )

    assert confirmed.witness_ns is not None
    assert isinstance(answer, LogChanged)


def test_a_read_error_of_the_system_is_no_traceback() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(TABLES)
    reader = StoreReader(connection)
    connection.close()

    with pytest.raises(DamagedError):
        reader.read(1, 0, messages_max=1, bytes_max=0)


def test_a_payload_cannot_command_a_terminal() -> None:
    shown: list[str] = []

    Shown(shown.append, 0).append([Message("t", 0, "p", 1, 0, b"\x1b[2Jgone\nline")])

    assert shown == ["t 0 p_1: \\x1b[2Jgone\\x0aline"]


def test_a_put_that_could_not_be_written_down_is_not_sent_later() -> None:
    """R3: the caller had heard of a failure and put again, and both were stored."""

    class FullOnce(MemoryState):
        full = False

        def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
            if self.full and "pending" in changes:
                self.full = False
                raise StorageFailedError("no space")

    link, clock, state = Link(a_broker()), FakeClock(), FullOnce()
    publisher = Publisher("p", transport=FakeTransport(link, clock), clock=clock, state=state)
    publisher.put("t", b"a")

    state.full = True
    with pytest.raises(StorageFailedError):
        publisher.put("t", b"b")
    publisher.put("t", b"b")

    assert [batch.body for batch in link.proxy.log.batches[1]] == [a_body(b"a"), a_body(b"b")]
