"""The records of accounts, and what accounts note at moments of the core. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import ClassVar, Final

from reliable_pubsub.common.core.message_base import Role

from ..core.rows import Writes
from ..core.schema import StoredTable
from ..core.state import Record, State
from ..core.stored import StoredState
from ..core.topic_log import TopicLog
from .accounts import Accounts, Charge, StoredCharge

CHARGE: Final = StoredTable(
    """
CREATE TABLE charge (               -- what counts for which key
    kind TEXT NOT NULL,             -- publisher or subscriber (an id), or topic
    name TEXT NOT NULL,
    key_name TEXT NOT NULL,
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;
""",
    StoredCharge,
)


class Charged(StoredCharge, Record, frozen=True, gc=False):
    """An id or a topic is charged to a key, and no longer to another (`accounts.py`)."""

    urgent: ClassVar[bool] = False

    def apply(self, state: State) -> None:
        """Charge it to the key."""
        state.part(Accounts).charge(self)
        end_if_gone(state, self.kind, self.name)

    def store(self, writes: Writes) -> None:
        """Replace the charge."""
        writes.rows[CHARGE][self.kind, self.name] = (self.kind, self.name, self.key)


class ChargeForgotten(Record, frozen=True, gc=False):
    """The charge of an id or a topic that no longer exists is removed (rule R26)."""

    urgent: ClassVar[bool] = False
    kind: Charge
    name: str

    def apply(self, state: State) -> None:
        """Remove the entry."""
        state.part(Accounts).ended.pop((self.kind, self.name), None)

    def store(self, writes: Writes) -> None:
        """Remove its row."""
        writes.rows[CHARGE][self.kind, self.name] = None


def end_if_gone(state: State, kind: Charge, name: str) -> None:
    """End the charge of an id or a topic, if it no longer exists."""
    accounts = state.part(Accounts)
    if kind == "topic":
        is_there = name in state.topics and name not in state.deleted_topics
    else:
        is_there = (kind, name) in state.sessions or accounts.stored_under(kind, name) > 0
    if not is_there:
        accounts.end(kind, name)


def restore(state: State, stored: StoredState) -> None:
    """Count the stored bytes of each id, and add the stored charges."""
    accounts = state.part(Accounts)
    for log in state.topics.values():
        for segment in log.segments:
            for publisher, size_bytes in segment.bytes_by.items():
                accounts.stored(log.put_by, publisher, size_bytes)
    for charged in stored.of(StoredCharge):
        accounts.charge(charged)
    for charged in stored.of(StoredCharge):
        end_if_gone(state, charged.kind, charged.name)


def count_stored(state: State, log: TopicLog, publisher: str, size_bytes: int) -> None:
    """Count bytes that were stored under an id; below 0: removed."""
    left = state.part(Accounts).stored(log.put_by, publisher, size_bytes)
    if not left and size_bytes < 0:
        end_if_gone(state, log.put_by, publisher)


def end_charge(state: State, role: Role | None, name: str) -> None:
    """End the charge of a session or a topic that is removed."""
    end_if_gone(state, role or "topic", name)


def ended_charges(state: State) -> Sequence[ChargeForgotten]:
    """Return the records that remove the charges that have ended."""
    ended = state.part(Accounts).ended
    return [ChargeForgotten(*one) for one in islice(ended, state.settings.memory.at_once_max)]
