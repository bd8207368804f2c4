"""What an operator asks for on the page, and the sentence that is to be confirmed. Pure."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct
from msgspec.structs import replace

from reliable_pubsub.common.core.message_base import Role

from .reasons import counted

Name = Literal[
    "end_subscription", "skip", "set_cursor", "truncate", "forget_client", "pause", "resume"
]
_Text = Annotated[str, Meta(max_length=1_000)]


class Asked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One action; the fields that it does not need are empty."""

    action: Name
    topic: _Text = ""
    subscriber: _Text = ""
    client: _Text = ""
    role: Role = "subscriber"
    start: _Text = ""  # a place as `admin` takes it: `offset 42`, `age 1h`
    end: int | None = None  # skip: the first offset not to skip
    reason: _Text = ""


class Outcome(Protocol):
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


def in_words(asked: Asked, outcome: Outcome) -> str:
    """What it does, beginning with a verb, and what those who are concerned are told."""
    range_of = f"offsets {outcome.first:,} to {outcome.end - 1:,}"
    match asked.action:
        case "end_subscription":
            return (
                f"ends subscription {outcome.generation} of {asked.subscriber} to {asked.topic}, "
                f"which has acknowledged everything below offset {outcome.end:,}; a subscriber "
                "that still runs subscribes again at its own position"
            )
        case "skip":
            return (
                f"skips {range_of} of {asked.topic} for {asked.subscriber}, which is told that "
                "they are lost; for others they stay"
            )
        case "set_cursor":
            told = (
                "what lies between is delivered again, marked"
                if outcome.end < outcome.first
                else "what lies between is reported to it as lost"
            )
            return (
                f"moves {asked.subscriber} on {asked.topic} from offset {outcome.first:,} to "
                f"{outcome.end:,}; {told}"
            )
        case "truncate":
            return (
                f"removes {range_of} of {asked.topic} for ever; "
                f"{counted(outcome.subscriptions, 'subscription')} with unacknowledged ones "
                "among them"
            )
        case "forget_client":
            return (
                f"forgets {asked.role} {asked.client} and ends "
                f"{counted(outcome.subscriptions, 'subscription')}"
            )
        case "pause":
            return "refuses puts until an operator resumes them, also after a restart; gets go on"
        case "resume":
            return "takes puts again"


def as_seen(asked: Asked, outcome: Outcome) -> Asked:
    """The action with the place that was looked at, so that nothing else is done after it."""
    place = f"offset {outcome.end}"
    match asked.action:
        case "truncate" | "set_cursor":
            return replace(asked, start=place)
        case "skip":
            return replace(asked, end=outcome.end)
        case _:
            return asked
