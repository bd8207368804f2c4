"""Messages that a subscriber gives up: by the word of its program, or because they come too often.

That a message is given up is durable here before the proxy hears of it, and the same letter is sent
until the proxy has it; so it is stored once, whatever dies in between.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from reliable_pubsub.common.batch import Message
from reliable_pubsub.common.dead_letter import DELIVERIES_USED_UP, dead_letter
from reliable_pubsub.common.errors import StaleError
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

    @property
    def topics(self) -> list[str]:
        """Those of which a letter is under way."""
        return list(self._rejected)

    def is_under_way(self, message: Message) -> bool:
        """Whether a letter of this message was begun, and is in doubt."""
        rejected = self._rejected.get(message.topic)
        return rejected is not None and rejected.message == message

    def forget(self, topic: str) -> None:
        """The subscription is no more."""
        self._rejected.pop(topic, None)

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
            if not reason:
                return fetched
            try:
                self.give_up(message, reason)
            except StaleError:  # another place was chosen
                return None
        return None

    def give_up(self, message: Message, reason: str) -> int:
        """Let a message become a dead letter; everything before it is done. Gives its offset."""
        topic = message.topic
        deliveries = self._inbox.places[topic].deliveries(message.offset)
        letter = dead_letter(message, self._client, deliveries, reason)
        self._rejected[topic] = _Rejected(message, reason, letter)
        return self.finish(topic)

    def finish(self, topic: str) -> int:
        """Send the letter that is under way, for the first time or again: always the same bytes."""
        message, reason, letter = self._rejected[topic]
        offset, session = message.offset, self._link.told.get(topic)
        with self._recorder.call("reject", topic) as call:
            if self._inbox.places[topic].cursor <= offset:
                self._state.write(self._inbox.gives_up(topic, offset, reason), durable=True)
                self._link.durable[topic] = offset
            try:
                reply = self._link.give_up(topic, offset, letter, call)
            except StaleError:
                self.forget(topic)
                self._fetching.forget(topic)
                raise
            # Before our place moves: a process that dies in between finds out, and tells it again.
            call.ok(epoch=self._inbox.epoch, cursor=offset + 1, offset=reply.offset)
        if self._inbox.places[topic].cursor <= offset:
            changes = self._inbox.processed(topic, offset + 1, message.timestamp_ns)
            self._state.write(changes, durable=False)
        del self._rejected[topic]
        if self._link.told.get(topic) is not session:
            self._fetching.drop(topic)  # our place was confirmed anew; what waits there was not
        return reply.offset
