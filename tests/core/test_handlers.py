"""`on` and `run`: a handler for each topic, retries, dead letters, and each way that it can end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from reliable_pubsub import Message, Publisher, Subscriber, UsageError
from tests.core.test_pushing import SilentLink
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world
from tests.interrupting import Interrupted, Interrupter


class NoPushes(SilentLink):
    """A link that works and brings nothing, so topics are pulled now and then."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, seconds: float) -> None:
        """See `PushLink`."""
        self._clock.sleep(seconds)


class House:
    def __init__(self, *topics: str, **terms: Any) -> None:
        self.proxy, self.clock = MemoryProxy(), FakeClock()
        self.disk = Disk()
        link = FakeTransport(Link(self.proxy), self.clock)
        self.publisher = Publisher("p", _world=a_world(link, self.clock, Disk()))
        self.subscriber = self.a_subscriber()
        self.topics = topics or ("t",)
        for topic in self.topics:
            self.subscriber.subscribe(topic, **terms)
        self.handled: list[tuple[str, int]] = []  # payload, delivery count

    def a_subscriber(self) -> Subscriber:
        self.transport = FakeTransport(Link(self.proxy), self.clock)
        connect_data = lambda _: NoPushes(self.clock)  # noqa: E731
        world = a_world(self.transport, self.clock, self.disk, connect_data=connect_data)
        return Subscriber("s", _world=world)

    def put(self, *payloads: str, topic: str = "t") -> None:
        self.publisher.put_many(topic, payloads, codec="text")

    def handle(self, message: Message) -> None:
        self.handled.append((message.value, message.delivery_count))

    def failing(self, *bad: str, times: int = 10**6) -> Callable[[Message], None]:
        left = dict.fromkeys(bad, times)

        def handle(message: Message) -> None:
            self.handle(message)
            if left.get(message.value, 0):
                left[message.value] -= 1
                raise ValueError(f"bad {message.value}")

        return handle

    def run(self, handler: Callable[[Message], object] | None = None, **policy: Any) -> None:
        for topic in self.topics:
            self.subscriber.on(topic, handler or self.handle, **policy)
        self.subscriber.run(timeout_s=1)

    def again(self) -> None:
        """The next process with this id."""
        self.subscriber.abandon()
        self.subscriber = self.a_subscriber()
        self.handled.clear()


def test_each_message_is_handled_once_in_order_and_acknowledged() -> None:
    house = House()
    house.put("a", "b", "c")
    house.put("d")
    house.run()
    assert house.handled == [("a", 1), ("b", 1), ("c", 1), ("d", 1)]

    house.again()
    house.run()
    assert house.handled == []


def test_a_fast_handler_of_one_topic_fetches_ahead_as_a_loop_does() -> None:
    house = House()
    for number in range(200):
        house.put(str(number))
    before = len(house.transport.sent)

    house.subscriber.on("t", house.handle)
    house.subscriber.run(timeout_s=0)

    assert len(house.handled) == 200
    assert len(house.transport.sent) - before <= 3


@pytest.mark.parametrize("on_failure", ["stop", "reject"])
def test_each_failure_of_a_handler_is_logged_with_its_traceback_and_its_message(
    caplog: pytest.LogCaptureFixture, on_failure: Any
) -> None:
    house = House()
    house.put("a")
    with suppress(ValueError):
        house.run(house.failing("a"), retries=1, pause_s=0, on_failure=on_failure)

    records = [record for record in caplog.records if "failed with ValueError" in record.message]
    assert len(records) == 2
    for record in records:
        assert "message p_1," in record.message
        assert "bad a" in caplog.text
        assert record.exc_info is not None
        assert record.exc_info[2] is not None
        assert 'raise ValueError(f"bad' in caplog.text


def test_a_handler_that_fails_is_called_again_with_growing_pauses() -> None:
    house = House()
    house.put("a", "b")
    before_s = house.clock.now_s()
    house.run(house.failing("a", times=2), retries=3, pause_s=10.0)

    assert house.handled == [("a", 1)] * 3 + [("b", 1)]
    assert 30 <= house.clock.now_s() - before_s < 35


