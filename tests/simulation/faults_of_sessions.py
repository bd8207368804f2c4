"""Planted faults of levels, starts and sessions; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from reliable_pubsub.common.core.messages import (
    Ack,
    AnyRequest,
    Bye,
    Get,
    History,
    Put,
    Start,
    Sub,
    SubAck,
)
from reliable_pubsub.common.core.plan_mark import PlanMark
from reliable_pubsub.proxy.core.broker import Broker
from reliable_pubsub.proxy.core.records import (
    Decision,
    Subscribed,
    Trimmed,
)
from reliable_pubsub.proxy.core.subscriptions import Subscription
from reliable_pubsub.proxy.core.topic_log import TopicLog
from reliable_pubsub.subscriber.client import Subscriber
from reliable_pubsub.subscriber.core.subscription import Subscription as Held
from reliable_pubsub.subscriber.subscribing import Subscribing

from .faults_of_clients import with_parts
from .simulation import Variant

# Levels.


class DeduplicatesLevel1(Broker):
    """Numbers of QoS 1 are compared with those of QoS 2."""

    def _put(self, request: Put, body: bytes, now_ns: int) -> Decision:
        return super()._put(replace(request, qos=2), body, now_ns)


class NoDeduplicationWhenMixed(Broker):
    """Who has put at QoS 1 to a topic is not compared there any more."""

    def _put(self, request: Put, body: bytes, now_ns: int) -> Decision:
        log = self.topics.get(request.topic)
        session = self._fence("publisher", request)
        if log and request.client in log.unnumbered and not isinstance(session, Decision):
            return self._append(request, log, body, now_ns)
        return super()._put(request, body, now_ns)


class AcknowledgesLevel1Unstored(Broker):
    """At QoS 1 the answer does not wait for the disk."""

    def _put(self, request: Put, body: bytes, now_ns: int) -> Decision:
        decision = super()._put(request, body, now_ns)
        return decision if request.qos == 2 else replace(decision, visible_at=0)


class RecordsLevel1Lazily(Subscriber):
    """At QoS 1 the output is cut, after power loss, below what the proxy was told."""

    def record(self, topic: str, plan: PlanMark) -> None:
        place = self.inbox.places.get(topic)
        if place is None or place.terms.qos == 2:
            return super().record(topic, plan)
        subscription = self.inbox.of(topic)
        self._hand_over.settle(subscription)
        return self._session.save(subscription, also=self.inbox.mark_plan(plan))


# Where a subscription begins.


class _Misplaces(Broker):
    """One kind of start is another place."""

    at = ""
    by = 0

    def _place(
        self, request: Sub | History, log: TopicLog, start: Start, end: int, now_ns: int
    ) -> int | Decision:
        place = super()._place(request, log, start, end, now_ns)
        if start.at != self.at or isinstance(place, Decision):
            return place
        return min(max(place + self.by, log.start), end)


class EarliestIsTooLate(_Misplaces):
    """It begins one message behind."""

    at, by = "earliest", 1


class NewestCountsWrong(_Misplaces):
    """One too few."""

    at, by = "newest", 1


class TimeIsTooLate(_Misplaces):
    """The message that was taken at that moment is left out."""

    at, by = "time", 1


class OffsetIsTooEarly(_Misplaces):
    """One too many."""

    at, by = "offset", -1


class LastBeginsAtTheEnd(Broker):
    """What was put while nobody was subscribed is left out."""

    def _first_place(
        self,
        request: Sub,
        log: TopicLog,
        known: Subscription | None,
        start: Start,
        now_ns: int,
    ) -> int | Decision:
        place = super()._first_place(request, log, known, start, now_ns)
        return log.end if start.at == "last" and known is not None else place


class ReplayKeepsItsGeneration(Broker):
    """A place of its own does not make another subscription."""

    def _sub(self, request: Sub, _body: bytes, now_ns: int) -> Decision:
        log = self.topics.get(request.topic)
        known = log.subscriptions.get(request.client) if log else None
        decision = super()._sub(request, _body, now_ns)
        if known is None or not known.active or not isinstance(decision.reply, SubAck):
            return decision
        records = tuple(
            replace(one, generation=known.generation) if isinstance(one, Subscribed) else one
            for one in decision.records
        )
        reply = replace(decision.reply, generation=known.generation)
        return replace(decision, reply=reply, records=records)


class BeginsBelowTheCursor(Broker):
    """A start counts as it is, also where the client says from where on it wants nothing again."""

    def _own_place(self, request: Sub, known: Subscription | None) -> int:
        return 0


class ForgetsWhatItWasSent(Broker):
    """A subscription that begins elsewhere does not say what was sent before."""

    def _sub(self, request: Sub, _body: bytes, now_ns: int) -> Decision:
        decision = super()._sub(request, _body, now_ns)
        if request.start is None or not isinstance(decision.reply, SubAck):
            return decision
        return replace(decision, reply=replace(decision.reply, shown=decision.reply.cursor))


class ReplayIsNotMarked(Subscribing):
    """What a client with a place of its own reads again looks like new."""

    def _take(self, subscription: Held, sub: Any, reply: SubAck) -> None:
        super()._take(subscription, replace(sub, before=None), replace(reply, shown=reply.cursor))


class TruncatesTheFirst(Broker):
    """The first offset that is left counts as gone."""

    def _at_offset(
        self, request: Sub | History, log: TopicLog, offset: int, end: int
    ) -> int | Decision:
        if offset <= log.start and isinstance(request, Sub):
            return self._truncated(request, log, f"offset {offset} is no longer stored")
        return super()._at_offset(request, log, offset, end)


# Sessions.


class ExpiresAfterOneLease(Broker):
    """It does not wait for the second one."""

    def _lease_ends_s(self, key: tuple[int, str]) -> float | None:
        ends_s = super()._lease_ends_s(key)
        if ends_s is None:
            return None
        return ends_s - self._by_id[key[0]].subscriptions[key[1]].terms.lease_ms / 1000


class GetKeepsNoLease(Broker):
    """Only what changes something counts as a sign of life."""

    def heard(self, request: AnyRequest, now_s: float) -> None:
        if not isinstance(request, Get):
            super().heard(request, now_s)


class KeepAliveKeepsNoLease(Broker):
    """An ACK that moves nothing is no sign of life."""

    def heard(self, request: AnyRequest, now_s: float) -> None:
        if not isinstance(request, Ack):
            super().heard(request, now_s)


class HearsReplacedProcesses(Broker):
    """Late copies of requests of any epoch keep a lease."""

    def heard(self, request: AnyRequest, now_s: float) -> None:
        super().heard(request, now_s)
        if isinstance(request, Get | Ack | Sub):
            self._heard_s[request.client] = now_s


class SuspendedDoesNotGuard(Broker):
    """What a suspended subscription has not read may go already."""

    def expired(self, now_ns: int) -> Sequence[Trimmed]:
        suspended = [
            one
            for log in self._by_id.values()
            for name, one in log.subscriptions.items()
            if not one.expired and self.state_of(name, one) == "suspended"
        ]
        for one in suspended:
            one.expired = True
        try:
            return super().expired(now_ns)
        finally:
            for one in suspended:
                one.expired = False


class MovesTheExpiredInSilence(Broker):
    """Who comes back too late goes on at the beginning of what is left."""

    def _sub(self, request: Sub, _body: bytes, now_ns: int) -> Decision:
        log = self.topics.get(request.topic)
        known = log.subscriptions.get(request.client) if log else None
        if log and known and known.expired and request.cursor is not None:
            place = max(request.cursor, log.start)
            request = replace(request, cursor=place, witness_ns=None)
        return super()._sub(request, _body, now_ns)


class ByeEndsPersistentOnes(Broker):
    """Whoever leaves loses everything."""

    def _bye(self, request: Bye, _body: bytes, _now_ns: int) -> Decision:
        kept = [
            (one, one.terms)
            for log in self.topics.values()
            if (one := log.subscriptions.get(request.client)) is not None
        ]
        for one, terms in kept:
            one.terms = replace(terms, session="clean")
        try:
            return super()._bye(request, _body, _now_ns)
        finally:
            for one, terms in kept:
                one.terms = terms


class CleanGoesOnWithOldMessages(Broker):
    """A clean session begins where the one before it ended."""

    def _first_place(
        self,
        request: Sub,
        log: TopicLog,
        known: Subscription | None,
        start: Start,
        now_ns: int,
    ) -> int | Decision:
        if known is not None and request.terms.session == "clean" and known.cursor >= log.start:
            return known.cursor
        return super()._first_place(request, log, known, start, now_ns)


class CleanEndsInSilence(Broker):
    """A subscriber goes on with a clean session that has ended."""

    def _no_clean_session(self, request: Sub, known: Subscription | None) -> Decision | None:
        return None


class LateSubMovesTheExpired(Broker):
    """The same SUB once more begins again, once its subscription has expired."""

    def _sub(self, request: Sub, _body: bytes, now_ns: int) -> Decision:
        log = self.topics.get(request.topic)
        known = log.subscriptions.get(request.client) if log else None
        session = self.sessions.get(("subscriber", request.client))
        if known and known.expired and session and session.control == request.control:
            session.control -= 1
            try:
                return super()._sub(request, _body, now_ns)
            finally:
                session.control += 1
        return super()._sub(request, _body, now_ns)


FAULTS_OF_SESSIONS: Mapping[str, Variant] = {
    "level 1 deduplicated": Variant(broker=DeduplicatesLevel1),
    "no dedup where levels mix": Variant(broker=NoDeduplicationWhenMixed),
    "level 1 ack before durable": Variant(broker=AcknowledgesLevel1Unstored),
    "level 1 recorded lazily": Variant(subscriber=RecordsLevel1Lazily),
    "earliest is one too late": Variant(broker=EarliestIsTooLate),
    "newest counts wrong": Variant(broker=NewestCountsWrong),
    "time is one too late": Variant(broker=TimeIsTooLate),
    "offset is one too early": Variant(broker=OffsetIsTooEarly),
    "last begins at the end": Variant(broker=LastBeginsAtTheEnd),
    "replay keeps its generation": Variant(broker=ReplayKeepsItsGeneration),
    "start below the cursor": Variant(broker=BeginsBelowTheCursor),
    "sent before, not told": Variant(broker=ForgetsWhatItWasSent),
    "replay not marked": Variant(subscriber=with_parts(subscribing=ReplayIsNotMarked)),
    "first offset is truncated": Variant(broker=TruncatesTheFirst),
    "expires after one lease": Variant(broker=ExpiresAfterOneLease),
    "GET keeps no lease": Variant(broker=GetKeepsNoLease),
    "keep-alive keeps no lease": Variant(broker=KeepAliveKeepsNoLease),
    "replaced processes are heard": Variant(broker=HearsReplacedProcesses),
    "suspended does not guard": Variant(broker=SuspendedDoesNotGuard),
    "expired moved in silence": Variant(broker=MovesTheExpiredInSilence),
    "BYE ends persistent ones": Variant(broker=ByeEndsPersistentOnes),
    "clean goes on with old messages": Variant(broker=CleanGoesOnWithOldMessages),
    "clean ends in silence": Variant(broker=CleanEndsInSilence),
    "late SUB moves the expired": Variant(broker=LateSubMovesTheExpired),
}
