"""Planted faults of dead letters; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reliable_pubsub.common.messages import Dead
from reliable_pubsub.proxy.broker import Broker
from reliable_pubsub.proxy.records import CursorMoved, DeadLettered, Decision, Record, StoredState
from reliable_pubsub.subscriber.client import Subscriber

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


class _GivingUpWithFault(Subscriber):
    """A subscriber with other rules for a letter that is refused."""

    def __init__(self, client: str, **more: Any) -> None:
        super().__init__(client, **more)
        self._giving_up._withdraw = self._withdraw  # type: ignore[method-assign]

    def _withdraw(self, topic: str, offset: int) -> None:
        raise NotImplementedError


class RefusedLetterStaysNoted(_GivingUpWithFault):
    """It is sent again and again, and the topic waits for it."""

    def _withdraw(self, topic: str, offset: int) -> None:
        pass


class RefusedLetterIsDone(_GivingUpWithFault):
    """A message whose letter is refused is passed over."""

    def _withdraw(self, topic: str, offset: int) -> None:
        giving_up = self._giving_up
        message = giving_up._rejected.pop(topic).message
        changes = self.inbox.processed(topic, offset + 1, message.timestamp_ns)
        self._state.write(changes, durable=True)


FAULTS_OF_DEAD_LETTERS: Mapping[str, Variant] = {
    "letter and cursor apart": Variant(store=LetterAndCursorApart),
    "repeated DEAD is stored again": Variant(broker=RepeatedDeadIsStoredAgain),
    "cursor without letter": Variant(broker=CursorWithoutLetter),
    "refused letter stays noted": Variant(subscriber=RefusedLetterStaysNoted),
    "refused letter is done": Variant(subscriber=RefusedLetterIsDone),
}
