"""What comes out of the engine: values that its shell carries out, in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct, to_builtins

from reliable_pubsub.common.access.core.authorisation import Denial
from reliable_pubsub.common.core.message_base import Reply

from ..push.pushes import Down
from ..qos0.interest import Want
from .batches import LogBatch
from .state import Record
from .stored import StoredAction


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


class Deed(Struct, frozen=True):
    """An operator's action that is durable, for the audit log."""

    record: StoredAction

    @property
    def fields(self) -> dict[str, object]:
        """The fields of its line in the audit log."""
        one = self.record
        return {
            "name": one.who,
            "client": one.client,
            "number": one.number,
            "action": to_builtins(one.action),
            "effect": to_builtins(one.effect),
        }


Output = Answer | Work | Visible | Down | Want | Denial | Deed
