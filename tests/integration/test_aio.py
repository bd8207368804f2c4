"""The asyncio clients against a real proxy; a cancellation is judged like a crash."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

import pytest

import reliable_pubsub
from reliable_pubsub import (
    Earliest,
    ForkedError,
    InDoubtError,
    InterestChange,
    Message,
    NotSubscribedError,
    ProxyUnreachableError,
    UsageError,
    aio,
    glob,
)
from reliable_pubsub.common.transport import ReqTransport
from tests.cancelling import cancelled_at

from .harness import BELIEVING, IMPATIENT, NOWHERE, PATIENCE_S, STUBBORN, Service


@pytest.fixture(autouse=True)
def late_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No answer is there at the first look, so that every request is awaited."""
    send, take = ReqTransport.send, ReqTransport.take
    sent: set[ReqTransport] = set()

    def sending(transport: ReqTransport, frames: Sequence[bytes]) -> None:
        send(transport, frames)
        sent.add(transport)

    def taking(transport: ReqTransport) -> Sequence[bytes] | None:
        if transport in sent:
            sent.discard(transport)
            return None
        return take(transport)

    monkeypatch.setattr(ReqTransport, "send", sending)
    monkeypatch.setattr(ReqTransport, "take", taking)


def publisher(service: Service, client: str = "p", **more: Any) -> aio.Publisher:
    options: dict[str, Any] = {"endpoint": service.publisher_endpoint, "retry": STUBBORN} | more
    return aio.Publisher(client, **options)


def subscriber(service: Service, client: str = "s", **more: Any) -> aio.Subscriber:
    options: dict[str, Any] = {"endpoint": service.subscriber_endpoint, "retry": STUBBORN} | more
    return aio.Subscriber(client, **options)


def stored(service: Service, topic: str = "t") -> list[bytes]:
    with service.open_subscriber("judge") as judge:
        return [message.payload for message in judge.history(topic, max_messages=10_000)]


async def taken(reader: aio.Subscriber, count: int, topic: str = "t") -> list[Message]:
    messages = []
    async for message in reader.messages(topic, timeout_s=PATIENCE_S):
        messages.append(message)
        if len(messages) == count:
            break
    return messages


