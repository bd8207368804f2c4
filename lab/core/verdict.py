"""The verdict of a run, as values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from msgspec import Struct

from reliable_pubsub.common.core.journal import Seen


class MessageKey(Struct, frozen=True, order=True):
    """What makes two sightings the same message."""

    topic: str
    publisher: str
    sequence: int

    @property
    def message_id(self) -> str:
        """As users see it."""
        return f"{self.publisher}_{self.sequence}"


def key_of(topic: str, seen: Seen) -> MessageKey:
    """What names a message that was seen."""
    return MessageKey(topic, seen.publisher, seen.sequence)


class Violation(Struct, frozen=True):
    """One place at which a rule does not hold."""

    text: str  # who, which topic, which offsets; what was expected
    message: MessageKey | None = None  # whose story shows it


class Losses(Struct, frozen=True):
    """Acknowledged messages of one publisher and topic that the log does not hold.

    Where they stood among all that it put: lost from the beginning (prefix), from the end
    (suffix) or in between (middle). A lost suffix is the mark of an acknowledgement that came
    too early; a lost middle that of damage, or of a wrong deduplication (Jepsen's NATS report).
    """

    topic: str
    publisher: str  # or the subscriber that did not receive them
    acknowledged: int
    prefix: int
    middle: int
    suffix: int


class RuleVerdict(Struct, frozen=True):
    """One rule, V1 to V13."""

    rule: str  # "V1"
    title: str  # one line, for people
    checked: int  # how many facts it was held against; 0: nothing in this run can break it
    violations: Sequence[Violation]
    reason: str = ""  # why nothing was checked, if nothing was

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.violations


class Verdict(Struct, frozen=True, kw_only=True):
    """All rules over one run."""

    rules: Sequence[RuleVerdict]  # V1 to V13
    losses: Sequence[Losses] = ()
    warnings: Sequence[str] = ()  # what could not be judged, and why
    tails: Sequence[str] = ()  # journals that end before the work does

    def gaps(self, required: Collection[str] = (), unreadable: int = 0) -> Iterator[str]:
        """What is missing for a verdict that can be relied on, one sentence each.

        Args:
            required: rules that must have been judged.
            unreadable: lines that could not be read, and are not torn by a kill.
        """
        judged = {rule.rule for rule in self.rules if rule.checked}
        if not judged:
            yield "no rule was judged: the journals hold no evidence"
        if unreadable:
            yield f"{unreadable:,} lines cannot be read, and were not judged"
        for rule in self.rules:
            if rule.rule in required and rule.rule not in judged:
                yield f"{rule.rule} is required, and was not judged: {rule.reason}"
        yield from self.tails

    @property
    def holds(self) -> bool:
        """Whether every rule holds."""
        return all(rule.holds for rule in self.rules)

    @property
    def first(self) -> Violation | None:
        """The first violation that has a message, or else the first."""
        violations = [violation for rule in self.rules for violation in rule.violations]
        with_story = (violation for violation in violations if violation.message is not None)
        return next(with_story, next(iter(violations), None))
