"""Planted faults of dead letters; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reliable_pubsub.common.core.messages import Dead
from reliable_pubsub.proxy.core.broker import Broker
from reliable_pubsub.proxy.core.records import (
    CursorMoved,
    DeadLettered,
    Decision,
    Record,
    StoredState,
)
from reliable_pubsub.subscriber.core.subscription import Subscription
from reliable_pubsub.subscriber.dead_letters import DeadLetters

from .faults_of_clients import with_parts
from .simulated_store import SimulatedStore
from .simulation import Variant


class LetterAndCursorApart(SimulatedStore):
    """Letter and cursor are two commits, and a crash comes between them."""

    def __init__(self, *more: Any) -> None:
        super().__init__(*more)
        self._left: list[CursorMoved] = []

    def commit(self, records: Sequence[Record]) -> None:
        left, self._left = self._left, []
        now: list[Record] = [*left]
        for record in records:
            if isinstance(record, DeadLettered):
                now.append(record.letter)
                self._left.append(record.moved)
            else:
                now.append(record)
        super().commit(now)

    def state(self) -> StoredState:
        self._left.clear()
        return super().state()


class RepeatedDeadIsStoredAgain(Broker):
    """A DEAD whose answer was lost makes a second letter."""

    def _dead(self, request: Dead, body: bytes, now_ns: int) -> Decision:
        log = self.topics.get(request.topic)
        known = log.subscriptions.get(request.client) if log else None
        if known is not None and known.cursor == request.cursor + 1:
            known.cursor -= 1
            try:
                return super()._dead(request, body, now_ns)
            finally:
                known.cursor += 1
        return super()._dead(request, body, now_ns)


class CursorWithoutLetter(Broker):
    """The message is passed over, and its letter is forgotten."""

    def _dead(self, request: Dead, body: bytes, now_ns: int) -> Decision:
        decision = super()._dead(request, body, now_ns)
        records = tuple(r.moved if isinstance(r, DeadLettered) else r for r in decision.records)
        return Decision(decision.reply, records, decision.visible_at)


class RefusedLetterStaysNoted(DeadLetters):
    """It is sent again and again, and the topic waits for it."""

    def _withdraw(self, subscription: Subscription, offset: int) -> None:
        pass


class RefusedLetterIsDone(DeadLetters):
    """A message whose letter is refused is passed over."""

    def _withdraw(self, subscription: Subscription, offset: int) -> None:
        letter = subscription.letter
        assert letter is not None
        subscription.letter_stored()
        subscription.move(subscription.place.moved(offset + 1, letter.message.timestamp_ns))
        self._session.save(subscription, durable=True)


FAULTS_OF_DEAD_LETTERS: Mapping[str, Variant] = {
    "letter and cursor apart": Variant(store=LetterAndCursorApart),
    "repeated DEAD is stored again": Variant(broker=RepeatedDeadIsStoredAgain),
    "cursor without letter": Variant(broker=CursorWithoutLetter),
    "refused letter stays noted": Variant(
        subscriber=with_parts(dead_letters=RefusedLetterStaysNoted)
    ),
    "refused letter is done": Variant(subscriber=with_parts(dead_letters=RefusedLetterIsDone)),
}
