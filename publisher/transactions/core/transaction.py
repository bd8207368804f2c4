"""`publisher.transaction()`: messages for several topics that become visible together or never.

The block collects; leaving it sends. So an error inside it sends and stores nothing.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from reliable_pubsub.common.core.answers import AnyReply, StageLost
from reliable_pubsub.common.core.arguments import checked
from reliable_pubsub.common.core.batch import (
    Batch,
    EventTimeNs,
    column,
    fit_in_a_batch,
    message_bytes,
)
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import TooLargeError, UsageError
from reliable_pubsub.common.core.limits import (
    BATCH_OVERHEAD_BYTES_MAX,
    STAGED_BATCH_BYTES,
    TRANSACTION_BYTES_MAX,
    TRANSACTION_TOPICS_MAX,
)
from reliable_pubsub.common.core.names import TopicName
from reliable_pubsub.common.core.transaction_messages import (
    Commit,
    CommitAck,
    Part,
    Stage,
    StageAck,
)

from ...core.outbox import Encoded, Pending, encoded_batch
from ...core.puts import AnyCodec, Payloads, encoded_put, topic_to_put_on
from ...core.receipt import Receipt
from ...core.session import PublisherSession

TASK: Final = 0  # a publisher is a writer with one task

_Row = tuple[bytes, bytes | None, Mapping[str, str] | None, int | None]


class CommitBatches(Protocol):
    """Stores batches of several topics as one, and gives a receipt for each topic."""

    def __call__(self, batches: Sequence[Encoded]) -> tuple[Receipt, ...]:
        """See `Publisher.transaction`."""


class _Exit:
    """A method of which each `with` block holds its own copy until its end.

    An exception of a signal handler may interrupt the end of a block before its first line. Then
    only the missing copy shows that the block is over.
    """

    def __init__(self, leave: Callable[..., None]) -> None:
        self._leave = leave

    def __get__(self, one: Transaction | None, kind: type) -> Callable[..., None]:
        if one is None:
            return self._leave
        bound = partial(self._leave, one)
        one._last_exit = weakref.ref(bound)
        return bound


class Transaction:
    """Messages that are stored all or not at all. Use it in a `with` block, in one thread.

    Until the block ends, its publisher puts nothing else (rule R38).
    """

    _block = "with"

    @checked
    def __init__(
        self,
        begins: Callable[[Transaction], object],
        commit: CommitBatches,
        payloads: Payloads | None = None,
    ) -> None:
        """Create it outside its block; use `Publisher.transaction`.

        Args:
            begins: called when its block begins; refuses it if the publisher is in use.
        """
        self._begins = begins
        self._commit = commit
        self._payloads = payloads or Payloads()
        self._rows: dict[str, list[list[_Row]]] = {}  # by topic, batch by batch
        self._sizes: dict[str, int] = {}  # of the last batch of a topic
        self._bytes = 0
        self._last_exit: weakref.ref[Any] | None = None
        self._exit: weakref.ref[Any] | None = None  # what the `with` block holds, if one began it
        self._begun = False
        self._ended = False
        self._under_way: list[str] = []  # a put that is running, or was interrupted
        self.receipts: tuple[Receipt, ...] = ()  # after the block: one for each topic

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
    ) -> None:
        """Add a message. Nothing is sent before the block ends.

        Raises:
            InvalidNameError, TooLargeError, UsageError, PayloadError: nothing was added.
        """
        plain, headers = self._payloads.one(Transaction.put, topic, payload, headers, codec)
        if self._ended:
            raise UsageError("this transaction has ended; begin another one")
        if not self._begun:  # without a block nothing sends it, and it would be lost in silence
            raise UsageError(
                f"a transaction sends when its {self._block} block ends, and this one is used "
                f"without: nothing was added. Use `{self._block} publisher.transaction() as both:`"
            )
        self._check_whole()
        topic = topic_to_put_on(topic)
        if topic not in self._rows and len(self._rows) == TRANSACTION_TOPICS_MAX:
            raise _too_large("topics of a transaction", len(self._rows) + 1)
        row = (plain, key, headers, event_time_ns)
        encoded_put(topic, _batch([row]))  # raises here if the message cannot be encoded
        size = message_bytes(*row)
        batches = self._rows.get(topic, [])
        begins = not batches or not fit_in_a_batch(self._sizes[topic] + size, len(batches[-1]) + 1)
        more = size + (STAGED_BATCH_BYTES + BATCH_OVERHEAD_BYTES_MAX if begins else 0)
        if self._bytes + more > TRANSACTION_BYTES_MAX:
            raise _too_large("transaction in bytes", self._bytes + more)
        self._under_way.append(topic)
        self._bytes += more
        self._rows[topic] = batches
        if begins:
            batches.append([])
            self._sizes[topic] = 0
        batches[-1].append(row)
        self._sizes[topic] += size
        return self._under_way.clear()  # the last step: after any exception the block is void

    def _check_whole(self) -> None:
        """Refuse a block in which a put was interrupted."""
        if self._under_way:
            raise UsageError(
                "this transaction is void: a put of it was broken off by an exception that was not "
                "ours; nothing of it is stored. Begin another one"
            )

    @property
    def is_open(self) -> bool:
        """Return whether its block is open."""
        is_over = self._ended or (self._exit is not None and self._exit() is None)
        return self._begun and not is_over

    def __repr__(self) -> str:
        state = "open" if self.is_open else "ended" if self._ended else "not begun"
        count = sum(len(rows) for batches in self._rows.values() for rows in batches)
        return f"<Transaction of {count:,} messages on {len(self._rows)} topics ({state})>"

    def _check_new(self) -> None:
        """Refuse a second block, which would store the messages again."""
        if self._begun:
            raise UsageError("this transaction was used before; start a new one")

    def _end(self, error: BaseException | None) -> Sequence[Encoded]:
        """End the block; what it stores is nothing after an error.

        Raises:
            UsageError: a put was broken off.
        """
        self._ended = True
        if error is not None or not self._rows:
            return ()
        self._check_whole()
        return list(self._encoded())

    def _encoded(self) -> Iterator[Encoded]:
        for topic, batches in self._rows.items():
            for rows in batches:
                yield encoded_batch(topic, _batch(rows))

    def __enter__(self) -> Transaction:
        self._check_new()
        self._begins(self)
        if self._last_exit is not None and self._last_exit() is not None:
            self._exit = self._last_exit
        self._begun = True
        return self

    def _leave(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Store everything, or, after an error, nothing.

        Raises:
            InDoubtError: no definite answer. If its `kept` is true, so is the transaction:
                `resume`, the next put, or the next process with this state settles it.
            RefusedError: as `Publisher.put`; nothing was stored.
            UsageError: a put was broken off; nothing was stored.
        """
        if batches := self._end(error):
            self.receipts = self._commit(batches)

    if TYPE_CHECKING:
        __exit__ = _leave
    else:
        __exit__ = _Exit(_leave)


