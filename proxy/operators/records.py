"""The record of an operator's action. Pure."""

from __future__ import annotations

from typing import Final

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.actions import AnyAction, Effect, Pause, Resume
from reliable_pubsub.common.core.limits import ACTIONS_KEPT
from reliable_pubsub.common.core.schemas import msgpack_decoder

from ..core.lines import Lines
from ..core.rows import Writes, encode
from ..core.schema import StoredTable
from ..core.state import Record, State
from .history import (
    Administration,
    StoredAction,
    StoredPause,
    client_of,
    note_removed,
    subscriber_of,
    topic_of_action,
)

_action: Final = msgpack_decoder(AnyAction)
_effect: Final = msgpack_decoder(Effect)


def _stored_action(
    number: int, nonce: bytes, at_ns: int, who: str, client: str, action: bytes, effect: bytes
) -> StoredAction:
    did, effected = _action.decode(action), _effect.decode(effect)
    return StoredAction(number, nonce, at_ns, who, client, did, effected)


ADMIN_ACTION: Final = StoredTable(
    """
CREATE TABLE admin_action (
    number INTEGER PRIMARY KEY,     -- 1, 2, 3, ...; the newest are kept
    nonce BLOB NOT NULL,
    at_ns INTEGER NOT NULL,
    who TEXT NOT NULL,              -- name of the key; empty: none
    client TEXT NOT NULL,
    action BLOB NOT NULL,           -- msgpack, as in ADMIN
    effect BLOB NOT NULL,           -- msgpack, as in ADMIN_ACK
    row_crc INTEGER NOT NULL
);
""",
    StoredAction,
    _stored_action,
)
PAUSED: Final = StoredTable(
    """
CREATE TABLE paused (               -- one row while puts are paused
    number INTEGER PRIMARY KEY,     -- 1
    reason TEXT NOT NULL,
    row_crc INTEGER NOT NULL
);
""",
    StoredPause,
    lambda _, reason: StoredPause(reason),
)


class Administered(StoredAction, Record, frozen=True):
    """An operator's action; its other records are in the same decision."""

    @property
    def wakes(self) -> str:
        """The subscriber that it is about."""
        return subscriber_of(self.action)

    def apply(self, state: State) -> None:
        """Remember the action; its effects, except a pause, are separate records."""
        state.part(Administration).add(self, state.lsn)
        note_removed(state, self)

    def has_become_durable(self, state: State) -> None:
        """Let the audit log have it."""
        state.part(Administration).done.append(self)

    def store(self, writes: Writes) -> None:
        """Add the action; remove those that are no longer kept."""
        values = (encode(self.action), encode(self.effect))
        row = (self.number, self.nonce, self.at_ns, self.who, self.client, *values)
        writes.rows[ADMIN_ACTION][self.number,] = row
        old = (self.number - ACTIONS_KEPT,)
        writes.last.append(("DELETE FROM admin_action WHERE number <= ?", old))
        match self.action:
            case Pause(reason=reason):
                writes.rows[PAUSED][1,] = (1, reason)
            case Resume():
                writes.rows[PAUSED][1,] = None

    def describe(self, lines: Lines) -> None:
        """Write the action and its effect."""
        lines.line(
            journal.AdministeredLine,
            number=self.number,
            action=str(self.action.__struct_config__.tag),
            who=self.who,
            topic=topic_of_action(self.action),
            subscriber=client_of(self.action),
            role=getattr(self.action, "role", ""),
            generation=self.effect.generation,
            first=self.effect.first,
            end=self.effect.end,
        )
