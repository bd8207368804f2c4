"""Puts of several threads that wait for one publisher, and share its next request. Pure.

The thread that has the turn takes the waiting puts for the same topic and QoS, sends them as one
batch, and settles each put with its part of the receipt, or with its own error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import ABSENT_BYTES, BATCH_ROOM_BYTES, Batch
from reliable_pubsub.common.core.dead_letter import check_put_on
from reliable_pubsub.common.core.errors import InDoubtError, PubSubError
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX
from reliable_pubsub.common.core.message_base import QoS
from reliable_pubsub.common.core.names import TopicName

from .outbox import Encoded, encoded
from .receipt import Receipt

Column = TypeVar("Column")


@lru_cache(maxsize=1024, typed=True)
def topic_to_put_on(topic: TopicName) -> str:
    """Accept the name of a topic that a program may put on.

    Raises:
        InvalidNameError, UsageError.
    """
    exact = names.exact(topic)
    check_put_on(exact)
    return exact


class WaitingPut(Struct, eq=False):
    """The put of one call, encoded, so that one thread's mistake does not fail others' request."""

    batch: Batch
    encoded: Encoded
    qos: QoS
    note: bytes | None = None  # stored with its numbers; at QoS 1 and 0 after the put
    is_alone: bool = False  # it shares no request
    # Once it is settled: its receipt, or why it was not stored, or is in doubt.
    outcome: Receipt | PubSubError | None = None

    @property
    def may_share(self) -> bool:
        """Whether its request may hold other puts: not if it has a note, or no reply (QoS 0)."""
        return not self.is_alone and self.note is None and self.qos != 0


def fitting(first: WaitingPut, others: Iterable[object]) -> list[WaitingPut]:
    """`first`, and those puts of the others that can share its request, in their order."""
    puts = [first]
    if not first.may_share:
        return puts
    size = _size(first)
    count = first.encoded.count
    for put in others:
        if not isinstance(put, WaitingPut):
            continue
        if not put.may_share or put.outcome is not None:
            continue
        if (put.encoded.topic, put.qos) != (first.encoded.topic, first.qos):
            continue
        size_with, count_with = size + _size(put), count + put.encoded.count
        if size_with <= BATCH_ROOM_BYTES and count_with <= BATCH_MESSAGES_MAX:
            puts.append(put)
            size, count = size_with, count_with
    return puts


def _size(put: WaitingPut) -> int:
    return len(put.encoded.body) + ABSENT_BYTES * put.encoded.count


def joined(puts: Sequence[WaitingPut]) -> tuple[Batch, Encoded]:
    """One batch of all their messages, and what is sent of it."""
    if len(puts) == 1:
        return puts[0].batch, puts[0].encoded
    batches = [put.batch for put in puts]
    batch = Batch(
        [payload for one in batches for payload in one.payloads],
        _column([(one.keys, len(one.payloads)) for one in batches]),
        _column([(one.headers, len(one.payloads)) for one in batches]),
        _column([(one.event_times_ns, len(one.payloads)) for one in batches]),
    )
    return batch, encoded(puts[0].encoded.topic, batch)


def _column(
    parts: Sequence[tuple[Sequence[Column | None] | None, int]],
) -> list[Column | None] | None:
    if all(part is None for part, _ in parts):
        return None
    return [value for part, count in parts for value in (part or [None] * count)]


def stored(puts: Iterable[WaitingPut], receipt: Receipt) -> None:
    """Settle each with its part of the receipt of their batch."""
    index = 0
    for put in puts:
        count = put.encoded.count
        if put.outcome is None:
            put.outcome = receipt if count == receipt.count else receipt.part(index, count)
        index += count


def failed(puts: Iterable[WaitingPut], error: PubSubError, *, kept: bool = False) -> None:
    """Settle the others with separate copies of an error, because each thread raises its own.

    Args:
        kept: whether their batch is kept, to be sent again.
    """
    for put in puts:
        if put.outcome is None:
            put.outcome = copy_of(error, kept=kept)


def copy_of(error: PubSubError, *, kept: bool) -> PubSubError:
    """The error, for a message that is kept to be sent again, or is not."""
    one = type(error).__new__(type(error), *error.args)
    one.__dict__.update(error.__dict__)
    one.__cause__ = error.__cause__
    if isinstance(one, InDoubtError):
        one.kept = kept
    return one.with_traceback(error.__traceback__)
