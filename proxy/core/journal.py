"""The proxy's lines of a journal: each record, as soon as it is known to be durable.

They are written before the replies that depend on them leave, so that a journal never contains an
acknowledgement without its record. After a `kill -9` in between, the last commits may be missing,
which is why the checker also reads the final log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from reliable_pubsub.common.core import journal
from reliable_pubsub.common.core.batch import crc32
from reliable_pubsub.common.core.errors import MalformedError
from reliable_pubsub.common.core.journal import Seen
from reliable_pubsub.common.core.recorder import Recorder
from reliable_pubsub.common.core.wire import decode_batch

from .administration import client_of, topic_of_action
from .group_state import subscription_of_group
from .records import (
    Administered,
    Appended,
    ControlSeen,
    CursorMoved,
    DeadLettered,
    Expired,
    Granted,
    GroupChanged,
    GroupLetter,
    PatternEnded,
    PatternSubscribed,
    Record,
    Subscribed,
    TopicCreated,
    Trimmed,
    Unsubscribed,
)


class ProxyJournal:
    """Keeps records until they are durable, then writes them. Used by the loop thread."""

    def __init__(self, recorder: Recorder, topics: Iterable[tuple[int, str]]) -> None:
        """Create the journal of one proxy process.

        Args:
            topics: number and name of the topics that the store already holds.
        """
        self._recorder = recorder
        self._topics = dict(topics)
        self._waiting: deque[tuple[int, Sequence[Record]]] = deque()

    def submitted(self, records: Sequence[Record], lsn: int) -> None:
        """Records were submitted to the committer; the last has number `lsn`."""
        self._waiting.append((lsn, records))

    def durable(self, lsn: int) -> None:
        """The store has everything up to number `lsn`.

        Raises:
            StorageFailedError: the journal cannot be written.
        """
        while self._waiting and self._waiting[0][0] <= lsn:
            for record in self._waiting.popleft()[1]:
                self._write(record)

    def forgotten(self) -> None:
        """A commit failed: drop the records that wait, they will not become durable."""
        self._waiting.clear()

    def _write_of_group(self, record: GroupChanged | GroupLetter) -> None:
        line, topic = self._recorder.line, self._topics[record.topic_id]
        if isinstance(record, GroupLetter):
            line(
                journal.DeadLetteredLine,
                topic=topic,
                subscriber=subscription_of_group(record.group),
                generation=record.generation,
                offset=record.offset,
                dead_topic=self._topics[record.letter.topic_id],
                letter=seen_in(record.letter)[0],
                epoch=0,
            )
            return
        line(
            journal.GroupMovedLine,
            topic=topic,
            group=record.group,
            generation=record.generation,
            cursor=record.cursor,
            member=record.member,
            epoch=record.epoch,
            granted=tuple((one.first, one.count, one.delivery) for one in record.granted),
            settled=tuple((o.first, o.count, o.delivery, o.how) for o in record.settled),
        )

    def _write(self, record: Record) -> None:
        line = self._recorder.line
        if isinstance(record, GroupChanged | GroupLetter):
            self._write_of_group(record)
            return
        match record:
            case TopicCreated(topic_id, topic, log):
                self._topics[topic_id] = topic
                line(journal.CreatedLine, topic=topic, log=log)
            case Appended():
                messages = seen_in(record)
                topic = self._topics[record.topic_id]
                line(journal.StoredLine, topic=topic, epoch=record.epoch, messages=messages)
            case DeadLettered(letter, moved):
                line(
                    journal.DeadLetteredLine,
                    topic=self._topics[moved.topic_id],
                    subscriber=moved.subscriber,
                    generation=moved.generation,
                    offset=moved.cursor - 1,
                    dead_topic=self._topics[letter.topic_id],
                    letter=seen_in(letter)[0],
                    epoch=letter.epoch,
                )
                self._write(moved)
            case Granted(role, client, epoch):
                line(journal.GrantedLine, role=role, client=client, epoch=epoch)
            case Expired(topic_id, subscriber, generation, cursor, terms, silent_ms):
                line(
                    journal.ExpiredLine,
                    topic=self._topics[topic_id],
                    subscriber=subscriber,
                    generation=generation,
                    cursor=cursor,
                    session=terms.session,
                    lease_ms=terms.lease_ms,
                    silent_ms=silent_ms,
                )
            case Subscribed() | Unsubscribed() | CursorMoved():
                line(
                    journal.PositionLine,
                    topic=self._topics[record.topic_id],
                    subscriber=record.subscriber,
                    generation=record.generation,
                    cursor=record.cursor,
                    active=not isinstance(record, Unsubscribed),
                    epoch=getattr(record, "epoch", 0),
                    session=record.terms.session,
                )
            case (
                ControlSeen(subscriber, epoch=epoch)
                | PatternSubscribed(subscriber, epoch=epoch)
                | PatternEnded(subscriber, epoch=epoch)
            ):
                line(journal.ControlSeenLine, subscriber=subscriber, epoch=epoch)
            case Administered(number, action=action, effect=effect, who=who):
                line(
                    journal.AdministeredLine,
                    number=number,
                    action=str(action.__struct_config__.tag),
                    who=who,
                    topic=topic_of_action(action),
                    subscriber=client_of(action),
                    role=getattr(action, "role", ""),
                    generation=effect.generation,
                    first=effect.first,
                    end=effect.end,
                )
            case Trimmed(topic_id, start):
                line(journal.TrimmedLine, topic=self._topics[topic_id], start=start)


def seen_in(batch: Appended) -> tuple[Seen, ...]:
    """The messages of a batch; those of one that a foreign publisher encoded wrongly have CRC 0."""
    try:
        crcs = [crc32(payload) for payload in decode_batch(batch.body, batch.count).payloads]
    except MalformedError:
        crcs = [0] * batch.count
    return tuple(
        Seen(
            batch.base + index,
            batch.publisher,
            batch.first_sequence + index,
            crc,
            batch.timestamp_ns,
            qos=batch.qos,
        )
        for index, crc in enumerate(crcs)
    )