class TestAProgram:
    def test_has_each_message_once_and_in_order(self, running: Service) -> None:
        async def program() -> list[bytes]:
            async with publisher(running) as one, subscriber(running) as other:
                await other.subscribe("t")
                for number in range(20):
                    await one.put("t", b"%d" % number)
                return [message.payload for message in await taken(other, 20)]

        assert asyncio.run(program()) == [b"%d" % number for number in range(20)]

    @pytest.mark.parametrize("push", [False, True])
    def test_subscribes_to_what_a_pattern_matches(self, running: Service, push: bool) -> None:
        async def program() -> list[tuple[str, int]]:
            match = glob("sensor/*/heat")
            async with publisher(running) as writer, subscriber(running) as reader:
                await reader.subscribe(match=match, where='region = "eu"', push=push)
                await writer.put("sensor/1/heat", b"1", headers={"region": "us"})
                await writer.put("sensor/1/heat", b"2", headers={"region": "eu"})
                (first,) = await reader.get(match, timeout_s=PATIENCE_S)
                await writer.put("sensor/2/heat", b"3", headers={"region": "eu"})
                async for second in reader.messages(match):
                    await reader.unsubscribe(match)
                    return [(one.topic, one.offset) for one in (first, second)]
                raise AssertionError("the loop has ended")

        assert asyncio.run(program()) == [("sensor/1/heat", 1), ("sensor/2/heat", 0)]

    def test_sees_who_wants_what_as_it_changes(self, running: Service) -> None:
        async def program() -> list[InterestChange]:
            found = []
            async with publisher(running) as watcher, subscriber(running) as reader:
                await reader.subscribe("a")
                async for change in watcher.interests(every_s=0.05, timeout_s=PATIENCE_S):
                    found.append(change)
                    if change.kind == "ends":
                        return found
                    await reader.unsubscribe("a")
                raise AssertionError("the loop has ended")

        begins, ends = asyncio.run(program())
        assert begins == InterestChange("begins", "a", "", 2, 1)
        assert ends == InterestChange("ends", "a", "", 2, 0)

    def test_handles_the_messages_of_a_pattern_with_retries_and_dead_letters(
        self, running: Service
    ) -> None:
        async def program() -> list[tuple[bytes, str]]:
            handled: list[tuple[bytes, str]] = []
            match = glob("sensor/*/heat")
            async with publisher(running) as writer, subscriber(running) as reader:
                await reader.subscribe(match=match, where='region = "eu"')

                async def handle(message: Message) -> None:
                    handled.append((message.payload, message.topic))
                    if message.payload == b"bad":
                        raise ValueError("bad")
                    if message.payload == b"last":
                        reader.stop()

                for number, payload in ((1, b"bad"), (2, b"us"), (2, b"last")):
                    region = "us" if payload == b"us" else "eu"
                    topic = f"sensor/{number}/heat"
                    await writer.put(topic, payload, headers={"region": region})
                reader.on(match, handle, retries=1, pause_s=0, on_failure="reject")
                await reader.run(timeout_s=PATIENCE_S)
                dead = await reader.history("sensor/1/heat.dead")
                return [*handled, *((one.payload, one.topic) for one in dead)]

        bad, last = (b"bad", "sensor/1/heat"), (b"last", "sensor/2/heat")
        assert asyncio.run(program()) == [bad, bad, last, (b"bad", "sensor/1/heat.dead")]

    @pytest.mark.parametrize("how", ["loop", "run"])
    @pytest.mark.parametrize("last", [1, 2], ids=["the first", "the last"])
    def test_gets_no_more_of_a_pattern_that_its_own_handler_unsubscribes(
        self, running: Service, last: int, how: str
    ) -> None:
        async def program() -> list[bytes]:
            handled: list[bytes] = []
            match = glob("sensor/*/heat")
            async with publisher(running) as writer, subscriber(running) as reader:
                await reader.subscribe(match=match)
                await writer.put_many("sensor/1/heat", [b"a", b"b"])

                async def handle(message: Message) -> None:
                    handled.append(message.payload)
                    if len(handled) == last:
                        await reader.unsubscribe(match)

                async def loop() -> None:
                    async for message in reader.messages(match, timeout_s=PATIENCE_S):
                        await handle(message)

                async def run() -> None:
                    reader.on(match, handle)
                    await reader.run(timeout_s=PATIENCE_S)

                with pytest.raises(NotSubscribedError, match="has no pattern"):
                    await (run if how == "run" else loop)()
                return handled

        assert asyncio.run(program()) == [b"a", b"b"][:last]

    def test_puts_of_many_tasks_share_requests(self, running: Service) -> None:
        before = running.status().requests_count

        async def program() -> list[reliable_pubsub.Receipt]:
            async with publisher(running) as one:
                return await asyncio.gather(*(one.put("t", b"%d" % n) for n in range(100)))

        receipts = asyncio.run(program())

        assert [receipt.offset for receipt in receipts] == list(range(100))
        assert stored(running) == [b"%d" % number for number in range(100)]
        assert running.status().requests_count - before < 50

    def test_is_pushed_to_and_puts_at_every_level(self, running: Service) -> None:
        async def program() -> list[Message]:
            async with publisher(running, retry=BELIEVING) as one, subscriber(running) as other:
                await other.subscribe("t", push=True)
                found = []
                for qos in (0, 1, 2):
                    assert await one.wait_for_interest("t", 30)
                    receipt = await one.put("t", b"%d" % qos, qos=qos)
                    assert receipt.qos == qos
                    found += await taken(other, 1)
                return found

        with pytest.warns(reliable_pubsub.QoSWarning):
            messages = asyncio.run(program())
        assert [message.payload for message in messages] == [b"0", b"1", b"2"]

    def test_stores_a_transaction_as_a_whole_or_not_at_all(self, running: Service) -> None:
        async def program() -> None:
            async with publisher(running) as one:
                async with one.transaction() as both:
                    both.put("t", b"1")
                    both.put("u", b"2")
                with suppress(ZeroDivisionError):
                    async with one.transaction() as both:
                        both.put("t", b"never")
                        raise ZeroDivisionError
                with pytest.raises(UsageError, match="async with publisher"):
                    one.transaction().put("t", b"never")

        asyncio.run(program())
        assert (stored(running, "t"), stored(running, "u")) == ([b"1"], [b"2"])

    def test_keeps_what_it_had_across_its_processes(self, running: Service) -> None:
        async def program(expected: bytes) -> Message:
            async with subscriber(running, state_dir=running.state_dir) as reader:
                await reader.subscribe("t", start=Earliest)
                (message,) = await reader.get("t", timeout_s=PATIENCE_S)
                assert message.payload == expected
                return message

        with running.open_publisher("p") as writer:
            writer.put_many("t", [b"1", b"2"])
        asyncio.run(program(b"1"))
        assert not asyncio.run(program(b"2")).redelivered

    def test_waits_until_a_subscriber_has_acknowledged(self, running: Service) -> None:
        async def program() -> tuple[str, ...]:
            async with publisher(running) as one, subscriber(running) as other:
                await other.subscribe("t")
                putting = asyncio.create_task(
                    one.put("t", b"m", wait="delivered", timeout_s=PATIENCE_S)
                )
                assert len(await other.get("t", timeout_s=PATIENCE_S)) == 1
                await other.acknowledge("t")
                delivery = (await putting).delivery
                assert delivery is not None
                return delivery.acknowledged

        assert asyncio.run(program()) == ("s",)

    def test_leaves_a_loop_and_continues_after_what_it_has_taken(self, running: Service) -> None:
        async def program() -> list[tuple[bytes, bool]]:
            async with subscriber(running) as reader:
                await reader.subscribe("t", start=Earliest)
                found = await taken(reader, 3) + await reader.get("t", timeout_s=PATIENCE_S)
                async for message in reader.messages("t", timeout_s=0.01):
                    found.append(message)
                return [(message.payload, message.redelivered) for message in found]

        with running.open_publisher("p") as writer:
            writer.put_many("t", [b"%d" % number for number in range(10)])
        assert asyncio.run(program()) == [(b"%d" % number, False) for number in range(10)]


