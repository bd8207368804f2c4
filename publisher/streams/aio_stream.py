"""`aio.Stream`: puts that return at once, and are sent in batches by a task.

As in the blocking stream, the next batch grows while one is in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any

from reliable_pubsub.common.core.arguments import Seconds, TimeoutS, checked
from reliable_pubsub.common.core.batch import Batch
from reliable_pubsub.common.core.errors import InDoubtError, PubSubError, TimedOutError, UsageError
from reliable_pubsub.common.core.names import TopicName

from ..core.puts import (
    AnyCodec,
    Payloads,
    bytes_in_stream,
    check_payload_bytes,
    topic_to_put_on,
)
from ..core.receipt import Receipt
from .core.stream_queue import StreamBatch, StreamQueue
from .stream import STOP_S, warn_of_open

PutBatch = Callable[[str, Batch], Coroutine[Any, Any, Receipt]]


@asynccontextmanager
async def _within(timeout_s: float | None, fate: str) -> AsyncIterator[None]:
    """Limit the time of the block.

    Raises:
        TimedOutError: it is over, with this fate of the messages.
    """
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise TimedOutError(f"{fate} after {timeout_s:g} s; see their tickets") from None


class TaskBatch(StreamBatch):
    """A batch whose outcome tasks wait for."""

    __slots__ = ("outcome",)

    def __init__(self, topic: str, content_type: str | None, due_at_s: float) -> None:
        super().__init__(topic, content_type, due_at_s)
        self.outcome: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()


class Ticket:
    """The outcome of one message of a stream, now or later."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: TaskBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        return f"<Ticket of message {self._index} of a batch on {self._batch.topic!r:.80}>"

    @checked
    async def result(self, timeout_s: Seconds | None = None) -> Receipt:
        """Wait until the message is stored.

        Raises:
            TimeoutError: the outcome is not yet known.
            PubSubError: why it was not stored, or is in doubt.
        """
        outcome = asyncio.shield(self._batch.outcome)
        return (await asyncio.wait_for(outcome, timeout_s)).part(self._index)


