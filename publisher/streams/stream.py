"""`publisher.stream()`: puts that return at once, and are sent in batches by a thread.

The caller's thread collects; the stream's thread sends, in order, one batch at a time. While a
batch is in flight the next one grows, so the slower the proxy, the larger the batches.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from typing import Annotated, Final

from msgspec import Meta

from reliable_pubsub.common import threads
from reliable_pubsub.common.core.arguments import Seconds, TimeoutS, check_argument, checked
from reliable_pubsub.common.core.batch import BATCH_ROOM_BYTES, PAYLOAD_OVERHEAD_BYTES, Batch
from reliable_pubsub.common.core.errors import (
    ForkedError,
    InDoubtError,
    PubSubError,
    TimedOutError,
    UsageError,
)
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
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

# How often each thread looks for itself: an exception of a signal handler within `notify` leaves a
# waiter that has gone, and the next one wakes only that.
LOOK_S: Final = 0.1
STOP_S: Final = 0.7  # that what was put has to be stored, when Ctrl-C or the program ends
YEAR_S: Final = 366 * 86_400  # locks have a maximum timeout
LingerS = Annotated[float, Meta(ge=0, le=3600)]
HAS_STREAM: Final = "this publisher has an open stream; put through it, or close it"


def warn_of_open(batches: Sequence[StreamBatch]) -> None:
    """Warn of the messages that a stream holds which was left open."""
    if count := sum(len(batch.payloads) for batch in batches):
        warnings.warn(
            f"a stream was not closed before the program ended, and {count:,} messages that were "
            "put through it may not be stored: use it in a `with` block, or call close()",
            RuntimeWarning,
            stacklevel=1,
        )


def _looks(timeout_s: float | None) -> Iterator[float]:
    """The short waits that a long one consists of; None: without end.

    A signal that comes after Python has looked for one, and before it waits, does not end that
    wait: without an end of its own Ctrl-C would have no effect.
    """
    end_s = inf if timeout_s is None else time.monotonic() + timeout_s
    while (left_s := end_s - time.monotonic()) > 0:
        yield min(left_s, LOOK_S)


class ThreadBatch(StreamBatch):
    """A batch whose outcome threads wait for."""

    __slots__ = ("_done", "error", "receipt")

    def __init__(self, topic: str, content_type: str | None, due_at_s: float) -> None:
        super().__init__(topic, content_type, due_at_s)
        self.receipt: Receipt | None = None
        self.error: BaseException | None = None
        self._done = threading.Event()

    def settle(self, receipt: Receipt | None, error: BaseException | None) -> None:
        """Set the outcome."""
        self.receipt, self.error = receipt, error
        self._done.set()

    def end_in_child(self, error: BaseException) -> None:
        """End it in a forked child, with a new event: the parent's may be locked."""
        if not self._done.is_set():
            self._done = threading.Event()
            self.settle(None, error)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for the outcome; return whether it is known."""
        for wait_s in _looks(timeout_s):
            if self._done.wait(wait_s):
                break
        return self._done.is_set()


_senders: weakref.WeakSet[StreamSender] = weakref.WeakSet()


def _end_in_child() -> None:
    for sender in list(_senders):
        sender.end_in_child()


os.register_at_fork(after_in_child=_end_in_child)


@atexit.register
def _end_with_program() -> None:
    for sender in list(_senders):
        sender.end_with_program()


class Ticket:
    """The outcome of one message of a stream, now or later."""

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: ThreadBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def __repr__(self) -> str:
        return f"<Ticket of message {self._index} of a batch on {self._batch.topic!r:.80}>"

    @checked
    def result(self, timeout_s: Annotated[Seconds, Meta(le=YEAR_S)] | None = None) -> Receipt:
        """Wait until the message is stored.

        Raises:
            TimeoutError: the outcome is not yet known.
            PubSubError: why it was not stored, or is in doubt.
        """
        if not self._batch.wait(timeout_s):
            raise TimeoutError(f"not stored after {timeout_s} s; still under way")
        if self._batch.error is not None:
            raise self._batch.error
        receipt = self._batch.receipt
        assert receipt is not None
        return receipt.part(self._index)


class StreamSender:
    """The part of a stream that its thread uses: the batches and their outcomes.

    The thread has only a weak reference to the `Stream`, so a dropped stream is garbage collected.
    The thread looks for that itself: then it sends what was put, and ends.
    """

    def __init__(
        self,
        put_batch: Callable[[str, Batch], Receipt],
        linger_s: float,
        stream: weakref.ref[Stream],
        stop: threading.Event,
    ) -> None:
        """Start the sending thread."""
        self._stream = stream
        self._put_batch = put_batch
        self._stop = stop
        self._linger_s = linger_s
        self._make_locks()
        self.queue: StreamQueue[ThreadBatch] = StreamQueue()
        self._flushing = False
        self._closing = False
        self._left: list[ThreadBatch] = []  # not stored, because of an error
        _senders.add(self)
        self._thread = threads.start(self._run, name="publisher stream")

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits to be sent."""
        return self.queue.is_idle

    def check_over(self) -> None:
        """Refuse what needs the publisher, while the stream has it.

        Raises:
            UsageError: the stream is open, or was dropped and still sends what it had.
        """
        if self._is_ending and not self._thread.is_alive():
            return
        if self._stream() is not None:
            raise UsageError(HAS_STREAM)
        self.let_go()
        raise UsageError(
            "a stream of this publisher was dropped without close() and still sends what was put "
            "through it; ask again in a moment, or use it in a `with` block"
        )

    @property
    def is_closed(self) -> bool:
        """Return whether the stream accepts no more messages."""
        return self._closing

    @property
    def _is_ending(self) -> bool:
        return self._closing or self._stream() is None

    def _make_locks(self) -> None:
        self.lock = threading.RLock()  # guards everything that changes
        self.leave: Callable[[], object] = self.lock.release
        self._work = threading.Condition(self.lock)  # the sender waits for work
        self._room = threading.Condition(self.lock)  # the caller waits for room, or for the end

    def end_in_child(self) -> None:
        """End the batches in a forked child, which has no sending thread: the parent sends them."""
        error = ForkedError(what="this stream", pid=os.getppid())
        self._make_locks()  # the sender may have held them
        for batch, why in self.queue.end(error):
            batch.end_in_child(why)

    def end_with_program(self) -> None:
        """Give what was put STOP_S to be stored, and warn of the rest: the stream was left open."""
        if self._closing:
            return
        with suppress(PubSubError):
            self.flush(STOP_S)
        with self.lock:
            batches = [*self._left, *self.queue.batches]
        warn_of_open(batches)

    def let_go(self) -> None:
        """Release the lock, however often this thread holds it, after an interrupted call.

        Otherwise the sender would wait forever.
        """
        with suppress(RuntimeError):
            while True:
                self.lock.release()

    def flush(self, patience_s: float | None = None) -> None:
        """Send everything now; return when it is stored.

        Raises:
            TimedOutError: `patience_s` is over; the rest is still sent.
            PubSubError: the first thing that went wrong.
        """
        self.let_go()
        with self.lock:
            self._flushing = True
            self._work.notify()
            for wait_s in _looks(patience_s):
                if self.is_idle or self.queue.error is not None:
                    break
                self._room.wait(wait_s)
            self._flushing = False
            if self.queue.error is not None:
                raise self.queue.error
            if not self.is_idle:
                raise TimedOutError(
                    f"some messages of this stream are not stored after {patience_s:g} s. Their "
                    "tickets show which; the stream keeps sending them while it is open"
                )

    def close(self, error: BaseException | None = None, *, timeout_s: float | None = None) -> None:
        """Flush, and release the publisher.

        Args:
            error: that the block ends with. After Ctrl-C what was put has STOP_S to be stored; the
                rest ends with an InDoubtError, and the exception has a note of it.
            timeout_s: that what was put has; then the rest ends in the same way.

        Raises:
            PubSubError: as `flush`; the publisher is released nevertheless.
        """
        if self._closing and error is not None:  # its block ends with what `close` has raised
            return
        stops = isinstance(error, KeyboardInterrupt)
        try:
            self.flush(STOP_S if stops else timeout_s)
        except TimedOutError as late:
            if not stops:
                error, stops = late, True
                raise
        except PubSubError:
            if not stops:
                raise
        except BaseException as interrupt:  # the proxy has had its time
            error, stops = interrupt, True
            raise
        finally:
            if stops:
                self._stop.set()
            self.let_go()
            with self.lock:
                self._closing = True
                self._work.notify()
            while self._thread.is_alive():
                self._thread.join(LOOK_S)
            if stops and self._left and error is not None:
                error.add_note(self._left_in_words())

    def _left_in_words(self) -> str:
        """The fate of the messages that were put and are not stored."""
        first, *others = self._left
        is_kept = isinstance(first.error, InDoubtError) and first.error.kept
        counts: dict[str, int] = {}
        for batch in others if is_kept else self._left:
            counts[batch.topic] = counts.get(batch.topic, 0) + len(batch.payloads)
        kept = f"{len(first.payloads):,} on {first.topic!r}" if is_kept else "none"
        unsent = ", ".join(f"{count:,} on {topic!r}" for topic, count in counts.items()) or "none"
        return (
            f"The stream was broken off. In doubt, and kept: {kept} (`publisher.in_doubt`; the "
            "next call, or the next process with this state, sends it, once). Not sent: "
            f"{unsent}; put those again."
        )

    def begin_batch(
        self, topic: str, content_type: str | None, payload_bytes: int, timeout_s: float | None
    ) -> ThreadBatch:
        """Close the open batch and open one; the lock is held."""
        check_payload_bytes(payload_bytes)
        topic = topic_to_put_on(topic)  # here: an error of the sending thread ends the stream
        queue = self.queue
        for wait_s in _looks(timeout_s):
            if queue.has_room or queue.error is not None:
                break
            self._room.wait(wait_s)
        else:
            raise TimedOutError(
                f"the stream has had no room for {timeout_s:g} s; this message was not added"
            )
        if queue.unsent is not None:
            raise queue.unsent
        if self._closing:
            raise UsageError("the stream is closed")
        batch = queue.begin(ThreadBatch(topic, content_type, time.monotonic() + self._linger_s))
        self._work.notify()
        return batch

    def _take(self) -> ThreadBatch | None:
        """Wait for a batch that is due; None when the stream closes."""
        with self.lock:
            while True:
                now_s = time.monotonic()
                batch = self.queue.take(now_s, at_once=self._flushing or self._is_ending)
                self._room.notify_all()
                if batch is not None:
                    return batch
                growing = self.queue.open
                if growing is None and self._is_ending:
                    return None
                left_s = LOOK_S if growing is None else growing.due_at_s - now_s
                self._work.wait(min(left_s, LOOK_S))

    def _run(self) -> None:
        while (batch := self._take()) is not None:
            try:
                receipt = self._put_batch(batch.topic, batch.whole())
            except Exception as error:  # raised in the threads that wait for it
                self._fail(error)
                return
            batch.settle(receipt, None)

    def _fail(self, error: Exception) -> None:
        """End every message that is not stored."""
        with self.lock:
            for batch, why in self.queue.end(error):
                self._left.append(batch)
                batch.settle(None, why)
            self._room.notify_all()


