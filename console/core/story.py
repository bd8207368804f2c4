"""The story of one message: its publisher, its place, its subscribers, its fate. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final, Literal

from msgspec import Struct

from reliable_pubsub.common.core import dead_letter
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.message_base import BatchHeader
from reliable_pubsub.common.core.status import GroupStatus, TopicStatus

from .letters import letter_offset_of
from .reasons import roughly

_LEVELS: Final = {0: "at most once", 1: "at least once", 2: "exactly once"}

EventMark = Literal["done", "waits", "failed", "note"]


class StoryEvent(Struct, frozen=True, kw_only=True):
    """One sentence of the story."""

    mark: EventMark
    text: str
    timestamp_ns: str | None = None  # digits; None: it is not known when


def story_of(
    message: Message,
    batch: BatchHeader,
    status: TopicStatus | None,
    letters: Sequence[tuple[Message, bool]] = (),
) -> tuple[StoryEvent, ...]:
    """Tell it, in order.

    Args:
        status: of its topic; None: not known.
        letters: dead letters of this message, each with whether it was put again.
    """
    return (
        *_putting(message, batch),
        *(_reading(message, status, _rejecting(letters)) if status else ()),
        *_dying(letters),
        *(_keeping(message, status) if status else ()),
    )


def _putting(message: Message, batch: BatchHeader) -> Iterator[StoryEvent]:
    if message.event_time_ns is not None:
        yield StoryEvent(
            mark="note", text="The event itself.", timestamp_ns=str(message.event_time_ns)
        )
    who = message.publisher
    letter = letter_offset_of(who)
    if letter is not None:
        text = f"A console put it again: it was dead letter {letter:,} of {message.topic}.dead."
    else:
        level = _LEVELS[message.qos]
        text = f"{who} put it as its message {message.sequence:,} of this topic, {level}."
    yield StoryEvent(mark="done", text=text)
    within = (
        "a batch of its own"
        if batch.count == 1
        else f"a batch of {batch.count:,} messages, offsets {batch.base:,} to "
        f"{batch.base + batch.count - 1:,}"
    )
    yield StoryEvent(
        mark="done",
        text=f"The proxy stored it at offset {message.offset:,}, in {within}.",
        timestamp_ns=str(message.timestamp_ns),
    )


def _rejecting(letters: Sequence[tuple[Message, bool]]) -> frozenset[str]:
    return frozenset((one.headers or {}).get(dead_letter.SUBSCRIBER, "") for one, _ in letters)


def _reading(
    message: Message, status: TopicStatus, rejecting: Collection[str]
) -> Iterator[StoryEvent]:
    offset = message.offset
    for one in status.subscriptions:
        if not one.terms.qos or one.subscriber in rejecting:
            continue
        if one.cursor > offset:
            yield StoryEvent(
                mark="done", text=f"{one.subscriber} has acknowledged it, or came later."
            )
        elif one.state == "expired":
            text = f"{one.subscriber} has not acknowledged it, and its lease has ended."
            yield StoryEvent(mark="failed", text=text)
        else:
            before = offset - one.cursor
            text = f"{one.subscriber} is to get it: {before:,} messages come before it."
            if not before:
                text = f"{one.subscriber} is to get it next, or has it in its hands"
                text += f", not heard for {roughly(one.silent_s)}."
            yield StoryEvent(mark="waits", text=text)
    for group in status.groups if isinstance(status.groups, tuple) else ():
        yield _of_group(offset, group)
    if not status.subscriptions and not isinstance(status.groups, tuple):
        yield StoryEvent(mark="note", text="This topic has no subscriptions.")


def _of_group(offset: int, group: GroupStatus) -> StoryEvent:
    if group.cursor > offset:
        return StoryEvent(
            mark="done", text=f"The group {group.group} is past it: it has ended there."
        )
    return StoryEvent(
        mark="waits",
        text=f"In the group {group.group} it waits, is with a member, or has ended before others.",
    )


def _dying(letters: Sequence[tuple[Message, bool]]) -> Iterator[StoryEvent]:
    for letter, is_again in letters:
        said = letter.headers or {}
        reason = said.get(dead_letter.REASON, "")
        yield StoryEvent(
            mark="failed",
            text=f"{said.get(dead_letter.SUBSCRIBER, '?')} rejected it after "
            f"delivery {said.get(dead_letter.DELIVERIES, '?')}, so it became dead letter "
            f"{letter.offset:,}. The reason: {reason}",
            timestamp_ns=str(letter.timestamp_ns),
        )
        if is_again:
            yield StoryEvent(mark="done", text="A console put that dead letter again.")


def _keeping(message: Message, status: TopicStatus) -> Iterator[StoryEvent]:
    waits = [
        one.subscriber
        for one in status.subscriptions
        if one.cursor <= message.offset and one.state != "expired" and one.terms.qos
    ]
    waits += [
        one.group
        for one in (status.groups if isinstance(status.groups, tuple) else ())
        if one.cursor <= message.offset
    ]
    if waits:
        more = f" and {len(waits) - 3:,} more" if len(waits) > 3 else ""
        text = f"It stays stored until {', '.join(waits[:3])}{more} acknowledged it."
    else:
        text = "No reader waits for it: it is history, and stays as long as the topic keeps that."
    yield StoryEvent(mark="note", text=text)