class Stream:
    """A buffered publisher, in an `async with` block; the publisher is its own until it closes.

    After the first error nothing more is sent, so that no message overtakes one in doubt: every
    later message ends with the same error.
    """

    def __init__(
        self,
        put_batch: PutBatch,
        begun: Callable[[Stream], None],
        *,
        linger_s: float,
        payloads: Payloads,
    ) -> None:
        """Create it without a task; use `Publisher.stream`.

        Args:
            begun: called when its block begins; refuses it if another stream is open.
        """
        self._begun = begun
        self._payloads = payloads
        self._put_batch = put_batch
        self._linger_s = linger_s
        self._queue: StreamQueue[TaskBatch] = StreamQueue()
        self._changed = asyncio.Condition()
        self._flushing = False
        self._closing = False
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<Stream{'' if self.is_open else ' (closed)' if self._task else ' (not begun)'}>"

    @property
    def is_open(self) -> bool:
        """Whether it was begun, and may send."""
        return self._task is not None and not self._task.done() and not self._closing

    async def __aenter__(self) -> Stream:
        if self._task is not None:
            raise UsageError("this stream was used before; open another one")
        self._begun(self)
        self._task = asyncio.create_task(self._run(), name="publisher stream")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, asyncio.CancelledError):
            await self.close()
            return
        with suppress(TimeoutError, PubSubError):  # the tickets have it
            async with asyncio.timeout(STOP_S):
                await self.close()

    @checked
    async def put(
        self,
        topic: TopicName,
        payload: object,
        *,
        codec: AnyCodec | None = None,
        timeout_s: TimeoutS = None,
    ) -> Ticket:
        """Add a message; it is sent when its batch is full, or `linger_s` has passed.

        Waits only while FULL_BATCHES_MAX full batches are queued. A put that is cancelled has added
        nothing.

        Raises:
            UsageError, TooLargeError, InvalidNameError, PayloadError, TimedOutError: nothing was
                added.
            PubSubError: the stream has failed; `Ticket.result` has the outcome of each message.
        """
        plain, content_type = self._payloads.of_stream(Stream.put, topic, payload, codec)
        check_payload_bytes(len(plain))
        topic, size = topic_to_put_on(topic), bytes_in_stream(plain, content_type)
        batch = self._queue.open
        if batch is None or not batch.has_room(topic, content_type, size):
            async with _within(timeout_s, "this message was not added"):
                batch = await self._begin_batch(topic, content_type, size)
        return Ticket(batch, batch.add(plain, size))

    async def _begin_batch(self, topic: str, content_type: str | None, size: int) -> TaskBatch:
        """Close the open batch, and open one with room."""
        queue = self._queue
        async with self._changed:
            while True:
                if self._closing:
                    raise UsageError("the stream is closed")
                if queue.unsent is not None:
                    raise queue.unsent
                if self._task is None:
                    raise UsageError("use it in a block: `async with publisher.stream() as stream`")
                if queue.open is not None and queue.open.has_room(topic, content_type, size):
                    return queue.open  # of another task's put
                if queue.has_room:
                    break
                await self._changed.wait()
            now_s = asyncio.get_running_loop().time()
            batch = queue.begin(TaskBatch(topic, content_type, now_s + self._linger_s))
            self._changed.notify_all()
            return batch

    @checked
    async def flush(self, *, timeout_s: TimeoutS = None) -> None:
        """Send everything now; return when it is stored.

        Raises:
            TimedOutError: not everything is stored in time; the rest is still sent.
            PubSubError: the first thing that went wrong.
        """
        async with _within(timeout_s, "some messages of this stream are not stored"):
            await self._flush()

    async def _flush(self) -> None:
        async with self._changed:
            self._flushing = True
            self._changed.notify_all()
            try:
                while not self._queue.is_idle and self._queue.error is None:
                    await self._changed.wait()
            finally:
                self._flushing = False
            if self._queue.error is not None:
                raise self._queue.error

    @checked
    async def close(self, *, timeout_s: TimeoutS = None) -> None:
        """Flush, and release the publisher.

        If it is cancelled, so is the batch in flight: the next call of the publisher settles that,
        and nothing more is sent.

        Raises:
            TimedOutError, PubSubError: as `flush`; the publisher is released nevertheless.
        """
        task = self._task
        if task is None or self._closing:
            return
        try:
            async with _within(timeout_s, "some messages of this stream are not stored"):
                await self._flush()
        finally:
            self._closing = True
            task.cancel()
            self._end(  # after a flush nothing is left
                InDoubtError(
                    "the stream was broken off; if this message was sent, the next call of its "
                    "publisher settles it, and else it is not stored"
                )
            )
            await asyncio.wait([task])

    async def _take(self) -> TaskBatch:
        """Wait for a batch that is due."""
        loop, queue = asyncio.get_running_loop(), self._queue
        async with self._changed:
            while (batch := queue.take(loop.time(), at_once=self._flushing)) is None:
                self._changed.notify_all()
                left_s = None if queue.open is None else queue.open.due_at_s - loop.time()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):  # `wait_for` may swallow a cancellation
                        await self._changed.wait()
            self._changed.notify_all()
            return batch

    async def _run(self) -> None:
        try:
            while True:
                batch = await self._take()
                receipt = await self._put_batch(batch.topic, batch.whole())
                if not batch.outcome.done():  # the stream may have been broken off
                    batch.outcome.set_result(receipt)
        except PubSubError as error:
            await self._fail(error)
        except asyncio.CancelledError:
            if not self._closing:  # the event loop ends
                warn_of_open(self._queue.batches)
            raise

    async def _fail(self, error: PubSubError) -> None:
        async with self._changed:
            self._end(error)
            self._changed.notify_all()

    def _end(self, error: PubSubError) -> None:
        """End every message that is not stored."""
        for batch, why in self._queue.end(error):
            if not batch.outcome.done():
                batch.outcome.set_exception(why)
                batch.outcome.exception()  # no warning if the program does not ask
