"""What comes out of the engine: values that its shell carries out, in their order.

Features add values of their own, which a shell of theirs carries out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from reliable_pubsub.common.core.message_base import Reply

from .batches import LogBatch
from .state import Record


class Answer(Struct, frozen=True, gc=False):
    """A reply to send now."""

    reply_to: Any  # as passed to `Engine.receive`
    frames: list[bytes]


class HeldAnswer(Struct, frozen=True):
    """An answer that waits for the disk."""

    visible_at: int  # number of the record that must be durable first
    since_s: float
    reply_to: Any
    reply: Reply
    frames: list[bytes]  # encoded while the disk is busy


class Work(Struct, frozen=True):
    """Records for the store, in one commit or with others; none: is there room again?"""

    records: Sequence[Record]
    lsn: int  # number of the last of them


class Visible(Struct, frozen=True):
    """Batches that are durable: they may be read now."""

    batches: Sequence[LogBatch]
