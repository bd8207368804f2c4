"""Planted faults: each a system that is wrong in one place, to prove that the checker sees it.

A fault that no seed finds is a hole in the simulator. `pytest -s tests/simulation` prints the
table with the seeds that each one took.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.messages import (
    AnyRequest,
    Hello,
    Put,
    Role,
    Sub,
    SubAck,
    Unsub,
)
from reliable_pubsub.lab.variants import AppendsAgain, CursorMovesOnSend, DeduplicatesLastOnly
from reliable_pubsub.proxy.broker import Broker
from reliable_pubsub.proxy.records import (
    Appended,
    Decision,
    Granted,
    Record,
    StoredState,
    Trimmed,
)
from reliable_pubsub.proxy.subscriptions import Session
from reliable_pubsub.proxy.topic_log import PublisherMark, TopicLog

from .faults_of_clients import (
    AcknowledgesBeforeInbox,
    AcknowledgesOnReceipt,
    ForgetsNumberingInPowerLoss,
    ForgetsWhatWasInHand,
    NumbersWithoutOutbox,
    OutputAndCursorApart,
    PlanAfterPut,
    TakesAnyAnswer,
)
from .faults_of_sessions import FAULTS_OF_SESSIONS
from .simulated_proxy import SimulatedProxy
from .simulated_store import SimulatedStore
from .simulation import Variant

# The shell of the proxy.


class AckBeforeDurable(SimulatedProxy):
    """Answers from memory: the seed's way, and the fault that Jepsen found in NATS."""

    def may_answer(self, broker: Broker, decision: Decision) -> bool:
        return True


class ForgetsNothingOnFullDisk(SimulatedProxy):
    """After a failed commit it goes on with a memory that the disk does not have."""

    def commit_failed(self) -> None:
        assert self.broker is not None
        self._committer.restart()
        self._held.clear()


class AcknowledgesFullDisk(SimulatedProxy):
    """After a failed commit it sends the answers that waited, as if all were well."""

    def commit_failed(self) -> None:
        while self._held:
            held = self._held.popleft()
            held.answer(held.frames)
        super().commit_failed()


# The store.


class TornCommit(SimulatedStore):
    """A commit that is not one transaction: the messages are in, the numbering is not."""

    def commit(self, records: Sequence[Record]) -> None:
        if self.commits % 10 == 9:
            self.torn = self.state()
        super().commit(records)

    def state(self) -> StoredState:
        stored = super().state()
        torn: StoredState | None = getattr(self, "torn", None)
        if torn is None:
            return stored
        old = {topic.topic_id: topic.publishers for topic in torn.topics}
        topics = [replace(t, publishers=old.get(t.topic_id, ())) for t in stored.topics]
        return replace(stored, topics=topics)


class ForgetsNumbering(SimulatedStore):
    """Deduplication lives in memory only."""

    def state(self) -> StoredState:
        stored = super().state()
        return replace(stored, topics=[replace(topic, publishers=()) for topic in stored.topics])


class ForgetsUnsubscribe(SimulatedStore):
    """The end of a subscription is not stored."""

    def state(self) -> StoredState:
        stored = super().state()
        return replace(
            stored,
            topics=[
                replace(topic, subscriptions=[replace(s, active=True) for s in topic.subscriptions])
                for topic in stored.topics
            ],
        )


class ForgetsEpochs(SimulatedStore):
    """Sessions live in memory only."""

    def state(self) -> StoredState:
        return replace(super().state(), sessions=())


# The broker: publishers.


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


# The broker: subscribers.


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


FAULTS: Mapping[str, Variant] = {
    "ack before durable": Variant(proxy=AckBeforeDurable),
    "full disk: memory kept": Variant(proxy=ForgetsNothingOnFullDisk),
    "full disk: acknowledged": Variant(proxy=AcknowledgesFullDisk),
    "torn commit": Variant(store=TornCommit),
    "numbering not stored": Variant(store=ForgetsNumbering),
    "unsubscribe not stored": Variant(store=ForgetsUnsubscribe),
    "epochs not stored": Variant(store=ForgetsEpochs),
    "no dedup": Variant(broker=NoDeduplication),
    "dedup by last id only": Variant(broker=DeduplicatesLastOnly),
    "duplicate before durable": Variant(broker=DuplicateBeforeDurable),
    "wrong offset for a duplicate": Variant(broker=WrongDuplicateOffset),
    "no fencing": Variant(broker=NoFencing),
    "late HELLO is granted": Variant(broker=GrantsLateHello),
    "HELLO before durable": Variant(broker=HelloBeforeDurable),
    "no nonce": Variant(broker=SameEpochForAll),
    "serves undurable offsets": Variant(broker=ServesUndurable),
    "cursor moves on send": Variant(broker=CursorMovesOnSend),
    "late SUB resurrects": Variant(broker=LateSubResurrects),
    "resume resets the cursor": Variant(broker=ResumeResetsCursor),
    "subscribes too early": Variant(broker=SubscribesAtDurableEnd),
    "trims unread messages": Variant(broker=TrimsUnread),
    "numbers without outbox": Variant(publisher=NumbersWithoutOutbox),
    "numbering lost with power": Variant(publisher=ForgetsNumberingInPowerLoss),
    "plan apart from outbox": Variant(publisher=PlanAfterPut),
    "takes any answer": Variant(publisher=TakesAnyAnswer),
    "acks before inbox is durable": Variant(subscriber=AcknowledgesBeforeInbox),
    "output apart from cursor": Variant(subscriber=OutputAndCursorApart),
    "redelivery not marked": Variant(subscriber=ForgetsWhatWasInHand),
    "cursor moves on hand-over": Variant(subscriber=AcknowledgesOnReceipt),
    **FAULTS_OF_SESSIONS,
}
