"""The records of patterns. Pure."""

from __future__ import annotations

from typing import Final

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.message_base import QoS, SessionKind, Terms
from reliable_pubsub.common.core.patterns.pattern import Pattern

from ..core.lines import Lines
from ..core.rows import Writes
from ..core.schema import StoredTable
from ..core.state import Record, State
from ..core.subscription_records import see_control, store_control
from .index import PatternIndex, RegisteredPattern, StoredPattern


def _stored_pattern(
    subscriber: str,
    kind: str,
    text: str,
    qos: QoS,
    session: SessionKind,
    lease_ms: int,
    reader: str,
) -> StoredPattern:
    terms = Terms(qos=qos, session=session, lease_ms=lease_ms, by_pattern=True)
    return StoredPattern(subscriber, Pattern(kind, text), terms, reader)


PATTERN_SUBSCRIPTION: Final = StoredTable(
    """
CREATE TABLE pattern_subscription (
    subscriber TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    qos INTEGER NOT NULL,           -- as the next two, of the subscriptions that it makes
    session TEXT NOT NULL,          -- persistent or clean
    lease_ms INTEGER NOT NULL,
    reader TEXT NOT NULL,           -- keys that may read what it matches; empty: none
    row_crc INTEGER NOT NULL,
    PRIMARY KEY (subscriber, kind, text)
) WITHOUT ROWID;
""",
    StoredPattern,
    _stored_pattern,
)


def _index(state: State, subscriber: str) -> None:
    """A subscriber has one pattern more or less: note what is unread in its topics."""
    state.interest_changed()
    for topic_id in state.subscribed.get(subscriber, ()):
        state.part(PatternIndex).index(state.topic_by_id[topic_id], subscriber)
    state.index_session("subscriber", subscriber)


class PatternSubscribed(Record, frozen=True, gc=False):
    """A subscriber has a pattern; the subscriptions that it begins are separate records."""

    subscriber: str
    pattern: Pattern
    terms: Terms
    reader: str  # the keys that may read what it matches; "": there were no keys
    epoch: int
    nonce: bytes
    control: int

    def apply(self, state: State) -> None:
        """Begin the pattern, or change its terms."""
        one = RegisteredPattern(self.terms, self.reader, state.lsn, self.epoch)
        state.part(PatternIndex).add(self.subscriber, self.pattern, one, state.topics)
        see_control(state, self.subscriber, self.control)
        _index(state, self.subscriber)

    def store(self, writes: Writes) -> None:
        """Replace the pattern."""
        key, terms = (self.subscriber, self.pattern.kind, self.pattern.text), self.terms
        row = (*key, terms.qos, terms.session, terms.lease_ms, self.reader)
        writes.rows[PATTERN_SUBSCRIPTION][key] = row
        store_control(writes, self.subscriber, self.epoch, self.nonce, self.control)

    def describe(self, lines: Lines) -> None:
        """Write that the request came."""
        lines.line(journal.ControlSeenLine, subscriber=self.subscriber, epoch=self.epoch)


class PatternEnded(Record, frozen=True, gc=False):
    """A pattern ends; the ends of its subscriptions are separate records."""

    subscriber: str
    pattern: Pattern
    epoch: int
    nonce: bytes
    control: int

    def apply(self, state: State) -> None:
        """End the pattern."""
        state.part(PatternIndex).remove(self.subscriber, self.pattern)
        see_control(state, self.subscriber, self.control)
        _index(state, self.subscriber)

    def store(self, writes: Writes) -> None:
        """Remove the pattern."""
        key = (self.subscriber, self.pattern.kind, self.pattern.text)
        writes.rows[PATTERN_SUBSCRIPTION][key] = None
        store_control(writes, self.subscriber, self.epoch, self.nonce, self.control)

    def describe(self, lines: Lines) -> None:
        """Write that the request came."""
        lines.line(journal.ControlSeenLine, subscriber=self.subscriber, epoch=self.epoch)
