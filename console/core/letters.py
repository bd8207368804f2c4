"""Dead letters: what they say, and how one is put again exactly once. Pure.

A letter is put again by a publisher of its own, whose id follows from the log and the offset of the
letter, as its message 1. So the proxy itself knows whether it was done: another try, from any
console, now or after a crash, is of the same publisher with the same number, and its copy is a
duplicate, or is fenced (docs/decisions/0046).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from reliable_pubsub.common.core import dead_letter
from reliable_pubsub.common.core.batch import EVENT_TIME_NS_MAX, EVENT_TIME_NS_MIN, Message
from reliable_pubsub.common.core.errors import NotPossibleError
from reliable_pubsub.common.core.names import ClientId, client_id

from .board import source_topic
from .content import MessageRow, row_of

AGAIN: Final = "again"  # begins the ids of these publishers; rights name them as `again-*`
_PUBLISHER: Final = re.compile(rf"{AGAIN}-[0-9a-f]{{16}}-[a-s](\d+)\Z")
_OWN: Final = frozenset(
    {
        *(dead_letter.TOPIC, dead_letter.OFFSET, dead_letter.MESSAGE_ID, dead_letter.SUBSCRIBER),
        *(dead_letter.DELIVERIES, dead_letter.REASON),
        *(dead_letter.EVENT_TIME, dead_letter.LEFT_OUT),
    }
)


class LetterRow(Struct, frozen=True, kw_only=True):
    """One dead letter of a list."""

    row: MessageRow
    offset: str  # of the message that was rejected, as the letter says
    message_id: str
    subscriber: str
    deliveries: str
    reason: str
    is_again: bool  # it was put again
    why_not: str  # why it cannot be put again; "": it can


class Again(Struct, frozen=True, kw_only=True):
    """What is put to put a letter again: the message as it was."""

    publisher: ClientId
    topic: str
    payload: bytes
    key: bytes | None
    headers: dict[str, str] | None
    event_time_ns: int | None


def publisher_of(log: str, offset: int) -> ClientId:
    """The one publisher of a letter. Sorted as text they stand in the order of their letters.

    Args:
        log: log id of the topic of dead letters.
    """
    digest = hashlib.sha256(log.encode()).hexdigest()[:16]
    digits = str(offset)
    length = chr(ord("a") + len(digits) - 1)  # first, so that 9 stands before 10
    return client_id(f"{AGAIN}-{digest}-{length}{digits}")


def letter_offset_of(publisher: str) -> int | None:
    """The offset of the letter whose publisher this is; None: it is another publisher."""
    found = _PUBLISHER.match(publisher)
    return int(found[1]) if found else None


def publishers_from(log: str, first: int) -> str:
    """The id after which the publishers of letters from an offset on follow in a sorted list."""
    return publisher_of(log, first - 1) if first else publisher_of(log, 0).rpartition("-")[0]


def row_of_letter(letter: Message, log: str, put_again: Collection[str]) -> LetterRow:
    """A letter as one line.

    Args:
        put_again: ids of publishers that have put something.
    """
    said = letter.headers or {}
    return LetterRow(
        row=row_of(letter),
        offset=said.get(dead_letter.OFFSET, ""),
        message_id=said.get(dead_letter.MESSAGE_ID, ""),
        subscriber=said.get(dead_letter.SUBSCRIBER, ""),
        deliveries=said.get(dead_letter.DELIVERIES, ""),
        reason=said.get(dead_letter.REASON, ""),
        is_again=publisher_of(log, letter.offset) in put_again,
        why_not=_why_not(letter),
    )


def again(letter: Message, log: str) -> Again:
    """What is to be put; into the topic whose letter it is, whatever its headers say.

    Raises:
        NotPossibleError: the letter does not have the payload.
    """
    if why_not := _why_not(letter):
        raise NotPossibleError(why_not)
    headers = {name: one for name, one in (letter.headers or {}).items() if name not in _OWN}
    time_ns = letter.event_time_ns
    fits = time_ns is None or EVENT_TIME_NS_MIN <= time_ns <= EVENT_TIME_NS_MAX
    return Again(
        publisher=publisher_of(log, letter.offset),
        topic=source_topic(letter.topic),
        payload=letter.payload,
        key=letter.key,
        headers=headers or None,
        event_time_ns=time_ns if fits else None,
    )


def letter_of(letters: Sequence[Message], offset: int) -> Message | None:
    """The letter of a message, if it is among these."""
    for one in letters:
        if (one.headers or {}).get(dead_letter.OFFSET) == str(offset):
            return one
    return None


def _why_not(letter: Message) -> str:
    said = letter.headers or {}
    if dead_letter.OFFSET not in said:
        return "it is no dead letter: it does not say which message it was"
    if dead_letter.LEFT_OUT not in said:
        return ""
    return (
        f"the payload of {said[dead_letter.LEFT_OUT]} bytes did not fit in the letter: read it at "
        f"offset {said.get(dead_letter.OFFSET, '?')} of {source_topic(letter.topic)}, and put it "
        "by a program"
    )
