"""Parts of replies that several verbs share: what each repeats of its request, and refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from reliable_pubsub.common.access.core.attendance import Excess
from reliable_pubsub.common.core.answers import AnyReply, Limit, Malformed
from reliable_pubsub.common.core.message_base import Reply, Request, Role
from reliable_pubsub.common.core.requests import AnyRequest

from .records import Decision
from .state import Record, State

SettingOfLimit = Literal[
    "topics_max", "clients_max", "subscriptions_per_topic_max", "publishers_per_topic_max"
]
_LIMITED: Final[Mapping[SettingOfLimit, tuple[str, str]]] = {
    "topics_max": ("topics", "Use fewer names, or "),
    "clients_max": (
        "client ids that have numbers or subscriptions",
        "Unsubscribe those that are gone, each under its id, or ",
    ),
    "subscriptions_per_topic_max": (
        "subscriptions of a topic that have not ended",
        "Unsubscribe those that are gone, each under its id (or use clean sessions, which end by "
        "themselves), or ",
    ),
    "publishers_per_topic_max": (
        "publishers of a topic, whose numbers it compares forever",
        "Use the same ids again (or QoS 1, whose numbers are not compared), or ",
    ),
}


def echo(state: State, request: Request | Reply) -> dict[str, Any]:
    """The fields that every reply repeats from its request (rule R1), and the boot name."""
    return {
        "client": request.client,
        "epoch": request.epoch,
        "request": request.request,
        "boot": state.boot,
        "durability": state.durability,
    }


def decided(state: State, reply: AnyReply, *records: Record) -> Decision:
    """A reply that leaves when its records are durable."""
    return Decision(reply, records, state.lsn + len(records))


def misplaced(state: State, request: AnyRequest, role: Role) -> Malformed:
    """Answer a request that came at the other role's endpoint."""
    other = "subscriber" if role == "publisher" else "publisher"
    text = f"{request.__struct_config__.tag} does not belong on the {role} endpoint; "
    text += f"connect it to the {other} endpoint, which the proxy prints in its ready line"
    return malformed(state, text, request)


def not_served(state: State, request: AnyRequest, field: str = "") -> Malformed:
    """Answer a request, or a field of one, of a feature that this proxy does not have."""
    what = f"{request.__struct_config__.tag} {field}".strip()
    text = f"{what} is not served: this proxy runs without that feature"
    return malformed(state, text, request)


def malformed(state: State, text: str, request: AnyRequest | None = None) -> Malformed:
    """The reply to an undecodable request (without an echo), or to one at a wrong endpoint."""
    if request is not None:
        return Malformed(**echo(state, request), text=text)
    return Malformed(
        client="", epoch=0, request=0, boot=state.boot, durability=state.durability, text=text
    )


def too_many(state: State, request: Request, excess: Excess) -> Limit:
    """The answer on a connection that is more than its key may have."""
    return Limit(**echo(state, request), limit=excess.most, text=excess.text)


def limit_reached(state: State, request: AnyRequest, setting: SettingOfLimit) -> Decision:
    """Refuse because a limit is reached; ended entries do not count towards it."""
    limit: int = getattr(state.settings, setting)
    what, remedy = _LIMITED[setting]
    text = (
        f"this proxy holds {limit:,} {what}, the most that it may; nothing was changed. {remedy}"
        f"start the proxy with a higher {setting} (a setting of its file)"
    )
    return Decision(Limit(**echo(state, request), limit=limit, text=text))
