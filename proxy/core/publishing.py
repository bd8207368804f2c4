"""PUT: stored once and in order, or refused with the reason."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from reliable_pubsub.common.core.dead_letter import is_dead
from reliable_pubsub.common.core.messages import (
    Busy,
    Commit,
    Conflict,
    Dead,
    Duplicate,
    Full,
    Gap,
    Limit,
    Put,
    PutAck,
    Stage,
)

from .records import Appended, Decision, Expired, Record
from .rules import Rules
from .subscriptions import Subscription
from .topic_log import PublisherMark, TopicLog


class Publishing(Rules):
    """The rules for publishers."""

    def _put(self, request: Put, body: bytes, now_ns: int) -> Decision:
        """Append the next batch of a publisher, once (rule R4)."""
        session = self._fence("publisher", request)
        if isinstance(session, Decision):
            return session
        if is_dead(request.topic):
            return self._is_for_letters(request)
        log = self.topics.get(request.topic)
        if request.qos == 2:
            mark = log.publishers.get(request.client) if log else None
            if log and mark and request.first_sequence <= mark.last_sequence:
                return self._repeated_put(request, log, mark)
            expected = mark.last_sequence + 1 if mark else 1
            if request.first_sequence != expected:
                return self._gap(request, expected, mark)
        return self._append(request, log, body, now_ns)

    def _append(self, request: Put, log: TopicLog | None, body: bytes, now_ns: int) -> Decision:
        """Append a batch if there is room."""
        created: tuple[Record, ...] = ()
        if log is None:
            if len(self.topics) >= self._settings.topics_max:
                return self._limit(request, "topics_max")
            created = (self._new_topic(request.topic),)
            log = self._unborn(request.topic)
        elif (
            request.qos == 2
            and request.client not in log.publishers
            and len(log.publishers) >= self._settings.publishers_per_topic_max
        ):
            return self._limit(request, "publishers_per_topic_max")
        room = self._make_room(request, log, request.count, len(body))
        if isinstance(room, Decision):
            return room
        batch = Appended(
            topic_id=log.topic_id,
            base=log.end,
            count=request.count,
            publisher=request.client,
            epoch=request.epoch,
            first_sequence=request.first_sequence,
            timestamp_ns=log.next_timestamp_ns(now_ns, self.step_ns),
            crc=request.crc,
            body=body,
            qos=request.qos,
        )
        return self._decided(
            PutAck(
                **self._echo(request),
                offset=batch.base,
            ),
            *created,
            *room,
            batch,
        )

    def _repeated_put(self, request: Put, log: TopicLog, mark: PublisherMark) -> Decision:
        """Answer used sequences: success if it is the same batch, else a conflict."""
        last = request.first_sequence + request.count - 1
        if last > mark.last_sequence:
            return self._gap(request, mark.last_sequence + 1, mark)
        if request.first_sequence == mark.first_sequence:
            known = (mark.count, mark.crc, mark.base)
            lsn = mark.lsn
        else:
            stored = self._reader.find(log.topic_id, request.client, request.first_sequence)
            lsn = 0
            if stored is not None:
                same_place = stored.first_sequence == request.first_sequence
                known = (stored.count if same_place else 0, stored.crc, stored.base)
            elif mark.lsn > self.durable_lsn:
                text = "an earlier batch of this publisher is not yet durable; ask again"
                return Decision(Busy(**self._echo(request), text=text))
            else:
                return Decision(Duplicate(**self._echo(request), offset=None))
        count, crc, base = known
        if (count, crc) == (request.count, request.crc):
            return Decision(Duplicate(**self._echo(request), offset=base), visible_at=lsn)
        return Decision(
            Conflict(
                **self._echo(request),
                first_sequence=request.first_sequence,
                count=request.count,
                text=f"topic {request.topic!r}: sequences {request.first_sequence} to {last} of "
                f"{request.client!r} are stored with another content; nothing was changed. Either "
                "two programs use this id (give each its own), or its state is older than what it "
                "sent: --on-log-changed adopt (on_log_changed) puts it under the next number",
            ),
            visible_at=lsn,
        )

    def _gap(self, request: Put, expected: int, mark: PublisherMark | None) -> Decision:
        return Decision(
            Gap(
                **self._echo(request),
                expected=expected,
                text=f"topic {request.topic!r}: {request.client!r} sent sequence "
                f"{request.first_sequence}, but {expected} is next; nothing was stored",
            ),
            visible_at=mark.lsn if mark else 0,
        )

    def _is_for_letters(self, request: Put | Stage) -> Decision:
        text = f"topic {request.topic!r} takes dead letters of subscribers only; put elsewhere"
        return Decision(self.malformed(text, request))

    def _make_room(
        self, request: Put | Commit | Dead, log: TopicLog, count: int, body_bytes: int
    ) -> Decision | tuple[Record, ...]:
        """Keep the topic below its bounds: its bytes, and the messages waiting for each subscriber.

        Messages that all subscribers have acknowledged are removed first. Then `on_bound` decides
        (rule R17): remove the oldest, expire the slowest subscriptions, or refuse this put.
        """
        policy = log.retention.on_bound
        over = log.over_quota(count)
        if over and policy == "reject":
            return self._over_quota(request, log, count, over)
        expired = [_expired(log, *pair) for pair in over] if policy == "expire" else []
        bound = log.retention.topic_bytes_max
        excess = log.stored_bytes + body_bytes - bound
        if excess <= 0:
            return tuple(expired)
        without = {one.subscriber for one in expired}
        start = log.start_without(excess, all_may_go=policy == "lose_oldest", without=without)
        if start is None and policy == "expire":
            slowest, start = self._without_the_slowest(log, excess, without)
            expired += slowest
        if start is None:
            return self._full(request, log)
        return (*expired, log.trimmed_to(start))

    def _without_the_slowest(
        self, log: TopicLog, excess: int, gone: Collection[str]
    ) -> tuple[Sequence[Expired], int | None]:
        """The further subscriptions that must expire to free enough, and the topic's new start.

        As few as needed, the slowest first; None if expiring all of them does not free enough.
        """
        without = set(gone)
        expired: list[Expired] = []
        start = None
        for name, one in log.slowest_first():
            if name in without:
                continue
            without.add(name)
            expired.append(_expired(log, name, one))
            start = log.start_without(excess, all_may_go=False, without=without)
            if start is not None:
                break
        return expired, start

    def _over_quota(
        self,
        request: Put | Commit | Dead,
        log: TopicLog,
        count: int,
        over: Sequence[tuple[str, Subscription]],
    ) -> Decision:
        bound = log.retention.waiting_messages_max
        if count > bound:
            return self._too_much(request, bound)
        name, slowest = over[0]
        waiting = log.end - slowest.cursor
        return Decision(
            Full(
                **self._echo(request),
                text=f"topic {log.topic!r}: {waiting:,} of {bound:,} messages wait for {name!r}; "
                "let it catch up, unsubscribe it, or raise waiting_messages_max",
            )
        )

    def _too_much(self, request: Put | Commit | Dead, bound: int) -> Decision:
        text = (
            f"at most {bound:,} messages may wait for one subscription, so not more can be put at "
            "once; put fewer, or raise waiting_messages_max"
        )
        return Decision(Limit(**self._echo(request), limit=bound, text=text))

    def _full(self, request: Put | Commit | Dead, log: TopicLog) -> Decision:
        bound = log.retention.topic_bytes_max
        return Decision(
            Full(
                **self._echo(request),
                text=f"topic {log.topic!r} holds {log.stored_bytes:,} of {bound:,} bytes that "
                "its subscribers have not all acknowledged; let them catch up, unsubscribe the "
                "idle ones, or raise topic_bytes_max",
            )
        )


def _expired(log: TopicLog, name: str, one: Subscription) -> Expired:
    """The record that expires a subscription."""
    return Expired(log.topic_id, name, one.generation, one.cursor, one.terms, shown=one.shown)
