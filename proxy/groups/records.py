"""The records of groups. Pure."""

from __future__ import annotations

from typing import Final

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.group_messages import Grant, Outcome, Stretch
from reliable_pubsub.common.core.message_base import GroupTerms, Terms
from reliable_pubsub.common.core.schemas import msgpack_decoder

from ..core.lines import Lines, seen_in
from ..core.records import LetterStored
from ..core.rows import Writes, encode
from ..core.schema import SUBSCRIPTION, StoredTable
from ..core.state import Record, State
from ..core.subscriptions import Subscription
from .state import (
    Group,
    GroupIndex,
    GroupRun,
    Member,
    StoredGroup,
    next_due_s,
    stored_runs,
    subscription_of_group,
)

_TERMS: Final = Terms()  # of the subscription that a group is
_group_terms: Final = msgpack_decoder(GroupTerms)
_runs: Final = msgpack_decoder(tuple[GroupRun, ...])
_members: Final = msgpack_decoder(tuple[Member, ...])
_stretches: Final = msgpack_decoder(tuple[Stretch, ...])


def _stored_group(
    topic_id: int, name: str, terms: bytes, runs: bytes, members: bytes, lost: bytes
) -> StoredGroup:
    return StoredGroup(
        topic_id,
        name,
        _group_terms.decode(terms),
        _runs.decode(runs),
        _members.decode(members),
        _stretches.decode(lost),
    )


CONSUMER_GROUP: Final = StoredTable(
    """
CREATE TABLE consumer_group (
    topic_id INTEGER NOT NULL,
    name TEXT NOT NULL,
    terms BLOB NOT NULL,            -- msgpack, as the three below
    runs BLOB NOT NULL,             -- what is held, free and ended, from the cursor on
    members BLOB NOT NULL,
    lost BLOB NOT NULL,             -- what no member is known to have heard of
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (topic_id, name)
) WITHOUT ROWID;
""",
    StoredGroup,
    _stored_group,
)


class GroupChanged(Record, frozen=True, gc=False):
    """The new value of a group, whole, from its cursor to its frontier."""

    topic_id: int
    group: str
    generation: int
    cursor: int
    terms: GroupTerms
    runs: tuple[GroupRun, ...]
    members: tuple[Member, ...]
    lost: tuple[Stretch, ...] = ()  # what no member is known to have reported
    begins: bool = False
    ends: bool = False
    # The rest is not stored. Keys of its messages, by offset, as far as they were read:
    keys: tuple[tuple[int, bytes | None], ...] = ()
    member: str = ""  # the sender of the request, its epoch, and what the request did
    epoch: int = 0
    granted: tuple[Grant, ...] = ()
    settled: tuple[Outcome, ...] = ()

    @property
    def subscriber(self) -> str:
        """The name of its subscription."""
        return subscription_of_group(self.group)

    def apply(self, state: State) -> None:
        """Let the group begin, be as it says, or end."""
        log = state.topic_by_id[self.topic_id]
        name = self.subscriber
        known = log.subscriptions.get(name)
        groups = state.part(GroupIndex)
        of_topic = groups.of.setdefault(self.topic_id, {})
        group = of_topic.get(self.group)
        if self.begins or known is None or group is None:
            known = log.subscriptions[name] = Subscription(
                self.generation, self.cursor, 0, True, state.lsn, self.cursor, Terms()
            )
            group = of_topic[self.group] = Group(self.terms, (), {})
            state.index_subscription(log, name)
        for offset in range(known.cursor, self.cursor) if group.keys else ():
            group.keys.pop(offset, None)
        known.cursor = known.shown = self.cursor
        known.lsn = state.lsn
        group.terms, group.runs, group.lost = self.terms, self.runs, self.lost
        self._set_members(state, group)
        group.keys.update(self.keys)
        if self.ends:
            known.active = False
            del of_topic[self.group]
            state.touched_topics.add(self.topic_id)
        if self.ends or known.expired:
            known.expired = False
            state.index_subscription(log, name)
        due_s = next_due_s(self.runs, groups.seen_s)  # also of what is free from now on
        if due_s is not None:
            groups.due.add((self.topic_id, self.group), due_s)

    def _set_members(self, state: State, group: Group) -> None:
        members = {} if self.ends else {one.name: one for one in self.members}
        if self.member not in group.members or len(members) != len(group.members):
            for joined, names in (
                (1, members.keys() - group.members.keys()),
                (-1, group.members.keys() - members.keys()),
            ):
                for member in names:
                    state.part(GroupIndex).count(member, joined)
                    state.interest_changed()
                    state.index_session("subscriber", member)
        group.members = members

    def has_become_durable(self, state: State) -> None:
        """Let retention use the cursor, if it has moved."""
        known = state.topic_by_id[self.topic_id].subscriptions.get(self.subscriber)
        if (
            known is not None
            and known.generation == self.generation
            and known.durable_cursor < self.cursor
        ):
            known.durable_cursor = self.cursor
            state.touched_topics.add(self.topic_id)

    def store(self, writes: Writes) -> None:
        """Replace the group and its subscription."""
        key, row = (self.topic_id, self.group), None
        if not self.ends:
            values = (self.terms, stored_runs(self.runs), self.members, self.lost)
            row = (*key, *map(encode, values))
        writes.rows[CONSUMER_GROUP][key] = row
        writes.rows[SUBSCRIPTION][self.topic_id, self.subscriber] = (
            *(self.topic_id, self.subscriber, self.generation, self.cursor, int(not self.ends)),
            *(_TERMS.qos, self.cursor, 0, _TERMS.session, _TERMS.lease_ms),
        )

    def describe(self, lines: Lines) -> None:
        """Write what the request did."""
        lines.line(
            journal.GroupMovedLine,
            topic=lines.topics[self.topic_id],
            group=self.group,
            generation=self.generation,
            cursor=self.cursor,
            member=self.member,
            epoch=self.epoch,
            granted=tuple((one.first, one.count, one.delivery) for one in self.granted),
            settled=tuple((o.first, o.count, o.delivery, o.how) for o in self.settled),
        )


class GroupLetter(LetterStored, frozen=True, gc=False):
    """The dead letter of a message of a group; a `GroupChanged` of the same decision ends it."""

    topic_id: int  # of the message
    group: str
    generation: int
    offset: int

    def describe(self, lines: Lines) -> None:
        """Write the dead letter and its message."""
        lines.line(
            journal.DeadLetteredLine,
            topic=lines.topics[self.topic_id],
            subscriber=subscription_of_group(self.group),
            generation=self.generation,
            offset=self.offset,
            dead_topic=lines.topics[self.letter.topic_id],
            letter=seen_in(self.letter)[0],
            epoch=0,
        )
