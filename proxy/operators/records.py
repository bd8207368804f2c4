"""The record of an operator's action. Pure."""

from __future__ import annotations

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.actions import Pause, Resume
from reliable_pubsub.common.core.limits import ACTIONS_KEPT

from ..core.lines import Lines
from ..core.rows import PAUSED, Writes, encode
from ..core.state import Record, State
from ..core.stored import StoredAction
from .history import client_of, topic_of_action


class Administered(StoredAction, Record, frozen=True):
    """An operator's action; its other records are in the same decision."""

    def apply(self, state: State) -> None:
        """Remember the action; its effects, except a pause, are separate records."""
        state.administration.add(self, state.lsn)

    def has_become_durable(self, state: State) -> None:
        """Let the audit log have it."""
        state.administration.done.append(self)

    def store(self, writes: Writes) -> None:
        """Add the action; remove those that are no longer kept."""
        values = (encode(self.action), encode(self.effect))
        row = (self.number, self.nonce, self.at_ns, self.who, self.client, *values)
        writes.rows["admin_action"][self.number,] = row
        old = (self.number - ACTIONS_KEPT,)
        writes.last.append(("DELETE FROM admin_action WHERE number <= ?", old))
        match self.action:
            case Pause(reason=reason):
                writes.rows["meta"][PAUSED,] = (PAUSED, reason)
            case Resume():
                writes.rows["meta"][PAUSED,] = None

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
