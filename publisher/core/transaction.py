"""`publisher.transaction()`: messages for several topics that become visible together or never.

The block collects; leaving it sends. So an error inside it sends and stores nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

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
from reliable_pubsub.common.core.wire import encode_batch

from .outbox import Encoded, Pending, encoded_batch
from .puts import AnyCodec, Payloads, topic_to_put_on
from .receipt import Receipt
from .session import PublisherSession

TASK: Final = 0  # a publisher is a writer with one task

_Row = tuple[bytes, bytes | None, Mapping[str, str] | None, int | None]


class CommitBatches(Protocol):
    """Stores batches of several topics as one, and gives a receipt for each topic."""

    def __call__(self, batches: Sequence[Encoded]) -> tuple[Receipt, ...]:
        """See `Publisher.transaction`."""


class Transaction:
    """Messages that are stored all or not at all. Use it in a `with` block, in one thread."""

    _block = "with"

    @checked
    def __init__(self, commit: CommitBatches, payloads: Payloads | None = None) -> None:
        self._commit = commit
        self._payloads = payloads or Payloads()
        self._rows: dict[str, list[list[_Row]]] = {}  # by topic, batch by batch
        self._sizes: dict[str, int] = {}  # of the last batch of a topic
        self._bytes = 0
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
        encode_batch(_batch([row]))  # raises here if the message cannot be encoded
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

    def _begin(self) -> None:
        self._begun = True

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
        self._begin()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Store everything, or, after an error, nothing.

        Raises:
            InDoubtError: no definite answer. If its `kept` is true, so is the transaction:
                `resume`, the next put, or the next process with this state settles it.
            RefusedError: as `Publisher.put`; nothing was stored.
            UsageError: a put was broken off; nothing was stored.
        """
        if batches := self._end(error):
            self.receipts = self._commit(batches)


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
