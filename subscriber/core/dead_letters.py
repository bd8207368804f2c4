"""Dead letters: messages rejected by the program, or delivered too often. Pure.

A rejection is durable here before the proxy learns of it, and the same dead letter is sent until
the proxy has it; so it is stored once, whatever dies in between. If the proxy refuses it, that is
reported, the rejection is withdrawn, and the message is redelivered: once in each process even
beyond `max_deliveries`, so that a program can always continue.
"""

from __future__ import annotations

import logging

from reliable_pubsub.common.core.answers import DeadAck
from reliable_pubsub.common.core.batch import Message, crc32
from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.dead_letter import DELIVERIES_USED_UP, dead_letter
from reliable_pubsub.common.core.errors import (
    DeadLetterRefusedError,
    FencedError,
    LogChangedError,
    MalformedError,
    NotSubscribedError,
    PubSubError,
    RefusedError,
    StaleError,
    UsageError,
)
from reliable_pubsub.common.core.requests import Dead

from .requests import Requests
from .session import SubscriberSession
from .subscription import TopicSubscription


class DeadLetters:
    """Sends dead letters for one subscriber."""

    def __init__(self, session: SubscriberSession, requests: Requests) -> None:
        self._session = session
        self._requests = requests

    def reject_exhausted(self, subscription: TopicSubscription) -> Conversation[None]:
        """Send dead letters for the next messages while they must be rejected."""
        while subscription.fetched:
            message, place = subscription.fetched[0], subscription.place
            bound = place.max_deliveries
            used_up = bound is not None and place.deliveries(message.offset) >= bound
            reason = place.rejection or (DELIVERIES_USED_UP if used_up else "")
            if not reason or subscription.refused_letter == message.offset:
                return
            yield from self.begin(subscription, message, reason)
            gives_up = f"gives up {message.message_id} at offset {message.offset}: {reason}"
            self._session.tell(logging.WARNING, gives_up, subscription.topic)
            try:
                yield from self.finish(subscription)
            except StaleError:  # the position was changed; nothing is fetched there
                return

    def reject(
        self, subscription: TopicSubscription, message: Message, reason: str
    ) -> Conversation[int]:
        """Reject a message in hand; return the offset of its dead letter."""
        letter = subscription.letter
        if letter is not None:
            offset = yield from self.finish(subscription)
            if letter.message == message:
                return offset
        if not subscription.has_in_hand(message):
            raise UsageError(
                f"message {message.message_id} at offset {message.offset} of "
                f"{subscription.topic!r} is not in hand: only what the last get gave can be "
                "rejected"
            )
        yield from self.begin(subscription, message, reason)
        return (yield from self.finish(subscription))

    def begin(
        self, subscription: TopicSubscription, message: Message, reason: str
    ) -> Conversation[None]:
        """Write durably that a message is rejected; all messages before it are processed.

        Raises:
            UsageError: the letter cannot be encoded. StorageFailedError. Nothing has changed.
        """
        place = subscription.place
        deliveries = place.deliveries(message.offset)
        letter = dead_letter(message, self._session.client, deliveries, reason)
        before = subscription.in_hand
        subscription.begin_letter(message, letter)
        subscription.move(place.rejecting(message.offset, reason))
        try:
            yield from self._session.inbox.save(subscription, durable=True)
        except PubSubError:
            subscription.move(place)
            subscription.letter_not_begun(before)
            raise

    def finish(self, subscription: TopicSubscription) -> Conversation[int]:
        """Send the pending dead letter, for the first time or again: always the same bytes.

        Returns:
            Its offset.

        Raises:
            DeadLetterRefusedError: it is not stored, and no longer pending.
        """
        letter = subscription.letter
        assert letter is not None
        offset = letter.message.offset
        with self._session.recorder.call("reject", subscription.topic) as call:
            try:
                reply, _ = yield from self._requests.asking(
                    Dead,
                    subscription,
                    call,
                    body=letter.body,
                    rejected=offset,
                    crc=crc32(letter.body),
                )
                if not isinstance(reply, DeadAck):
                    self._session.refused(reply)
            except StaleError:
                subscription.drop()
                raise
            except RefusedError as error:
                if not _is_of_the_letter(error):
                    raise
                yield from self._withdraw(subscription, offset)
                raise DeadLetterRefusedError(
                    error, topic=subscription.topic, offset=offset
                ) from error
            # Before the cursor moves: if the process dies in between, the next one records it.
            call.ok(epoch=self._session.inbox.epoch, cursor=offset + 1, offset=reply.offset)
        if subscription.place.cursor <= offset:
            after = subscription.place.moved(offset + 1, letter.message.timestamp_ns)
            subscription.move(after)
            yield from self._session.inbox.save(subscription)
        subscription.letter_stored()
        return reply.offset

    def _withdraw(self, subscription: TopicSubscription, offset: int) -> Conversation[None]:
        """Withdraw a rejection that the proxy refused: the message is redelivered."""
        subscription.move(subscription.place.kept())
        yield from self._session.inbox.save(subscription, durable=True)
        subscription.letter_refused(offset)


def _is_of_the_letter(error: RefusedError) -> bool:
    """Whether a refusal means for certain that the dead letter is not stored.

    Others concern the client or its position, or are replies that cannot be read.
    """
    if isinstance(error, MalformedError):
        return error.is_our_request
    return not isinstance(error, FencedError | LogChangedError | NotSubscribedError)
