"""Dead letters: of what a subscriber rejects (DEAD), and of what a group gives up.

The letter and the moved cursor are one record. A dead letter has the next sequence of its
subscriber, which acts as its publisher. A member of a group only names the message that it rejects,
so the proxy makes the letter; it also makes that of a message that was delivered too often.
"""

from __future__ import annotations

from typing import Final

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.answers import DeadAck, Stale
from reliable_pubsub.common.core.batch import Message, StoredBatch, crc32
from reliable_pubsub.common.core.dead_letter import dead_letter, dead_topic
from reliable_pubsub.common.core.errors import MalformedError, UsageError
from reliable_pubsub.common.core.group_messages import Settle, Take
from reliable_pubsub.common.core.requests import Dead
from reliable_pubsub.common.core.wire import decode_batch

from ..core.appending import next_batch, topic_for
from ..core.changed_log import not_this_log
from ..core.feature import Feature
from ..core.lines import Lines, seen_in
from ..core.reading import subscription_of
from ..core.records import Decision, LetterStored
from ..core.replies import decided, echo, malformed
from ..core.rows import Writes
from ..core.state import Record, State
from ..core.subscription_records import CursorMoved
from ..core.subscriptions import Subscription
from ..core.topic_log import PublisherMark, TopicLog
from ..groups.records import GroupLetter


class DeadLettered(LetterStored, frozen=True, gc=False):
    """A message is rejected: its dead letter is stored and the cursor moved, both or neither."""

    moved: CursorMoved

    def apply(self, state: State) -> None:
        """Append the dead letter and acknowledge its message."""
        super().apply(state)
        self.moved.apply(state)

    def has_become_durable(self, state: State) -> None:
        """Let retention use the cursor."""
        self.moved.has_become_durable(state)

    def store(self, writes: Writes) -> None:
        """Add the dead letter, and replace the subscription."""
        super().store(writes)
        self.moved.store(writes)

    def describe(self, lines: Lines) -> None:
        """Write the dead letter, its message, and the position."""
        lines.line(
            journal.DeadLetteredLine,
            topic=lines.topics[self.moved.topic_id],
            subscriber=self.moved.subscriber,
            generation=self.moved.generation,
            offset=self.moved.cursor - 1,
            dead_topic=lines.topics[self.letter.topic_id],
            letter=seen_in(self.letter)[0],
            epoch=self.letter.epoch,
        )
        self.moved.describe(lines)


def dead(state: State, request: Dead, body: bytes, now_ns: int) -> Decision:
    """Append the letter and move the cursor past its message, once (rule R4)."""
    topic = dead_topic(request.topic)
    if topic is None:
        text = f"topic {request.topic!r} has no dead letters; acknowledge the message"
        return Decision(malformed(state, text, request))
    found = subscription_of(state, request)
    if isinstance(found, Decision):
        return found
    log, subscription, visible_at = found
    letters = state.topics.get(topic)
    mark = letters.publishers.get(request.client) if letters else None
    if request.cursor < subscription.cursor:
        return _repeated_dead(state, request, subscription, mark, visible_at)
    if request.cursor == log.durable_end:
        return not_this_log(state, request, log, f"there is no message at offset {request.cursor}")
    return _store_letter(state, request, body, now_ns, log, subscription, topic)


def _repeated_dead(
    state: State,
    request: Dead,
    subscription: Subscription,
    mark: PublisherMark | None,
    visible_at: int,
) -> Decision:
    """Answer a repeat of the last dead letter with success; anything else is too late."""
    is_last = mark is not None and request.crc == mark.crc and not subscription.moved
    if mark and is_last and request.cursor == subscription.cursor - 1:
        reply = DeadAck(**echo(state, request), offset=mark.base, already=True)
        return Decision(reply, visible_at=max(visible_at, mark.lsn))
    text = (
        f"{request.client!r} has acknowledged {request.topic!r} up to "
        f"{subscription.cursor - 1}: offset {request.cursor} cannot become a dead letter any "
        "more; nothing was stored"
    )
    return Decision(Stale(**echo(state, request), text=text), visible_at=visible_at)


def _store_letter(
    state: State,
    request: Dead,
    body: bytes,
    now_ns: int,
    log: TopicLog,
    subscription: Subscription,
    topic: str,
) -> Decision:
    place = topic_for(state, request, topic, compares=True, count=1, body_bytes=len(body))
    if isinstance(place, Decision):
        return place
    letters, before = place
    letter = next_batch(state, letters, request, body, count=1, crc=request.crc, now_ns=now_ns)
    cursor = request.cursor + 1
    moved = CursorMoved(
        log.topic_id,
        request.client,
        subscription.generation,
        cursor,
        True,
        max(subscription.shown, cursor),
        subscription.terms,
        bool(subscription.moved),
    )
    reply = DeadAck(**echo(state, request), offset=letter.base, already=False)
    return decided(state, reply, *before, DeadLettered(letter, moved))


# Of a group.


class GroupLetters:
    """The dead letters of one decision."""

    def __init__(self, state: State, request: Take | Settle, log: TopicLog) -> None:
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
        letter = next_batch(
            state,
            log,
            request,
            body,
            count=1,
            crc=crc32(body),
            now_ns=now_ns,
            after=self._letters[-1].letter if self._letters else None,
        )
        made = GroupLetter(letter, self._log.topic_id, request.group, request.generation, offset)
        self._letters.append(made)
        return letter.base


def message_at(state: State, log: TopicLog, offset: int) -> Message:
    """A stored message; of a batch that cannot be decoded, without its content."""
    batch = next(iter(state.reader.read(log.topic_id, offset, messages_max=1, bytes_max=1)))
    try:
        columns = decode_batch(batch.body, batch.count)
        return StoredBatch(batch.header, columns, offset - batch.base).messages(log.topic)[0]
    except (MalformedError, UsageError):
        sequence = batch.first_sequence + offset - batch.base
        return Message(log.topic, offset, batch.publisher, sequence, batch.timestamp_ns, b"")


FEATURE: Final = Feature(name="dead letters", verbs={Dead: dead}, of_subscribers={Dead: True})
