"""An operator's actions on the page, and the sentence to confirm each. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from reliable_pubsub.common.core import action_words
from reliable_pubsub.common.core.action_words import ActionOutcome
from reliable_pubsub.common.core.message_base import Role

Name = Literal[
    "end_subscription",
    "skip",
    "set_cursor",
    "truncate",
    "delete_topic",
    "forget_client",
    "pause",
    "resume",
]
_Text = Annotated[str, Meta(max_length=1_000)]


class AskedAction(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One action; the fields that it does not need are empty."""

    action: Name
    topic: _Text = ""
    subscriber: _Text = ""
    client: _Text = ""
    role: Role = "subscriber"
    start: _Text = ""  # a place as `admin` takes it: `offset 42`, `age 1h`
    end: int | None = None  # skip: the first offset not to skip
    reason: _Text = ""


def action_in_words(asked: AskedAction, outcome: ActionOutcome) -> str:
    """What it does, beginning with a verb, and what the affected clients will see."""
    topic, subscriber = asked.topic, asked.subscriber
    match asked.action:
        case "end_subscription":
            does = action_words.ends_subscription(topic, subscriber, outcome)
            return f"{does}; a subscriber that still runs subscribes again at its own position"
        case "skip":
            does = action_words.skips(topic, subscriber, outcome)
            return f"{does}, which is told that they are lost; for others they stay"
        case "set_cursor":
            told = (
                "what lies between is delivered again, marked"
                if outcome.end < outcome.first
                else "what lies between is reported to it as lost"
            )
            return f"{action_words.moves(topic, subscriber, outcome)}; {told}"
        case "truncate":
            return action_words.removes(topic, outcome)
        case "delete_topic":
            does = action_words.deletes(topic, outcome)
            return f"{does}; a put or a subscribe makes it again, at offset {outcome.end}"
        case "forget_client":
            return action_words.forgets(asked.role, asked.client, outcome)
        case "pause":
            return "refuses puts until an operator resumes them, even after a restart; not gets"
        case "resume":
            return "accepts puts again"


def as_seen(asked: AskedAction, outcome: ActionOutcome) -> AskedAction:
    """The action with the place that was looked at, so that nothing else is done after it."""
    place = f"offset {outcome.end}"
    match asked.action:
        case "truncate" | "set_cursor":
            return replace(asked, start=place)
        case "skip":
            return replace(asked, end=outcome.end)
        case _:
            return asked
