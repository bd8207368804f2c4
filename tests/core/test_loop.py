"""A loop over `messages`: one write for many of them, and at any crash what was in hand."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.client_state import MARKS_MAX
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.publisher.client import Publisher
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.core.inbox import Inbox
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world
from tests.interrupting import Interrupted


class CountingDisk(Disk):
    """Counts its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def write(self, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        self.writes += 1
        super().write(changes, durable=durable)

    def copy(self) -> CountingDisk:
        """What the next process finds, if this one is killed now."""
        copied = CountingDisk()
        copied.values, copied.marks = dict(self.values), list(self.marks)
        return copied


class House:
    """A proxy, a disk, and a subscriber to some topics that hold messages."""

    def __init__(self, count: int = 10, batch: int = 10, topics: tuple[str, ...] = ("t",)) -> None:
        self.link = Link(MemoryProxy())
        self.disk = CountingDisk()
        self.subscriber = self.opened(self.disk)
        with Publisher("p", _world=a_world(self.link)) as publisher:
            for topic in topics:
                self.subscriber.subscribe(topic)
                for first in range(0, count, batch):
                    publisher.put_many(topic, [b"%d" % n for n in range(first, first + batch)])
        self.disk.writes = 0

    def transport(self) -> FakeTransport:
        return FakeTransport(self.link, FakeClock())

    def opened(self, disk: Disk, **more: object) -> Subscriber:
        transport = self.transport()
        return Subscriber("s", _world=a_world(transport, transport._clock, disk), **more)  # type: ignore[arg-type]


def took(subscriber: Subscriber, count: int, topic: str = "t") -> list[Message]:
    """What a loop has given before the program leaves it."""
    found = []
    for message in subscriber.messages(topic, timeout_s=0.0):
        found.append(message)
        if len(found) == count:
            break
    return found


def facts(messages: list[Message]) -> list[tuple[int, int]]:
    return [(message.offset, message.delivery_count) for message in messages]


def in_hand(disk: CountingDisk, topic: str = "t") -> tuple[int, tuple[tuple[int, int], ...]]:
    """Cursor, and what was delivered after it, for the next process if this one is killed now."""
    place = Inbox(disk.values, lambda: disk.marks).places[topic]
    return place.cursor, place.in_hand


@pytest.mark.parametrize("batch", [1, 3, 10])
def test_what_a_killed_loop_had_in_hand_comes_again_marked_and_nothing_else(batch: int) -> None:
    house = House(count=30, batch=batch)

    for message in house.subscriber.messages("t", timeout_s=0.0):
        assert in_hand(house.disk) == (message.offset, ((message.offset + 1, 1),))

    assert facts([message]) == [(29, 1)]


def test_a_kill_before_the_row_of_the_next_run_finds_the_mark_of_the_last() -> None:
    """More batches than a run may have were fetched, so no request comes between two runs."""
    house = House(count=400, batch=1)
    found: list[tuple[int, tuple[tuple[int, int], ...]]] = []
    write = house.disk.write

    def kill_before(changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        found.append(in_hand(house.disk))
        write(changes, durable=durable)

    taken = -1
    for message in house.subscriber.messages("t", timeout_s=0.0):
        if taken < 0:
            house.disk.write = kill_before  # type: ignore[method-assign]
        # In hand until the loop came back; processed once that was written before a request.
        assert set(found) <= {(taken, ((taken + 1, 1),)), (taken + 1, ())}
        found.clear()
        taken = message.offset
    assert taken == 399


def test_many_messages_are_one_write_for_the_answer_and_one_before_the_next_request() -> None:
    house = House(count=500, batch=100)

    assert len(list(house.subscriber.messages("t", timeout_s=0.0))) == 500
    # Of 100, then of all others that the loop seems to need; and durably before each request.
    assert house.disk.writes <= 6


def test_the_second_crash_counts_too() -> None:
    house = House()
    took(house.subscriber, 4)
    second = house.opened(house.disk.copy())
    disk = second._opened.state
    assert isinstance(disk, CountingDisk)

    assert facts(took(second, 3)) == [(3, 2), (4, 1), (5, 1)]
    assert facts(took(house.opened(disk.copy()), 2)) == [(5, 2), (6, 1)]


def test_marks_that_are_lost_bring_the_whole_run_again_marked() -> None:
    house = House(count=3, batch=3)
    took(house.subscriber, 2)
    disk = house.disk.copy()
    disk.marks = [0] * MARKS_MAX

    assert facts(took(house.opened(disk), 3)) == [(0, 2), (1, 2), (2, 2)]


def test_a_mark_of_another_run_is_of_no_account() -> None:
    house = House(count=3, batch=3)
    took(house.subscriber, 1)
    disk = house.disk.copy()
    disk.marks = [(number ^ 1 << 32) + 2 if number else 0 for number in disk.marks]

    assert facts(took(house.opened(disk), 3)) == [(0, 2), (1, 2), (2, 2)]


def test_a_damaged_mark_brings_the_whole_run_again_marked() -> None:
    house = House(count=3, batch=3)
    took(house.subscriber, 1)
    disk = house.disk.copy()
    disk.marks = [number + 3 if number else 0 for number in disk.marks]

    assert facts(took(house.opened(disk), 3)) == [(0, 2), (1, 2), (2, 2)]


def test_at_qos_0_what_a_loop_has_given_never_comes_again() -> None:
    house = House()
    house.subscriber.subscribe("t", qos=0)

    for message in house.subscriber.messages("t", timeout_s=0.0):
        assert in_hand(house.disk) == (message.offset + 1, ())


class TestAnotherCallInALoop:
    def test_finds_the_last_message_in_hand_and_those_before_it_processed(self) -> None:
        house = House()
        loop = house.subscriber.messages("t", timeout_s=0.0)
        assert [next(loop).offset for _ in range(4)] == [0, 1, 2, 3]

        house.subscriber.acknowledge("t")

        assert house.link.proxy.state.topics["t"].subscriptions["s"].cursor == 4
        assert facts([next(loop), next(loop)]) == [(4, 1), (5, 1)]

    def test_get_continues_where_the_loop_is_and_the_loop_after_it(self) -> None:
        house = House()
        loop = house.subscriber.messages("t", timeout_s=0.0)
        next(loop)

        assert facts(house.subscriber.get("t", max_messages=2)) == [(1, 1), (2, 1)]
        assert facts([next(loop)]) == [(3, 1)]

    def test_rejects_the_message_in_hand_only(self) -> None:
        house = House()
        loop = house.subscriber.messages("t", timeout_s=0.0)
        first, second = next(loop), next(loop)

        with pytest.raises(UsageError, match="not in hand"):
            house.subscriber.reject(first, "no")
        house.subscriber.reject(second, "no")

        assert facts([next(loop)]) == [(2, 1)]

    def test_of_another_topic_leaves_both_exact(self) -> None:
        house = House(topics=("t", "u"))
        t, u = (house.subscriber.messages(topic, timeout_s=0.0) for topic in "tu")

        for offset in range(10):
            assert (next(t).offset, next(u).offset) == (offset, offset)
            for topic in "tu":
                assert in_hand(house.disk, topic) == (offset, ((offset + 1, 1),))

    def test_closes_with_the_message_in_hand_acknowledged(self) -> None:
        house = House()
        for message in house.subscriber.messages("t"):
            if message.offset == 5:
                house.subscriber.close()
                break

        assert house.link.proxy.state.topics["t"].subscriptions["s"].cursor == 6

    def test_that_closes_ends_the_loop_with_an_error(self) -> None:
        house = House()
        loop = house.subscriber.messages("t")
        next(loop)
        house.subscriber.close()

        with pytest.raises(UsageError, match="closed"):
            next(loop)


def test_a_loop_that_is_left_by_an_error_leaves_its_message_unacknowledged() -> None:
    house = House()

    def program() -> None:
        with house.subscriber:
            for message in house.subscriber.messages("t"):
                if message.offset == 2:
                    raise ValueError("third")

    with pytest.raises(ValueError, match="third"):
        program()

    assert facts(took(house.opened(house.disk.copy()), 2)) == [(2, 2), (3, 1)]


class Interrupting(list[int]):
    """Marks whose owner is interrupted once, after a mark was set."""

    is_due = False

    def __setitem__(self, slot: int, number: int) -> None:  # type: ignore[override]
        super().__setitem__(slot, number)
        if self.is_due:
            self.is_due = False
            raise Interrupted


def test_a_message_whose_step_was_broken_off_comes_again_marked() -> None:
    house = House()
    house.disk.marks = marks = Interrupting(house.disk.marks)
    loop = house.subscriber.messages("t")
    next(loop)
    marks.is_due = True

    with pytest.raises(Interrupted):
        next(loop)

    house.subscriber.acknowledge("t")
    assert house.link.proxy.state.topics["t"].subscriptions["s"].cursor == 1
    assert facts(took(house.subscriber, 2)) == [(1, 2), (2, 1)]


class Calling(list[int]):
    """Marks at which a signal handler calls the client."""

    handler = staticmethod(lambda: None)

    def __setitem__(self, slot: int, number: int) -> None:  # type: ignore[override]
        super().__setitem__(slot, number)
        self.handler()


def test_a_handler_that_calls_the_client_in_a_step_is_refused_and_the_loop_continues() -> None:
    house = House()
    house.disk.marks = marks = Calling(house.disk.marks)
    loop = house.subscriber.messages("t", timeout_s=0.0)
    next(loop)

    def handler() -> None:
        with pytest.raises(UsageError, match="step of a loop"):
            house.subscriber.acknowledge("t")

    marks.handler = handler
    found = [next(loop)]
    marks.handler = lambda: None

    assert facts([*found, *loop]) == [(offset, 1) for offset in range(1, 10)]


def test_a_forked_child_takes_no_step_of_its_parents_loop() -> None:
    house = House()
    loop = house.subscriber.messages("t", timeout_s=0.0)
    next(loop)

    child = os.fork()
    if not child:  # it must not return into the tests
        try:
            next(loop)
            os._exit(1)
        except BaseException as error:
            os._exit(42 if type(error).__name__ == "ForkedError" else 2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
    assert facts([next(loop)]) == [(1, 1)]


def test_where_all_marks_are_used_each_message_is_a_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reliable_pubsub.subscriber.core.inbox.MARKS_MAX", 0)
    house = House()

    for message in house.subscriber.messages("t", timeout_s=0.0):
        assert in_hand(house.disk) == (message.offset, ((message.offset + 1, 1),))
    assert house.disk.writes >= 10
