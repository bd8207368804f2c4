"""Planted faults of the broker, in what it does for publishers; the table is in `faults.py`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from reliable_pubsub.common.core.messages import (
    AnyRequest,
    Commit,
    Conflict,
    Dead,
    Duplicate,
    Full,
    Hello,
    Put,
    Role,
)
from reliable_pubsub.lab.variants import AppendsAgain
from reliable_pubsub.proxy.core.broker import Broker
from reliable_pubsub.proxy.core.records import Appended, Decision, Granted, Record
from reliable_pubsub.proxy.core.subscriptions import Session
from reliable_pubsub.proxy.core.topic_log import PublisherMark, TopicLog


class NoDeduplication(AppendsAgain):
    """Every copy of a put is a message."""

    def _repeated_put(self, request: Put, log: TopicLog, mark: PublisherMark) -> Decision:
        return self._append_again(request, log)


class DuplicateBeforeDurable(Broker):
    """Says "I have it" of what is still on its way to the disk."""

    def _repeated_put(self, request: Put, log: TopicLog, mark: PublisherMark) -> Decision:
        return replace(super()._repeated_put(request, log, mark), visible_at=0)


class WrongDuplicateOffset(Broker):
    """Answers a retry with the end of the topic, not with the place of the message."""

    def _repeated_put(self, request: Put, log: TopicLog, mark: PublisherMark) -> Decision:
        decision = super()._repeated_put(request, log, mark)
        return replace(decision, reply=replace(decision.reply, offset=log.end - 1))


class NoFencing(Broker):
    """Every epoch counts."""

    def _fence(self, role: Role, request: AnyRequest) -> Session | Decision:
        return self.sessions.get((role, request.client)) or super()._fence(role, request)


class GrantsLateHello(Broker):
    """Grants whatever epoch is asked for: a late copy brings a dead process back."""

    def _hello(self, request: Hello, _body: bytes, _now_ns: int) -> Decision:
        session = self.sessions.get((request.role, request.client))
        if session and (session.epoch, session.nonce) == (request.epoch, request.nonce):
            return super()._hello(request, _body, _now_ns)
        return self._decided(
            self._hello_ack(request),
            Granted(request.role, request.client, request.epoch, request.nonce),
        )


class HelloBeforeDurable(Broker):
    """Shows a publisher topics and numbers that a crash can still take back."""

    def _hello(self, request: Hello, _body: bytes, _now_ns: int) -> Decision:
        return replace(super()._hello(request, _body, _now_ns), visible_at=0)


class SameEpochForAll(Broker):
    """Does not compare the nonce: two processes may hold one epoch."""

    def _hello(self, request: Hello, _body: bytes, _now_ns: int) -> Decision:
        session = self.sessions.get((request.role, request.client))
        if session and session.epoch == request.epoch:
            request = replace(request, nonce=session.nonce)
        return super()._hello(request, _body, _now_ns)


class ConflictIsDuplicate(Broker):
    """Compares numbers only: other content under a used number counts as stored."""

    def _repeated_put(self, request: Put, log: TopicLog, mark: PublisherMark) -> Decision:
        decision = super()._repeated_put(request, log, mark)
        if not isinstance(decision.reply, Conflict):
            return decision
        stored = self._reader.find(log.topic_id, request.client, request.first_sequence)
        base = stored.base if stored else mark.base
        return replace(decision, reply=Duplicate(**self._echo(request), offset=base))


class AcceptsGap(AppendsAgain):
    """Takes any number above the last one."""

    def _gap(self, request: Put, expected: int, mark: PublisherMark | None) -> Decision:
        log = self.topics.get(request.topic)
        if log is None or request.first_sequence < expected:
            return super()._gap(request, expected, mark)
        return self._append_again(request, log)


class FullAfterApply(Broker):
    """Says FULL when the batch has its place in memory already."""

    def _make_room(
        self, request: Put | Commit | Dead, log: TopicLog, count: int, body_bytes: int
    ) -> Decision | tuple[Record, ...]:
        room = super()._make_room(request, log, count, body_bytes)
        if isinstance(room, Decision) and not isinstance(request, Commit):
            assert isinstance(room.reply, Full)
            log.end += count
        return room


class FollowsTheClock(Broker):
    """Timestamps go back when the clock does."""

    def _put(self, request: Put, body: bytes, now_ns: int) -> Decision:
        decision = super()._put(request, body, now_ns)
        records = tuple(
            replace(record, timestamp_ns=now_ns) if isinstance(record, Appended) else record
            for record in decision.records
        )
        return replace(decision, records=records)

    def apply(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, Appended) and record.topic_id in self._by_id:
                self._by_id[record.topic_id].timestamp_ns = record.timestamp_ns - 1
        super().apply(records)
