"""The dead letter: a message that a subscriber has rejected, as stored in `<topic>.dead`.

It keeps its payload, key, headers and event time; further headers say where it came from and why
it was rejected. Only subscribers make dead letters, so publishers cannot put to such a topic; and a
dead letter cannot become one again: acknowledge it instead. Pure.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from .batch import Batch, Message, fits_event_time
from .errors import InvalidNameError, TooLargeError, UsageError
from .limits import DELIVERIES_MAX, REASON_CHARS_MAX, TOPIC_BYTES_MAX
from .wire import encode_batch

MaxDeliveries = Annotated[int, Meta(ge=1, le=DELIVERIES_MAX)]

DEAD_SUFFIX: Final = ".dead"
DELIVERIES_USED_UP: Final = "max_deliveries"  # the reason if none was given

TOPIC: Final = "dead-letter-topic"
OFFSET: Final = "dead-letter-offset"
MESSAGE_ID: Final = "dead-letter-message-id"
SUBSCRIBER: Final = "dead-letter-subscriber"
DELIVERIES: Final = "dead-letter-deliveries"
REASON: Final = "dead-letter-reason"
EVENT_TIME: Final = (
    "dead-letter-event-time-ns"  # an event time beyond 64 bits, which a batch cannot hold
)
LEFT_OUT: Final = "dead-letter-left-out"  # size of a payload that did not fit with these headers


def dead_topic(topic: str) -> str | None:
    """The topic for the dead letters of a topic; None: it cannot have any.

    That is the case for dead-letter topics, and for names that have no room for the suffix.
    """
    dead = topic + DEAD_SUFFIX
    return None if is_dead(topic) or len(dead.encode()) > TOPIC_BYTES_MAX else dead


def is_dead(topic: str) -> bool:
    """Whether a topic holds dead letters."""
    return topic.endswith(DEAD_SUFFIX)


def check_put_on(topic: str) -> None:
    """Check that publishers may put to a topic.

    Raises:
        InvalidNameError: it holds dead letters.
    """
    if is_dead(topic):
        raise InvalidNameError(
            kind="topic",
            name=topic,
            expected="one that does not end with .dead: only subscribers make dead letters",
        )


def dead_letter(message: Message, subscriber: str, deliveries: int, reason: str) -> bytes:
    """Encode the dead letter of a message, as a batch of one.

    A payload that does not fit together with these headers is left out, with its own key and
    headers: the offset says where to read it, until retention removes it.

    Args:
        deliveries: how often it was delivered.
        reason: why it was rejected, as text.
    """
    own = {
        TOPIC: message.topic,
        OFFSET: str(message.offset),
        MESSAGE_ID: message.message_id,
        SUBSCRIBER: subscriber,
        DELIVERIES: str(deliveries),
        REASON: reason,
    }
    times = [message.event_time_ns]
    if message.event_time_ns is not None and not fits_event_time(message.event_time_ns):
        own[EVENT_TIME] = str(message.event_time_ns)
        times = [None]
    headers = {**(message.headers or {}), **own}
    try:
        return encode_batch(Batch([message.payload], [message.key], [headers], times))
    except TooLargeError:
        own[LEFT_OUT] = str(len(message.payload))
        return encode_batch(Batch([b""], None, [own], times))


def check_may_die(topic: str) -> None:
    """Check that messages of a topic can become dead letters.

    Raises:
        UsageError: they are dead letters, or the name of the topic has no room for the suffix.
    """
    if dead_topic(topic) is None:
        why = (
            "it holds dead letters, and these cannot be rejected: acknowledge them instead"
            if is_dead(topic)
            else f"its name has more than {TOPIC_BYTES_MAX - len(DEAD_SUFFIX)} bytes"
        )
        raise UsageError(f"topic {topic!r:.80} has no dead letters: {why}")


def check_reason(reason: str) -> None:
    """Check the reason of a rejection.

    Raises:
        UsageError: it is empty or too long, or has no UTF-8 form.
    """
    if not 1 <= len(reason) <= REASON_CHARS_MAX:
        raise UsageError(
            f"the reason has {len(reason):,} characters, allowed is 1 to {REASON_CHARS_MAX:,}"
        )
    try:
        reason.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"the reason has no UTF-8 form: {error.reason} at character {error.start}; text that "
            "was decoded with surrogateescape is to be decoded with errors='replace'"
        ) from error