def test_when_its_retries_are_used_up_run_ends_and_the_message_comes_again() -> None:
    house = House()
    house.put("a", "b", "c")
    with pytest.raises(ValueError, match="bad b"):
        house.run(house.failing("b"), retries=1)
    assert house.handled == [("a", 1), ("b", 1), ("b", 1)]

    house.handled.clear()
    assert [m.value for m in house.subscriber.get("t", max_messages=9)] == ["b", "c"]  # this client

    house.again()
    house.run()
    assert house.handled == [("b", 3), ("c", 2)]  # the next process


def test_an_exception_that_ends_iterators_ends_run_as_any_other() -> None:
    house = House()
    house.put("a")
    house.subscriber.on("t", lambda _: next(iter(())), retries=1)

    with pytest.raises(StopIteration):
        house.subscriber.run(timeout_s=1)
    assert house.subscriber.get("t")[0].redelivered


def test_with_reject_the_message_becomes_a_dead_letter_and_run_continues() -> None:
    house = House()
    house.put("a", "b", "c")
    house.run(house.failing("b"), retries=1, on_failure="reject")
    assert house.handled == [("a", 1), ("b", 1), ("b", 1), ("c", 1)]

    (letter,) = house.subscriber.history("t.dead")
    assert letter.value == "b"
    assert letter.headers is not None
    assert letter.headers["dead-letter-reason"] == "ValueError: bad b (handled 2 times)"


def test_an_error_text_that_no_header_can_hold_is_shortened_and_escaped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL, "reliable_pubsub")  # no report of a test can hold it, too

    def handle(message: Message) -> None:
        raise ValueError("\ud800" + "x" * 10_000)

    house = House()
    house.put("a")
    house.run(handle, retries=0, on_failure="reject")
    (letter,) = house.subscriber.history("t.dead")
    assert letter.headers is not None
    assert letter.headers["dead-letter-reason"].startswith("ValueError: \\ud800x")


def test_an_error_that_has_no_text_is_a_failure_like_any_other() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise KeyError("text")

    def handle(message: Message) -> None:
        raise MuteError

    house = House()
    house.put("a")
    house.run(handle, retries=0, on_failure="reject")
    (letter,) = house.subscriber.history("t.dead")
    assert letter.headers is not None
    assert letter.headers["dead-letter-reason"].startswith("MuteError: its text cannot be shown")


def test_several_topics_take_turns_however_much_one_has() -> None:
    house = House("t", "u")
    house.put(*["many"] * 2_500)  # one batch, which is fetched at once
    house.put("few", topic="u")
    house.run()

    assert len(house.handled) == 2_501
    assert house.handled.index(("few", 1)) <= 1_000


def test_a_stopped_run_ends_after_the_message_in_hand_which_is_acknowledged() -> None:
    house = House()
    house.put("a", "b", "c")

    def handle(message: Message) -> None:
        house.handle(message)
        house.subscriber.stop()

    house.run(handle)
    assert house.handled == [("a", 1)]
    house.subscriber.close()
    house.subscriber = house.a_subscriber()
    house.run()
    assert house.handled == [("a", 1), ("b", 1), ("c", 1)]


def test_a_handler_may_call_its_subscriber() -> None:
    house = House(lease_s=60)
    house.put("a", "b", "c")

    def handle(message: Message) -> None:
        house.handle(message)
        house.subscriber.keep_alive()
        if message.value == "b":
            house.subscriber.reject(message, "by the handler")

    house.run(handle)
    assert house.handled == [("a", 1), ("b", 1), ("c", 1)]
    assert [letter.value for letter in house.subscriber.history("t.dead")] == ["b"]
    house.again()
    house.run()
    assert house.handled == []


