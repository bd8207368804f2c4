"""Messages that a subscriber gives up: by the word of its program, or because they come too often.

That a message is given up is durable here before the proxy hears of it, and the same letter is sent
until the proxy has it; so it is stored once, whatever dies in between. Where the proxy refuses it
for good, that is told, the note is withdrawn, and the message comes again. A bound of deliveries
lets it through then, once in each process, so that a program can always go on.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import NamedTuple

from reliable_pubsub.common.batch import Message
from reliable_pubsub.common.dead_letter import DELIVERIES_USED_UP, dead_letter
from reliable_pubsub.common.errors import (
    DeadLetterRefusedError,
    FencedError,
    LogChangedError,
    MalformedError,
    NotSubscribedError,
    RefusedError,
    StaleError,
)
from reliable_pubsub.common.recorder import Recorder
from reliable_pubsub.common.state_file import ClientState

from .fetching import Fetching
from .inbox import Inbox
from .link import SubscriberLink


class _Rejected(NamedTuple):
    message: Message
    reason: str
    letter: bytes


class GivingUp:
    """Sends dead letters for one subscriber."""

    def __init__(
        self,
        client: str,
        link: SubscriberLink,
        inbox: Inbox,
        fetching: Fetching,
        *,
        state: ClientState,
        recorder: Recorder,
    ) -> None:
        """Nothing is given up."""
        self._client = client
        self._link = link
        self._inbox = inbox
        self._fetching = fetching
        self._state = state
        self._recorder = recorder
        self._rejected: dict[str, _Rejected] = {}  # by topic: no answer came yet
        self._refused: dict[str, int] = {}  # by topic: the offset whose letter was refused last

    @property
    def topics(self) -> list[str]:
        """Those of which a letter is under way."""
        return list(self._rejected)

    def is_under_way(self, message: Message) -> bool:
        """Whether a letter of this message was begun, and is in doubt."""
        rejected = self._rejected.get(message.topic)
        return rejected is not None and rejected.message == message

    def begin_again(self) -> None:
        """Forget what is under way; a call was broken off, and the state knows what was begun."""
        self._rejected.clear()

    def forget(self, topic: str) -> None:
        """The subscription is no more."""
        self._rejected.pop(topic, None)
        self._refused.pop(topic, None)

    def how_many(self, topic: str, max_messages: int) -> int:
        """What has a bound and comes again comes alone: only what fails is counted then."""
        place = self._inbox.places[topic]
        again = place.deliveries(place.cursor) > 0
        return min(1, max_messages) if again and place.max_deliveries else max_messages

    def living(self, topic: str) -> deque[Message] | None:
        """What is fetched, once the messages at its head that are given up are dead letters."""
        while fetched := self._fetching.ahead(topic):
            message, place = fetched[0], self._inbox.places[topic]
            if message.offset < place.cursor:
                fetched.popleft()
                continue
            bound = place.max_deliveries
            used_up = bound is not None and place.deliveries(message.offset) >= bound
            reason = place.giving_up or (DELIVERIES_USED_UP if used_up else "")
            if not reason or self._refused.get(topic) == message.offset:
                return fetched
            try:
                self.begin(message, reason)
                gives_up = f"gives up {message.message_id} at offset {message.offset}: {reason}"
                self._link.tell(logging.WARNING, gives_up, topic)
                self.finish(topic)
            except StaleError:  # another place was chosen
                return None
        return None

    def begin(self, message: Message, reason: str) -> None:
        """Note durably that a message is to become a dead letter; everything before it is done.

        Raises:
            UsageError: the letter cannot be encoded. StorageFailedError. Nothing has changed.
        """
        topic, offset = message.topic, message.offset
        place = self._inbox.places[topic]
        letter = dead_letter(message, self._client, place.deliveries(offset), reason)
        try:
            self._state.write(self._inbox.gives_up(topic, offset, reason), durable=True)
        except BaseException:
            self._inbox.kept(topic, place)
            raise
        self._link.durable[topic] = offset
        self._rejected[topic] = _Rejected(message, reason, letter)

    def finish(self, topic: str) -> int:
        """Send the letter that is under way, for the first time or again: always the same bytes.

        Returns:
            Its offset.

        Raises:
            DeadLetterRefusedError: it is not stored, and not under way any more.
        """
        message, _, letter = self._rejected[topic]
        offset, session = message.offset, self._link.told.get(topic)
        with self._recorder.call("reject", topic) as call:
            try:
                reply = self._link.give_up(topic, offset, letter, call)
            except StaleError:
                self.forget(topic)
                self._fetching.forget(topic)
                raise
            except RefusedError as error:
                if not _is_of_the_letter(error):
                    raise
                self._withdraw(topic, offset)
                raise DeadLetterRefusedError(error, topic=topic, offset=offset) from error
            # Before our place moves: a process that dies in between finds out, and tells it again.
            call.ok(epoch=self._inbox.epoch, cursor=offset + 1, offset=reply.offset)
        if self._inbox.places[topic].cursor <= offset:
            changes = self._inbox.processed(topic, offset + 1, message.timestamp_ns)
            self._state.write(changes, durable=False)
        del self._rejected[topic]
        if self._link.told.get(topic) is not session:
            self._fetching.drop(topic)  # our place was confirmed anew; what waits there was not
        return reply.offset

    def _withdraw(self, topic: str, offset: int) -> None:
        """The proxy has not stored the letter, and never will: the message comes again."""
        self._state.write(self._inbox.keeps(topic), durable=True)
        del self._rejected[topic]
        self._fetching.drop(topic)
        self._refused[topic] = offset


def _is_of_the_letter(error: RefusedError) -> bool:
    """Whether a refusal says for certain that the letter is not stored.

    The others speak of the client or its place, or are an answer that cannot be read.
    """
    if isinstance(error, MalformedError):
        return error.is_our_request
    return not isinstance(error, FencedError | LogChangedError | NotSubscribedError)
