"""Dead letters that the proxy makes for a group: of what was rejected, or delivered too often.

A member of a group says which message, and the proxy has it: so the letter is made here. Its
number is the next one of the member, which acts as its publisher, as for a plain subscription.
"""

from __future__ import annotations

from reliable_pubsub.common.core.batch import Message, crc32, decode_batch, messages_of
from reliable_pubsub.common.core.dead_letter import dead_letter, dead_topic
from reliable_pubsub.common.core.errors import MalformedError, UsageError
from reliable_pubsub.common.core.group_messages import Settle, Take

from .appending import topic_for
from .records import Decision, GroupLetter, Record
from .state import State
from .topic_log import TopicLog


class GroupLetters:
    """The dead letters of one decision."""

    def __init__(self, state: State, request: Take | Settle, log: TopicLog) -> None:
        """There are none yet."""
        self._state = state
        self._request = request
        self._log = log
        self._before: tuple[Record, ...] = ()
        self._letters: list[GroupLetter] = []

    def __len__(self) -> int:
        return len(self._letters)

    @property
    def records(self) -> tuple[Record, ...]:
        """What stores them."""
        return (*self._before, *self._letters)

    def add(self, offset: int, deliveries: int, reason: str, now_ns: int) -> int | Decision:
        """Make the letter of a message; return its offset, or the refusal.

        Args:
            now_ns: wall clock, for its timestamp.
        """
        state, request = self._state, self._request
        topic = dead_topic(request.topic)
        assert topic is not None  # checked where messages can be rejected
        message = message_at(state, self._log, offset)
        body = dead_letter(message, request.client, deliveries, reason)
        found = topic_for(
            state,
            request,
            topic,
            compares=True,
            count=len(self._letters) + 1,
            body_bytes=len(body) + sum(len(one.letter.body) for one in self._letters),
        )
        if isinstance(found, Decision):
            return found
        log, self._before = found
        letter = log.next_batch(
            request,
            body,
            count=1,
            crc=crc32(body),
            now_ns=now_ns,
            step_ns=state.timestamp_step_ns,
            after=self._letters[-1].letter if self._letters else None,
        )
        made = GroupLetter(letter, self._log.topic_id, request.group, request.generation, offset)
        self._letters.append(made)
        return letter.base


def message_at(state: State, log: TopicLog, offset: int) -> Message:
    """A stored message; of a batch that cannot be decoded, without its content."""
    batch = next(iter(state.reader.read(log.topic_id, offset, messages_max=1, bytes_max=1)))
    try:
        return messages_of(
            decode_batch(batch.body, batch.count),
            topic=log.topic,
            base=batch.base,
            publisher=batch.publisher,
            first_sequence=batch.first_sequence,
            timestamp_ns=batch.timestamp_ns,
            qos=batch.qos,
        )[offset - batch.base]
    except (MalformedError, UsageError):
        sequence = batch.first_sequence + offset - batch.base
        return Message(log.topic, offset, batch.publisher, sequence, batch.timestamp_ns, b"")
