"""Planted faults of dead letters; merged into the table in `faults.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reliable_pubsub.common.core.conversation import Conversation
from reliable_pubsub.common.core.requests import Dead
from reliable_pubsub.proxy.core.records import Decision
from reliable_pubsub.proxy.core.state import Record, State
from reliable_pubsub.proxy.core.stored import StoredState
from reliable_pubsub.proxy.core.subscription_records import CursorMoved
from reliable_pubsub.proxy.dead_letters.verbs import DeadLettered, dead
from reliable_pubsub.subscriber.core.dead_letters import DeadLetters
from reliable_pubsub.subscriber.core.subscription import TopicSubscription

from .faults_of_clients import with_parts
from .faulty_parts import with_decision
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


def store_repeated_dead(state: State, request: Dead, *more: Any) -> Decision:
    """A DEAD whose answer was lost makes a second letter."""
    log = state.topics.get(request.topic)
    known = log.subscriptions.get(request.client) if log else None
    if known is None or known.cursor != request.cursor + 1:
        return dead(state, request, *more)
    known.cursor -= 1
    try:
        return dead(state, request, *more)
    finally:
        known.cursor += 1


def move_without_letter(_state: State, _request: Dead, decision: Decision) -> Decision:
    """The message is acknowledged, and its letter is not stored."""
    records = tuple(r.moved if isinstance(r, DeadLettered) else r for r in decision.records)
    return Decision(decision.reply, records, decision.visible_at)


class RefusedLetterStaysNoted(DeadLetters):
    """It is sent again and again, and the topic waits for it."""

    def _withdraw(self, subscription: TopicSubscription, offset: int) -> Conversation[None]:
        yield from ()


class RefusedLetterIsDone(DeadLetters):
    """A message whose letter is refused is passed over."""

    def _withdraw(self, subscription: TopicSubscription, offset: int) -> Conversation[None]:
        letter = subscription.letter
        assert letter is not None
        subscription.letter_stored()
        subscription.move(subscription.place.moved(offset + 1, letter.message.timestamp_ns))
        yield from self._session.inbox.save(subscription, durable=True)


FAULTS_OF_DEAD_LETTERS: Mapping[str, Variant] = {
    "letter and cursor apart": Variant(store=LetterAndCursorApart),
    "repeated DEAD is stored again": Variant(rules={dead: store_repeated_dead}),
    "cursor without letter": Variant(rules=with_decision(dead, move_without_letter)),
    "refused letter stays noted": Variant(
        subscriber=with_parts(dead_letters=RefusedLetterStaysNoted)
    ),
    "refused letter is done": Variant(subscriber=with_parts(dead_letters=RefusedLetterIsDone)),
}
