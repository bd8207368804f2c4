"""`Publisher`: puts that return when the proxy has the messages, once each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Unpack, cast, overload

from msgspec.structs import replace

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import Seconds, TimeoutS, checked
from reliable_pubsub.common.core.batch import Batch, EventTimeNs
from reliable_pubsub.common.core.errors import StoppedError
from reliable_pubsub.common.core.message_base import Count, QoS
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.patterns.pattern import Topics
from reliable_pubsub.common.core.retry import limit_s
from reliable_pubsub.common.core.steps import DELIVERED_S, Wait
from reliable_pubsub.common.core.stopping import until_stopped
from reliable_pubsub.common.gate import Shared, gated, gated_after_close, sharing
from reliable_pubsub.common.opened import BlockingClient

from .core.delivery import AcknowledgedBy, DeliveryS, DeliveryWait, wait_of_put
from .core.engine import PublisherEngine
from .core.interests import EVERY_S, EVERY_TOPIC, EveryS, InterestWatch
from .core.outbox import Encoded, Numbered, Pending, encoded_batch
from .core.puts import (
    AnyCodec,
    Payload,
    PutOptions,
    WaitingPut,
    encoded_put,
    topic_to_put_on,
)
from .core.qos0_puts import Interest, OfferCounts
from .core.receipt import Delivery, Receipt
from .core.transaction import Transaction
from .interest_feed import Interests
from .opening import OpenedPublisher
from .stream import LingerS, Stream, StreamSender


class Publisher(OpenedPublisher, BlockingClient[PublisherEngine]):
    """Puts messages on topics, each exactly once, across its own crashes and the proxy's.

    While the proxy is unreachable, a call retries until its `timeout_s` expires, or as often as
    `retry` allows. Then it raises `InDoubtError`, and keeps numbered messages.

    Threads: calls of several threads wait for each other; puts on one topic that wait are sent in
    one request. A forked child needs a client of its own.
    An exception that is not a `PubSubError` (Ctrl-C, an alarm) may interrupt a call and be caught:
    the next call begins as after a crash, so no message is lost or duplicated.

    With `state_dir` a message that was in flight when the process died is sent again, under its
    number, by the next process with this id; without it the publisher keeps its state in memory
    and takes its numbering from the proxy.
    """

    _sender = cast("StreamSender | None", None)

    def _make_way(self) -> bool:
        """Close for another client of this process, unless a call or a stream is open."""
        idle = self._sender is None or self._sender.is_idle
        return idle and super()._make_way()

    def _begin_again(self) -> None:
        """Reset to the stored state, after an interrupted call."""
        self._sender = None
        super()._begin_again()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(error)

    def close(self) -> None:
        """Close the socket and the state. A batch in doubt stays in the state."""
        self._close(None)

    @overload
    def put(self, topic: TopicName, payload: Payload, **more: Unpack[PutOptions]) -> Receipt: ...

    @overload
    def put(
        self, topic: TopicName, payload: object, *, codec: AnyCodec, **more: Unpack[PutOptions]
    ) -> Receipt: ...

    @checked
    def put(
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

        Args:
            payload: bytes, at most 1 MiB - 64 B; with a codec a value that it can write.
            codec: "bytes", "text", "json", "msgpack", or one of the program (`typed`, `Codec`). The
                message gets the header `content-type`, and `Message.value` is the value again.
            qos: 2 stores it once. 1 stores every copy that a retry makes, and keeps no state: the
                caller puts again what is in doubt. 0 stores nothing, sends no request and returns
                at once: it is sent once to the current listeners (`Receipt.fate`).
            wait: delivered returns only when subscribers have acknowledged the message too, and
                the receipt then says who.
            acknowledged_by: for that; see `wait_delivered`.
            timeout_s: what the call takes at most, both waits together. None: storing takes as long
                as `retry` asks, and `wait` then another 60 s.

        Raises:
            InvalidNameError, TooLargeError: nothing was sent.
            PayloadError: the codec cannot write the payload, or its schema refuses it; nothing was
                sent.
            NotDeliveredError: the message is stored, and too few have acknowledged it in time.
            InDoubtError: no definite answer, in time. If its `kept` is true, so is the message:
                `resume`, or the next put, or the next process with this state sends it again, once.
                Otherwise it was not sent, because the proxy was not reached or an earlier one is
                still in doubt: put it again.
            FencedError, ConflictError, LogChangedError, LimitError: refused.
            StorageFailedError: the client's state cannot be written; nothing was sent or kept. Or
                the journal cannot: then `in_doubt` shows whether the message is kept.
        """
        put = self._payloads.put(
            Publisher.put, topic, payload, codec, key, headers, event_time_ns, qos
        )
        if wait == "stored" and acknowledged_by is None:
            return self._put(put, timeout_s=timeout_s)
        by = wait_of_put(wait, acknowledged_by, qos)
        now_s = self._opened.asker.clock.now_s
        began_s = now_s()
        receipt = self._put(put, timeout_s=timeout_s)
        left_s = DELIVERED_S if timeout_s is None else began_s + timeout_s - now_s()
        delivery = self._wait_delivered(receipt, by, left_s)
        return replace(receipt, delivery=delivery)

    @checked
    def wait_delivered(
        self,
        receipt: Receipt,
        *,
        acknowledged_by: AcknowledgedBy = "all",
        timeout_s: DeliveryS = DELIVERED_S,
    ) -> Delivery:
        """Wait until subscribers have acknowledged all messages of a receipt.

        A subscriber acknowledges when it comes back for the next message, or calls `acknowledge`.

        Args:
            acknowledged_by: how many subscribers, 1 to 2,000; "all" that are subscribed, and at
                least one. Later subscriptions do not count; those that end are not waited for.
            timeout_s: above 0, at most a day; the last answer may take 2 s longer.

        Raises:
            NotDeliveredError: not in time; it has the ids that have acknowledged, and the others.
            LogChangedError: the proxy no longer has the message. LimitError: too many subscribers.
            UsageError.
        """
        return self._wait_delivered(receipt, acknowledged_by, timeout_s)

    def _wait_delivered(
        self, receipt: Receipt, acknowledged_by: AcknowledgedBy, timeout_s: float
    ) -> Delivery:
        clock = self._opened.asker.clock
        wait = DeliveryWait(receipt, acknowledged_by, timeout_s, now_s=clock.now_s)
        while (pause_s := self._look(wait, timeout_s=wait.asks_s)) is not None:
            clock.sleep(pause_s)
        return wait.delivery

    @gated
    def _look(self, wait: DeliveryWait, *, timeout_s: float) -> float | None:
        return self._run(wait.look(self._engine.session, self.outbox))

    @checked
    def put_many(
        self,
        topic: TopicName,
        payloads: Sequence[object],
        *,
        codec: AnyCodec | None = None,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Mapping[str, str] | None] | None = None,
        event_times_ns: Sequence[int | None] | None = None,
        qos: QoS = 2,
        timeout_s: TimeoutS = None,
    ) -> Receipt:
        """Put messages as one batch: one request, one commit, all or none of them.

        Args:
            payloads: 1 to 65,536, encoded at most 1 MiB together.
            codec: of all of them; see `put`.

        Raises:
            As `put`; also TooLargeError if they do not fit in one batch.
        """
        put = self._payloads.put_many(
            Publisher.put_many, topic, payloads, codec, keys, headers, event_times_ns, qos
        )
        return self._put(put, timeout_s=timeout_s)

    @checked
    def put_batch(
        self,
        topic: TopicName,
        batch: Batch,
        note: bytes | None = None,
        *,
        qos: QoS = 2,
        timeout_s: TimeoutS = None,
    ) -> Receipt:
        """Put a batch, and store a note with its numbers (QoS 1 and 0: after it).

        Args:
            note: found in `note` after a crash. What a program puts after its last note it must
                then put again, the same, in the same batches, each with its note: messages that
                were stored are not stored twice. `begin_run` begins other messages.
        """
        self._payloads.check_bytes(topic)
        put = WaitingPut(batch, encoded_put(topic_to_put_on(topic), batch), qos, note)
        return self._put(put, timeout_s=timeout_s)

    @sharing
    def _put(self, put: WaitingPut, others: Sequence[Shared]) -> Receipt:
        if self._sender is not None and put.outcome is None:
            self._check_no_stream()
        return self._run(self._engine.put(put, others))

    def _check_is_free(self) -> None:
        self._check_no_stream()
        self._engine.check_no_block()

    def _check_no_stream(self) -> None:
        if self._sender is not None:
            self._sender.check_over()

    @gated
    def interest(self, topic: TopicName, *, timeout_s: TimeoutS = None) -> Interest:
        """Ask the proxy for the listeners of a topic; false if there are none.

        Raises:
            InvalidNameError, InDoubtError.
        """
        return self._run(self._engine.lower_qos.interest(names.exact(topic)))

    @checked
    def wait_for_interest(self, topic: TopicName, timeout_s: Seconds) -> Interest:
        """Wait until a topic has a listener, to avoid work that no subscriber needs.

        Returns:
            The listeners; false when the time is over. A QoS 0 message that is put right after it
            is sent, not dropped as unwanted.

        Raises:
            InvalidNameError, InDoubtError.
        """
        return self._wait_for_interest(topic, timeout_s, timeout_s=limit_s(timeout_s))

    @gated
    def _wait_for_interest(
        self, topic: TopicName, wait_s: float, *, timeout_s: float | None
    ) -> Interest:
        qos0 = self._engine.lower_qos.qos0
        self._gate.patience.wait(wait_s)
        return self._run(qos0.wait_for_interest(names.exact(topic), wait_s))

    @checked
    def interests(
        self,
        topics: Topics = EVERY_TOPIC,
        *,
        every_s: EveryS = EVERY_S,
        timeout_s: Seconds | None = None,
    ) -> Interests:
        """Iterate over subscriptions: first those that exist, then each change of them.

        The proxy is asked every `every_s`. What begins and ends between two looks is missed; all
        else is seen, also across restarts of the proxy. Not shown are the messages that a
        subscriber's `where` lets through, and pushes without a subscription (see `interest`).

        Args:
            topics: a topic, or a pattern; subscriptions by patterns that may share a topic with
                it are included. The topics that they match now are listed as well.
            timeout_s: end after this long without a change; 0 ends after those that exist now,
                None waits forever.

        Raises:
            InvalidNameError, InvalidPatternError.
            DeniedError: the key may put to none of these topics; only those are shown.
            InDoubtError: no answer. The next `next` continues.
        """
        clock = self._opened.asker.clock
        watch = InterestWatch(topics, every_s=every_s, timeout_s=timeout_s, now_s=clock.now_s)
        return Interests(watch, self._look_at_interests, clock.sleep)

    @gated
    def _look_at_interests(self, watch: InterestWatch, *, timeout_s: float | None) -> None:
        self._gate.patience.wait(watch.timeout_s)
        return self._run(watch.look(self._engine.session))

    @property
    def offer_counts(self) -> OfferCounts:
        """Counts of the QoS 0 messages of this process."""
        return self._engine.lower_qos.qos0.counts

    @property
    @gated_after_close
    def in_doubt(self) -> Numbered | None:
        """The batch that is numbered and kept, and not known to be stored."""
        return self.outbox.batch_in_doubt

    @property
    @gated_after_close
    def transaction_in_doubt(self) -> Pending | None:
        """The transaction that is numbered and kept, and not known to be stored."""
        return self.outbox.transaction_in_doubt

    @property
    @gated_after_close
    def note(self) -> bytes | None:
        """The last note that was stored with a put, or by `begin_run`."""
        return self.outbox.note

    @gated
    def stream(self, *, linger_s: LingerS = 0.005) -> Stream:
        """Put without waiting: messages are collected into batches, and sent in order by a thread.

        Use it in a `with` block; until it is closed, the publisher belongs to it.

        Args:
            linger_s: longest time that a message waits for its batch to fill.
        """
        self._check_is_free()
        life = self._gate.lives
        stop = threading.Event()
        put = lambda *batch: self._put_from_stream(life, stop.is_set, *batch)  # noqa: E731
        stream = Stream(put, linger_s=linger_s, payloads=self._payloads, stop=stop)
        self._sender = stream.sender
        return stream

    @gated
    def _put_from_stream(
        self, life: int, is_stopped: Callable[[], bool], topic: str, batch: Batch
    ) -> Receipt:
        self._gate.check_life(life, "this stream")
        if is_stopped():  # else it would be numbered, and not sent
            raise StoppedError
        put = WaitingPut(batch, encoded_batch(topic, batch), 2, is_alone=True)
        return self._run(until_stopped(self._engine.put(put), is_stopped))

    @gated
    def transaction(self, note: bytes | None = None, *, timeout_s: TimeoutS = None) -> Transaction:
        """Put messages on several topics, all of them or none, exactly once.

            with publisher.transaction() as transaction:
                transaction.put("orders", order)
                transaction.put("audit", line)

        They are sent when the block ends, and visible at one moment. An error that leaves the
        block stores nothing. At most 128 MiB and 256 topics. Until the block ends, every other put
        of this publisher raises UsageError, and so does another block, in every thread.

        Args:
            note: stored with the numbers; see `put_batch`.
            timeout_s: of the end of the block, which sends them.
        """
        self._check_is_free()
        life = self._gate.lives
        return Transaction(
            lambda transaction: self._begin_block(life, transaction),
            lambda batches: self._transact(life, batches, note, timeout_s=timeout_s),
            self._payloads,
        )

    @gated
    def _begin_block(self, life: int, transaction: Transaction) -> None:
        self._gate.check_life(life, "this transaction")
        self._check_no_stream()
        self._engine.begin_block(transaction)

    @gated
    def _transact(
        self,
        life: int,
        batches: Sequence[Encoded],
        note: bytes | None,
        *,
        timeout_s: float | None,
    ) -> tuple[Receipt, ...]:
        self._gate.check_life(life, "this transaction")
        return self._run(self._engine.transact(batches, note))

    @gated
    def resume(self, *, timeout_s: TimeoutS = None) -> Receipt | None:
        """Send what is in doubt; return its receipt (of a transaction the first), None: nothing."""
        return self._run(self._engine.resume())

    @gated
    def ready_for(
        self, topic: str, count: Count = 1, *, repeats: bool = False, timeout_s: TimeoutS = None
    ) -> int:
        """Settle what is in doubt; return the sequence that the next message of a topic gets.

        Args:
            count: of the messages of the next batch.
            repeats: it gets a note, so it may be one that was put before a crash.
        """
        return self._run(self._engine.ready_for(names.topic(topic), count, repeats=repeats))

    @gated
    def begin_run(self, note: bytes, topics: Sequence[str], *, timeout_s: TimeoutS = None) -> None:
        """Begin to put messages with notes, which are all new; see `put_batch`.

        The numbering of the topics is read before the note is written. So if the state is later
        replaced by an older copy of this run, the numbers it lacks were used by this run: repeated
        from that copy's note, they are DUPLICATE.
        """
        return self._run(self._engine.begin_run(note, [names.topic(topic) for topic in topics]))

    @gated
    def connect(self, *, timeout_s: TimeoutS = None) -> None:
        """Get an epoch; any older process with this id is fenced from now on (rule R11)."""
        return self._run(self._engine.session.connecting())
