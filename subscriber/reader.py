"""Reads stored messages of any topic by offset, without a subscription or state."""

from __future__ import annotations

import secrets

from msgspec import UNSET, Struct

from reliable_pubsub.common.asking import Asker, Session
from reliable_pubsub.common.core import names
from reliable_pubsub.common.core.batch import Message
from reliable_pubsub.common.core.errors import (
    LogChangedError,
    LostError,
    MalformedError,
)
from reliable_pubsub.common.core.limits import BATCH_MESSAGES_MAX, BODY_BYTES_MAX
from reliable_pubsub.common.core.messages import (
    AnyReply,
    History,
    LogChanged,
    Lost,
    MessageBatches,
    NoMessagesYet,
    Start,
)
from reliable_pubsub.common.core.retry import Clock, RetryPolicy, Silence, Transport, unheard
from reliable_pubsub.common.core.session import refusal
from reliable_pubsub.common.core.settings import SUBSCRIBER_ENDPOINT
from reliable_pubsub.common.core.start import Position, in_words, newest, start_of

from .core.direct_followers import StoredBatch, direct_batches, messages_in


class LogReader:
    """Reads by offsets. Any number of readers can run at once; the proxy keeps nothing for them."""

    def __init__(
        self,
        endpoint: str = SUBSCRIBER_ENDPOINT,
        *,
        retry: RetryPolicy = RetryPolicy(),  # noqa: B008  (frozen)
        transport: Transport | None = None,
        clock: Clock | None = None,
        on_silence: Silence = unheard,
    ) -> None:
        """Create a reader; the first read sends the first request.

        Args:
            transport, clock: replaced by tests.
        """
        self._asker = Asker(
            f"reader-{secrets.token_hex(4)}",
            endpoint,
            retry=retry,
            transport=transport,
            clock=clock,
            on_silence=on_silence,
            role="subscriber",
        )

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._asker.close()

    def read(
        self,
        topic: str,
        start: int | Start,
        *,
        log: str | None = None,
        witness_ns: int | None = None,
        messages_max: int = BATCH_MESSAGES_MAX,
        bytes_max: int = BODY_BYTES_MAX,
    ) -> list[StoredBatch]:
        """Send one request for the batches from an offset, or another start.

        Args:
            log: log id of `start`; None accepts any log.
            witness_ns: with an offset: timestamp of the batch before it, if known.
            messages_max, bytes_max: no further batch beyond these bounds; at least one.

        Returns:
            Whole batches, each the direct follower of the one before; the first may begin below
            the requested place (`skip`). None at the end of the topic.

        Raises:
            TruncatedError: `start` is no longer stored; the error has the first stored offset.
            LostError: an operator has discarded damaged messages there.
            LogChangedError: log id, offset or witness are not of this log.
            ProxyUnreachableError: every attempt went unanswered.
        """
        request = History(
            **self._asker.head(),
            topic=names.topic(topic),
            start=start_of(start),
            log=log,
            witness_ns=witness_ns,
            messages_max=messages_max,
            bytes_max=bytes_max,
        )
        reply, body = self._asker.ask(request)
        return stored_batches(request, reply, body)


class Reading(Struct, frozen=True):
    """The state of a topic at one moment: its newest message, and where to continue from there."""

    message: Message | None  # None: nothing is stored
    position: Position


class StoredReader:
    """Reads stored messages with the session of a client."""

    def __init__(self, session: Session) -> None:
        """Create a reader; the first read sends the first request."""
        self._session = session

    def read(self, topic: str, start: Start, messages_max: int) -> list[Message]:
        """See `Subscriber.history`."""
        return self._ask(topic, start, messages_max)[0]

    def newest(self, topic: str) -> Reading:
        """See `Subscriber.read`."""
        messages, reply = self._ask(topic, newest(1), 1)
        log = None if reply.log is UNSET else reply.log
        message = messages[-1] if messages else None
        end = message.offset + 1 if message else reply.end
        return Reading(message, Position(topic, end, log))

    def _ask(
        self, topic: str, start: Start, messages_max: int
    ) -> tuple[list[Message], MessageBatches | NoMessagesYet]:
        head = self._session.head()
        request = History(**head, topic=topic, start=start, messages_max=messages_max)
        reply, body = self._session.asker.ask(request)
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
                f"topic {topic!r}: {in_words(request.start)} of log {request.log} is no place of "
                f"the log that is there now, {reply.log} with offsets {reply.start} to {reply.end} "
                "(exclusive): the proxy was replaced, or set back to an older copy"
            )
        case _:
            raise refusal(reply, client=request.client, epoch=request.epoch, topic=topic)
