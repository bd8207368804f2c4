"""Handlers and codecs against a real proxy, in the blocking client and the one for asyncio."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

import pytest

from reliable_pubsub import Message, UsageError, aio

from .harness import PATIENCE_S, STUBBORN, Service, eventually


def test_one_run_handles_several_topics_which_are_pushed(running: Service) -> None:
    handled: list[object] = []
    with running.open_subscriber("s") as subscriber, running.open_publisher("p") as publisher:

        def handle(message: Message) -> None:
            handled.append(message.value)
            if len(handled) == 40:
                subscriber.stop()

        for topic in ("t", "u"):
            subscriber.subscribe(topic)
            subscriber.on(topic, handle)
        putting = threading.Thread(
            target=lambda: [publisher.put("tu"[n % 2], {"n": n}, codec="json") for n in range(40)]
        )
        putting.start()
        subscriber.run(timeout_s=PATIENCE_S)
        putting.join()

        def are_pushed() -> bool:  # the run may have ended before the link was there
            return all(subscriber.get(one) == [] and subscriber.is_pushed(one) for one in "tu")

        eventually(are_pushed, "pushed topics")

    for parity in (0, 1):
        own = [one for one in handled if one["n"] % 2 == parity]  # type: ignore[index]
        assert own == [{"n": n} for n in range(40) if n % 2 == parity]


def test_handlers_of_asyncio_are_awaited_retried_and_acknowledged(
    running: Service, caplog: pytest.LogCaptureFixture
) -> None:
    handled: list[str] = []
    endpoint: dict[str, Any] = {"endpoint": running.subscriber_endpoint}

    async def program() -> list[str]:
        async with (
            aio.Publisher("p", endpoint=running.publisher_endpoint, retry=STUBBORN) as publisher,
            aio.Subscriber("s", retry=STUBBORN, **endpoint) as subscriber,
        ):
            await subscriber.subscribe("t")
            async with publisher.stream() as stream:
                for text in "abcde":
                    await stream.put("t", text, codec="text")

            async def handle(message: Message) -> None:
                await asyncio.sleep(0)
                handled.append(message.value)
                with pytest.raises(UsageError, match="is handling messages"):
                    await subscriber.run(timeout_s=0)
                if message.value == "c":
                    raise ValueError("bad")
                if message.value == "e":
                    subscriber.stop()

            subscriber.on("t", handle, retries=1, pause_s=0, on_failure="reject")
            await subscriber.run(timeout_s=PATIENCE_S)
            letters = await subscriber.history("t.dead")
        async with aio.Subscriber("s", retry=STUBBORN, **endpoint) as again:
            await again.subscribe("t")
            assert await again.get("t") == []
        return [letter.value for letter in letters]

    assert asyncio.run(program()) == ["c"]
    assert handled == ["a", "b", "c", "c", "d", "e"]
    failed = [one for one in caplog.records if "failed with ValueError" in one.getMessage()]
    assert [one.exc_info is not None for one in failed] == [True, True]
    assert all("message p_3," in one.getMessage() for one in failed)


def test_a_run_that_is_cancelled_in_a_handler_does_not_acknowledge_its_message(
    running: Service,
) -> None:
    async def program() -> list[tuple[str, bool]]:
        begun = asyncio.Event()
        async with (
            aio.Publisher("p", endpoint=running.publisher_endpoint, retry=STUBBORN) as publisher,
            aio.Subscriber("s", endpoint=running.subscriber_endpoint, retry=STUBBORN) as subscriber,
        ):
            await subscriber.subscribe("t")
            await publisher.put_many("t", ["a", "b", "c"], codec="text")

            async def handle(message: Message) -> None:
                if message.value == "b":
                    begun.set()
                    await asyncio.sleep(3600)

            subscriber.on("t", handle)
            task = asyncio.create_task(subscriber.run())
            await begun.wait()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return [(m.value, m.redelivered) for m in await subscriber.get("t", max_messages=9)]

    assert asyncio.run(program()) == [("b", True), ("c", False)]
