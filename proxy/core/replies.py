"""Parts of replies that several verbs share: what each repeats of its request, and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from reliable_pubsub.common.core.answers import AnyReply, Limit, Malformed
from reliable_pubsub.common.core.limits import CHOSEN_TOPICS_MAX
from reliable_pubsub.common.core.message_base import Request, Terms
from reliable_pubsub.common.core.requests import AnyRequest
from reliable_pubsub.relay.core.attendance import Excess

from .records import Decision, Record, Subscribed, TopicDeleted
from .state import State
from .subscriptions import Session
from .topic_log import TopicLog

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
        "publishers of a topic, whose numbers it compares for ever",
        "Use the same ids again (or QoS 1, whose numbers are not compared), or ",
    ),
}


def echo(state: State, request: Request | AnyReply) -> dict[str, Any]:
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
        f"this proxy holds {limit:,} {what}, as many as it may; nothing was changed. {remedy}"
        f"start the proxy with a higher {setting} (a setting of its file)"
    )
    return Decision(Limit(**echo(state, request), limit=limit, text=text))


def topic_or_created(
    state: State, request: AnyRequest, topic: str, others: int = 0, *, compares: bool = False
) -> tuple[TopicLog, tuple[Record, ...]] | Decision:
    """A topic and the records that create it, or the refusal of one topic or publisher too many.

    With a topic begin the subscriptions of the patterns that match it.
    One that was deleted is made again where it ended: its numbers and offsets go on.

    Args:
        others: topics that the same decision creates before it.
        compares: the topic compares the numbers of the sender for ever.
    """
    log = state.topics.get(topic)
    created: tuple[Record, ...] = ()
    if log is None or topic in state.deleted_topics:
        if len(state.topics) - len(state.deleted_topics) + others >= state.settings.topics_max:
            return limit_reached(state, request, "topics_max")
        if log is not None:
            begins: Record = TopicDeleted(log.topic_id, is_back=True)
        elif state.last_topic_id + others >= CHOSEN_TOPICS_MAX:
            return limit_reached(state, request, "topics_max")
        else:
            begins, log = state.next_topic(topic, others)
        created = (begins, *begun_by_patterns(state, log))
    is_new = compares and request.client not in log.publishers
    if is_new and len(log.publishers) >= state.settings.publishers_per_topic_max:
        return limit_reached(state, request, "publishers_per_topic_max")
    return log, created


def begun_by_patterns(state: State, log: TopicLog) -> Iterator[Subscribed]:
    """The subscriptions that begin with a topic, by the patterns that match it."""
    for subscriber, pattern in state.patterns.wanting(log.topic):
        before = log.subscriptions.get(subscriber)
        is_kept = before is not None and before.active  # the topic was deleted meanwhile
        if not is_kept and state.authority.may_read(pattern.reader, log.topic):
            session = state.sessions["subscriber", subscriber]
            yield begun_by_pattern(
                state, log, subscriber, session, pattern.terms, session.control, log.end
            )


def begun_by_pattern(
    state: State,
    log: TopicLog,
    subscriber: str,
    session: Session,
    terms: Terms,
    control: int,
    cursor: int,
) -> Subscribed:
    """A subscription that a pattern begins, after all that it had of the topic before."""
    before = log.subscriptions.get(subscriber)
    return Subscribed(
        log.topic_id,
        subscriber,
        (before.generation if before else state.generation_floor) + 1,
        cursor,
        session.epoch,
        session.nonce,
        control,
        max(before.shown, cursor) if before else cursor,
        terms,
    )