class TestAProxyThatIsAway:
    @pytest.mark.parametrize("call", ["put", "subscribe"])
    def test_does_not_stop_the_event_loop(self, call: str) -> None:
        async def program() -> int:
            turns = 0

            async def tick() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            ticking = asyncio.create_task(tick())
            one = aio.Publisher("p", endpoint=NOWHERE, retry=IMPATIENT)
            other = aio.Subscriber("s", endpoint=NOWHERE, retry=IMPATIENT)
            with pytest.raises(ProxyUnreachableError):
                await (one.put("t", b"x") if call == "put" else other.subscribe("t"))
            await one.close()
            await other.close()
            ticking.cancel()
            return turns

        assert asyncio.run(program()) > 100

    def test_ends_every_put_that_shared_the_request_in_doubt(self) -> None:
        async def program() -> list[object]:
            async with aio.Publisher("p", endpoint=NOWHERE, retry=IMPATIENT) as one:
                puts = (one.put("t", b"x") for _ in range(3))
                return await asyncio.gather(*puts, return_exceptions=True)

        found = asyncio.run(program())
        assert [type(error) for error in found] == [ProxyUnreachableError] * 3


class TestAClient:
    def test_of_a_subscriber_refuses_a_second_task(self, running: Service) -> None:
        async def program() -> None:
            async with subscriber(running) as reader:
                await reader.subscribe("t")
                waiting = asyncio.create_task(reader.get("t", timeout_s=PATIENCE_S))
                await asyncio.sleep(0)
                with pytest.raises(UsageError, match="in the middle of a call of another task"):
                    await reader.get("t")
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    await waiting
                assert await reader.get("t") == []

        asyncio.run(program())

    def test_is_of_one_event_loop_and_one_process(self, running: Service) -> None:
        one = publisher(running)
        asyncio.run(one.put("t", b"1"))
        with pytest.raises(UsageError, match="belongs to another event loop"):
            asyncio.run(one.put("t", b"2"))

        child = os.fork()
        if not child:  # it must not return into the tests
            try:
                asyncio.run(one.put("t", b"2"))
                os._exit(1)
            except BaseException as error:
                os._exit(42 if isinstance(error, ForkedError) else 2)

        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42

    def test_that_is_closed_or_was_taken_over_says_so(self, running: Service) -> None:
        async def program() -> None:
            old = publisher(running, state_dir=running.state_dir)
            await old.put("t", b"1")
            async with publisher(running, state_dir=running.state_dir) as new:
                await new.put("t", b"2")
                with pytest.raises(UsageError, match="took over its id"):
                    await old.put("t", b"never")
                await old.close()
            with pytest.raises(UsageError, match="is closed"):
                await new.put("t", b"never")

        asyncio.run(program())
        assert stored(running) == [b"1", b"2"]

    @pytest.mark.parametrize("name", ["Publisher", "Subscriber"])
    def test_has_the_calls_of_the_blocking_one_with_their_arguments(self, name: str) -> None:
        def calls(of: type) -> dict[str, str]:
            return {
                call: ", ".join(inspect.signature(function).parameters)
                for call, function in inspect.getmembers(of, inspect.isfunction)
                if not call.startswith("_") or call == "__init__"
            }

        # What step files and the pipeline put with: notes are stored beside a program's own place.
        notes = {"put_batch", "begin_run", "ready_for", "record", "write_note"}
        blocking = calls(getattr(reliable_pubsub, name))
        awaited = calls(getattr(aio, name))
        blocking.pop("transaction", None), awaited.pop("transaction", None)  # no note either

        assert awaited == {call: said for call, said in blocking.items() if call not in notes}


