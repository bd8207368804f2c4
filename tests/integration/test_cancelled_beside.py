"""A call that is cancelled or interrupted rolls back nothing of another topic (rule R31).

Nor does an exception that leaves the block of a client take back what its loop has processed.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from reliable_pubsub import Earliest, Message, Subscriber, UsageError, aio, glob
from tests.cancelling import cancelled_at

from .harness import PATIENCE_S, STUBBORN, Service

PUT = [b"%d" % number for number in range(12)]
SOON_S = 0.03
BUSY: dict[str, dict[str, Any]] = {
    "plain": {"topic": "busy"},
    "counted": {"topic": "busy", "max_deliveries": 2},
    "group": {"topic": "busy", "group": "g", "max_deliveries": 2},
    "pattern": {"match": glob("bus?")},
}

Reader = aio.Subscriber
Cancelled = Callable[[Reader], Awaitable[object]]


async def _wait_for(reader: Reader) -> None:
    await asyncio.wait_for(reader.get("quiet", timeout_s=PATIENCE_S), SOON_S)


async def _timeout(reader: Reader) -> None:
    async with asyncio.timeout(SOON_S):
        async for _ in reader.messages("quiet-group"):
            pass


async def _task_group(reader: Reader) -> None:
    async def failing() -> None:
        await asyncio.sleep(SOON_S)
        raise TimeoutError

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(reader.get(glob("quie?"), timeout_s=PATIENCE_S))
            group.create_task(failing())
    except* TimeoutError:
        raise TimeoutError from None


async def _run(reader: Reader) -> None:
    await asyncio.wait_for(reader.run(), SOON_S)


CANCELLED: dict[str, Cancelled] = {
    "wait_for": _wait_for,
    "timeout of a loop": _timeout,
    "task group": _task_group,
    "run": _run,
}


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("busy", BUSY)
@pytest.mark.parametrize("call", CANCELLED)
def test_a_wait_that_is_cancelled_beside_a_busy_topic_stops_no_progress(
    service: Service, tmp_path: Path, call: str, busy: str, remembers: bool
) -> None:
    if busy == "counted" and not remembers:
        pytest.skip("deliveries are counted in the state")
    service.start_proxy()
    terms = BUSY[busy]
    seen: list[Message] = []

    async def program() -> None:
        async with aio.Subscriber(
            "s",
            endpoint=service.subscriber_endpoint,
            retry=STUBBORN,
            state_dir=tmp_path if remembers else None,
        ) as reader:
            await reader.subscribe("quiet")
            await reader.subscribe("quiet-group", group="g")
            await reader.subscribe(match=glob("quie?"))
            await reader.subscribe(**terms)
            reader.on("quiet", lambda message: None)
            with service.open_publisher("w") as writer:
                writer.put_many("busy", PUT)
            for _ in PUT:
                with pytest.raises(TimeoutError):
                    await CANCELLED[call](reader)
                seen.extend(await reader.get(terms.get("match") or "busy", timeout_s=PATIENCE_S))

    asyncio.run(program())
    assert [message.payload for message in seen] == PUT
    assert not any(message.redelivered for message in seen)
    with service.open_subscriber("judge") as judge:
        assert judge.history("busy.dead") == []


@pytest.mark.parametrize("busy", BUSY)
def test_any_other_call_that_is_cancelled_beside_a_busy_topic_stops_no_progress(
    service: Service, tmp_path: Path, busy: str
) -> None:
    service.start_proxy()
    terms = BUSY[busy]
    seen: list[Message] = []

    async def program() -> None:
        async with aio.Subscriber(
            "s", endpoint=service.subscriber_endpoint, retry=STUBBORN, state_dir=tmp_path
        ) as reader:
            await reader.subscribe("quiet")
            await reader.subscribe("jobs", group="g")
            await reader.subscribe(**terms)
            with service.open_publisher("w") as writer:
                writer.put("jobs", b"job")
                writer.put_many("busy", PUT)
            (job,) = await reader.get("jobs", timeout_s=PATIENCE_S)
            calls: list[Callable[[], Coroutine[Any, Any, object]]] = [
                lambda: reader.history("quiet"),
                lambda: reader.read("quiet"),
                lambda: reader.extend(job),
                lambda: reader.keep_alive(),
                lambda: reader.acknowledge("quiet"),
                lambda: reader.subscribe("third", start=Earliest),
                lambda: reader.nack(job),
                lambda: reader.reject(job, "poison"),
                lambda: reader.unsubscribe("quiet"),
                lambda: reader.unsubscribe("jobs"),
            ]
            for number in range(len(PUT)):
                seen.extend(await reader.get(terms.get("match") or "busy", timeout_s=PATIENCE_S))
                if number < len(calls):
                    with suppress(UsageError):  # the job was given back by the call before
                        await cancelled_at(calls[number](), 0)

    asyncio.run(program())
    assert [message.payload for message in seen] == PUT
    assert not any(message.redelivered for message in seen)


@pytest.mark.parametrize("busy", ["counted", "group", "pattern"])
def test_a_wait_that_an_alarm_interrupts_beside_a_busy_topic_stops_no_progress(
    service: Service, tmp_path: Path, busy: str
) -> None:
    service.start_proxy()
    terms = BUSY[busy]
    seen: list[Message] = []
    before = signal.signal(signal.SIGALRM, _raise)
    try:
        with Subscriber(
            "s", endpoint=service.subscriber_endpoint, retry=STUBBORN, state_dir=tmp_path
        ) as reader:
            reader.subscribe("quiet")
            reader.subscribe(**terms)
            with service.open_publisher("w") as writer:
                writer.put_many("busy", PUT)
            for _ in PUT:
                with suppress(_Alarm):
                    signal.setitimer(signal.ITIMER_REAL, SOON_S)
                    reader.get("quiet", timeout_s=PATIENCE_S)
                seen += reader.get(terms.get("match") or "busy", timeout_s=PATIENCE_S)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [message.payload for message in seen] == PUT
    assert not any(message.redelivered for message in seen)


FAILS_AT = 900


class _Failure(Exception):
    """What the program raises while it processes a message."""


def _blocking(service: Service, terms: dict[str, Any]) -> list[Message]:
    done: list[Message] = []
    with (
        suppress(_Failure),
        Subscriber("s", endpoint=service.subscriber_endpoint, retry=STUBBORN) as reader,
    ):
        reader.subscribe(**terms)
        for message in reader.messages(terms.get("match") or "busy", timeout_s=PATIENCE_S):
            if len(done) == FAILS_AT:
                raise _Failure
            done.append(message)
    return done


def _awaiting(service: Service, terms: dict[str, Any]) -> list[Message]:
    done: list[Message] = []

    async def program() -> None:
        async with aio.Subscriber(
            "s", endpoint=service.subscriber_endpoint, retry=STUBBORN
        ) as reader:
            await reader.subscribe(**terms)
            async for message in reader.messages(
                terms.get("match") or "busy", timeout_s=PATIENCE_S
            ):
                if len(done) == FAILS_AT:
                    raise _Failure
                done.append(message)

    with suppress(_Failure):
        asyncio.run(program())
    return done


def _cancelled(service: Service, terms: dict[str, Any]) -> list[Message]:
    """The task is cancelled while it awaits another call of the client."""
    done: list[Message] = []

    async def program(waits: asyncio.Event) -> None:
        async with aio.Subscriber(
            "s", endpoint=service.subscriber_endpoint, retry=STUBBORN
        ) as reader:
            await reader.subscribe(**terms)
            await reader.subscribe("quiet")
            async for message in reader.messages(
                terms.get("match") or "busy", timeout_s=PATIENCE_S
            ):
                if len(done) == FAILS_AT:
                    waits.set()
                    await reader.get("quiet", timeout_s=PATIENCE_S)
                done.append(message)

    async def cancel() -> None:
        waits = asyncio.Event()
        task = asyncio.create_task(program(waits))
        task.add_done_callback(lambda _: waits.set())
        await waits.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(task, SOON_S)

    asyncio.run(cancel())
    return done


@pytest.mark.parametrize("busy", ["plain", "pattern"])
@pytest.mark.parametrize("loop", [_blocking, _awaiting, _cancelled])
def test_an_exception_that_leaves_the_block_takes_back_nothing_that_was_processed(
    service: Service, loop: Callable[[Service, dict[str, Any]], list[Message]], busy: str
) -> None:
    service.start_proxy()
    terms = BUSY[busy]
    put = [b"%d" % number for number in range(FAILS_AT + 10)]
    with service.open_subscriber("s") as reader, service.open_publisher("w") as writer:
        reader.subscribe(**terms)
        writer.put_many("busy", put)

    done = loop(service, terms)

    with service.open_subscriber("s") as reader:
        reader.subscribe(**terms)
        left = list(reader.messages(terms.get("match") or "busy", timeout_s=0.2))
    assert [message.payload for message in done] == put[:FAILS_AT]
    assert [message.payload for message in left] == put[FAILS_AT:]
    assert left[0].redelivered


class _Alarm(Exception):
    """What the handler raises."""


def _raise(*_: object) -> None:
    raise _Alarm
