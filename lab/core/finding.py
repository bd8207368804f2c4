"""The findings of a rule. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .verdict import MessageKey, RuleVerdict, Violation


@dataclass(slots=True)
class Finding:
    """One rule at work."""

    rule: str
    title: str
    reason: str = ""  # why it may have nothing to check
    checked: int = 0
    violations: list[Violation] = field(default_factory=list)

    def broken(self, text: str, message: MessageKey | None = None) -> None:
        """Note that the rule does not hold here."""
        self.violations.append(Violation(text, message))

    def verdict(self) -> RuleVerdict:
        """Finish: everything is checked."""
        judged = self.checked or self.violations
        reason = "" if judged else self.reason
        return RuleVerdict(self.rule, self.title, self.checked, self.violations, reason)


def runs_of(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges, first and last."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ranges


def as_range(first: int, last: int) -> str:
    """`5`, or `5 to 9`."""
    return str(first) if first == last else f"{first} to {last}"