RIGHT: dict[str, Any] = {
    "topic": "t",
    "payload": b"x",
    "payloads": [b"x"],
    "timeout_s": 1,
    "push": True,
    "reason": "bad",
    "message": None,
    "receipt": None,
    "start": 0,
}


@pytest.mark.parametrize("kind", [aio.Publisher, aio.Subscriber])
def test_a_wrong_argument_is_refused_before_anything_is_sent(kind: Any) -> None:
    """The annotations are those of the blocking calls, which are tried with every odd value."""
    refused = []

    async def program() -> None:
        client = kind("c", endpoint=NOWHERE)
        for name, call in inspect.getmembers(kind, inspect.iscoroutinefunction):
            parameters = list(inspect.signature(call).parameters.values())[1:]
            needed = {one.name for one in parameters if one.default is one.empty}
            for parameter in () if name.startswith("_") else parameters:
                given = {one: RIGHT[one] for one in needed} | {parameter.name: object()}
                with pytest.raises(UsageError):
                    await getattr(client, name)(**given)
                refused.append(f"{name} {parameter.name}")
        await client.close()

    asyncio.run(program())
    assert len(refused) > 20


# Transactions.


class TestAnOpenBlock:
    """Until it ends, its publisher puts nothing else (R38)."""

    def test_refuses_every_other_put_of_its_publisher_in_every_task(self, running: Service) -> None:
        async def program() -> None:
            async with publisher(running) as one:
                late = one.stream()
                calls: list[Callable[[], Awaitable[object]]] = [
                    lambda: one.put("audit", b"x"),
                    lambda: one.put("audit", b"x", qos=0),
                    lambda: one.put_many("audit", [b"x"]),
                    lambda: one.stream().__aenter__(),
                    lambda: one.transaction().__aenter__(),
                    late.__aenter__,
                ]
                with suppress(KeyError):
                    async with one.transaction() as both:
                        both.put("orders", b"1")
                        for call in calls:
                            with pytest.raises(UsageError, match="open transaction"):
                                await asyncio.create_task(_awaited(call))
                        raise KeyError
                await one.put("audit", b"2")

        asyncio.run(program())
        assert stored(running, "audit") == [b"2"]

    def test_waits_for_the_puts_that_came_before_it(self, running: Service) -> None:
        async def program() -> None:
            async with publisher(running) as one:
                before = [asyncio.create_task(one.put("t", b"%d" % n)) for n in range(5)]
                await asyncio.sleep(0)
                async with one.transaction() as both:
                    both.put("t", b"5")
                await asyncio.gather(*before)

        asyncio.run(program())
        assert stored(running) == [b"%d" % number for number in range(6)]


