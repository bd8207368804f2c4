"""Reads stored messages of any topic by offset, without a subscription. Pure."""

from __future__ import annotations

from msgspec import UNSET, Struct

from reliable_pubsub.common.core.answers import (
    AnyReply,
    LogChanged,
    Lost,
    MessageBatches,
    NoMessagesYet,
)
from reliable_pubsub.common.core.batch import Message, StoredBatch, messages_in
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.errors import (
    LogChangedError,
    LostError,
    MalformedError,
    UsageError,
)
from reliable_pubsub.common.core.message_base import Start
from reliable_pubsub.common.core.requests import History
from reliable_pubsub.common.core.session import ClientSession, refusal
from reliable_pubsub.common.core.start import Position, newest, start_in_words, start_of
from reliable_pubsub.common.core.wire import direct_batches


class Reading(Struct, frozen=True):
    """The state of a topic at one moment: its newest message, and where to continue from there."""

    message: Message | None  # None: nothing is stored
    position: Position


def start_of_reading(place: int | Start) -> Start:
    """The start of a reading; a number is an offset.

    Raises:
        UsageError: it is `LastReceived` or `Now`, which have a meaning for a subscription only; or
            the offset is out of range.
    """
    start = start_of(place)
    if start.at in ("last", "now"):
        name, why = (
            ("LastReceived", "belongs to a subscription, and history reads without one")
            if start.at == "last"
            else ("Now", "is after everything that is stored, and history reads what is stored")
        )
        raise UsageError(
            f"history does not begin at {name}: it {why}. Expected an offset, Earliest, "
            "at_offset(n), newest(n), at_time(t) or ago(age). Nothing was asked"
        )
    return start


def read_history(
    session: ClientSession, topic: str, start: Start, messages_max: int
) -> Conversation[list[Message]]:
    """See `Subscriber.history`."""
    messages, _ = yield from _reading(session, topic, start, messages_max)
    return messages


def read_newest(session: ClientSession, topic: str) -> Conversation[Reading]:
    """See `Subscriber.read`."""
    messages, reply = yield from _reading(session, topic, newest(1), 1)
    log = None if reply.log is UNSET else reply.log
    message = messages[-1] if messages else None
    end = message.offset + 1 if message else reply.end
    return Reading(message, Position(topic, end, log))


def _reading(
    session: ClientSession, topic: str, start: Start, messages_max: int
) -> Conversation[tuple[list[Message], MessageBatches | NoMessagesYet]]:
    request = History(**session.head(), topic=topic, start=start, messages_max=messages_max)
    reply, body = yield from session.requester.asking(request)
    messages = messages_in(topic, stored_batches(request, reply, body))
    assert isinstance(reply, MessageBatches | NoMessagesYet)
    return messages[:messages_max], reply


def stored_batches(request: History, reply: AnyReply, body: bytes) -> list[StoredBatch]:
    """The batches in a reply to HISTORY; see `LogReader.read`."""
    topic = request.topic
    match reply:
        case MessageBatches():
            if reply.first is UNSET:
                raise MalformedError(f"topic {topic!r}: the proxy does not say where it begins")
            return direct_batches(topic, reply.first, reply.batches, body)
        case NoMessagesYet():
            return []
        case Lost():
            raise LostError(topic=topic, first=reply.first, end=reply.end)
        case LogChanged():
            raise LogChangedError(
                f"topic {topic!r}: {start_in_words(request.start)} of log {request.log} is not in "
                f"the current log, {reply.log} with offsets {reply.start} to {reply.end} "
                "(exclusive): the proxy was replaced, or set back to an older copy"
            )
        case _:
            raise refusal(reply, client=request.client, epoch=request.epoch, topic=topic)
