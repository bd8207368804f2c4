"""`on` and `run` in a group: a message that fails is given back, and dies after its retries."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from reliable_pubsub import Message, Subscriber, UsageError
from tests.core.test_group_members import House as Group
from tests.core.test_pushing import SilentLink
from tests.fakes import FakeTransport, a_world, groups_of
from tests.interrupting import Interrupted, Interrupter


class House(Group):
    """A group with workers that run a handler."""

    def __init__(self, **terms: Any) -> None:
        super().__init__(**terms)
        self.handled: list[tuple[str, int]] = []  # payload, delivery count

    def worker(self, name: str = "w1") -> Subscriber:
        transport = FakeTransport(self.link, self.clock)
        link = SilentLink()
        return Subscriber(name, _world=a_world(transport, self.clock, connect_data=lambda _: link))

    def handle(self, message: Message) -> None:
        self.handled.append((message.payload.decode(), message.delivery_count))

    def failing(self, bad: str, times: int = 10**6) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            self.handle(message)
            if message.payload.decode() == bad and message.delivery_count <= times:
                raise ValueError(f"bad {bad}")

        return handle

    @property
    def cursor(self) -> int:
        return self.proxy.state.topics["jobs"].subscriptions["group:workers"].cursor


def a_house(*payloads: bytes, **terms: Any) -> House:
    """The group is there before its messages."""
    house = House(**terms)
    house.member("first").close()
    house.put(*payloads)
    return house


def test_run_joins_the_group_and_acknowledges_what_its_handler_returned_from() -> None:
    house = a_house(b"a", b"b", b"c")
    worker = house.worker()
    worker.on("jobs", house.handle, group="workers")

    worker.run(timeout_s=0)

    assert house.handled == [("a", 1), ("b", 1), ("c", 1)]
    assert house.cursor == 3


def test_one_that_was_subscribed_keeps_its_terms() -> None:
    house = a_house(b"a", lease_s=5.0)
    worker = house.worker()
    worker.subscribe("jobs", group="workers", lease_s=7.0)
    worker.on("jobs", house.handle, group="workers")

    worker.run(timeout_s=0)

    assert groups_of(house.proxy.state, "jobs")["workers"].terms.lease_ms == 7_000


def test_a_message_that_fails_is_given_back_for_the_pause_and_any_member_has_it_then() -> None:
    house = a_house(b"a", b"b", b"c")
    worker, other = house.worker(), house.member("w2")
    worker.on("jobs", house.failing("b"), group="workers", pause_s=10)
    worker.run(timeout_s=0)
    assert house.handled == [("a", 1), ("b", 1), ("c", 1)]
    assert other.get("jobs") == []

    house.pass_time(10.0)

    (message,) = other.get("jobs")
    assert (message.payload, message.delivery_count) == (b"b", 2)


def test_its_pauses_grow_and_after_its_retries_it_is_a_dead_letter() -> None:
    house = a_house(b"a", b"b")
    worker = house.worker()
    worker.on("jobs", house.failing("a"), group="workers", retries=2, pause_s=1)

    worker.run(timeout_s=8)

    assert house.handled == [("a", 1), ("b", 1), ("a", 2), ("a", 3)]
    assert house.cursor == 2
    (letter,) = worker.history("jobs.dead")
    assert letter.headers is not None
    assert letter.headers["dead-letter-reason"] == "ValueError: bad a (handled 3 times)"


def test_with_stop_run_ends_with_the_error_and_the_message_is_given_back_at_the_next_call() -> None:
    house = a_house(b"a", b"b", b"c")
    worker = house.worker()
    worker.on("jobs", house.failing("b"), group="workers", retries=0, on_failure="stop")
    with pytest.raises(ValueError, match="bad b"):
        worker.run(timeout_s=0)

    worker.acknowledge("jobs")

    found = house.member("w2").get("jobs", max_messages=9)
    assert [(m.payload, m.delivery_count) for m in found] == [(b"b", 2)]


def test_a_stopped_run_gives_back_what_it_had_ahead() -> None:
    house = a_house(b"a", b"b", b"c")
    worker = house.worker()

    def handle(message: Message) -> None:
        house.handle(message)
        worker.stop()

    worker.on("jobs", handle, group="workers")
    worker.run()
    worker.close()

    assert house.handled == [("a", 1)]
    found = house.member("w2").get("jobs", max_messages=9)
    assert [(m.payload, m.delivery_count) for m in found] == [(b"b", 1), (b"c", 1)]


def test_a_long_handler_extends_the_lease_of_its_message() -> None:
    house = a_house(b"a", b"b", lease_s=10.0)
    worker, other = house.worker(), house.member("w2")

    def handle(message: Message) -> None:
        house.handle(message)
        for _ in range(3):
            house.pass_time(6.0)
            worker.extend(message)
            if message.payload == b"a":
                assert b"a" not in [m.payload for m in other.get("jobs", max_messages=9)]

    worker.on("jobs", handle, group="workers")
    worker.subscribe("jobs", group="workers", lease_s=10.0)
    worker.run(timeout_s=0)

    assert ("a", 1) in house.handled
    assert ("a", 2) not in house.handled


def test_one_that_fails_after_its_lease_has_settled_nothing() -> None:
    house = a_house(b"a", lease_s=10.0)
    worker, other = house.worker(), house.member("w2")
    taken: list[Message] = []

    def handle(message: Message) -> None:
        house.pass_time(11.0)
        taken.extend(other.get("jobs"))
        raise ValueError("too late")

    worker.on("jobs", handle, group="workers")
    worker.subscribe("jobs", group="workers", lease_s=10.0)
    worker.run(timeout_s=0)

    other.ack(taken[0])
    assert house.cursor == 1


def test_a_handler_that_has_settled_its_message_may_fail_after_it() -> None:
    house = a_house(b"a", b"b")
    worker = house.worker()

    def handle(message: Message) -> None:
        house.handle(message)
        worker.ack(message)
        raise ValueError("too late to fail")

    worker.on("jobs", handle, group="workers", retries=0)
    worker.run(timeout_s=0)

    assert (house.handled, house.cursor) == ([("a", 1), ("b", 1)], 2)
    assert "jobs.dead" not in house.proxy.state.topics


def test_a_handler_that_gives_what_is_not_executed_yet_does_not_acknowledge_its_message() -> None:
    house = a_house(b"a")
    worker = house.worker()

    async def later() -> None:
        """Is not awaited."""

    worker.on("jobs", lambda _: later(), group="workers")
    with pytest.raises(UsageError, match="offset 0 of topic 'jobs' is not acknowledged"):
        worker.run(timeout_s=0)
    worker.close()

    assert house.cursor == 0


def test_a_group_and_plain_topics_take_turns() -> None:
    house = a_house(*[b"job"] * 3)
    worker = house.worker()
    worker.subscribe("news")
    house.publisher.put("news", b"new")
    worker.on("jobs", house.handle, group="workers")
    worker.on("news", house.handle)

    worker.run(timeout_s=3)

    assert sorted(house.handled) == [("job", 1)] * 3 + [("new", 1)]
    assert worker.is_pushed("news")
    assert not worker.is_pushed("jobs")


def test_a_member_of_another_group_is_refused() -> None:
    house = a_house(b"a")
    worker = house.worker()
    worker.subscribe("jobs", group="others")
    worker.on("jobs", house.handle, group="workers")

    with pytest.raises(UsageError, match="cannot be one of 'workers'"):
        worker.run()


@pytest.mark.parametrize("step", [17, pytest.param(7, marks=pytest.mark.long)])
def test_whatever_line_run_is_broken_off_at_no_job_is_lost_or_taken_for_handled(step: int) -> None:
    """An exception of a signal handler at every line of `run`, the handler's calls included."""

    def trial(at: int) -> int:
        house = a_house(b"a", b"b", b"c")
        worker = house.worker()
        interrupter = Interrupter([at])
        done: list[str] = []

        def handle(message: Message) -> None:
            house.handle(message)
            worker.extend(message)
            done.append(message.payload.decode())

        worker.on("jobs", handle, group="workers", pause_s=0)
        with suppress(Interrupted), interrupter:
            worker.run(timeout_s=0)
        worker.subscribe("jobs", group="workers")  # if its join was broken off
        found = [worker.get("jobs", max_messages=9) for _ in range(3)]
        again = [message.payload.decode() for messages in found for message in messages]
        assert set(done + again) == set("abc"), (at, done, again, interrupter.places)
        return interrupter.count

    lines = trial(10**9)
    assert lines > 100
    for at in range(1, lines + 1, step):
        trial(at)