async def _awaited(call: Callable[[], Awaitable[object]]) -> object:
    return await call()


# Streams.


class TestAStream:
    def test_stores_what_was_put_in_order_and_gives_each_its_receipt(
        self, running: Service
    ) -> None:
        async def program() -> list[int | None]:
            async with publisher(running) as one:
                async with one.stream() as stream:
                    tickets = [await stream.put("t", b"%d" % n) for n in range(5_000)]
                    with pytest.raises(UsageError, match="open stream"):
                        await one.put("t", b"never")
                offsets = [(await ticket.result()).offset for ticket in tickets]
                assert (await one.put("t", b"after")).offset == 5_000
                return offsets

        assert asyncio.run(program()) == list(range(5_000))
        assert stored(running) == [*(b"%d" % number for number in range(5_000)), b"after"]

    def test_sends_after_its_linger_and_takes_several_topics_in_order(
        self, running: Service
    ) -> None:
        async def program() -> None:
            async with publisher(running) as one, one.stream(linger_s=0.001) as stream:
                tickets = [await stream.put("tu"[n % 2], b"%d" % n) for n in range(10)]
                for ticket in tickets:
                    await ticket.result()

        asyncio.run(program())
        assert stored(running, "t") == [b"0", b"2", b"4", b"6", b"8"]
        assert stored(running, "u") == [b"1", b"3", b"5", b"7", b"9"]

    def test_that_was_not_begun_keeps_its_publisher_from_nothing(self, running: Service) -> None:
        async def program() -> None:
            async with publisher(running) as one:
                late, dropped = one.stream(), one.stream()
                await dropped.close()
                await one.put("t", b"m")
                async with one.stream():
                    with pytest.raises(UsageError, match="open stream"):
                        await late.__aenter__()
                async with late:
                    await late.put("t", b"n")

        asyncio.run(program())
        assert stored(running) == [b"m", b"n"]

    def test_that_fails_ends_every_message_with_the_same_error(self) -> None:
        async def program() -> list[object]:
            async with aio.Publisher("p", endpoint=NOWHERE, retry=IMPATIENT) as one:
                stream = one.stream(linger_s=0)
                tickets = []
                with pytest.raises(InDoubtError):
                    async with stream:
                        tickets += [await stream.put("t", b"x"), await stream.put("u", b"x")]
                with pytest.raises(UsageError, match="the stream is closed"):
                    await stream.put("t", b"x")
                waits = (ticket.result() for ticket in tickets)
                return await asyncio.gather(*waits, return_exceptions=True)

        assert [type(one) for one in asyncio.run(program())] == [ProxyUnreachableError] * 2

    @pytest.mark.parametrize("at", range(4))
    def test_whose_close_is_cancelled_stores_each_message_once_or_not_at_all(
        self, running: Service, at: int
    ) -> None:
        async def program() -> None:
            async with publisher(running, state_dir=running.state_dir) as one:
                stream = await one.stream(linger_s=3600).__aenter__()
                ticket = await stream.put("t", b"1")
                cancelled, _ = await cancelled_at(stream.close(), at)
                if cancelled:
                    with suppress(InDoubtError):
                        await ticket.result()
                await one.put("t", b"2")

        asyncio.run(program())
        assert stored(running) in ([b"1", b"2"], [b"2"])


# Cancellation.


async def at_each_await(attempt: Callable[[int], Awaitable[bool]], awaits: int) -> int:
    """Run an attempt for each await; return how many of them were cancelled."""
    return sum([await attempt(at) for at in range(awaits)])


async def _put(one: aio.Publisher, payload: bytes) -> None:
    await one.put("t", payload)