class Stream:
    """A buffered publisher. One thread calls `put`; the publisher is the stream's until it closes.

    After the first error nothing more is sent, so that no message overtakes one in doubt: every
    later message ends with the same error.
    """

    def __init__(
        self,
        put_batch: Callable[[str, Batch], Receipt],
        *,
        linger_s: float,
        payloads: Payloads | None = None,
        stop: threading.Event | None = None,
    ) -> None:
        """Start the sending thread; use `Publisher.stream`.

        Args:
            stop: set after Ctrl-C; then `put_batch` is to end soon.
        """
        self._payloads = payloads or Payloads()
        self._has_codecs = bool(self._payloads.by_topic)
        self.sender = StreamSender(
            put_batch, linger_s, weakref.ref(self), stop or threading.Event()
        )

    def __repr__(self) -> str:
        return f"<Stream{' (closed)' if self.sender.is_closed else ''}>"

    def put(
        self,
        topic: TopicName,
        payload: object,
        *,
        codec: AnyCodec | None = None,
        timeout_s: TimeoutS = None,
    ) -> Ticket:
        """Add a message; it is sent when its batch is full, or `linger_s` has passed.

        Waits only while FULL_BATCHES_MAX full batches are queued.

        Args:
            payload, codec: as in `Publisher.put`; a message of another codec begins another batch.
            timeout_s: that it waits.

        Raises:
            UsageError, TooLargeError, InvalidNameError, PayloadError, TimedOutError: nothing was
                added.
            PubSubError: the stream has failed; `Ticket.result` has the outcome of each message.
        """
        if type(topic) is not str:  # the decorator would be half of what this call costs
            topic = check_argument(Stream.put, "topic", topic)
        if timeout_s is not None:
            timeout_s = check_argument(Stream.put, "timeout_s", timeout_s)
        content_type = None
        if type(payload) is bytes and codec is None and not self._has_codecs:
            plain, size = payload, len(payload) + PAYLOAD_OVERHEAD_BYTES
        else:
            check_argument(Stream.put, "codec", codec)
            plain, content_type = self._payloads.of_stream(Stream.put, topic, payload, codec)
            size = bytes_in_stream(plain, content_type)
        sender = self.sender
        try:
            sender.lock.acquire()
            batch = sender.queue.open
            if (
                batch is None
                or batch.topic != topic
                or batch.content_type != content_type
                or batch.size + size > BATCH_ROOM_BYTES
                or len(batch.payloads) == BATCH_MESSAGES_MAX
            ):
                batch = sender.begin_batch(topic, content_type, len(plain), timeout_s)
            batch.size += size
            batch.payloads.append(plain)
            return (Ticket(batch, len(batch.payloads) - 1), sender.leave())[0]
        except BaseException:
            sender.let_go()
            raise

    @checked
    def flush(self, *, timeout_s: TimeoutS = None) -> None:
        """Send everything now; return when it is stored.

        Raises:
            TimedOutError: not everything is stored in time.
            PubSubError: the first thing that went wrong.
        """
        self.sender.flush(timeout_s)

    @checked
    def close(self, *, timeout_s: TimeoutS = None) -> None:
        """Flush, and release the publisher.

        Raises:
            TimedOutError: some messages are not stored in time; a note lists the unsent ones.
            PubSubError: as `flush`; the publisher is released nevertheless.
        """
        self.sender.close(timeout_s=timeout_s)

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.sender.close(error)