def _too_large(what: str, size: int) -> TooLargeError:
    most = TRANSACTION_TOPICS_MAX if what.startswith("topics") else TRANSACTION_BYTES_MAX
    advice = "nothing of it was sent; make several transactions"
    return TooLargeError(what=what, size=size, size_max=most, advice=advice)


def _batch(rows: Sequence[_Row]) -> Batch:
    payloads, *columns = zip(*rows, strict=True)
    return Batch(payloads, *map(column, columns))


# Sending.


def transaction_digest(pending: Pending) -> bytes:
    """The digest that tells a repeat from another transaction with the same number."""
    content = [(b.topic, b.first_sequence, b.count, b.crc) for b in pending.batches]
    return hashlib.sha256(msgspec.msgpack.encode(content)).digest()


def stage_and_commit(
    pending: Pending, session: PublisherSession, *, token: Callable[[int], bytes]
) -> Conversation[AnyReply]:
    """Stage every batch, then commit them; all of it again if the proxy has lost a stage."""
    attempts = session.requester.retry.attempts
    while True:
        reply = yield from _attempt(pending, session, token(16))
        attempts -= 1
        if not isinstance(reply, StageLost) or attempts <= 0:
            return reply


def _attempt(pending: Pending, session: PublisherSession, attempt: bytes) -> Conversation[AnyReply]:
    """Return the first unexpected reply, or that to the commit.

    Args:
        attempt: random; another one each time.
    """
    for chunk, batch in enumerate(pending.batches):
        stage = Stage(
            **session.head(),
            transaction=pending.number,
            task=TASK,
            attempt=attempt,
            chunk=chunk,
            topic=batch.topic,
            count=batch.count,
            crc=batch.crc,
            first_sequence=batch.first_sequence,
        )
        reply = yield from session.asking(stage, batch.body)
        if isinstance(reply, CommitAck):
            break  # it, or another one, is committed: COMMIT compares the digest
        if not isinstance(reply, StageAck):
            return reply
    commit = Commit(
        **session.head(),
        transaction=pending.number,
        parts=(Part(TASK, attempt, len(pending.batches)),),
        digest=transaction_digest(pending),
    )
    return (yield from session.asking(commit))