async def _put_by_two_tasks(one: aio.Publisher, payload: bytes) -> None:
    other = asyncio.create_task(one.put("t", payload + b"+"))
    try:
        await one.put("t", payload)
    finally:
        await asyncio.wait([other])  # where this is cancelled, the other task is not


async def _put_unnumbered(one: aio.Publisher, payload: bytes) -> None:
    await one.put("t", payload, qos=1)


async def _transact(one: aio.Publisher, payload: bytes) -> None:
    async with one.transaction() as both:
        both.put("t", payload)
        both.put("u", payload)


async def _stream(one: aio.Publisher, payload: bytes) -> None:
    async with one.stream(linger_s=0) as stream:
        await stream.put("t", payload)


@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("call", [_put, _put_by_two_tasks, _put_unnumbered, _transact, _stream])
def test_a_put_that_is_cancelled_at_any_await_is_stored_once_or_not_at_all(
    running: Service,
    call: Callable[[aio.Publisher, bytes], Coroutine[Any, Any, None]],
    remembers: bool,
) -> None:
    returned: list[bytes] = []
    begun: list[bytes] = []

    async def attempt(at: int) -> bool:
        state_dir = running.state_dir if remembers else None
        async with publisher(running, state_dir=state_dir) as one:
            begun.append(b"cancelled %d" % at)
            cancelled, _ = await cancelled_at(call(one, begun[-1]), at)
            if not cancelled:
                returned.append(begun[-1])
            begun.append(b"after %d" % at)
            await call(one, begun[-1])
            returned.append(begun[-1])
            return cancelled

    assert asyncio.run(at_each_await(attempt, 8)) > 1
    found = [payload for payload in stored(running) if not payload.endswith(b"+")]
    assert len(found) == len(set(found))
    assert [payload for payload in begun if payload in set(found)] == found
    assert set(returned) <= set(found) <= set(begun)
    others = [payload for payload in stored(running) if payload.endswith(b"+")]
    assert len(others) == len(set(others))
    if call is _put_by_two_tasks:  # its own task was not cancelled
        assert set(others) == {payload + b"+" for payload in begun}
    if call is _transact:
        assert stored(running, "u") == found


async def _get(reader: aio.Subscriber) -> list[Message]:
    return await reader.get("t", max_messages=3)


async def _next(reader: aio.Subscriber) -> list[Message]:
    return [message async for message in _first(reader.messages("t", timeout_s=0))]


async def _first(messages: AsyncIterator[Message]) -> AsyncIterator[Message]:
    async for message in messages:
        yield message
        return


@pytest.mark.parametrize("push", [False, True])
@pytest.mark.parametrize("remembers", [False, True])
@pytest.mark.parametrize("call", [_get, _next])
def test_a_get_that_is_cancelled_at_any_await_loses_nothing_and_repeats_only_marked(
    running: Service,
    call: Callable[[aio.Subscriber], Coroutine[Any, Any, list[Message]]],
    remembers: bool,
    push: bool,
) -> None:
    payloads = [b"%d" % number for number in range(400)]
    with running.open_publisher("w") as writer:
        writer.put_many("t", payloads)
    got: list[Message] = []

    async def program() -> None:
        state_dir = running.state_dir if remembers else None
        async with subscriber(running, state_dir=state_dir) as reader:
            await reader.subscribe("t", start=Earliest, push=push)

            async def attempt(at: int) -> bool:
                cancelled, messages = await cancelled_at(call(reader), at)
                got.extend(messages or [])
                got.extend(await call(reader))
                return cancelled

            # A get that was answered before needs no answer, so every await is tried often.
            for _ in range(10):
                await at_each_await(attempt, 4)
            while messages := await reader.get("t", max_messages=50, timeout_s=0.1):
                got.extend(messages)

    asyncio.run(program())
    first_time = [message.payload for message in got if not message.redelivered]
    assert first_time == payloads[: len(first_time)] or set(payloads) == {m.payload for m in got}
    assert {message.payload for message in got} == set(payloads)
    assert len(first_time) == len(set(first_time))


