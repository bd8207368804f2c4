"""The calls of a blocking publisher that number messages, put them and settle what is in doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Unpack, overload

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.arguments import TimeoutS, checked
from reliable_pubsub.common.core.batch import Batch, EventTimeNs
from reliable_pubsub.common.core.errors import UsageError
from reliable_pubsub.common.core.message_base import Count, QoS
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.steps import Wait
from reliable_pubsub.common.gate import Shared, gated, gated_after_close, sharing
from reliable_pubsub.common.opened import BlockingClient

from .core.engine import PublisherEngine
from .core.outbox import Numbered, Pending
from .core.puts import (
    AnyCodec,
    Payload,
    PutOptions,
    WaitingPut,
    encoded_put,
    topic_to_put_on,
)
from .core.receipt import AcknowledgedBy, OfferCounts, Receipt
from .opening import OpenedPublisher


class PutSender(Protocol):
    """What has the publisher for itself until it is closed."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be sent."""

    def check_over(self) -> None:
        """Refuse what needs the publisher, while this has it."""


class PutCalls(OpenedPublisher, BlockingClient[PublisherEngine]):
    """Puts messages on topics, each exactly once, across its own crashes and the proxy's."""

    _sender: PutSender | None = None

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
            PutCalls.put, topic, payload, codec, key, headers, event_time_ns, qos, self
        )
        if wait == "stored" and acknowledged_by is None:
            return self._put(put, timeout_s=timeout_s)
        return self._put_and_wait(put, wait, acknowledged_by, timeout_s)

    def _put_and_wait(
        self,
        put: WaitingPut,
        wait: Wait,
        acknowledged_by: AcknowledgedBy | None,
        timeout_s: float | None,
    ) -> Receipt:
        """Put, and wait until subscribers have acknowledged; its feature does that."""
        raise UsageError("this publisher runs without waits for delivery. Nothing was sent")

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
            PutCalls.put_many, topic, payloads, codec, keys, headers, event_times_ns, qos, self
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

    @property
    def offer_counts(self) -> OfferCounts:
        """Counts of the QoS 0 messages of this process."""
        return OfferCounts()

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
