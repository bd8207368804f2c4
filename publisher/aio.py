"""`aio.Publisher`: the publisher for asyncio, over the engine of the blocking one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Never, Unpack, cast, overload

from msgspec.structs import replace

from reliable_pubsub.common.aio import AioClient, awaited, gated
from reliable_pubsub.common.core.arguments import Seconds, TimeoutS, checked
from reliable_pubsub.common.core.batch import Batch, EventTimeNs
from reliable_pubsub.common.core.errors import TimedOutError, UsageError
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.core.retry import limit_s
from reliable_pubsub.common.core.steps import DELIVERED_S, Wait

from . import client as blocking
from .core.engine import PublisherEngine
from .core.outbox import Numbered, Pending, encoded_batch
from .core.puts import AnyCodec, Payload, PutOptions, WaitingPut
from .core.receipt import AcknowledgedBy, Delivery, OfferCounts, Receipt
from .delivery.core.delivery import DeliveryWait, wait_of_put
from .features import FEATURES
from .interests.core.interests import EVERY_S, EVERY_TOPIC, EveryS, InterestChange, InterestWatch
from .opening import OpenedPublisher
from .qos0.qos0_feature import QoS0Feature
from .streams.aio_stream import Stream
from .streams.stream import HAS_STREAM, LingerS
from .transactions.core import transaction


class Publisher(OpenedPublisher, AioClient[PublisherEngine]):
    """Puts messages on topics, each exactly once, across its own crashes and the proxy's.

    It has the calls of the blocking `Publisher`, to be awaited. Neither an unreachable proxy nor a
    hung disk stops the event loop. Waiting puts of several tasks on one topic share a request. A
    cancelled call counts as a crash of the client within its process. Its message is stored once or
    not at all, and the next call settles requests already sent.
    """

    _features = FEATURES

    put_many = awaited(blocking.Publisher.put_many)
    wait_delivered = awaited(blocking.Publisher.wait_delivered)
    wait_for_interest = awaited(blocking.Publisher.wait_for_interest)
    interest = awaited(blocking.Publisher.interest)
    resume = awaited(blocking.Publisher.resume)
    connect = awaited(blocking.Publisher.connect)
    _look = awaited(blocking.Publisher._look)
    _look_at_interests = awaited(blocking.Publisher._look_at_interests)
    _wait_for_interest = awaited(blocking.Publisher._wait_for_interest)
    _begin_block = awaited(blocking.Publisher._begin_block)
    _transact = awaited(blocking.Publisher._transact)
    _stream = cast("Stream | None", None)

    def _begin_again(self) -> None:
        """Reset to the stored state, after an interrupted call."""
        self._stream = None
        super()._begin_again()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(error)

    async def close(self) -> None:
        """Close the socket and the state. A batch in doubt stays in the state."""
        await self._close(None)

    @overload
    async def put(
        self, topic: TopicName, payload: Payload, **more: Unpack[PutOptions]
    ) -> Receipt: ...

    @overload
    async def put(
        self, topic: TopicName, payload: object, *, codec: AnyCodec, **more: Unpack[PutOptions]
    ) -> Receipt: ...

    @checked
    async def put(
        self,
        topic: TopicName,
        payload: object,
        *,
        codec: AnyCodec | None = None,
        key: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        event_time_ns: EventTimeNs | None = None,
        qos: QoS = 2,
        wait: Wait = "stored",
        acknowledged_by: AcknowledgedBy | None = None,
        timeout_s: TimeoutS = None,
    ) -> Receipt:
        """Put one message; return when it is stored as durably as the proxy promises.

        Arguments and errors are those of the blocking client. Of a put that is cancelled it is not
        known whether the message is stored: it is, at most once.
        """
        put = self._payloads.put(
            Publisher.put, topic, payload, codec, key, headers, event_time_ns, qos, self
        )
        if wait == "stored" and acknowledged_by is None:
            return await self._put(put, timeout_s=timeout_s)
        by = wait_of_put(wait, acknowledged_by, qos)
        now_s = self._opened.asker.clock.now_s
        began_s = now_s()
        receipt = await self._put(put, timeout_s=timeout_s)
        left_s = DELIVERED_S if timeout_s is None else began_s + timeout_s - now_s()
        delivery = await self._wait_delivered(receipt, by, left_s)
        return replace(receipt, delivery=delivery)

    async def _wait_delivered(
        self, receipt: Receipt, acknowledged_by: AcknowledgedBy, timeout_s: float
    ) -> Delivery:
        clock = self._opened.asker.clock
        wait = DeliveryWait(receipt, acknowledged_by, timeout_s, now_s=clock.now_s)
        while (pause_s := await self._look(wait, timeout_s=wait.asks_s)) is not None:
            await asyncio.sleep(pause_s)
        return wait.delivery

    async def _put(self, put: WaitingPut, timeout_s: float | None) -> Receipt:
        self._waiting.append(put)
        try:
            return await self._settle(put, timeout_s=timeout_s)
        except TimedOutError as error:  # before its turn
            error.kept = not put.withdraw()
            raise
        finally:
            self._waiting.remove(put)

    @gated
    async def _settle(self, put: WaitingPut, *, timeout_s: float | None) -> Receipt:
        """Put it, unless the call before has put it along with its own."""
        if put.outcome is None:
            self._check_no_stream()
        others = [one for one in self._waiting if one is not put]
        return await self._run(self._engine.put(put, others))

    def _check_no_stream(self) -> None:
        if self._stream is not None and self._stream.is_open:
            raise UsageError(HAS_STREAM)

    @checked
    def interests(
        self,
        topics: Topics = EVERY_TOPIC,
        *,
        every_s: EveryS = EVERY_S,
        timeout_s: Seconds | None = None,
    ) -> AioInterests:
        """Iterate over subscriptions and their changes, by `async for`; see the blocking client."""
        clock = self._opened.asker.clock
        watch = InterestWatch(topics, every_s=every_s, timeout_s=timeout_s, now_s=clock.now_s)
        return AioInterests(watch, self._look_at_interests)

    @property
    def offer_counts(self) -> OfferCounts:
        """Counts of the QoS 0 messages of this process."""
        return self._engine.feature(QoS0Feature).lower_qos.qos0.counts

    @property
    def in_doubt(self) -> Numbered | None:
        """The batch that is numbered and kept, and not known to be stored."""
        return self.outbox.batch_in_doubt

    @property
    def transaction_in_doubt(self) -> Pending | None:
        """The transaction that is numbered and kept, and not known to be stored."""
        return self.outbox.transaction_in_doubt

    @checked
    def stream(self, *, linger_s: LingerS = 0.005) -> Stream:
        """Put without waiting: messages are collected into batches, and sent in order by a task.

        Use it in an `async with` block; until it is closed, the publisher belongs to it.
        """
        life = self._gate.life()
        self._check_is_free()
        put = lambda *batch: self._put_from_stream(life, *batch)  # noqa: E731
        return Stream(put, self._stream_begins, linger_s=linger_s, payloads=self._payloads)

    def _check_is_free(self) -> None:
        self._check_no_stream()
        self._engine.check_no_block()

    def _stream_begins(self, stream: Stream) -> None:
        self._check_is_free()
        self._stream = stream

    @gated
    async def _put_from_stream(self, life: int, topic: str, batch: Batch) -> Receipt:
        self._gate.check_life(life, "this stream")
        put = WaitingPut(batch, encoded_batch(topic, batch), 2, is_alone=True)
        return await self._run(self._engine.put(put))

    def transaction(self, *, timeout_s: TimeoutS = None) -> Transaction:
        """Put messages on several topics, all of them or none, exactly once.

        Until the block ends, every other put of this publisher raises UsageError, in every task.

        async with publisher.transaction() as both:
            both.put("orders", order)
            both.put("audit", line)
        """
        life = self._gate.life()
        self._check_is_free()
        begins = lambda transaction: self._begin_block(life, transaction)  # noqa: E731
        commit = lambda batches: self._transact(life, batches, None, timeout_s=timeout_s)  # noqa: E731
        return Transaction(begins, commit, self._payloads)  # type: ignore[arg-type]


class Transaction(transaction.Transaction):
    """Messages that are stored all or not at all. Use it in an `async with` block."""

    _block = "async with"

    def __enter__(self) -> Never:
        raise UsageError("use it in a block: `async with publisher.transaction() as both`")

    async def __aenter__(self) -> Transaction:
        self._check_new()
        await self._begins(self)  # type: ignore[misc]  # a coroutine here
        self._begun = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Store everything, or, after an error, nothing; see the blocking `Transaction`."""
        if batches := self._end(error):
            self.receipts = await self._commit(batches)  # type: ignore[misc]  # a coroutine here


class AioInterests(AsyncIterator[InterestChange]):
    """As `Interests`, for asyncio."""

    def __init__(self, watch: InterestWatch, look: Callable[..., Awaitable[None]]) -> None:
        """Begin with what is there; made by `aio.Publisher.interests`."""
        self._watch, self._look = watch, look

    def __repr__(self) -> str:
        return f"<Interests in {self._watch.match}>"

    async def __anext__(self) -> InterestChange:
        """Wait for the next change."""
        for pause_s in self._watch.pauses():
            await asyncio.sleep(pause_s)
            await self._look(self._watch, timeout_s=limit_s(self._watch.timeout_s))
        change = self._watch.take()
        if change is None:
            raise StopAsyncIteration
        return change