@pytest.mark.parametrize("name", ["subscribe", "unsubscribe", "acknowledge", "reject", "close"])
def test_another_call_that_is_cancelled_at_any_await_can_be_made_again(
    running: Service, name: str
) -> None:
    async def attempt(at: int) -> bool:
        topic = f"t{at}"
        reader = subscriber(running, f"s{at}", state_dir=running.state_dir)
        await reader.subscribe(topic)
        with running.open_publisher("w") as writer:
            writer.put_many(topic, [b"1", b"2"])
        (message,) = await reader.get(topic, timeout_s=PATIENCE_S)

        async def call() -> None:
            if name == "reject":
                await reader.reject(message, "not a number")
            elif name == "close":
                await reader.close()
            else:
                await getattr(reader, name)(topic)

        cancelled, _ = await cancelled_at(call(), at)
        if name == "close":
            await reader.close()
            reader = subscriber(running, f"s{at}", state_dir=running.state_dir)
        if name == "unsubscribe":
            await reader.unsubscribe(topic)
            assert await reader.subscribe(topic) == 2
        else:
            left = []
            while found := await reader.get(topic, timeout_s=0.1):
                left += found
            assert [one.payload for one in left][-1] == b"2"
            assert [one.payload for one in left if not one.redelivered] in ([b"2"], [])
        await reader.close()
        return cancelled

    assert asyncio.run(at_each_await(attempt, 4)) >= 1


def test_messages_in_hand_stay_in_hand_when_another_call_is_cancelled(
    running: Service,
) -> None:
    with running.open_publisher("w") as writer:
        writer.put_many("t", [b"1", b"2"])

    async def program() -> list[tuple[bytes, bool]]:
        async with subscriber(running) as reader:
            await reader.subscribe("t", start=Earliest)
            assert len(await reader.get("t", timeout_s=PATIENCE_S)) == 1
            cancelled, _ = await cancelled_at(reader.history("t"), 0)
            assert cancelled
            found = [*await reader.get("t", timeout_s=PATIENCE_S), *await reader.get("t")]
            return [(message.payload, message.redelivered) for message in found]

    assert asyncio.run(program()) == [(b"2", False)]


def test_a_stream_whose_block_is_cancelled_ends_soon_although_the_proxy_is_away() -> None:
    async def program() -> None:
        async with aio.Publisher("p", endpoint=NOWHERE, retry=STUBBORN) as one:
            put = asyncio.get_running_loop().create_future()

            async def block() -> None:
                async with one.stream() as stream:
                    put.set_result(await stream.put("t", b"1"))
                    await asyncio.Event().wait()

            task = asyncio.create_task(block())
            ticket = await put
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=PATIENCE_S)
            task.cancel()

            assert done == {task}
            assert task.cancelled()
            with pytest.raises(InDoubtError):
                await ticket.result()

    asyncio.run(program())


def test_a_stream_that_is_open_when_its_event_loop_ends_says_how_many_messages_are_lost(
    running: Service,
) -> None:
    async def program() -> aio.Publisher:
        one = publisher(running)
        stream = await one.stream(linger_s=3600).__aenter__()
        for _ in range(3):
            await stream.put("t", b"")
        return one  # so that it is not collected

    with pytest.warns(RuntimeWarning, match="3 messages"):
        left = asyncio.run(program())
    asyncio.run(left.close())


def test_a_stream_and_a_transaction_end_with_a_call_that_was_cancelled(running: Service) -> None:
    async def program() -> None:
        async with publisher(running) as one:
            await one.connect()
            both = one.transaction()
            stream = await one.stream().__aenter__()
            ticket = await stream.put("t", b"never")
            cancelled, _ = await cancelled_at(one.interest("t"), 0)
            assert cancelled
            with pytest.raises(UsageError, match="ended when a call"):
                await ticket.result()
            with pytest.raises(UsageError, match="ended when a call"):
                async with both:
                    both.put("t", b"never")
            await one.put("t", b"1")

    asyncio.run(program())
    assert stored(running) == [b"1"]
