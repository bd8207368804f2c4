"""Planted faults of the broker, in what it does for subscribers; the table is in `faults.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.messages import (
    Ack,
    Dead,
    Get,
    History,
    Lost,
    NoMessagesYet,
    PutAck,
    Sub,
    SubAck,
    Unsub,
)
from reliable_pubsub.proxy.core.broker import Broker
from reliable_pubsub.proxy.core.records import Appended, CursorMoved, Decision, Record, Trimmed
from reliable_pubsub.proxy.core.subscriptions import Subscription
from reliable_pubsub.proxy.core.topic_log import TopicLog

from .simulated_store import SimulatedStore

# What is shown.


class ServesUndurable(Broker):
    """Shows what is in memory (hole H30)."""

    def apply(self, records: Sequence[Record]) -> None:
        super().apply(records)
        for record in records:
            if isinstance(record, Appended):
                self._by_id[record.topic_id].durable_end = record.end

    def _batches(self, request: Any, log: TopicLog, offset: int) -> tuple[Any, bytes | None]:
        undurable = [r for _, r in self._undurable if isinstance(r, Appended)]
        here = [r for r in undurable if r.topic_id == log.topic_id and r.end > offset]
        reader = self._reader
        self._reader = _Memory(here) if here and here[0].base <= offset else reader
        try:
            return super()._batches(request, log, offset)
        finally:
            self._reader = reader


class _Memory(SimulatedStore):
    """Reads batches that are not on disk."""

    def __init__(self, batches: Sequence[Appended]) -> None:
        super().__init__(lambda records: None)
        self.memory = batches

    def read(
        self, topic_id: int, offset: int, *, messages_max: int, bytes_max: int
    ) -> Sequence[Appended]:
        return self.memory[:1]


class LateSubResurrects(Broker):
    """No control numbers: a late SUB or UNSUB has an effect."""

    def _sub(self, request: Sub, _body: bytes, _now_ns: int) -> Decision:
        return super()._sub(self._as_new(request), _body, _now_ns)

    def _unsub(self, request: Unsub, _body: bytes, _now_ns: int) -> Decision:
        return super()._unsub(self._as_new(request), _body, _now_ns)

    def _as_new(self, request: Any) -> Any:
        session = self.sessions.get(("subscriber", request.client))
        newest = session.control if session else 0
        return replace(request, control=max(request.control, newest + 1))


class ResumeResetsCursor(Broker):
    """A second SUB begins at the end of the topic."""

    def _sub(self, request: Sub, _body: bytes, _now_ns: int) -> Decision:
        decision = super()._sub(request, _body, _now_ns)
        if isinstance(decision.reply, SubAck) and decision.reply.already:
            end = self.topics[request.topic].end
            return replace(decision, reply=replace(decision.reply, cursor=end))
        return decision


class SubscribesAtDurableEnd(Broker):
    """A subscription begins below messages that were called before it."""

    def _sub(self, request: Sub, _body: bytes, _now_ns: int) -> Decision:
        log = self.topics.get(request.topic)
        end = log.end if log else 0
        if log and request.cursor is None:
            log.end = max(log.start, log.durable_end - 1)
        try:
            return super()._sub(request, _body, _now_ns)
        finally:
            if log:
                log.end = end


class TrimsUnread(Broker):
    """Retention looks at age only, not at cursors."""

    def expired(self, now_ns: int) -> Sequence[Trimmed]:
        super().expired(now_ns)
        records = []
        for log in self._by_id.values():
            oldest = log.segments[0] if log.segments else None
            if log.retention.history_s == 0 and oldest and oldest.end <= log.durable_end:
                records.append(log.trimmed_to(oldest.end))
        return records


class LostIsTooShort(Broker):
    """The report of a loss leaves out the last message that is gone."""

    def _get(self, request: Get, body: bytes, now_ns: int) -> Decision:
        decision = super()._get(request, body, now_ns)
        reply = decision.reply
        if isinstance(reply, Lost) and reply.end > reply.first + 1:
            return replace(decision, reply=replace(reply, end=reply.end - 1))
        return decision


# Who may move a cursor, and which.


class AnyEpochAcknowledges(Broker):
    """Does not compare the epoch of an ACK."""

    def _ack(self, request: Ack, body: bytes, now_ns: int) -> Decision:
        session = self.sessions.get(("subscriber", request.client))
        if session is None:
            return super()._ack(request, body, now_ns)
        decision = super()._ack(replace(request, epoch=session.epoch), body, now_ns)
        return replace(decision, reply=replace(decision.reply, epoch=request.epoch))


class AnyGenerationReads(Broker):
    """Does not compare generation and boot: a position is never confirmed."""

    def _subscription(self, request: Get | Ack | Dead) -> Any:
        log = self.topics.get(request.topic)
        known = log.subscriptions.get(request.client) if log else None
        if known:
            request = replace(request, generation=known.generation, boot=self.boot)
        return super()._subscription(request)


class AckRestsOnLazyCursor(Broker):
    """An ACK is answered at once if a GET has moved the cursor before, durable or not."""

    def _moved(
        self,
        request: Get | Ack,
        log: TopicLog,
        subscription: Subscription,
        *,
        urgent: bool,
        shown: int = 0,
    ) -> tuple[CursorMoved, ...]:
        if urgent and request.cursor <= subscription.cursor:
            return ()
        return super()._moved(request, log, subscription, urgent=urgent, shown=shown)


class SubBeforeDurable(Broker):
    """Confirms a subscription that a crash can still take back."""

    def _sub(self, request: Sub, body: bytes, now_ns: int) -> Decision:
        return replace(super()._sub(request, body, now_ns), visible_at=0)


class UnsubBeforeDurable(Broker):
    """Confirms the end of a subscription that a crash can still bring back."""

    def _unsub(self, request: Unsub, body: bytes, now_ns: int) -> Decision:
        return replace(super()._unsub(request, body, now_ns), visible_at=0)


class ResumeForgetsCursor(Broker):
    """Who comes back without a place begins at the first message."""

    def _sub(self, request: Sub, body: bytes, now_ns: int) -> Decision:
        log = self.topics.get(request.topic)
        known = log.subscriptions.get(request.client) if log else None
        if log and known and known.active and request.cursor is None and request.start is None:
            held, known.cursor = known.cursor, log.start
            try:
                return super()._sub(request, body, now_ns)
            finally:
                known.cursor = held
        return super()._sub(request, body, now_ns)


# A log that was set back.


class NeverTellsLogChanged(Broker):
    """Takes every position for one of this log."""

    def _log_changed(
        self, request: Sub | History, log: TopicLog | None, cursor: int | None
    ) -> Decision | None:
        return None

    def _not_this_log(self, request: Any, log: TopicLog, why: str) -> Decision:
        if isinstance(request, Ack):
            return Decision(PutAck(**self._echo(request), offset=request.cursor))
        return Decision(NoMessagesYet(**self._echo(request), end=log.durable_end))


class NoWitness(Broker):
    """Looks at the end of the log only, not at the message before the cursor."""

    def _sub(self, request: Sub, body: bytes, now_ns: int) -> Decision:
        return super()._sub(replace(request, witness_ns=None), body, now_ns)
