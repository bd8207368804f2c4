"""DEAD: a subscriber rejects a message. The dead letter and the moved cursor are one record."""

from __future__ import annotations

from reliable_pubsub.common.core.dead_letter import dead_topic
from reliable_pubsub.common.core.messages import Dead, DeadAck, Stale

from .publishing import Publishing
from .records import Appended, CursorMoved, DeadLettered, Decision, Record
from .subscribing import Subscribing
from .subscriptions import Subscription
from .topic_log import PublisherMark, TopicLog


class DeadLetters(Publishing, Subscribing):
    """The rule for messages that a subscriber cannot process.

    A dead letter has the next sequence of its subscriber, which acts as its publisher.
    """

    def _dead(self, request: Dead, body: bytes, now_ns: int) -> Decision:
        """Append the letter and move the cursor past its message, once (rule R4)."""
        topic = dead_topic(request.topic)
        if topic is None:
            text = f"topic {request.topic!r} has no dead letters; acknowledge the message"
            return Decision(self.malformed(text, request))
        found = self._subscription(request)
        if isinstance(found, Decision):
            return found
        log, subscription, visible_at = found
        letters = self.topics.get(topic)
        mark = letters.publishers.get(request.client) if letters else None
        if request.cursor < subscription.cursor:
            return self._repeated_dead(request, subscription, mark, visible_at)
        if request.cursor == log.durable_end:
            return self._not_this_log(
                request, log, f"there is no message at offset {request.cursor}"
            )
        return self._bury(request, body, now_ns, log, subscription, topic, mark)

    def _repeated_dead(
        self,
        request: Dead,
        subscription: Subscription,
        mark: PublisherMark | None,
        visible_at: int,
    ) -> Decision:
        """Answer a repeat of the last dead letter with success; anything else is too late."""
        if mark and request.cursor == subscription.cursor - 1 and request.crc == mark.crc:
            reply = DeadAck(**self._echo(request), offset=mark.base, already=True)
            return Decision(reply, visible_at=max(visible_at, mark.lsn))
        text = (
            f"{request.client!r} has acknowledged {request.topic!r} up to "
            f"{subscription.cursor - 1}: offset {request.cursor} cannot become a dead letter any "
            "more; nothing was stored"
        )
        return Decision(Stale(**self._echo(request), text=text), visible_at=visible_at)

    def _bury(
        self,
        request: Dead,
        body: bytes,
        now_ns: int,
        log: TopicLog,
        subscription: Subscription,
        topic: str,
        mark: PublisherMark | None,
    ) -> Decision:
        letters = self.topics.get(topic)
        created: tuple[Record, ...] = ()
        if letters is None:
            if len(self.topics) >= self._settings.topics_max:
                return self._limit(request, "topics_max")
            created = (self._new_topic(topic),)
            letters = self._unborn(topic)
        elif mark is None and len(letters.publishers) >= self._settings.publishers_per_topic_max:
            return self._limit(request, "publishers_per_topic_max")
        room = self._make_room(request, letters, 1, len(body))
        if isinstance(room, Decision):
            return room
        letter = Appended(
            topic_id=letters.topic_id,
            base=letters.end,
            count=1,
            publisher=request.client,
            epoch=request.epoch,
            first_sequence=mark.last_sequence + 1 if mark else 1,
            timestamp_ns=letters.next_timestamp_ns(now_ns, self.step_ns),
            crc=request.crc,
            body=body,
        )
        cursor = request.cursor + 1
        moved = CursorMoved(
            log.topic_id,
            request.client,
            subscription.generation,
            cursor,
            True,
            max(subscription.shown, cursor),
            subscription.terms,
        )
        reply = DeadAck(**self._echo(request), offset=letter.base, already=False)
        return self._decided(reply, *created, *room, DeadLettered(letter, moved))
