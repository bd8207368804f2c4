"""What an action of an operator does, in words that begin with a verb; for `admin` and the console.

Both ask "This ...: do it?" with them, and may add what the affected clients will see.
"""

from __future__ import annotations

from typing import Protocol

from .message_base import Role
from .wording import counted


class ActionOutcome(Protocol):
    """What an action does, or has done; see `AdminOutcome`."""

    @property
    def first(self) -> int:
        """First offset that is removed or skipped, or where the cursor was."""

    @property
    def end(self) -> int:
        """The offset after the last one, or where the cursor is."""

    @property
    def generation(self) -> int:
        """Of the subscription."""

    @property
    def subscriptions(self) -> int:
        """That end, or lose messages."""


def ends_subscription(topic: str, subscriber: str, outcome: ActionOutcome) -> str:
    """What `end-subscription` does."""
    return (
        f"ends subscription {outcome.generation} of {subscriber} to {topic}, which has "
        f"acknowledged everything below offset {outcome.end}"
    )


def skips(topic: str, subscriber: str, outcome: ActionOutcome) -> str:
    """What `skip` does."""
    return f"skips {_offsets(outcome)} of {topic} for {subscriber}"


def moves(topic: str, subscriber: str, outcome: ActionOutcome) -> str:
    """What `set-cursor` does."""
    return f"moves {subscriber} on {topic} from offset {outcome.first} to {outcome.end}"


def removes(topic: str, outcome: ActionOutcome) -> str:
    """What `truncate` does."""
    return (
        f"removes {_offsets(outcome)} of {topic} forever; {_subscriptions(outcome)} with "
        "unacknowledged ones among them"
    )


def deletes(topic: str, outcome: ActionOutcome) -> str:
    """What `delete-topic` does."""
    is_empty = outcome.first == outcome.end
    held = ", which is empty" if is_empty else f" with {_offsets(outcome)}"
    return f"deletes {topic}{held}, and ends {_subscriptions(outcome)}"


def forgets(role: Role, client: str, outcome: ActionOutcome) -> str:
    """What `forget-client` does."""
    return f"forgets {role} {client} and ends {_subscriptions(outcome)}"


def _offsets(outcome: ActionOutcome) -> str:
    return f"offsets {outcome.first} to {outcome.end - 1}"


def _subscriptions(outcome: ActionOutcome) -> str:
    return counted(outcome.subscriptions, "subscription")
