"""A state directory on a disk that hangs stops the calls of its client, and not the event loop."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reliable_pubsub import Message, Publisher, Subscriber, aio
from reliable_pubsub.common.core.errors import StorageFailedError
from reliable_pubsub.common.state_file import StateFile

from .harness import PATIENCE_S, STUBBORN, Service


class Disk:
    """Writes of client states wait while it hangs."""

    def __init__(self) -> None:
        self._works = threading.Event()
        self._works.set()
        self.is_asked = threading.Event()  # while it hangs

    def hang(self) -> None:
        self.is_asked.clear()
        self._works.clear()

    def work(self) -> None:
        self._works.set()

    def wait(self) -> None:
        if not self._works.is_set():
            self.is_asked.set()
            assert self._works.wait(PATIENCE_S)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """The disk of all clients."""
    disk = Disk()
    write, close = StateFile.write, StateFile.close

    def written(state: StateFile, changes: Mapping[str, bytes | None], *, durable: bool) -> None:
        disk.wait()
        write(state, changes, durable=durable)

    def closed(state: StateFile) -> None:
        disk.wait()
        close(state)

    monkeypatch.setattr(StateFile, "write", written)
    monkeypatch.setattr(StateFile, "close", closed)
    yield disk
    disk.work()


async def asked(disk: Disk) -> None:
    """Wait until a client writes; the event loop turns."""
    async with asyncio.timeout(PATIENCE_S):
        while not disk.is_asked.is_set():
            await asyncio.sleep(0.001)


async def hung(disk: Disk, call: Awaitable[Any]) -> Any:
    """Make a call while the disk hangs, and see that the event loop turns meanwhile."""
    disk.hang()
    task = asyncio.ensure_future(call)
    await asked(disk)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    disk.work()
    async with asyncio.timeout(PATIENCE_S):
        return await task


def a_publisher(service: Service, state_dir: Path) -> aio.Publisher:
    return aio.Publisher(
        "p", endpoint=service.publisher_endpoint, retry=STUBBORN, state_dir=state_dir
    )


def a_subscriber(service: Service, state_dir: Path) -> aio.Subscriber:
    return aio.Subscriber(
        "s", endpoint=service.subscriber_endpoint, retry=STUBBORN, state_dir=state_dir
    )


def test_a_put_and_a_close_let_the_event_loop_turn(
    running: Service, disk: Disk, tmp_path: Path
) -> None:
    async def program() -> None:
        publisher = a_publisher(running, tmp_path)
        await publisher.put("t", b"0")
        receipt = await hung(disk, publisher.put("t", b"1"))
        assert receipt.offset == 1
        async with publisher.transaction() as both:
            both.put("t", b"2")
        await hung(disk, publisher.close())
        async with a_publisher(running, tmp_path) as again:  # its lock was released
            assert (await again.put("t", b"3")).offset == 3

    asyncio.run(program())


def test_a_put_that_is_cancelled_meanwhile_is_stored_once_or_not_at_all(
    running: Service, disk: Disk, tmp_path: Path
) -> None:
    async def program() -> None:
        async with a_publisher(running, tmp_path) as publisher:
            await publisher.put("t", b"0")
            disk.hang()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(publisher.put("t", b"maybe"), 0.05)
            task = asyncio.ensure_future(publisher.put("t", b"2"))
            await asked(disk)
            disk.work()
            await task

    asyncio.run(program())
    with running.open_subscriber("judge") as judge:
        found = [message.payload for message in judge.history("t")]
    assert found in ([b"0", b"2"], [b"0", b"maybe", b"2"])


async def _get(reader: aio.Subscriber) -> list[Message]:
    return await reader.get("t", timeout_s=PATIENCE_S)


async def _next(reader: aio.Subscriber) -> list[Message]:
    return [await anext(reader.messages("t", timeout_s=PATIENCE_S))]


@pytest.mark.parametrize("call", [_get, _next])
def test_a_get_and_a_loop_let_the_event_loop_turn(
    running: Service,
    disk: Disk,
    tmp_path: Path,
    call: Callable[[aio.Subscriber], Awaitable[list[Message]]],
) -> None:
    async def program() -> list[bytes]:
        found = []
        async with a_subscriber(running, tmp_path) as reader:
            await reader.subscribe("t", max_deliveries=2)
            with running.open_publisher("w") as writer:
                writer.put_many("t", [b"0", b"1", b"2"])
            for number in range(3):
                if number == 1:  # not delivered, so not counted as delivered
                    for _ in range(3):
                        disk.hang()
                        with pytest.raises(TimeoutError):
                            await asyncio.wait_for(call(reader), 0.05)
                        disk.work()
                messages = await hung(disk, call(reader))
                assert not messages[0].redelivered
                found += messages
        return [message.payload for message in found]

    assert asyncio.run(program()) == [b"0", b"1", b"2"]


def _puts(service: Service, state_dir: Path, remove: Callable[[], None]) -> None:
    with Publisher("p", endpoint=service.publisher_endpoint, state_dir=state_dir) as publisher:
        publisher.put("t", b"0")
        remove()
        publisher.put("t", b"never")


def _gets(service: Service, state_dir: Path, remove: Callable[[], None]) -> None:
    with Subscriber("s", endpoint=service.subscriber_endpoint, state_dir=state_dir) as subscriber:
        subscriber.subscribe("t")
        with service.open_publisher("w") as writer:
            writer.put("t", b"0")
        remove()
        subscriber.get("t", timeout_s=PATIENCE_S)


def _awaits(service: Service, state_dir: Path, remove: Callable[[], None]) -> None:
    async def program() -> None:
        async with a_publisher(service, state_dir) as publisher:
            await publisher.put("t", b"0")
            remove()
            await publisher.put("t", b"never")

    asyncio.run(program())


@pytest.mark.parametrize("way", ["removed", "replaced"])
@pytest.mark.parametrize("calls", [_puts, _gets, _awaits])
def test_a_client_whose_state_directory_is_gone_says_so_at_its_next_call(
    running: Service,
    tmp_path: Path,
    calls: Callable[[Service, Path, Callable[[], None]], None],
    way: str,
) -> None:
    directory = tmp_path / "state"

    def remove() -> None:
        if way == "removed":
            shutil.rmtree(directory)
        else:
            directory.rename(tmp_path / "old")
            directory.mkdir()

    with pytest.raises(StorageFailedError, match="removed or replaced"):
        calls(running, directory, remove)
    with running.open_subscriber("judge") as judge:
        assert [message.payload for message in judge.history("t")] == [b"0"]