def test_the_last_handler_of_a_topic_is_called_until_it_is_removed() -> None:
    house = House()
    house.put(*"abc")
    first: list[str] = []

    def replace_itself(message: Message) -> None:
        first.append(message.value)
        house.subscriber.on("t", house.handle)

    house.subscriber.on("t", lambda _: None)
    house.subscriber.on("t", replace_itself)
    house.subscriber.run(timeout_s=1)
    assert (first, [value for value, _ in house.handled]) == (["a"], ["b", "c"])

    house.put("d")
    house.subscriber.on("t", lambda _: house.subscriber.off("t"))
    house.subscriber.run()  # ends, because no handler is left
    assert not house.subscriber.off("t")
    with pytest.raises(UsageError, match="nothing to run"):
        house.subscriber.run()


def test_dead_letters_cannot_be_rejected_and_a_run_needs_a_handler() -> None:
    house = House()
    with pytest.raises(UsageError, match="nothing to run"):
        house.subscriber.run()
    with pytest.raises(UsageError, match="has no dead letters"):
        house.subscriber.on("t.dead", house.handle, on_failure="reject")


@pytest.mark.parametrize("step", [17, pytest.param(3, marks=pytest.mark.long)])
def test_whatever_line_run_is_broken_off_at_no_message_is_lost_or_taken_for_handled(
    step: int,
) -> None:
    """An exception of a signal handler at every line of `run`, the handler's calls included."""

    def trial(at: int) -> int:
        house = House()
        house.put(*"abc")
        done: list[tuple[str, bool]] = []
        interrupter = Interrupter([at])

        def handle(message: Message) -> None:
            house.handle(message)
            house.subscriber.keep_alive()
            done.append((message.value, message.redelivered))

        house.subscriber.on("t", handle)
        with suppress(Interrupted), interrupter:
            house.subscriber.run(timeout_s=0)
        again = [(m.value, m.redelivered) for m in house.subscriber.get("t", max_messages=9)]
        came = done + again
        # Nothing is missing, and what comes a second time is marked.
        assert list(dict.fromkeys(value for value, _ in came)) == list("abc")
        for place, (value, redelivered) in enumerate(came):
            assert redelivered or value not in [before for before, _ in came[:place]]
        return interrupter.count

    lines = trial(10**9)
    assert lines > 100
    for at in range(1, lines + 1, step):
        trial(at)


async def a_coroutine(_: Message) -> None:
    """Does its work when it is awaited."""


def a_generator(_: Message) -> Iterator[None]:
    """Does its work when it is iterated over."""
    yield


class Awaited:
    async def __call__(self, _: Message) -> None:
        """Does its work when it is awaited."""


@pytest.mark.parametrize("handler", [a_coroutine, a_generator, Awaited(), partial(a_coroutine)])
def test_what_does_nothing_when_it_is_called_is_no_handler(handler: Callable[..., Any]) -> None:
    house = House()
    with pytest.raises(UsageError, match="give a plain function"):
        house.subscriber.on("t", handler)


@pytest.mark.parametrize("handler", [a_coroutine, a_generator])
def test_a_handler_that_gives_what_is_not_executed_yet_does_not_acknowledge_its_message(
    handler: Callable[..., Any],
) -> None:
    house = House()
    house.put("a")
    with pytest.raises(UsageError, match="offset 0 of topic 't' is not acknowledged"):
        house.run(lambda message: handler(message), on_failure="reject")
    house.again()
    house.run()
    assert house.handled == [("a", 2)]


def test_run_is_refused_while_it_runs_and_the_outer_one_continues() -> None:
    house = House()
    house.put("a", "b")

    def handle(message: Message) -> None:
        house.handle(message)
        with pytest.raises(UsageError, match="called from one of its handlers"):
            house.subscriber.run(timeout_s=0)

    house.run(handle)
    assert house.handled == [("a", 1), ("b", 1)]


def test_run_is_refused_while_it_runs_in_another_thread() -> None:
    house = House()
    house.put("a")

    def handle(_: Message) -> None:
        with ThreadPoolExecutor(1) as other:
            second = other.submit(house.subscriber.run, timeout_s=0)
            errors.append(second.exception())

    errors: list[BaseException | None] = []
    house.run(handle)
    assert isinstance(errors[0], UsageError)
