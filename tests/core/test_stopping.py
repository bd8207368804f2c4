"""`stop` ends `run` and loops wherever they wait, and `timeout_s` ends every call in time."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reliable_pubsub import (
    Admin,
    Earliest,
    InDoubtError,
    Message,
    ProxyUnreachableError,
    Publisher,
    RetryPolicy,
    Subscriber,
    aio,
)
from reliable_pubsub.common.core.conversation import Conversation, Sleep
from reliable_pubsub.common.core.errors import StoppedError
from reliable_pubsub.common.core.stopping import LOOK_S, StopSignal, until_stopped
from reliable_pubsub.common.transport import Shell
from tests.core.test_arguments import RIGHT
from tests.core.test_handlers import House
from tests.fakes import Disk, FakeClock, FakeTransport, Link, MemoryProxy, a_world

WITHIN_S = 2.01


class StopsAt(FakeClock):
    """A clock at one of whose moments something is called."""

    def __init__(self, moment_s: float, act: Callable[[], object]) -> None:
        self._now_s, self._moment_s, self._act = 0.0, moment_s, act
        super().__init__()

    @property
    def time_s(self) -> float:
        return self._now_s

    @time_s.setter
    def time_s(self, now_s: float) -> None:
        self._now_s = now_s
        if now_s >= self._moment_s:
            self._moment_s = float("inf")
            self._act()


def a_subscriber(
    clock: FakeClock, proxy: MemoryProxy | None = None, *, retry: RetryPolicy | None = None
) -> tuple[Subscriber, FakeTransport]:
    """A subscriber to `t` whose proxy dies when its `is_dead` is set."""
    link = Link(proxy or MemoryProxy())
    dead: list[bool] = []
    transport = FakeTransport(lambda frames: None if dead else link(frames), clock)
    transport.die = lambda: dead.append(True)  # type: ignore[attr-defined]
    world = a_world(transport, clock, Disk())
    return Subscriber("s", retry=retry, _world=world), transport


class TestStop:
    def test_before_run_ends_that_run_and_not_the_next(self) -> None:
        house = House()
        house.put("a")

        house.subscriber.stop()
        house.subscriber.stop()
        house.run()
        assert house.handled == []
        house.subscriber.run(timeout_s=1)
        assert house.handled == [("a", 1)]

    def test_before_a_loop_ends_it_and_not_the_next(self) -> None:
        house = House()
        house.put("a")
        loop = house.subscriber.messages("t", timeout_s=1)

        house.subscriber.stop()
        assert list(loop) == []
        assert [one.value for one in house.subscriber.messages("t", timeout_s=1)] == ["a"]

    def test_ends_every_open_loop(self) -> None:
        house = House("t", "u")
        house.put("a", "b")
        house.put("c", "d", topic="u")
        seen = []
        for outer in house.subscriber.messages("t"):
            for inner in house.subscriber.messages("u"):
                seen.append((outer.value, inner.value))
                house.subscriber.stop()

        assert seen == [("a", "c")]

    def test_in_a_retry_pause_ends_run_and_the_message_is_redelivered(self) -> None:
        house = House()
        house.put("a")
        house.subscriber.on("t", house.failing("a"), retries=3, pause_s=30)
        clock = house.clock
        sleep = clock.sleep

        def sleep_and_stop(seconds: float) -> None:
            sleep(seconds)
            if clock.time_s >= 1:
                house.subscriber.stop()

        house.subscriber._opened.asker.clock.sleep = sleep_and_stop  # type: ignore[method-assign]
        house.subscriber.run()

        assert clock.time_s < 1 + WITHIN_S
        assert house.handled == [("a", 1)]
        house.again()
        house.run()
        assert house.handled == [("a", 2)]

    def test_while_a_handler_is_executed_lets_it_finish_and_acknowledges_its_message(self) -> None:
        house = House()
        house.put("a", "b")

        def handle(message: Message) -> None:
            house.subscriber.stop()
            house.handle(message)

        house.run(handle)
        house.subscriber.close()
        house.subscriber = house.a_subscriber()
        house.run()
        assert house.handled == [("a", 1), ("b", 1)]

    @pytest.mark.parametrize("how", ["run", "group", "loop"])
    @pytest.mark.parametrize("proxy", ["idle", "dead"])
    def test_ends_a_wait_soon_whatever_the_proxy_does(self, how: str, proxy: str) -> None:
        clock = StopsAt(100.0, lambda: subscriber.stop())
        subscriber, transport = a_subscriber(clock)
        group = "g" if how == "group" else None
        subscriber.subscribe("t", group=group)
        if proxy == "dead":
            transport.die()  # type: ignore[attr-defined]

        if how == "loop":
            assert list(subscriber.messages("t")) == []
        else:
            subscriber.on("t", print, group=group)
            subscriber.run()

        assert 100.0 <= clock.time_s < 100.0 + WITHIN_S

    def test_breaks_off_a_subscribe_and_still_ends_the_run_after_it(self) -> None:
        clock = StopsAt(3.0, lambda: subscriber.stop())
        subscriber, transport = a_subscriber(clock)
        transport.die()  # type: ignore[attr-defined]

        with pytest.raises(StoppedError):
            subscriber.subscribe("t")
        assert clock.time_s < 3.0 + WITHIN_S
        subscriber.on("t", print)
        subscriber.run()

    def test_leaves_what_a_loop_has_taken_acknowledged_and_the_rest_for_later(self) -> None:
        house = House()
        house.put("a", "b", "c")
        for message in house.subscriber.messages("t"):
            house.handle(message)
            house.subscriber.stop()
        house.subscriber.close()

        house.subscriber = house.a_subscriber()
        house.run()
        assert house.handled == [("a", 1), ("b", 1), ("c", 1)]


class TestALoop:
    @pytest.mark.parametrize("how", ["run", "loop"])
    def test_resumes_however_long_the_proxy_was_unreachable(self, how: str) -> None:
        proxy = MemoryProxy()
        clock = FakeClock()
        subscriber, transport = a_subscriber(clock, proxy)
        Publisher("p", _world=a_world(Link(proxy))).put("t", b"a")
        subscriber.subscribe("t", start=Earliest)
        answer = transport._answer
        transport._answer = lambda frames: answer(frames) if clock.time_s > 10_000 else None

        taken: list[bytes] = []
        if how == "loop":
            taken.append(next(subscriber.messages("t", timeout_s=20_000)).payload)
        else:

            def handle(one: Message) -> None:
                taken.append(one.payload)
                subscriber.stop()

            subscriber.on("t", handle)
            subscriber.run()

        assert taken == [b"a"]

    @pytest.mark.parametrize("how", ["run", "loop"])
    def test_gives_up_where_the_program_says_how_often_it_asks(self, how: str) -> None:
        subscriber, transport = a_subscriber(FakeClock(), retry=RetryPolicy(retries_max=1))
        subscriber.subscribe("t")
        transport.die()  # type: ignore[attr-defined]
        subscriber.on("t", print)

        with pytest.raises(ProxyUnreachableError) as error:
            subscriber.run() if how == "run" else list(subscriber.messages("t"))
        assert error.value.attempts == 2

    @pytest.mark.parametrize("how", ["run", "loop"])
    def test_with_a_timeout_raises_if_the_proxy_has_not_said_whether_there_are_messages(
        self, how: str
    ) -> None:
        clock = FakeClock()
        subscriber, transport = a_subscriber(clock)
        subscriber.subscribe("t")
        transport.die()  # type: ignore[attr-defined]
        subscriber.on("t", print)

        with pytest.raises(ProxyUnreachableError):
            list(subscriber.messages("t", timeout_s=5)) if how == "loop" else subscriber.run(
                timeout_s=5
            )
        assert 5 <= clock.time_s <= 5 + WITHIN_S


def test_forever_is_a_word() -> None:
    clock = FakeClock()
    answers = iter([None] * 500)
    link = Link(MemoryProxy())
    transport = FakeTransport(lambda frames: next(answers, link(frames)), clock)
    forever = RetryPolicy(retries_max="forever")

    Publisher("p", retry=forever, _world=a_world(transport, clock)).connect()

    assert clock.time_s > 1_000


class TestClose:
    def test_has_a_bound_and_frees_the_client(self) -> None:
        clock = FakeClock()
        link = Link(MemoryProxy())
        dead: list[bool] = []
        answer = lambda frames: None if dead else link(frames)  # noqa: E731
        subscriber = Subscriber("s", _world=a_world(answer, clock))
        Publisher("p", _world=a_world(Link(link.proxy))).put("t", b"a")
        subscriber.subscribe("t", start=Earliest)
        subscriber.get("t")
        dead.append(True)

        with pytest.raises(InDoubtError):
            subscriber.close()
        assert clock.time_s <= 5
        subscriber.close()

    def test_at_the_end_of_a_block_raises_nothing_and_warns(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        link = Link(MemoryProxy())
        Publisher("p", _world=a_world(Link(link.proxy))).put("t", b"a")
        with Subscriber("s", _world=a_world(link)) as subscriber:
            subscriber.subscribe("t", start=Earliest)
            subscriber.get("t")
            link.script(">" * 99)

        assert "may be redelivered" in caplog.text


# `timeout_s` of every call.

NO_REQUEST = {  # gated, and nothing is asked
    "Publisher": {"stream", "in_doubt", "transaction_in_doubt", "note"},
    "Subscriber": {
        *("use_push", "record", "write_note", "note", "is_pushed", "push_counts"),
        *("unstored_counts", "abandon", "stop", "on", "off"),
    },
    "Admin": set(),
}


def public_calls(kind: type) -> list[str]:
    return [
        name
        for name, value in inspect.getmembers(kind)
        if not name.startswith("_")
        and (inspect.isfunction(value))
        and name not in NO_REQUEST[kind.__name__]
    ]


@pytest.mark.parametrize(
    "kind", [Publisher, Subscriber, Admin, aio.Publisher, aio.Subscriber], ids=str
)
def test_every_call_that_asks_the_proxy_has_a_timeout(kind: type) -> None:
    without = [
        name
        for name in public_calls(kind)
        if "timeout_s" not in inspect.signature(getattr(kind, name)).parameters
    ]

    sends_nothing = {"close"} if kind.__name__ in ("Publisher", "Admin") else set()
    assert set(without) == sends_nothing


BOUNDED = [
    (kind, name)
    for kind in (Publisher, Subscriber, Admin)
    for name in public_calls(kind)
    if f"{kind.__name__}.{name}" in RIGHT
    and name not in ("close", "transaction", "interests", "messages", "run", "wait_delivered")
    and name not in ("ack", "nack", "extend", "reject", "keep_alive")
]


@pytest.mark.parametrize(("kind", "name"), BOUNDED, ids=[f"{k.__name__}.{n}" for k, n in BOUNDED])
def test_a_call_ends_when_its_time_is_over(kind: Any, name: str) -> None:
    clock = FakeClock()
    dead: list[bool] = []
    link = Link(MemoryProxy())

    def answer(frames: Sequence[bytes]) -> Sequence[bytes] | None:
        return None if dead else link(frames)

    arguments = {} if kind is Admin else {"client": "c"}
    client = kind(**arguments, _world=a_world(answer, clock))
    if kind is Subscriber:
        client.subscribe("t")
    if name == "resume" and kind is Publisher:
        client.put("t", b"a")
        dead.append(True)
        with pytest.raises(InDoubtError):
            client.put("t", b"b", timeout_s=1.0)
    dead.append(True)
    began_s = clock.time_s
    given = {**RIGHT[f"{kind.__name__}.{name}"][1], "timeout_s": 7.0}

    with pytest.raises(InDoubtError) as error:
        getattr(client, name)(**given)

    assert error.value.timeout_s == 7.0
    assert 7.0 <= clock.time_s - began_s <= 7.0 + WITHIN_S


def test_the_time_of_a_call_counts_instead_of_its_retries() -> None:
    clock = FakeClock()
    once = RetryPolicy(retries_max=0)
    publisher = Publisher("p", retry=once, _world=a_world(lambda _: None, clock))

    with pytest.raises(ProxyUnreachableError) as error:
        publisher.put("t", b"a", timeout_s=300)

    assert error.value.attempts > 20
    assert clock.time_s == pytest.approx(300)


def test_a_put_that_waits_for_subscribers_has_one_time_for_both() -> None:
    clock = FakeClock()
    publisher = Publisher("p", _world=a_world(Link(MemoryProxy(), "..>"), clock))

    with pytest.raises(InDoubtError):
        publisher.put("t", b"a", wait="delivered", timeout_s=10)

    assert 10 <= clock.time_s <= 10 + WITHIN_S


def test_a_conversation_that_may_be_stopped_waits_in_short_steps() -> None:
    def says() -> Conversation[str]:
        yield Sleep(1.0)
        return "done"

    clock = FakeClock()
    shell = Shell(FakeTransport(lambda _: None, clock), clock)

    assert shell.run(until_stopped(says(), StopSignal().begin().is_over)) == "done"
    assert clock.time_s == pytest.approx(1.0)
    assert max(clock.sleeps) <= LOOK_S
