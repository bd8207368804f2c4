"""The records of patterns. Pure."""

from __future__ import annotations

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.message_base import Terms
from reliable_pubsub.common.core.patterns.pattern import Pattern

from ..core.lines import Lines
from ..core.rows import Writes
from ..core.state import Record, State
from ..core.subscription_records import see_control, store_control
from .index import RegisteredPattern


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
        state.patterns.add(self.subscriber, self.pattern, one, state.topics)
        see_control(state, self.subscriber, self.control)
        state.index_patterns(self.subscriber)

    def store(self, writes: Writes) -> None:
        """Replace the pattern."""
        key, terms = (self.subscriber, self.pattern.kind, self.pattern.text), self.terms
        row = (*key, terms.qos, terms.session, terms.lease_ms, self.reader)
        writes.rows["pattern_subscription"][key] = row
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
        state.patterns.remove(self.subscriber, self.pattern)
        see_control(state, self.subscriber, self.control)
        state.index_patterns(self.subscriber)

    def store(self, writes: Writes) -> None:
        """Remove the pattern."""
        key = (self.subscriber, self.pattern.kind, self.pattern.text)
        writes.rows["pattern_subscription"][key] = None
        store_control(writes, self.subscriber, self.epoch, self.nonce, self.control)

    def describe(self, lines: Lines) -> None:
        """Write that the request came."""
        lines.line(journal.ControlSeenLine, subscriber=self.subscriber, epoch=self.epoch)
